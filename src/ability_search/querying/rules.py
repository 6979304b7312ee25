"""The option ``rerank``: rules on fields raise the scores of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ability_search.documents import instant
from ability_search.querying.adjusting import Adjustment, Context, scale
from ability_search.querying.model import Candidate, Query
from ability_search.querying.options import FieldRule
from ability_search.ranking.rules import boosts


def columns(query: Query) -> list[str]:
    """Return the columns that the rules need."""
    return [_column(rule) for rule in _effective(query)]


def adjust(items: Sequence[Candidate], context: Context) -> None:
    """Multiply scores by the boosts of all rules, divided by the greatest possible boost."""
    rules = _effective(context.query)
    if not rules:
        return
    by_rule = [_boosts(rule, items) for rule in rules]
    greatest = prod((1 + rule.weight) ** _count(rule) for rule in rules)
    for item, own in zip(items, zip(*by_rule, strict=True), strict=True):
        told = dict.fromkeys((rule.field for rule in rules), 1.0)
        for rule, boost in zip(rules, own, strict=True):
            told[rule.field] *= boost
        scale(item, RULES.name, prod(own) / greatest, boosts=told)


def _effective(query: Query) -> list[FieldRule]:
    return [rule for rule in query.options.rules if rule.weight > 0]


def _boosts(rule: FieldRule, items: Sequence[Candidate]) -> list[float]:
    return boosts(
        [_value(rule, item.columns) for item in items],
        weight=rule.weight,
        contains=rule.contains,
        priority=rule.priority,
        descending=None if rule.sort is None else rule.sort == "desc",
    )


def _count(rule: FieldRule) -> int:
    return sum(each is not None for each in (rule.contains, rule.priority, rule.sort))


def _column(rule: FieldRule) -> str:
    return "metadata" if rule.path else rule.field


def _value(rule: FieldRule, row: Mapping[str, Any]) -> Any:
    """Return the value of a rule's field; ``createdAt`` as the text that hits show."""
    value = row.get(_column(rule))
    for key in rule.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    if rule.field == "createdAt" and value is not None:
        return instant(value)
    return value


RULES = Adjustment("rules", columns, adjust)
