"""The option ``rerank``: rules on fields raise the scores of candidates. Pure.

Values are JSON values. A list is represented by its elements; null, maps and empty lists count as
no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ability_search.documents import instant
from ability_search.errors import InvalidInput
from ability_search.extensions.reranking import FieldRule, RerankingOptions
from ability_search.filters.parser import key_path
from ability_search.search.candidates import Candidate, Candidates, scale
from ability_search.search.query import METADATA, field_name, is_chunk_field
from ability_search.search.stage import scorer
from ability_search.search.wants import Wants
from ability_search.store.records import metadata_column

Scalar = str | float | bool
_Key = tuple[int, float, str]


class Rule(NamedTuple):
    """A rule on a field of a chunk."""

    field: str
    """``source``, ``title``, ``content``, ``kind``, ``createdAt`` or ``metadata.<key>``."""
    path: tuple[str, ...]
    """Keys within the metadata, outermost first."""
    option: FieldRule


def boosts(
    values: Sequence[Any],
    *,
    weight: float,
    contains: str | None = None,
    priority: Scalar | None = None,
    descending: bool | None = None,
) -> list[float]:
    """Return the factor of the rules on one field for each score, >= 1, in the order of ``values``.

    Each rule that matches multiplies by ``1 + weight``, the order by ``1 + weight r`` with ``r``
    from :func:`places`.

    Args:
        values: values of the field, one per candidate.
        weight: >= 0; with 0 all factors are 1.
        contains: as for :func:`holds_text`; ``None`` is no rule, also below.
        priority: as for :func:`equals`.
        descending: whether the greatest value comes first, or the least.
    """
    factors = [1.0] * len(values)
    if contains is not None:
        factors = _raised(factors, [holds_text(value, contains) for value in values], weight)
    if priority is not None:
        factors = _raised(factors, [equals(value, priority) for value in values], weight)
    if descending is not None:
        factors = _raised(factors, places(values, descending=descending), weight)
    return factors


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


def _raised(factors: Sequence[float], shares: Sequence[float], weight: float) -> list[float]:
    return [factor * (1 + weight * share) for factor, share in zip(factors, shares, strict=True)]


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
    by_rule = [_boosts(rule, items) for rule in rules]
    greatest = prod((1 + rule.option.weight) ** _count(rule) for rule in rules)
    for item, own in zip(items, zip(*by_rule, strict=True), strict=True):
        by_field = dict.fromkeys((rule.field for rule in rules), 1.0)
        for rule, boost in zip(rules, own, strict=True):
            by_field[rule.field] *= boost
        scale(item, NAME, prod(own) / greatest, boosts=by_field)


def _boosts(rule: Rule, items: Sequence[Candidate]) -> list[float]:
    rules = rule.option.rules
    return boosts(
        [_value(rule, item.columns) for item in items],
        weight=rule.option.weight,
        contains=rules.contains,
        priority=rules.priority,
        descending=None if rules.sort is None else rules.sort == "desc",
    )


def _count(rule: Rule) -> int:
    rules = rule.option.rules
    return sum(each is not None for each in (rules.contains, rules.priority, rules.sort))


def _column(rule: Rule) -> str:
    if rule.path:
        return metadata_column(rule.path[0])
    return {"createdAt": "created_at"}.get(rule.field, rule.field)


def _value(rule: Rule, row: Mapping[str, Any]) -> Any:
    """Return the value of a rule's field; ``createdAt`` as the text that hits show."""
    value = row.get("metadata" if rule.path else _column(rule))
    for key in rule.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if rule.field == "createdAt" and value is not None:
        return instant(value)
    return value


def rules_of(asked: RerankingOptions) -> list[Rule] | None:
    """Return the rules of a request that have an effect.

    Raises:
        InvalidInput: if one of them has no condition.
    """
    rules = [_rule(name, option) for name, option in asked.rerank.items()]
    return [rule for rule in rules if rule.option.weight > 0] or None


def _rule(name: str, option: FieldRule) -> Rule:
    rules = option.rules
    if rules.contains is rules.priority is rules.sort is None:
        raise InvalidInput(f"rerank.{name}.rules", "needs contains, priority or sort")
    full = field_name(name)
    if is_chunk_field(full):
        return Rule(full, (), option)
    return Rule(full, key_path(f"rerank.{name}", full.removeprefix(METADATA)), option)


NAME = "rules"
FIELD_RULES = scorer(
    NAME,
    60,
    score_rules,
    option=rules_of,
    wants=lambda rules, _: Wants(fields=tuple(map(_column, rules))),
)
