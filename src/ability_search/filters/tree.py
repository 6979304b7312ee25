"""The validated tree that a filter document becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Scalar: TypeAlias = str | int | float | bool
Ordered: TypeAlias = str | int | float
Order: TypeAlias = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Field:
    """A property of a chunk row: ``source``, ``title``, ``kind``, ``createdAt``, ``metadata``.

    ``path`` holds the keys inside ``metadata``, outermost first, and is empty for the others.
    """

    name: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    """Every part holds; without parts, true."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one part holds; without parts, false."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """The part does not hold, which includes rows that lack its field."""

    part: Filter


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value other than null."""

    field: Field


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field, or an element of it, equals one of ``values``; a tuple equals a whole list."""

    field: Field
    values: tuple[Scalar | tuple[Scalar, ...], ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """The field is of the type of ``value`` and stands in ``order`` to it."""

    field: Field
    order: Order
    value: Ordered


@dataclass(frozen=True, slots=True)
class Pattern:
    """The field is a string that the regular expression matches from end to end.

    ``regex`` means the same to :mod:`re` and to ``java.util.regex``; every string it matches
    starts with ``prefix``.
    """

    field: Field
    regex: str
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class HasElement:
    """The field is a list, and one of its elements equals ``value``."""

    field: Field
    value: Scalar


Filter: TypeAlias = And | Or | Not | Exists | OneOf | Compare | Pattern | HasElement

EVERYTHING = And(())


def combine(*filters: Filter | None) -> Filter:
    """Join filters so that all hold; ``None`` restricts nothing, and no filter is everything.

    The parts keep their order, which decides nothing: the engine prefers the index over facets to
    the one over sources wherever they stand.
    """
    parts: list[Filter] = []
    for each in filters:
        if isinstance(each, And):
            parts.extend(each.parts)
        elif each is not None:
            parts.append(each)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def either(*filters: Filter) -> Filter:
    """Join filters so that at least one holds; no filter is nothing."""
    return filters[0] if len(filters) == 1 else Or(filters)
