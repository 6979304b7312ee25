"""Conversion of candidates to hits, and merging of answers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ability_search.collection import Collection
from ability_search.errors import SearchError
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import Pool
from ability_search.querying.meaning import explained
from ability_search.querying.model import Candidate, Degradation, Hit, Mode, Query, QueryAnswer
from ability_search.querying.timings import Timings
from ability_search.text.analyzer import analyzer_for
from ability_search.text.highlights import highlights

T = TypeVar("T")

_OTHER: Mapping[str, Mode] = {"semantic": "keyword", "keyword": "semantic"}


@dataclass(frozen=True, slots=True)
class Found:
    """A candidate and its collection."""

    collection: Collection
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Listed:
    """All candidates found in a collection, best first, and the answer, still without hits."""

    answer: QueryAnswer
    pool: Pool
    context: Context
    found: list[Candidate]
    clock: Timings


def together(lists: Iterable[Sequence[Found]]) -> list[Found]:
    """Merge several lists into one, best first; ties by chunkId.

    The order within each list is kept: of candidates that score 0, those of a deeper search come
    last.
    """
    return list(
        heapq.merge(*lists, key=lambda each: (-each.candidate.score, each.candidate.chunk_id))
    )


def hit(found: Found, query: Query) -> Hit:
    """Return the hit of a candidate whose row was read, with the details the query requests."""
    item = found.candidate
    row = item.row or {}
    raw = item.values | item.aspects | {"semantic": item.cosine}
    marks = None
    if query.highlights:
        analyzer = analyzer_for(found.collection.language)
        marks = tuple(highlights(row["content"], analyzer.query_terms(query.topic), analyzer))
    return Hit(
        collection=found.collection.public_name,
        row=row,
        score=item.score,
        scores={name: score for name, score in raw.items() if score is not None},
        matched_via=(*item.ranks, *item.aspects),
        highlights=marks,
        trace=item.trace if query.explain else None,
        context=item.context,
        merged=tuple(each.chunk_id for each in item.merged),
    )


def note_failed_arms(pool: Pool, answer: QueryAnswer) -> None:
    """Add warnings for retrievers that failed, and mark the answer as degraded."""
    for arm, reason in pool.failed.items():
        answer.warnings.append(f"the {arm} retriever failed: {reason}")
        other = _OTHER.get(arm)
        if other is not None:
            answer.degraded = answer.degraded or Degradation(reason, "database_unavailable", other)


def explanation(pool: Pool, context: Context, *, below: int) -> dict[str, Any]:
    """Return how the query was understood and the candidates were found, for ``explain``.

    Args:
        pool: All candidates.
        context: Context of the stages.
        below: Number of candidates that ``minScore`` removed.
    """
    query, plan, terms = context.query, context.plan, context.plan.terms
    floor = None if query.min_score is None else {"floor": query.min_score, "leftOut": below}
    further = {
        "expandQuery": list(query.wording) or None,
        "prf": plan.learned,
        "minScore": floor,
    }
    found = {
        "arms": [search.name for search in plan.searches],
        "candidates": len(pool.candidates),
        "candidatesPerArm": plan.depths[-1],
        "vectorSearch": None
        if plan.vector is None
        else "scan"
        if plan.exact(pool.collection)
        else "graph",
        "terms": None if terms is None else len(terms.ids),
        "generation": pool.collection.generation,
        "revision": pool.collection.revision,
        "filtered": query.predicate is not None,
    }
    known = {name: value for name, value in further.items() if value is not None}
    return explained(query, context.time) | found | known


def survivors(outcomes: Mapping[str, T | BaseException], answer: QueryAnswer) -> dict[str, T]:
    """Return the outcomes of the collections that succeeded; failures become warnings.

    Raises:
        SearchError: the first failure, if all of them failed.
    """
    kept: dict[str, T] = {}
    failures: list[SearchError] = []
    for name, outcome in outcomes.items():
        if isinstance(outcome, SearchError):
            failures.append(outcome)
            answer.warnings.append(f"{name}: {outcome}")
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            kept[name] = outcome
    if failures and not kept:
        raise failures[0]
    return kept


def merge(merged: QueryAnswer, name: str, answer: QueryAnswer) -> None:
    """Merge one collection's answer into the answer for several collections."""
    merged.hyde = merged.hyde or answer.hyde
    merged.degraded = merged.degraded or answer.degraded
    merged.warnings += [f"{name}: {warning}" for warning in answer.warnings]
    for step, took in answer.timings.items():
        merged.timings[step] = max(took, merged.timings.get(step, 0.0))
    if answer.explain:
        merged.explain[name] = answer.explain
