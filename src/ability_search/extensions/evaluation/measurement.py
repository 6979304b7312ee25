"""Runs the queries of a set and evaluates their hits.

The metrics are computed by ir-measures, which calls the code of trec_eval. The gain of nDCG is the
grade, discounted by log2(rank + 1); all other metrics count a document as relevant from grade 1.
Only the order of a ranking is passed on, so that equal scores do not change it.

Järvelin and Kekäläinen, *Cumulated gain-based evaluation of IR techniques*, 2002 (nDCG); Voorhees,
*The TREC-8 Question Answering Track Report*, 1999 (MRR).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import ir_measures
import numpy as np
from ir_measures import RR, R, Success, nDCG

from ability_search.client.tool_client import Call
from ability_search.errors import SearchError, first_failure
from ability_search.extensions.evaluation.judged_sets import Dataset, JudgedQuery, Qrels
from ability_search.extensions.evaluation.runs import METRICS, Latency, ModeRun, Outcome, means

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000)
"""Ranks of the recall curve."""

_MEASURES = {"nDCG": nDCG, "Recall": R, "MRR": RR, "Hit": Success}

Rankings = Mapping[str, Sequence[str]]
"""Query -> its documents, best first, without duplicates."""

Tick = Callable[[int], None]
"""Callback with the number of answered queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """Options of a run of queries."""

    call: Call
    fields: Mapping[str, Any]
    """Fields of every ``search-query`` call, including the collection; those of a query take
    precedence."""
    limit: int
    """Documents to rank per query."""
    chunks: int
    """Chunks to request at first, an estimate for ``limit`` documents."""
    most_chunks: int
    """Maximum number of chunks per call."""
    concurrency: int
    """Concurrent queries."""


async def measure(run: QueryRun, dataset: Dataset, mode: str, tick: Tick) -> ModeRun:
    """Run every query of the set in one mode.

    Raises:
        SearchError: if a query cannot be answered in this mode; also raises the tool's failures.
    """
    queries = (*dataset.queries, *dataset.negatives)
    outcomes = await run_queries(run, queries, mode, tick)
    answered = {query.id: outcomes[query.id] for query in dataset.queries}
    rankings = {id: outcome.documents for id, outcome in answered.items()}
    for id, metrics in per_query(dataset.qrels, rankings, limit=run.limit).items():
        answered[id].metrics = metrics
    times = [outcome.milliseconds for outcome in outcomes.values()]
    median, p95 = np.percentile(times, [50, 95]).tolist()
    return ModeRun(
        metrics=means(answered),
        recall_curve=recall_curve(dataset.qrels, rankings, limit=run.limit),
        milliseconds=Latency(median=round(median, 2), p95=round(p95, 2)),
        queries=answered,
        negatives={query.id: outcomes[query.id] for query in dataset.negatives},
    )


async def run_queries(
    run: QueryRun, queries: Sequence[JudgedQuery], mode: str, tick: Tick
) -> dict[str, Outcome]:
    """Return the outcome of each query by its id; raise the first failure unchanged."""
    outcomes: dict[str, Outcome] = {}
    waiting = iter(queries)

    async def work() -> None:
        for query in waiting:
            outcomes[query.id] = await run_query(run, query, mode)
            tick(len(outcomes))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(run.concurrency, len(queries))):
                group.create_task(work())
    except ExceptionGroup as failures:
        raise first_failure(failures) from failures
    return outcomes


async def run_query(run: QueryRun, query: JudgedQuery, mode: str) -> Outcome:
    """Run one query; double the number of chunks until they cover the requested documents.

    The latency is that of the last call.
    """
    wanted = min(run.chunks, run.most_chunks)
    fields = run.fields if query.as_of is None else {**run.fields, "asOf": query.as_of}
    while True:
        started = time.perf_counter()
        request = {**fields, "query": query.text, "mode": mode, "limit": wanted}
        answer = await run.call("search-query", request)
        milliseconds = (time.perf_counter() - started) * 1e3
        _check(answer, query)
        ranking = best_chunks(answer["results"])
        exhausted = len(answer["results"]) < wanted or wanted == run.most_chunks
        if len(ranking) >= run.limit or exhausted:
            break
        wanted = min(2 * wanted, run.most_chunks)
    chosen = list(ranking.items())[: run.limit]
    return Outcome(
        text=query.text,
        category=query.category,
        documents=[document for document, _ in chosen],
        scores=[round(score, 6) for _, score in chosen],
        milliseconds=round(milliseconds, 3),
        warnings=answer.get("warnings") or [],
    )


def best_chunks(hits: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return document -> score of its best chunk, best first."""
    ranking: dict[str, float] = {}
    for hit in hits:
        ranking.setdefault(hit["source"], hit["score"])
    return ranking


def chunks_for(documents: int, *, chunks: int, sources: int) -> int:
    """Return how many chunks cover ``documents`` if all sources have equally many chunks."""
    return max(documents, math.ceil(documents * chunks / max(1, sources)))


def _check(answer: Mapping[str, Any], query: JudgedQuery) -> None:
    degraded = answer.get("degraded")
    if degraded:
        raise SearchError(
            f"query {query.id!r} was searched by {degraded['mode']} only: {degraded['reason']}",
            hint="A run must not mix modes. Fix the cause, or use --mode keyword.",
        )


def per_query(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[str, dict[str, float]]:
    """Return every metric of every judged query; 0 for a query without a ranking or hits.

    Args:
        qrels: The judgements.
        rankings: The rankings.
        limit: Length of the rankings; metrics with a larger cutoff are omitted.
    """
    measures = {_measure(name): name for name in METRICS if _cutoff(name) <= limit}
    found: dict[str, dict[str, float]] = {
        query: dict.fromkeys(measures.values(), 0.0) for query in qrels
    }
    for value in ir_measures.iter_calc(list(measures), qrels, _scored(rankings)):
        found[value.query_id][measures[value.measure]] = value.value
    return found


def recall_curve(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[int, float]:
    """Return rank -> mean recall at that rank, up to ``limit``."""
    ranks = [cutoff for cutoff in CUTOFFS if cutoff <= limit]
    values: dict[int, list[float]] = {rank: [] for rank in ranks}
    measures = {R @ rank: rank for rank in ranks}
    for value in ir_measures.iter_calc(list(measures), qrels, _scored(rankings)):
        values[measures[value.measure]].append(value.value)
    return {rank: fmean(found) for rank, found in values.items()}


def _measure(name: str) -> ir_measures.measures.Measure:
    kind, _, cutoff = name.partition("@")
    return _MEASURES[kind] @ int(cutoff)


def _cutoff(name: str) -> int:
    return int(name.partition("@")[2])


def _scored(rankings: Rankings) -> dict[str, dict[str, float]]:
    return {
        query: {document: -float(rank) for rank, document in enumerate(documents)}
        for query, documents in rankings.items()
    }
