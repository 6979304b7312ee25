"""Translation of a filter tree to a WHERE clause, with every value and every key bound.

The clause uses two-valued logic: each condition first tests that its field exists, because in the
engine NOT of an unknown is unknown and would drop the row. Conditions on metadata also test the
type, because the engine converts between types when it compares (``1.5 = true`` is true).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ability_search.filters import tree
from ability_search.filters.facets import facet
from ability_search.store.arcadedb.core import Parameters

_NUMBERS = "'INTEGER', 'LONG', 'DOUBLE', 'FLOAT', 'DECIMAL', 'SHORT', 'BYTE'"
_IS_NUMBER = f"IN [{_NUMBERS}]"
_IS_STRING = "= 'STRING'"
# A list is recognised as a non-scalar that has an element as its facet: over HTTP the engine
# stores lists of numbers as arrays, with a separate type for each kind of number.
_IS_NO_SCALAR = f"NOT IN ['STRING', 'BOOLEAN', {_NUMBERS}]"
_LAST_CHARACTER = 0x10FFFF
_SAME: Mapping[str, str] = {}


def to_sql(filter: tree.Filter, params: Parameters, *, columns: Mapping[str, str] = _SAME) -> str:
    """Translate a filter to the ``WHERE`` condition of a statement over one chunk type.

    The ``facets`` of its rows must be what :func:`ability_search.filters.facets.facets_of` returns
    for their metadata. Equality in metadata uses the index on ``facets``; equality of ``source``,
    and the text before its first wildcard, uses the index on ``source``. This holds for such a
    condition alone, in an ``AND`` with any other, and in an ``OR`` of only such conditions.
    Negations and other conditions scan the remaining rows. The text depends only on the shape of
    the filter, so that the engine's statement cache works for all values.

    Args:
        filter: a parsed filter.
        params: binds the values.
        columns: names of columns, where those of the fields differ.

    Returns:
        The predicate, safe to join by ``AND``; ``true`` for everything.
    """
    text = _Writer(params.bind, columns).write(filter)
    return f"({text})" if isinstance(filter, tree.Or) and len(filter.parts) > 1 else text


@dataclass(slots=True)
class _Writer:
    bind: Callable[[Any], str]
    columns: Mapping[str, str]
    bound_keys: dict[str, str] = field(default_factory=dict)

    def write(self, filter: tree.Filter) -> str:
        match filter:
            case tree.And(parts):
                return " AND ".join(map(self._inner, parts)) or "true"
            case tree.Or(parts):
                return " OR ".join(map(self._inner, _joined(parts))) or "false"
            case tree.Not(part):
                return f"NOT ({self.write(part)})"
            case tree.Exists(where):
                return self._there(where)
            case tree.OneOf():
                return self._one_of(filter)
            case tree.HasElement(where, value):
                wanted = self.bind(facet(where.path, value))
                return self._typed(where, _IS_NO_SCALAR, f"facets CONTAINS {wanted}")
            case tree.HasFacet(facets):
                return f"facets CONTAINSANY {self.bind(list(facets))}"
            case tree.Compare(where, order, value):
                types = _IS_STRING if isinstance(value, str) else _IS_NUMBER
                comparison = f"{self._column(where)} {order} {self.bind(value)}"
                return self._typed(where, types, comparison)
            case _:
                return self._pattern(filter)

    def _inner(self, part: tree.Filter) -> str:
        text = self.write(part)
        return f"({text})" if isinstance(part, tree.And | tree.Or) and len(part.parts) > 1 else text

    def _one_of(self, condition: tree.OneOf) -> str:
        where, values = condition.field, condition.values
        if not where.path:
            column = self._column(where)
            compared = (
                f"= {self.bind(values[0])}" if len(values) == 1 else f"IN {self.bind(list(values))}"
            )
            return f"{column} IS NOT NULL AND {column} {compared}"
        facets = [facet(where.path, value) for value in values]
        if len(facets) == 1:
            return f"facets CONTAINS {self.bind(facets[0])}"
        return f"facets CONTAINSANY {self.bind(facets)}"

    def _pattern(self, condition: tree.Pattern) -> str:
        where, column = condition.field, self._column(condition.field)
        matching = f"{column} MATCHES {self.bind(condition.regex)}"
        if where.name == "source" and condition.prefix:
            lower, after = self.bind(condition.prefix), _after_prefix(condition.prefix)
            upper = "" if after is None else f" AND {column} < {self.bind(after)}"
            matching = f"{column} >= {lower}{upper} AND {matching}"
        return self._typed(where, _IS_STRING, matching)

    def _typed(self, where: tree.Field, types: str, condition: str) -> str:
        """Guard a condition with tests of the field's existence and, in metadata, its type."""
        guard = self._there(where)
        if where.path:
            guard += f" AND {self._column(where)}.type() {types}"
        return f"{guard} AND {condition}"

    def _there(self, where: tree.Field) -> str:
        # The engine would look a key up in every element of a list; only maps may match here.
        maps = [
            f"{outer} IS NOT NULL AND {outer}.type() = 'MAP'"
            for outer in (
                self._column(tree.Field(where.name, where.path[:depth]))
                for depth in range(1, len(where.path))
            )
        ]
        return " AND ".join([*maps, f"{self._column(where)} IS NOT NULL"])

    def _column(self, where: tree.Field) -> str:
        column = self.columns.get(where.name, where.name)
        for key in where.path:
            if key not in self.bound_keys:
                self.bound_keys[key] = self.bind(key)
            column += f"[{self.bound_keys[key]}]"
        return column


def _joined(parts: Sequence[tree.Filter]) -> list[tree.Filter]:
    """Join alternative patterns of a field to one, which a row is matched with once.

    Those of sources are joined only if they use the same part of the index.
    """
    joined: dict[object, tree.Filter] = {}
    for part in _alternatives(parts):
        if isinstance(part, tree.Pattern):
            key = part.field, part.prefix if part.field.name == "source" else ""
            known = joined.get(key)
            others = f"{known.regex}|" if isinstance(known, tree.Pattern) else ""
            joined[key] = replace(part, regex=f"{others}(?:{part.regex})")
        else:
            joined[part] = part
    return list(joined.values())


def _alternatives(parts: Sequence[tree.Filter]) -> Iterator[tree.Filter]:
    for part in parts:
        if isinstance(part, tree.Or):
            yield from _alternatives(part.parts)
        else:
            yield part


def _after_prefix(prefix: str) -> str | None:
    """Return the least string greater than all that start with ``prefix``, by code points."""
    points: Sequence[int] = [ord(char) for char in prefix]
    while points and points[-1] == _LAST_CHARACTER:
        points = points[:-1]
    if not points:
        return None
    last = points[-1] + 1
    if 0xD800 <= last <= 0xDFFF:
        last = 0xE000  # surrogates are not characters
    return "".join(map(chr, (*points[:-1], last)))
