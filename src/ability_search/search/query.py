"""A query: what the caller asked for, and what was read out of its text. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, get_args

from ability_search.errors import InvalidInput
from ability_search.extensions.understanding.intent import Intent, understand
from ability_search.extensions.understanding.periods import Period, day_of, iso_day
from ability_search.filters.operands import instants
from ability_search.filters.parser import key_path
from ability_search.filters.tree import Filter
from ability_search.search.options import (
    Decay,
    Expand,
    ExpandQuery,
    Feedback,
    FieldRule,
    FullText,
    Fusion,
    Kind,
    QueryInput,
    Temporal,
    TimeRange,
)
from ability_search.search.response import Understood
from ability_search.text.term_ids import CONTENT, TITLE, metadata_field

Retriever = Literal["semantic", "keyword"]

COSINE: Final = "cosine"
"""Name of the vector of the query itself, and column for the cosine to it."""
EXPANSION: Final = "expansion"
"""Name of the vector of the words added by query expansion."""

VAGUE: Final = 0.4
"""Relevance below which a query counts as vague: so low is that of most queries about something
else, and of few that a text answers."""

DOCUMENTS: Final = "documents"
"""The kind of chunks that are no kind made of a document."""

_OWN_FIELDS = ("source", "title", "content", "kind", "createdAt")
_METADATA = "metadata."
CREATED_AT: Final = "createdAt"


class Rule(NamedTuple):
    """A rule on a field of a chunk."""

    field: str
    """``source``, ``title``, ``content``, ``kind``, ``createdAt`` or ``metadata.<key>``."""
    path: tuple[str, ...]
    """Keys within the metadata, outermost first."""
    option: FieldRule


@dataclass(frozen=True, slots=True)
class Query:
    """A query on its way through the stages."""

    asked: QueryInput
    intent: Intent
    """Intent of the text and the options; at first, the text taken literally."""
    filter: Filter | None = None
    rules: Sequence[Rule] = ()
    text_fields: Sequence[str] = ()
    """Fields of the option ``fullText``, as their terms are indexed."""
    age_path: tuple[str, ...] = ()
    """Keys within the metadata of the date that ``decay`` counts from; empty for ``createdAt``."""
    as_of: int | None = None
    """Time of the query, in epoch milliseconds; ``None`` is now."""
    period: Period | None = None
    """Days that hits should be about; overrides the text."""
    expansion: tuple[str, ...] = ()
    """Words added by query expansion."""
    phrasing: int = 0
    """Place among the phrasings of the query, from 0."""
    others: tuple[Query, ...] = ()
    """The other phrasings, of the option ``queries``."""

    @property
    def phrasings(self) -> tuple[Query, ...]:
        """All phrasings of the query, itself first."""
        return (self, *self.others)

    @property
    def end(self) -> int:
        """Number of hits up to the end of the page."""
        return self.asked.offset + self.asked.limit

    @property
    def excluded_columns(self) -> dict[str, str]:
        """The excluded phrases, by the column for a candidate's cosine to them."""
        return {f"excluded{place}": phrase for place, phrase in enumerate(self.intent.excluded)}

    @property
    def several(self) -> bool:
        """Return whether the query is for several collections, so that hits name theirs."""
        return self.asked.collection == "*" or not isinstance(self.asked.collection, str)

    @property
    def work(self) -> int:
        """Estimated work of its analysis, in candidates."""
        return sum(len(each.asked.query) for each in (self, *self.others)) // 10

    @property
    def full_text(self) -> FullText | None:
        """The option ``fullText``, if it has an effect."""
        option = self.asked.full_text
        return option if option is not None and option.enabled and option.weight > 0 else None

    @property
    def feedback(self) -> Feedback | None:
        """The option ``prf``; ``None`` if there is no second search."""
        option = Feedback() if self.asked.prf is True else self.asked.prf or None
        return option if option is not None and option.weight > 0 else None

    @property
    def decay(self) -> Decay | None:
        """The option ``decay``, if it has an effect."""
        option = self.asked.decay
        return option if option is not None and option.weight > 0 else None

    @property
    def diversity(self) -> float | None:
        """The option ``diversity``, if it has an effect."""
        option = self.asked.diversity
        return option if option is not None and option < 1 else None

    @property
    def kinds(self) -> tuple[Kind, ...] | None:
        """Kinds made of documents to search, of the option ``extended``; ``None`` without any."""
        return tuple(dict.fromkeys(k for k in self.asked.extended if k != DOCUMENTS)) or None

    @property
    def temporal(self) -> Temporal:
        """The option ``temporal``."""
        return self.asked.temporal or Temporal()

    @property
    def context(self) -> Expand | None:
        """The option ``expand``: context expansion."""
        option = self.asked.expand
        return Expand(mode=option) if isinstance(option, str) else option

    @property
    def expander(self) -> ExpandQuery | None:
        """The option ``expandQuery``."""
        option = self.asked.expand_query
        if option == "auto":
            return ExpandQuery(below=VAGUE)
        return ExpandQuery() if option is True else option or None

    @property
    def texts(self) -> dict[str, str]:
        """Texts to embed, by the names of their vectors; the query itself first.

        That is the hypothetical answer, if there is one (HyDE), else the topic. Of an expansion,
        phrases are embedded together with the topic, a question by itself.
        """
        asked = self.asked
        texts = {COSINE: asked.hypothetical_answer or self.intent.topic}
        if self.expansion:
            phrases = self.expander is None or self.expander.method == "terms"
            words = [self.intent.topic, *self.expansion] if phrases else self.expansion
            texts[EXPANSION] = ", ".join(words)
        return texts | self.excluded_columns

    @property
    def recognized(self) -> Understood | None:
        """The exclusions, the period and the order that counted; ``None`` if there were none."""
        period, order = self.intent.period, self.intent.order
        if not (self.intent.excluded or period or order):
            return None
        days = _days(period) if period is not None else {}
        return Understood(
            excluded=list(self.intent.excluded) or None,
            start=days.get("from"),
            end=days.get("to"),
            order=order,
        )

    @property
    def explained(self) -> dict[str, Any]:
        """Return how the query was understood, for ``explain``; empty if it was taken literally."""
        intent = self.intent
        if not (intent.excluded or intent.period or intent.order):
            return {}
        found = {
            "topic": intent.topic,
            "excluded": list(intent.excluded),
            "period": _days(intent.period) if intent.period else None,
            "order": intent.order,
            "spans": [
                {"kind": each.kind, "start": each.start, "end": each.end}
                for each in intent.recognized
            ],
        }
        return {"understood": found}


