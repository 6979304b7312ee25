"""The options ``rerank`` and ``fullText``: rules on fields, and full-text search over them. Pure.

Values are JSON values. A list is represented by its elements; null, maps and empty lists count as
no value.

Full-text search, blended into the score, is a separate retriever, so that it finds what the others
do not. Every candidate gets its exact full-text score, whichever retriever found it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from ability_search.documents import instant
from ability_search.errors import InvalidInput
from ability_search.extensions.reranking import FieldRule, RerankingOptions
from ability_search.filters.predicate import value_of
from ability_search.filters.tree import Field
from ability_search.search.candidates import Candidate, Candidates, blend, scale
from ability_search.search.query import CREATED_AT, METADATA, Query, chunk_field
from ability_search.search.stage import scorer
from ability_search.search.wants import Product, Wants
from ability_search.store.records import metadata_column
from ability_search.text.term_ids import CONTENT, TITLE, metadata_field

Scalar = str | float | bool
_Key = tuple[int, float, str]


class Rule(NamedTuple):
    """A rule on a field of a chunk, by its full name."""

    name: str
    field: Field
    option: FieldRule


def boosts(values: Sequence[Any], option: FieldRule) -> list[float]:
    """Return the factor of the rules on one field for each of its values, >= 1.

    Each rule that matches multiplies by ``1 + weight``, the order by ``1 + weight r`` with ``r``
    from :func:`places`.
    """
    rules, shares = option.rules, list[Sequence[float]]()
    if rules.contains is not None:
        shares.append([holds_text(value, rules.contains) for value in values])
    if rules.priority is not None:
        shares.append([equals(value, rules.priority) for value in values])
    if rules.sort is not None:
        shares.append(places(values, descending=rules.sort == "desc"))
    return [prod(1 + option.weight * share for share in own) for own in zip(*shares, strict=True)]


def holds_text(value: Any, text: str) -> bool:
    """Return whether a text, or one in a list, contains ``text``, ignoring case."""
    wanted = text.casefold()
    return any(isinstance(each, str) and wanted in each.casefold() for each in _scalars(value))


def equals(value: Any, wanted: Scalar) -> bool:
    """Return whether a value, or one in a list, equals ``wanted``.

    Texts are compared ignoring case, numbers and booleans by value; ``"1"``, ``1`` and ``true``
    differ.
    """
    return any(_key(each) == _key(wanted) for each in _scalars(value))


def places(values: Sequence[Any], *, descending: bool) -> list[float]:
    """Return the place of each value in their order: 1 for the first, 1 / n for the last of n.

    Equal values share a place. Missing values get 0. Booleans come before numbers and numbers
    before texts, which are ordered by their characters ignoring case: dates written
    ``YYYY-MM-DD`` are in chronological order. Descending is the reverse order. Of a list the
    element that comes first counts.
    """
    first = max if descending else min
    keys = [first(map(_key, _scalars(value)), default=None) for value in values]
    ranked = sorted({key for key in keys if key is not None}, reverse=descending)
    place = {key: 1 - rank / len(ranked) for rank, key in enumerate(ranked)}
    return [0.0 if key is None else place[key] for key in keys]


def _scalars(value: Any) -> Iterator[Scalar]:
    for each in value if isinstance(value, list | tuple) else (value,):
        if isinstance(each, str | int | float):
            yield each


def _key(value: Scalar) -> _Key:
    """Return a sort key for values of any type; equal values have equal keys."""
    if isinstance(value, str):
        return 2, 0, value.casefold()
    return (0 if isinstance(value, bool) else 1), value, ""


def score_rules(rules: Sequence[Rule], items: Sequence[Candidate], _candidates: Candidates) -> None:
    """Multiply scores by the boosts of all rules, divided by the greatest possible boost."""
    by_rule, greatest = [], 1.0
    for _, field, option in rules:
        by_rule.append(boosts([_value(field, item.columns) for item in items], option))
        greatest *= (1 + option.weight) ** len(option.rules.model_dump(exclude_none=True))
    for item, own in zip(items, zip(*by_rule, strict=True), strict=True):
        by_field = dict.fromkeys((rule.name for rule in rules), 1.0)
        for rule, boost in zip(rules, own, strict=True):
            by_field[rule.name] *= boost
        scale(item, NAME, prod(own) / greatest, boosts=by_field)


def _column(field: Field) -> str:
    if field.path:
        return metadata_column(field.path[0])
    return "created_at" if field.name == CREATED_AT else field.name


def _value(field: Field, row: Mapping[str, Any]) -> Any:
    """Return the value of a field; ``createdAt`` as the text that hits show."""
    value = value_of(field if field.path else Field(_column(field)), row)
    return instant(value) if field.name == CREATED_AT and value is not None else value


def rules_of(asked: RerankingOptions) -> list[Rule] | None:
    """Return the rules of a request that have an effect.

    Raises:
        InvalidInput: if one of them has no condition.
    """
    found: list[Rule] = []
    for name, option in asked.rerank.items():
        rules = option.rules
        if rules.contains is rules.priority is rules.sort is None:
            raise InvalidInput(f"rerank.{name}.rules", "needs contains, priority or sort")
        field = chunk_field(f"rerank.{name}", name)
        full = f"{METADATA}{name.removeprefix(METADATA)}" if field.path else name
        found += [Rule(full, field, option)] if option.weight > 0 else []
    return found or None


NAME = "rules"
FIELD_RULES = scorer(
    NAME,
    60,
    score_rules,
    option=rules_of,
    wants=lambda rules, _: Wants(fields=tuple(_column(rule.field) for rule in rules)),
)


FULL_TEXT: Final = "fullText"


class FullTextSearch(NamedTuple):
    """The option with the names of its fields."""

    weight: float
    fields: tuple[str, ...]
    """As their terms are indexed."""
    language: str | None


def full_text(asked: RerankingOptions) -> FullTextSearch | None:
    """Return the option of a request.

    Raises:
        InvalidInput: if one of its fields is no text.
    """
    option = asked.full_text
    if option is None or not option.enabled:
        return None
    fields: dict[str, None] = {}
    for place, name in enumerate(option.fields):
        path = f"fullText.fields.{place}"
        field = chunk_field(path, name)
        if not field.path and name not in (TITLE, CONTENT):
            hint = "Use title, content or metadata.<key>."
            raise InvalidInput(path, "is not a text field", hint=hint)
        fields[metadata_field(field.path) if field.path else name] = None
    if option.weight <= 0:
        return None
    return FullTextSearch(option.weight, tuple(fields), option.language)


def _text_wanted(option: FullTextSearch, query: Query) -> Wants:
    words = Product(query.topic, option.fields, option.language, retrieves=True)
    return Wants(products={FULL_TEXT: words})


def score_full_text(
    option: FullTextSearch, items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Make the normalized full-text score a share of the score."""
    terms = candidates.request.products[FULL_TEXT]
    raw = [item.values.get(FULL_TEXT) or item.columns.get(FULL_TEXT) or 0.0 for item in items]
    for item, score, value in zip(items, raw, terms.normalized(raw).tolist(), strict=True):
        if score > 0:
            item.values[FULL_TEXT] = score
        blend(item, FULL_TEXT, value, option.weight, bm25=score, normalized=value)


FULL_TEXT_SCORES = scorer(FULL_TEXT, 20, score_full_text, option=full_text, wants=_text_wanted)
