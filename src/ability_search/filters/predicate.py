"""Evaluation of a filter tree against one row."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ability_search.filters.tree import (
    And,
    Compare,
    Exists,
    Field,
    Filter,
    HasElement,
    HasFacet,
    Not,
    OneOf,
    Or,
    Order,
    Ordered,
    Pattern,
    Scalar,
)

_ORDERS: Mapping[Order, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(filter: Filter, row: Mapping[str, Any]) -> bool:
    """Return whether ``row`` satisfies ``filter``, with the semantics of the database.

    Args:
        filter: a parsed filter.
        row: the properties of a chunk as stored: ``source``, ``title``, ``kind``, ``createdAt``
            (milliseconds since 1970-01-01T00:00Z), ``metadata`` and ``facets``. Absent properties
            are null.
    """
    match filter:
        case And(parts):
            return all(matches(part, row) for part in parts)
        case Or(parts):
            return any(matches(part, row) for part in parts)
        case Not(part):
            return not matches(part, row)
        case HasFacet(facets):
            return not set(facets).isdisjoint(row.get("facets") or ())
        case _:
            value = value_of(filter.field, row)
            return value is not None and _holds(filter, value)


def _holds(condition: Exists | OneOf | Compare | Pattern | HasElement, value: Any) -> bool:
    match condition:
        case Exists():
            return True
        case OneOf(_, values):
            return any(_equals(value, wanted) for wanted in values)
        case HasElement(_, wanted):
            return isinstance(value, list | tuple) and _equals(value, wanted)
        case Compare(_, order, wanted):
            return _ordered(order, value, wanted)
        case _:
            return (
                isinstance(value, str) and re.compile(condition.regex).fullmatch(value) is not None
            )


def value_of(field: Field, row: Mapping[str, Any]) -> Any:
    """Return the value of a field of a row; ``None`` if it has none."""
    value = row.get(field.name)
    for key in field.path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _equals(value: Any, wanted: Scalar | tuple[Scalar, ...]) -> bool:
    if isinstance(wanted, tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(_same, value, wanted))
        )
    if isinstance(value, list | tuple):
        return any(_same(element, wanted) for element in value)
    return _same(value, wanted)


def _same(value: Any, wanted: Scalar) -> bool:
    return _kind(value) is _kind(wanted) and bool(value == wanted)


def _ordered(order: Order, value: Any, wanted: Ordered) -> bool:
    kind = _kind(value)
    if kind is None or kind is not _kind(wanted):
        return False
    if isinstance(value, float) or isinstance(wanted, float):
        return _ORDERS[order](float(value), float(wanted))
    return _ORDERS[order](value, wanted)


def _kind(value: Any) -> type | None:
    """Return the type within which values are compared; ``None`` for all but scalars."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else None
