"""Parsing of filter documents, and of globs of sources, into filter trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ability_search.errors import InvalidInput
from ability_search.filters.operands import checked_scalar, checked_text, instants, json_type
from ability_search.filters.tree import (
    EVERYTHING,
    Compare,
    Exists,
    Field,
    Filter,
    HasElement,
    Not,
    OneOf,
    Order,
    Pattern,
    Scalar,
    combine,
    either,
)
from ability_search.filters.wildcards import glob_regex, like_regex, substring_regex

_MOST_ITEMS = 1000
"""Maximum values of a list."""
_MOST_GLOBS = 256
_LONGEST_TEXT = 1024
"""Maximum characters of a string or glob."""
_TEXT_FIELDS = ("source", "title", "kind")
_SOURCE = Field("source")
_FIELDS = (*_TEXT_FIELDS, "createdAt", "metadata.<key>")
_JOINING = ("$and", "$or", "$not")
_ORDERS: Mapping[str, Order] = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_ON_INSTANTS = (
    "$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$between", "$exists", "$not",
)  # fmt: skip
_OPERATORS = (*_ON_INSTANTS, "$contains", "$like", "$ilike")


def parse_filter(document: object, *, max_depth: int = 8, max_nodes: int = 256) -> Filter:
    """Parse and validate a filter document; see the package for its semantics.

    Several keys of a document, and several operators of a field, are joined by AND. ``{}`` matches
    everything.

    Args:
        document: a JSON object.
        max_depth: levels of ``$and``, ``$or`` and ``$not``, and of keys in ``metadata.a.b``.
        max_nodes: conditions and operators in total.

    Raises:
        InvalidInput: naming the place inside the document (``filter.$and.1.metadata.year``).
    """
    if not isinstance(document, Mapping):
        raise InvalidInput("filter", f"is {json_type(document)}, not an object")
    return _Parser(max_depth, max_nodes).document("filter", document, 1)


@dataclass(slots=True)
class _Parser:
    """One pass over one document; ``nodes_left`` counts down."""

    max_depth: int
    nodes_left: int

    def document(self, at: str, document: Mapping[str, object], depth: int) -> Filter:
        if depth > self.max_depth:
            raise InvalidInput(at, f"is nested deeper than {self.max_depth} levels")
        return combine(
            *(self._entry(f"{at}.{key}", key, value, depth) for key, value in document.items())
        )

    def _entry(self, at: str, key: object, value: object, depth: int) -> Filter:
        self._count(at)
        if not isinstance(key, str):
            raise InvalidInput(at, "is not a string; a field name must be one")
        if key == "$not":
            return Not(self._nested(at, value, depth))
        if key in _JOINING:
            parts = [
                self._nested(f"{at}.{position}", part, depth)
                for position, part in enumerate(self._list(at, value))
            ]
            if not parts:
                raise InvalidInput(at, "is empty")
            return combine(*parts) if key == "$and" else either(*parts)
        if key.startswith("$"):
            raise InvalidInput(
                at,
                f"{key} is not allowed here",
                hint=f"Valid here are {', '.join(_JOINING)} and the fields {', '.join(_FIELDS)};"
                f" below a field {', '.join(_OPERATORS)}.",
            )
        return self._conditions(at, self._field(at, key), value, depth)

    def _nested(self, at: str, value: object, depth: int) -> Filter:
        if not isinstance(value, Mapping):
            raise InvalidInput(at, f"is {json_type(value)}, not a filter")
        if not value:
            raise InvalidInput(at, "is empty")
        return self.document(at, value, depth + 1)

    def _field(self, at: str, key: str) -> Field:
        checked_text(at, key, _LONGEST_TEXT)
        if key in _TEXT_FIELDS or key == "createdAt":
            return Field(key)
        if not key.startswith("metadata."):
            wanted = "metadata.<key>" if key == "metadata" else f"metadata.{key}"
            raise InvalidInput(
                at, "is not a field", hint=f"Write {wanted}, or one of {', '.join(_FIELDS)}."
            )
        path = key_path(at, key.removeprefix("metadata."))
        if len(path) > self.max_depth:
            raise InvalidInput(at, f"has more than {self.max_depth} keys")
        return Field("metadata", path)

    def _conditions(self, at: str, field: Field, value: object, depth: int) -> Filter:
        """Parse the value of a field: operators, or a value to equal."""
        if not isinstance(value, Mapping):
            return self._equals(at, field, value)
        if depth > self.max_depth:
            raise InvalidInput(at, f"is nested deeper than {self.max_depth} levels")
        if not value:
            raise InvalidInput(at, "has no operator", hint=_operators_of(field))
        parts = []
        for operator, operand in value.items():
            inner = f"{at}.{operator}"
            self._count(inner)
            parts.append(self._condition(inner, field, operator, operand, depth))
        return combine(*parts)

    def _condition(
        self, at: str, field: Field, operator: object, operand: object, depth: int
    ) -> Filter:
        valid = _ON_INSTANTS if field.name == "createdAt" else _OPERATORS
        if operator not in valid:
            raise InvalidInput(
                at, f"{operator!r} is not an operator of {field.name}", hint=_operators_of(field)
            )
        if operator == "$not":
            if not isinstance(operand, Mapping):
                raise InvalidInput(at, "holds no operator; for a value use $ne")
            return Not(self._conditions(at, field, operand, depth + 1))
        if operator in ("$ne", "$nin"):
            positive = self._equals if operator == "$ne" else self._one_of
            return Not(positive(at, field, operand))
        if operator in _ORDERS:
            return self._compare(at, field, _ORDERS[str(operator)], operand)
        read: Mapping[str, Callable[[str, Field, object], Filter]] = {
            "$eq": self._equals,
            "$in": self._one_of,
            "$between": self._between,
            "$exists": self._exists,
            "$contains": self._contains,
            "$like": self._like,
            "$ilike": partial(self._like, ignore_case=True),
        }
        return read[str(operator)](at, field, operand)

    def _equals(self, at: str, field: Field, operand: object) -> Filter:
        if operand is None:
            return Not(Exists(field))
        if field.name == "createdAt":
            start, end = instants(at, operand)
            return combine(Compare(field, ">=", start), Compare(field, "<", end))
        if isinstance(operand, list | tuple) and field.path:
            items = enumerate(self._list(at, operand))
            return OneOf(field, (tuple(self._scalar(f"{at}.{n}", field, v) for n, v in items),))
        if isinstance(operand, list | tuple):
            raise InvalidInput(at, "is a list", hint="For alternatives use $in.")
        return OneOf(field, (self._scalar(at, field, operand),))

    def _one_of(self, at: str, field: Field, operand: object) -> Filter:
        """Parse a list of alternatives; an empty list matches nothing."""
        items = [(f"{at}.{n}", value) for n, value in enumerate(self._list(at, operand))]
        alternatives: list[Filter] = []
        if any(value is None for _, value in items):
            alternatives.append(Not(Exists(field)))
        given = [(where, value) for where, value in items if value is not None]
        if field.name == "createdAt":
            alternatives += [self._equals(where, field, value) for where, value in given]
        elif given:
            values = (self._scalar(where, field, value) for where, value in given)
            alternatives.append(OneOf(field, tuple(values)))
        return either(*alternatives)

    def _compare(self, at: str, field: Field, order: Order, operand: object) -> Filter:
        if field.name != "createdAt":
            text = field.name in _TEXT_FIELDS
            if not text and (
                isinstance(operand, bool) or not isinstance(operand, int | float | str)
            ):
                problem = f"is {json_type(operand)}, only strings and numbers can be ordered"
                raise InvalidInput(at, problem)
            return Compare(field, order, self._scalar(at, field, operand))
        start, end = instants(at, operand)
        if order in (">", "<="):
            return Compare(field, ">=" if order == ">" else "<", end)
        return Compare(field, order, start)

    def _between(self, at: str, field: Field, operand: object) -> Filter:
        ends = self._list(at, operand)
        if len(ends) != 2:
            raise InvalidInput(at, f"has {len(ends)} values, not the two ends")
        low = self._compare(f"{at}.0", field, ">=", ends[0])
        high = self._compare(f"{at}.1", field, "<=", ends[1])
        if isinstance(ends[0], str) != isinstance(ends[1], str):
            raise InvalidInput(at, "has a number and a string as its ends")
        return combine(low, high)

    def _exists(self, at: str, field: Field, operand: object) -> Filter:
        if not isinstance(operand, bool):
            raise InvalidInput(at, f"is {json_type(operand)}, not true or false")
        return Exists(field) if operand else Not(Exists(field))

    def _contains(self, at: str, field: Field, operand: object) -> Filter:
        value = self._scalar(at, field, operand)
        alternatives: list[Filter] = []
        if isinstance(value, str):
            alternatives.append(Pattern(field, substring_regex(value)))
        if field.path:
            alternatives.append(HasElement(field, value))
        return either(*alternatives)

    def _like(self, at: str, field: Field, operand: object, *, ignore_case: bool = False) -> Filter:
        pattern = checked_text(at, operand, _LONGEST_TEXT)
        try:
            return Pattern(field, *like_regex(pattern, ignore_case=ignore_case))
        except ValueError as exc:
            raise InvalidInput(at, str(exc)) from exc

    def _scalar(self, at: str, field: Field, value: object) -> Scalar:
        if field.name in _TEXT_FIELDS:
            return checked_text(at, value, _LONGEST_TEXT)
        return checked_scalar(at, value, _LONGEST_TEXT)

    def _list(self, at: str, value: object) -> list[object] | tuple[object, ...]:
        if not isinstance(value, list | tuple):
            raise InvalidInput(at, f"is {json_type(value)}, not a list")
        if len(value) > _MOST_ITEMS:
            raise InvalidInput(at, f"has {len(value)} values, at most {_MOST_ITEMS} are accepted")
        return value

    def _count(self, at: str) -> None:
        self.nodes_left -= 1
        if self.nodes_left < 0:
            raise InvalidInput(at, "exceeds the number of conditions allowed in a filter")


def source_filter(include: Sequence[str] | None, exclude: Sequence[str] | None) -> Filter:
    """Return a filter for sources that match a glob of ``include`` and none of ``exclude``.

    A glob without ``*``, ``?`` and ``[`` is a literal source, found through the index; the text
    before the first wildcard also narrows the search through the index. The syntax is that of
    :func:`ability_search.filters.wildcards.glob_regex`, case-sensitive, over the whole source.

    Args:
        include: ``None`` allows every source. An empty list is refused, because a caller whose
            list of allowed sources came out empty must not see all of them.
        exclude: takes precedence over ``include``; ``None`` or empty excludes nothing.

    Raises:
        InvalidInput: naming ``sources`` or ``excludeSources`` and the position in it.
    """
    allowed = None
    if include is not None:
        if not include:
            raise InvalidInput("sources", "is empty", hint="Omit sources to search all of them.")
        allowed = _any_of("sources", include)
    refused = _any_of("excludeSources", exclude) if exclude else None
    return combine(EVERYTHING, allowed, None if refused is None else Not(refused))


def _any_of(name: str, globs: Sequence[str]) -> Filter:
    if isinstance(globs, str):
        raise InvalidInput(name, "is a string, not a list of globs")
    if len(globs) > _MOST_GLOBS:
        raise InvalidInput(name, f"has {len(globs)} globs, at most {_MOST_GLOBS} are accepted")
    exact: list[str] = []
    patterns: list[Filter] = []
    for position, glob in enumerate(globs):
        at = f"{name}.{position}"
        checked_text(at, glob, _LONGEST_TEXT)
        if not glob:
            raise InvalidInput(at, "is empty")
        if not any(char in glob for char in "*?["):
            exact.append(glob)
            continue
        try:
            patterns.append(Pattern(_SOURCE, *glob_regex(glob)))
        except ValueError as exc:
            raise InvalidInput(at, str(exc)) from exc
    return either(*([OneOf(_SOURCE, tuple(exact))] if exact else []), *patterns)


def key_path(at: str, dotted: str) -> tuple[str, ...]:
    r"""Split a dotted metadata key into its parts.

    A backslash makes a dot part of a key: ``a.b\.c`` is ``b.c`` in the map under ``a``.

    Raises:
        InvalidInput: for the field ``at``, if a backslash precedes any other character.
    """
    keys = [""]
    chars = iter(dotted)
    for char in chars:
        if char == ".":
            keys.append("")
        elif char != "\\":
            keys[-1] += char
        elif (escaped := next(chars, "")) and escaped in ".\\":
            keys[-1] += escaped
        else:
            raise InvalidInput(at, "has a backslash that precedes neither a dot nor a backslash")
    return tuple(keys)


def _operators_of(field: Field) -> str:
    valid = _ON_INSTANTS if field.name == "createdAt" else _OPERATORS
    return f"Valid operators are {', '.join(valid)}."
