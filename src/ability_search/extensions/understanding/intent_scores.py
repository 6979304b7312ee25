"""Scores by what a query says of times, for periods and for the newest, and exclusions. Pure.

Chunks of the requested period join the candidates, and closeness in time counts. For the newest or
the oldest, relevant candidates are ordered in time: those that name a date by it, all others by
when they were stored. Each of the two groups counts by its share of the relevance: dates count
little if few candidates have any, and nothing changes if all are of one day. Candidates about what
a query excludes lose a part of their score.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from typing import Final, NamedTuple

import numpy as np

from ability_search.documents import Floats
from ability_search.extensions.understanding import Order
from ability_search.extensions.understanding.periods import (
    NEAR_DAYS,
    Period,
    buckets_of_query,
    day_of,
    from_numbers,
)
from ability_search.filters.tree import HasFacet, combine
from ability_search.search.candidates import Candidate, Candidates, adjust, blend, scale
from ability_search.search.fusion import TAU, nearness
from ability_search.search.query import Query
from ability_search.search.stage import scorer
from ability_search.search.wants import FurtherSearch, Product, Wants

TIME_TERMS: Final = 2 / 3
"""Information of a time, in units of the rarest possible term."""
WEIGHT_LIMIT: Final = 0.5
OUTSIDE: Final = 0.5
"""Closeness of a day next to the period; a day within it counts 1."""
DATED: Final = 30
"""Maximum number of chunks of the requested period that join the candidates."""
CREATED_SHARE: Final = 0.5
"""Weight of the indexing time for a chunk that has no date."""
LIKELY: Final = 0.5
"""Probability that the best hit is relevant, in queries for the newest."""


def proximity(periods: Sequence[Period], asked: Period, *, sigma: float = NEAR_DAYS) -> float:
    """Return how close a chunk is in time to the period asked for, 0 to 1; the closest counts.

    A period of the chunk counts the share of its days that are within: a text about a whole year is
    little about its March. One that is ``d`` days away counts ``exp(-d^2 / (2 sigma^2)) / 2``.

    Args:
        periods: Periods of the chunk; none gives 0.
        asked: Either end may be open.
        sigma: Days, > 0.
    """
    closeness = 0.0
    for period in periods:
        first, last = period.first, period.last
        if first is None or last is None:
            continue
        low = first if asked.first is None else asked.first
        high = last if asked.last is None else asked.last
        within = min(last, high) - max(first, low) + 1
        if within > 0:
            closeness = max(closeness, within / (last - first + 1))
        else:
            closeness = max(closeness, OUTSIDE * exp(-(((1 - within) / sigma) ** 2) / 2))
    return closeness


class RequestedTime(NamedTuple):
    """A period that hits should be about."""

    period: Period
    by_option: bool
    """Whether the caller gave it, so that the indexing time replaces missing dates."""
    weight: float | None
    """Share of dates in the score; ``None`` for :func:`time_weight`."""
    sigma_days: float


def dates_wanted(time: RequestedTime, query: Query) -> Wants:
    """Return the columns with the times of a chunk, and the search of chunks of the period."""
    filter = combine(HasFacet(tuple(buckets_of_query(time.period))), query.filter)
    return Wants(
        fields=("dates", "created_at") if time.by_option else ("dates",),
        searches=(FurtherSearch("dated", filter, limit=DATED),),
        statistics=True,
    )


def time_weight(weight: float | None, candidates: Candidates) -> float:
    """Return the share of dates in the score, 0 to :data:`WEIGHT_LIMIT` unless the query says it.

    Topic and time share the score by their information, that of a time being :data:`TIME_TERMS`.
    """
    if weight is None:
        informative = candidates.request.informative
        weight = min(WEIGHT_LIMIT, TIME_TERMS / (TIME_TERMS + informative))
    return weight


def score_closeness(
    time: RequestedTime, items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Make closeness in time a share of each candidate's score."""
    weight = time_weight(time.weight, candidates)
    for item in items:
        closeness = _closeness(item, time)
        blend(item, CLOSENESS, closeness, weight, closeness=closeness, share=weight)


def periods_of(item: Candidate) -> list[Period]:
    """Return the periods that a candidate names, in order."""
    return from_numbers(item.columns.get("dates") or ())


def _closeness(item: Candidate, time: RequestedTime) -> float:
    """Return the closeness in time of a candidate, 0 to 1.

    Only for a time range does the indexing time replace missing dates.
    """
    asked, sigma = time.period, time.sigma_days
    periods = periods_of(item)
    created = item.columns.get("created_at")
    if periods or not time.by_option or created is None:
        return proximity(periods, asked, sigma=sigma)
    day = day_of(created)
    return CREATED_SHARE * proximity([Period(day, day)], asked, sigma=sigma)


class RequestedOrder(NamedTuple):
    """Whether the newest or the oldest come first."""

    order: Order
    weight: float | None
    """Share of dates in the score; ``None`` for :func:`time_weight`."""


