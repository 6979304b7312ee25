"""Tree of a validated filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Scalar: TypeAlias = str | int | float | bool
Ordered: TypeAlias = str | int | float
Order: TypeAlias = Literal["<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Field:
    """A property of a chunk row: ``source``, ``title``, ``kind``, ``createdAt``, ``metadata``.

    ``path`` lists the keys inside ``metadata``, outermost first; it is empty for other fields.
    """

    name: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class And:
    """Conjunction: all parts hold; true without parts."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction: at least one part holds; false without parts."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; true for rows that lack the field."""

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
    """The field has the type of ``value`` and the relation ``order`` to it."""

    field: Field
    order: Order
    value: Ordered


@dataclass(frozen=True, slots=True)
class Pattern:
    """The field is a string that the regular expression matches completely.

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


@dataclass(frozen=True, slots=True)
class HasFacet:
    """The row has one of these facets, see :mod:`ability_search.filters.facets`."""

    facets: tuple[str, ...]


Filter: TypeAlias = And | Or | Not | Exists | OneOf | Compare | Pattern | HasElement | HasFacet

EVERYTHING = And(())


def combine(*filters: Filter | None) -> Filter:
    """Join filters by AND; ``None`` is ignored, and without filters everything matches.

    The parts keep their order. The order does not matter: the engine prefers the index on facets
    to the one on sources in any position.
    """
    parts: list[Filter] = []
    for each in filters:
        if isinstance(each, And):
            parts.extend(each.parts)
        elif each is not None:
            parts.append(each)
    return parts[0] if len(parts) == 1 else And(tuple(parts))


def either(*filters: Filter) -> Filter:
    """Join filters by OR; without filters nothing matches."""
    return filters[0] if len(filters) == 1 else Or(filters)