def parse_query(asked: QueryInput, filter: Filter | None = None) -> Query:
    """Return the query of a request, taken literally.

    Raises:
        InvalidInput: if a time range, a rule, a text field, a weight or ``asOf`` is invalid.
    """
    if asked.fusion is not None:
        _check_weights(asked.fusion)
    query_expansion = asked.expand_query
    only_vague = query_expansion == "auto" or getattr(query_expansion, "below", None) is not None
    if only_vague and (asked.mode != "hybrid" or asked.fusion is not None):
        raise InvalidInput(
            "expandQuery",
            "to vague queries only needs the mode hybrid, without fusion",
            hint="Use expandQuery: true, or leave out mode and fusion.",
        )
    decay = asked.decay
    if decay is not None and decay.agent_id is None and (decay.useful or decay.not_useful):
        raise InvalidInput("decay.agentId", "is needed to mark hits as useful or not")
    dated = field_name(decay.field) if decay else CREATED_AT
    fields = asked.full_text.fields if asked.full_text and asked.full_text.enabled else ()
    names = (_text_field(f"fullText.fields.{n}", name) for n, name in enumerate(fields))
    query = Query(
        asked,
        Intent(asked.query, asked.query),
        filter,
        rules=[_rule(name, rule) for name, rule in asked.rerank.items()],
        text_fields=tuple(dict.fromkeys(names)),
        age_path=() if dated == CREATED_AT else age_path(dated),
        as_of=None if asked.as_of is None else instants("asOf", asked.as_of)[1] - 1,
        period=_period(asked.time_range),
    )
    others = (_phrased(query, n, text) for n, text in enumerate(asked.queries, start=1))
    return replace(query, others=tuple(others))


def _phrased(query: Query, place: int, text: str) -> Query:
    """Return another phrasing of a query; what a model wrote belongs to the query itself."""
    own: dict[str, Any] = {"query": text, "queries": [], "hypothetical_answer": None}
    asked = query.asked.model_copy(update=own | {"expand_query": False})
    return replace(query, asked=asked, intent=Intent(text, text), phrasing=place)


def understood(query: Query, *, now: int) -> Query:
    """Return the query with its intent, and with its time, in epoch milliseconds."""
    now = now if query.as_of is None else query.as_of
    asked, temporal = query.asked, query.temporal
    timed = temporal.weight != 0
    intent = understand(
        asked.query,
        now=now,
        exclude=asked.exclude,
        period=query.period if timed else None,
        order=temporal.order if timed else None,
        exclusion=asked.understand,
        temporal=asked.understand and timed,
    )
    others = tuple(understood(each, now=now) for each in query.others)
    return replace(query, intent=intent, as_of=now, others=others)


def field_name(name: str) -> str:
    """Return the full name of a field: fields that are not a chunk's own are in its metadata."""
    return name if name in _OWN_FIELDS or name.startswith(_METADATA) else f"{_METADATA}{name}"


def _check_weights(fusion: Fusion) -> None:
    weights = fusion.weights
    if len(weights) == len(get_args(Retriever)) and not any(weights.values()):
        raise InvalidInput("fusion.weights", "at least one must be greater than 0")


def _text_field(at: str, name: str) -> str:
    """Return the name of a field under which its terms are indexed."""
    full = field_name(name)
    if full in (TITLE, CONTENT):
        return full
    if full in _OWN_FIELDS:
        raise InvalidInput(at, "is not a text field", hint="Use title, content or metadata.<key>.")
    return metadata_field(key_path(at, full.removeprefix(_METADATA)))


def age_path(field: str) -> tuple[str, ...]:
    """Return the keys within the metadata of the date that ``decay`` counts from.

    Raises:
        InvalidInput: if the field is none of the metadata.
    """
    if field in _OWN_FIELDS:
        raise InvalidInput("decay.field", "is no date", hint="Use createdAt or metadata.<key>.")
    return key_path("decay.field", field.removeprefix(_METADATA))


def _rule(name: str, option: FieldRule) -> Rule:
    rules = option.rules
    if rules.contains is rules.priority is rules.sort is None:
        raise InvalidInput(f"rerank.{name}.rules", "needs contains, priority or sort")
    full = field_name(name)
    own = full in _OWN_FIELDS
    path = () if own else key_path(f"rerank.{name}", full.removeprefix(_METADATA))
    return Rule(full, path, option)


def _period(value: TimeRange | None) -> Period | None:
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


def _days(period: Period) -> dict[str, str | None]:
    first, last = period.first, period.last
    return {
        "from": None if first is None else iso_day(first),
        "to": None if last is None else iso_day(last),
    }
