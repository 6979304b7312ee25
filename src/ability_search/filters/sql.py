"""The tree as the text of a WHERE clause, with every value and every key bound.

The clause is two-valued: each condition first asks whether its field is there, because the
engine's NOT of an unknown is unknown and would lose the row. Conditions on metadata also ask for
the type, because the engine converts between types when it compares (``1.5 = true`` holds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ability_search.filters.facets import facet
from ability_search.filters.tree import (
    And,
    Compare,
    Exists,
    Field,
    Filter,
    HasElement,
    Not,
    OneOf,
    Or,
    Pattern,
)

_NUMBERS = "'INTEGER', 'LONG', 'DOUBLE', 'FLOAT', 'DECIMAL', 'SHORT', 'BYTE'"
_IS_NUMBER = f"IN [{_NUMBERS}]"
_IS_STRING = "= 'STRING'"
# A list is what is no scalar and yet has an element as its facet: over HTTP the engine stores
# lists of numbers as arrays, each kind a type of its own.
_IS_NO_SCALAR = f"NOT IN ['STRING', 'BOOLEAN', {_NUMBERS}]"
_LAST_CHARACTER = 0x10FFFF


def to_sql(filter: Filter, *, prefix: str = "f") -> tuple[str, dict[str, Any]]:
    """Write a filter for the ``WHERE`` of a statement over one chunk type.

    Its rows must carry as ``facets`` what
    :func:`ability_search.filters.facets.facets_of` gives for their metadata. Equality in
    metadata is answered by the index over ``facets``; equality of ``source``, and the text
    before its first wildcard, by the index over ``source``. That holds for such a condition
    alone, in an ``AND`` with anything, and in an ``OR`` of nothing else. Negations and other
    conditions scan what the rest leaves. The text depends only on the shape of the filter, so
    that the engine's statement cache serves all values.

    Args:
        filter: a parsed filter.
        prefix: of the names of the parameters (``f0``, ``f1``, ...), an identifier; two filters
            in one statement take different ones.

    Returns:
        The predicate, safe to join by ``AND``, and its parameters. Everything is ``true``.
    """
    writer = _Writer(prefix)
    text = writer.write(filter)
    return (
        f"({text})" if isinstance(filter, Or) and len(filter.parts) > 1 else text
    ), writer.params


@dataclass(slots=True)
class _Writer:
    prefix: str
    params: dict[str, Any] = field(default_factory=dict)
    bound_keys: dict[str, str] = field(default_factory=dict)

    def write(self, filter: Filter) -> str:
        match filter:
            case And(parts):
                return " AND ".join(map(self._inner, parts)) or "true"
            case Or(parts):
                return " OR ".join(map(self._inner, parts)) or "false"
            case Not(part):
                return f"NOT ({self.write(part)})"
            case Exists(where):
                return self._there(where)
            case OneOf():
                return self._one_of(filter)
            case HasElement(where, value):
                wanted = self._bind(facet(where.path, value))
                return self._typed(where, _IS_NO_SCALAR, f"facets CONTAINS {wanted}")
            case Compare(where, order, value):
                types = _IS_STRING if isinstance(value, str) else _IS_NUMBER
                comparison = f"{self._column(where)} {order} {self._bind(value)}"
                return self._typed(where, types, comparison)
            case _:
                return self._pattern(filter)

    def _inner(self, part: Filter) -> str:
        text = self.write(part)
        return f"({text})" if isinstance(part, And | Or) and len(part.parts) > 1 else text

    def _one_of(self, condition: OneOf) -> str:
        where, values = condition.field, condition.values
        if not where.path:
            column = self._column(where)
            compared = (
                f"= {self._bind(values[0])}"
                if len(values) == 1
                else f"IN {self._bind(list(values))}"
            )
            return f"{column} IS NOT NULL AND {column} {compared}"
        facets = [facet(where.path, value) for value in values]
        if len(facets) == 1:
            return f"facets CONTAINS {self._bind(facets[0])}"
        return f"facets CONTAINSANY {self._bind(facets)}"

    def _pattern(self, condition: Pattern) -> str:
        where, column = condition.field, self._column(condition.field)
        matching = f"{column} MATCHES {self._bind(condition.regex)}"
        if where.name == "source" and condition.prefix:
            matching = f"{self._from_prefix(column, condition.prefix)} AND {matching}"
        return self._typed(where, _IS_STRING, matching)

    def _from_prefix(self, column: str, prefix: str) -> str:
        lower = f"{column} >= {self._bind(prefix)}"
        after = _after_prefix(prefix)
        return lower if after is None else f"{lower} AND {column} < {self._bind(after)}"

    def _typed(self, where: Field, types: str, condition: str) -> str:
        """Guard a condition by the presence of the field and, in metadata, by its type."""
        guard = self._there(where)
        if where.path:
            guard += f" AND {self._column(where)}.type() {types}"
        return f"{guard} AND {condition}"

    def _there(self, where: Field) -> str:
        # A key of a list would be looked up in each of its elements: only maps have keys here.
        maps = [
            f"{outer} IS NOT NULL AND {outer}.type() = 'MAP'"
            for outer in (
                self._column(Field(where.name, where.path[:depth]))
                for depth in range(1, len(where.path))
            )
        ]
        return " AND ".join([*maps, f"{self._column(where)} IS NOT NULL"])

    def _column(self, where: Field) -> str:
        return where.name + "".join(f"[{self._bind_key(key)}]" for key in where.path)

    def _bind_key(self, key: str) -> str:
        if key not in self.bound_keys:
            self.bound_keys[key] = self._bind(key)
        return self.bound_keys[key]

    def _bind(self, value: Any) -> str:
        name = f"{self.prefix}{len(self.params)}"
        self.params[name] = value
        return f":{name}"


def _after_prefix(prefix: str) -> str | None:
    """Return the least string above all that start with ``prefix``, in order of code points."""
    points: Sequence[int] = [ord(char) for char in prefix]
    while points and points[-1] == _LAST_CHARACTER:
        points = points[:-1]
    if not points:
        return None
    last = points[-1] + 1
    if 0xD800 <= last <= 0xDFFF:
        last = 0xE000  # the surrogates are no characters
    return "".join(map(chr, (*points[:-1], last)))