def order_gains(days: Floats, relevance: Floats) -> Floats:
    """Return the gains of candidates in a query for the newest, relative to the mean gain.

    The newest relevant candidate is the one that is relevant while no newer one is: with ``r_j``
    the relevance of a candidate relative to the best one, ``u_i = prod (1 - r_j / 2)`` over all
    newer ones. The gain is ``r_i (u_i - m)`` with ``m`` the mean of all ``u``, weighted by
    relevance: it is 0 if no candidate is newer than another, and for candidates that are new but
    not relevant.

    Args:
        days: Time of each, in any unit, greater is newer, shape (n,), n > 0. Negated for the
            oldest.
        relevance: ``r``, 0 to 1, at least one > 0, shape (n,).

    Returns:
        Shape (n,), between -1 and 1.
    """
    newest = np.argsort(-days, kind="stable")
    none_of = np.concatenate(([1.0], np.cumprod(1.0 - LIKELY * relevance[newest])))
    newer = np.searchsorted(-days[newest], -days, side="left")
    alone = none_of[newer]
    return np.asarray(relevance * (alone - alone @ relevance / relevance.sum()))


def score_order(time: RequestedOrder, items: Sequence[Candidate], candidates: Candidates) -> None:
    """Raise the newest of the relevant candidates, or the oldest, and lower the others."""
    weight = time_weight(time.weight, candidates)
    gains = _gains(items, time.order, candidates.now).tolist()
    for item, gain in zip(items, gains, strict=True):
        score = min(1.0, max(0.0, item.score + weight * gain))
        adjust(item, ORDER, score, gain=gain, share=weight)


def _gains(items: Sequence[Candidate], order: str, now: int) -> Floats:
    scores = np.array([item.score for item in items])
    relevance = np.exp((scores - scores.max()) / TAU)
    today = day_of(now)
    dates = [_date(item, today) for item in items]
    stored = [min(today, day_of(item.columns.get("created_at") or now)) for item in items]
    dated = np.array([date is not None for date in dates])
    days = np.where(dated, np.array(dates, dtype=np.float64), stored)
    gains = np.zeros(len(items))
    for group in (dated, ~dated):
        if group.any():
            share = relevance[group].sum() / relevance.sum()
            at = days[group] if order == "newest" else -days[group]
            gains[group] = share * order_gains(at, relevance[group])
    return gains


def _date(item: Candidate, today: int) -> float | None:
    """Return the middle of the elapsed part of the first period that a candidate names, if any.

    Periods that have not begun do not count.
    """
    for period in periods_of(item):
        if period.first is not None and period.last is not None and period.first <= today:
            return (period.first + min(period.last, today)) / 2
    return None


CLOSENESS = "temporal"
TIME_CLOSENESS = scorer(CLOSENESS, 30, score_closeness, wants=dates_wanted)
ORDER = "order"
TIME_ORDER = scorer(
    ORDER,
    40,
    score_order,
    wants=lambda _time, _query: Wants(fields=("dates", "created_at"), statistics=True),
)


EXCLUSION: Final = "exclusion"
SHARE: Final = 0.3
"""Share of its score that a candidate loses if it is about an excluded phrase only."""


def phrases_wanted(phrases: Mapping[str, str], _query: Query) -> Wants:
    """Return the columns with the cosine to each excluded phrase, and with the score by its words.

    Args:
        phrases: The excluded phrases by the column for the cosine.
    """
    words = {_words_column(column): Product(phrase) for column, phrase in phrases.items()}
    return Wants(vectors=phrases, products=words)


def score_exclusions(
    columns: Mapping[str, str], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Scale scores by ``1 - SHARE (e + c) / 2``, with the phrase that has the greatest effect.

    ``e``, in [0, 1], is how close a candidate is to the phrase, and ``c`` the BM25 of the phrase's
    words divided by their information, at most 1. One that is unknown, without an embedder or
    without words that tell something, leaves the other to count alone.
    """
    about = np.array(
        [
            (_cosines(items, column, candidates), _coverage(items, column, candidates))
            for column in columns
        ]
    )
    known = ~np.isnan(about)
    about = np.where(known, about, 0.0)
    evidence = (about.sum(axis=1) / np.maximum(known.sum(axis=1), 1)).max(axis=0)
    closer, words = about.max(axis=0)
    for place, item in enumerate(items):
        detail = {"closer": float(closer[place]), "words": float(words[place])}
        scale(item, EXCLUSION, 1 - SHARE * float(evidence[place]), **detail)


def _words_column(column: str) -> str:
    """Return the column with the raw score by a phrase's words, next to that with its cosine."""
    return f"{column}Words"


def _cosines(items: Sequence[Candidate], column: str, candidates: Candidates) -> Floats:
    found = [item.columns.get(column) for item in items]
    near = nearness([cosine or 0.0 for cosine in found], candidates.collection)
    return np.where([cosine is None for cosine in found], np.nan, near)


def _coverage(items: Sequence[Candidate], column: str, candidates: Candidates) -> Floats:
    terms = candidates.request.products.get(_words_column(column))
    if terms is None or not terms.information > 0:
        return np.full(len(items), np.nan)
    raw = np.array([item.columns.get(_words_column(column)) or 0.0 for item in items])
    return np.minimum(1.0, raw / terms.information)


EXCLUSION_PENALTY = scorer(EXCLUSION, 50, score_exclusions, wants=phrases_wanted)
