"""Conversion of query options from the wire to the query pipeline."""

from __future__ import annotations

from typing import get_args

from ability_search.errors import InvalidInput
from ability_search.filters.operands import instants
from ability_search.filters.parser import key_path
from ability_search.querying.model import Arm
from ability_search.querying.options import (
    Decay,
    Expansion,
    Feedback,
    FieldRule,
    FullText,
    FusionChoice,
    GraphWalk,
    Options,
    QueryExpansion,
    RerankerChoice,
    Temporal,
)
from ability_search.text.term_ids import CONTENT, TITLE, metadata_field
from ability_search.tools import inputs
from ability_search.tools import option_inputs as wire
from ability_search.understanding.periods import Period, day_of

_OWN_FIELDS = ("source", "title", "content", "kind", "createdAt")
_METADATA = "metadata."


def fusion(value: wire.Fusion | None) -> FusionChoice | None:
    """Return the fusion options.

    Raises:
        InvalidInput: if all weights are 0.
    """
    if value is None:
        return None
    weights = value.weights
    if len(weights) == len(get_args(Arm)) and not any(weights.values()):
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")
    return FusionChoice(value.method, value.k, weights.get("semantic"), weights.get("keyword"))


def options(value: inputs.QueryInput) -> Options:
    """Return the options of a query beyond filters and fusion.

    Raises:
        InvalidInput: if a rule is empty, or the time range is invalid.
    """
    return Options(
        full_text=_full_text(value.full_text),
        rules=[_rule(name, rule) for name, rule in value.rerank.items()],
        reranker=RerankerChoice(value.reranker.top, value.reranker.model)
        if value.reranker
        else None,
        extended=tuple(dict.fromkeys(value.extended)),
        soft_feedback=value.prf is None,
        feedback=_feedback(value.prf),
        understand=value.understand,
        exclude=value.exclude,
        period=_period(value.time_range),
        temporal=Temporal(value.temporal.weight, value.temporal.sigma_days, value.temporal.order)
        if value.temporal
        else Temporal(),
        decay=_decay(value.decay),
        graph=GraphWalk(value.graph.hops, value.graph.min_similarity, value.graph.kinds)
        if value.graph
        else None,
        diversity=value.diversity,
        max_per_source=value.max_per_source,
        expansion=_expansion(value.expand),
        max_tokens=value.max_result_tokens,
        query_expansion=_query_expansion(value.expand_query),
    )


def as_of(value: str | None) -> int | None:
    """Return the time of a query in epoch milliseconds, for a date its end; ``None`` is now.

    Raises:
        InvalidInput: if it is neither a date nor an instant.
    """
    return None if value is None else instants("asOf", value)[1] - 1


def field_name(name: str) -> str:
    """Return the full name of a field: fields that are not a chunk's own are in its metadata."""
    return name if name in _OWN_FIELDS or name.startswith(_METADATA) else f"{_METADATA}{name}"


def _full_text(value: wire.FullText | None) -> FullText | None:
    if value is None or not value.enabled:
        return None
    fields = tuple(
        dict.fromkeys(
            _text_field(f"fullText.fields.{n}", name) for n, name in enumerate(value.fields)
        )
    )
    return FullText(fields, value.weight, value.language)


def _text_field(at: str, name: str) -> str:
    """Return the name of a field under which its terms are indexed."""
    full = field_name(name)
    if full in (TITLE, CONTENT):
        return full
    if full in _OWN_FIELDS:
        raise InvalidInput(at, "is not a text field", hint="Use title, content or metadata.<key>.")
    return metadata_field(key_path(at, full.removeprefix(_METADATA)))


def _rule(name: str, value: wire.FieldRule) -> FieldRule:
    rules = value.rules
    if rules.contains is rules.priority is rules.sort is None:
        raise InvalidInput(f"rerank.{name}.rules", "needs contains, priority or sort")
    full = field_name(name)
    path = (
        key_path(f"rerank.{name}", full.removeprefix(_METADATA)) if full not in _OWN_FIELDS else ()
    )
    return FieldRule(full, value.weight, path, rules.contains, rules.priority, rules.sort)


def _feedback(value: wire.Feedback | bool | None) -> Feedback | None:
    if not isinstance(value, wire.Feedback):
        return Feedback() if value else None
    return Feedback(value.chunks, value.min_similarity, value.terms, value.weight)


def _period(value: wire.TimeRange | None) -> Period | None:
    if value is None:
        return None
    if value.start is None and value.end is None:
        raise InvalidInput("timeRange", "needs from, to or both")
    first = None if value.start is None else day_of(instants("timeRange.from", value.start)[0])
    last = None if value.end is None else day_of(instants("timeRange.to", value.end)[1] - 1)
    try:
        return Period(first, last)
    except ValueError as exc:
        raise InvalidInput("timeRange", "from must not be later than to") from exc


def _decay(value: wire.Decay | None) -> Decay | None:
    if value is None:
        return None
    return Decay(value.half_life_days, value.floor, value.weight, value.agent_id)


def _expansion(value: wire.Expand | str | None) -> Expansion | None:
    if value is None:
        return None
    if isinstance(value, wire.Expand):
        return Expansion(value.mode, value.window)
    return Expansion("section" if value == "section" else "neighbors")


def _query_expansion(value: wire.ExpandQuery | bool) -> QueryExpansion | None:
    if isinstance(value, bool):
        return QueryExpansion("terms") if value else None
    return QueryExpansion(value.method, value.model)
