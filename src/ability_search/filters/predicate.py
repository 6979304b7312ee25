"""Evaluation of a filter tree against one row."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from ability_search.filters import tree

_ORDERS: Mapping[tree.Order, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def matches(filter: tree.Filter, row: Mapping[str, Any]) -> bool:
    """Return whether ``row`` satisfies ``filter``, with the semantics of the database.

    Args:
        filter: a parsed filter.
        row: the properties of a chunk as stored: ``source``, ``title``, ``kind``, ``createdAt``
            (milliseconds since 1970-01-01T00:00Z), ``metadata`` and ``facets``. Absent properties
            are null.
    """
    match filter:
        case tree.And(parts):
            return all(matches(part, row) for part in parts)
        case tree.Or(parts):
            return any(matches(part, row) for part in parts)
        case tree.Not(part):
            return not matches(part, row)
        case tree.HasFacet(facets):
            return not set(facets).isdisjoint(row.get("facets") or ())
        case _:
            value = value_of(filter.field, row)
            return value is not None and _holds(filter, value)


def _holds(
    condition: tree.Exists | tree.OneOf | tree.Compare | tree.Pattern | tree.HasElement, value: Any
) -> bool:
    match condition:
        case tree.Exists():
            return True
        case tree.OneOf(_, values):
            return any(_equals(value, wanted) for wanted in values)
        case tree.HasElement(_, wanted):
            return isinstance(value, list | tuple) and _equals(value, wanted)
        case tree.Compare(_, order, wanted):
            kind, compare = _kind(value), _ORDERS[order]
            if kind is None or kind is not _kind(wanted):
                return False
            if isinstance(value, float) or isinstance(wanted, float):
                return compare(float(value), float(wanted))
            return compare(value, wanted)
        case _:
            return (
                isinstance(value, str) and re.compile(condition.regex).fullmatch(value) is not None
            )


def value_of(field: tree.Field, row: Mapping[str, Any]) -> Any:
    """Return the value of a field of a row; ``None`` if it has none."""
    value = row.get(field.name)
    for key in field.path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _equals(value: Any, wanted: tree.Scalar | tuple[tree.Scalar, ...]) -> bool:
    if isinstance(wanted, tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(_same, value, wanted))
        )
    if isinstance(value, list | tuple):
        return any(_same(element, wanted) for element in value)
    return _same(value, wanted)


def _same(value: Any, wanted: tree.Scalar) -> bool:
    return _kind(value) is _kind(wanted) and bool(value == wanted)


def _kind(value: Any) -> type | None:
    """Return the type within which values are compared; ``None`` for all but scalars."""
    if isinstance(value, bool):
        return bool
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else None
