"""Asking the queries of a set, and judging what they find."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ability_search.errors import SearchError, first_failure
from ability_search.evaluation.dataset import Dataset, JudgedQuery
from ability_search.evaluation.indexing import Call
from ability_search.evaluation.metrics import per_query, recall_curve
from ability_search.evaluation.runs import Latency, ModeRun, Outcome, means

Tick = Callable[[int], None]
"""Called with the number of queries that are answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How queries are asked."""

    call: Call
    fields: Mapping[str, Any]
    """What all calls of ``search-query`` have in common, the collection among it; what a query
    says itself wins."""
    limit: int
    """Documents to rank for each query."""
    chunks: int
    """Chunks that are asked for at first, so that they fill ``limit`` documents."""
    most_chunks: int
    """Chunks that a call may ask for."""
    concurrency: int
    """Queries under way at a time."""


async def measure(asking: Asking, dataset: Dataset, mode: str, tick: Tick) -> ModeRun:
    """Ask every query of the set in one mode.

    Raises:
        SearchError: if one cannot be answered in this mode, or what the tool raises.
    """
    queries = (*dataset.queries, *dataset.negatives)
    outcomes = await ask_all(asking, queries, mode, tick)
    answered = {query.id: outcomes[query.id] for query in dataset.queries}
    rankings = {id: outcome.documents for id, outcome in answered.items()}
    for id, metrics in per_query(dataset.qrels, rankings, limit=asking.limit).items():
        answered[id].metrics = metrics
    times = [outcome.milliseconds for outcome in outcomes.values()]
    median, p95 = np.percentile(times, [50, 95]).tolist()
    return ModeRun(
        metrics=means(answered),
        recall_curve=recall_curve(dataset.qrels, rankings, limit=asking.limit),
        milliseconds=Latency(median=round(median, 2), p95=round(p95, 2)),
        queries=answered,
        negatives={query.id: outcomes[query.id] for query in dataset.negatives},
    )


async def ask_all(
    asking: Asking, queries: Sequence[JudgedQuery], mode: str, tick: Tick
) -> dict[str, Outcome]:
    """What each query finds; raises the first failure as it is."""
    outcomes: dict[str, Outcome] = {}
    waiting = iter(queries)

    async def work() -> None:
        for query in waiting:
            outcomes[query.id] = await ask(asking, query, mode)
            tick(len(outcomes))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(asking.concurrency, len(queries))):
                group.create_task(work())
    except ExceptionGroup as failures:
        raise first_failure(failures) from failures
    return outcomes


async def ask(asking: Asking, query: JudgedQuery, mode: str) -> Outcome:
    """Ask one query, for twice as many chunks as long as they do not fill the documents wanted.

    The time is that of the last call.
    """
    wanted = min(asking.chunks, asking.most_chunks)
    fields = asking.fields if query.as_of is None else {**asking.fields, "asOf": query.as_of}
    while True:
        started = time.perf_counter()
        request = {**fields, "query": query.text, "mode": mode, "limit": wanted}
        answer = await asking.call("search-query", request)
        milliseconds = (time.perf_counter() - started) * 1e3
        _check(answer, query)
        ranking = best_chunks(answer["results"])
        exhausted = len(answer["results"]) < wanted or wanted == asking.most_chunks
        if len(ranking) >= asking.limit or exhausted:
            break
        wanted = min(2 * wanted, asking.most_chunks)
    chosen = list(ranking.items())[: asking.limit]
    return Outcome(
        text=query.text,
        category=query.category,
        documents=[document for document, _ in chosen],
        scores=[round(score, 6) for _, score in chosen],
        milliseconds=round(milliseconds, 3),
        warnings=answer.get("warnings") or [],
    )


def best_chunks(hits: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Documents in the order of their best chunks, and the scores of those."""
    ranking: dict[str, float] = {}
    for hit in hits:
        ranking.setdefault(hit["source"], hit["score"])
    return ranking


def chunks_for(documents: int, *, chunks: int, sources: int) -> int:
    """Chunks that hold so many documents if chunks are spread evenly over sources."""
    return max(documents, math.ceil(documents * chunks / max(1, sources)))


def _check(answer: Mapping[str, Any], query: JudgedQuery) -> None:
    degraded = answer.get("degraded")
    if degraded:
        raise SearchError(
            f"query {query.id!r} was searched by {degraded['mode']} only: {degraded['reason']}",
            hint="A run must not mix modes: repair what is missing, or choose --mode keyword.",
        )
