"""One evaluation over a connection: index missing documents, run the queries, score the hits.

The metrics are computed by ir-measures, which calls the code of trec_eval. The gain of nDCG is the
grade, discounted by log2(rank + 1); all other metrics count a document as relevant from grade 1.
Only the order of a ranking is passed on, so that equal scores do not change it.

Järvelin and Kekäläinen, *Cumulated gain-based evaluation of IR techniques*, 2002 (nDCG); Voorhees,
*The TREC-8 Question Answering Track Report*, 1999 (MRR).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from statistics import fmean
from typing import Any, TypeVar

import ir_measures
import numpy as np
from ir_measures import RR, R, Success, nDCG

from ability_search import __version__
from ability_search.bounded_batches import batches, text_bytes
from ability_search.client.tool_client import (
    BATCH_BYTES,
    BATCH_DOCUMENTS,
    Advance,
    Call,
    ToolClient,
)
from ability_search.errors import SearchError, first_failure
from ability_search.extensions.cli.local_files import collection_name, list_sources
from ability_search.extensions.evaluation import runs
from ability_search.extensions.evaluation.evaluation_options import EvaluationOptions, Mode
from ability_search.extensions.evaluation.judged_sets import Dataset, JudgedQuery, Qrels
from ability_search.index.preparation import LAYOUT
from ability_search.store.index_doubts import INDEX_DOUBTED

CUTOFFS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000)
"""Ranks of the recall curve."""

_MEASURES = {"nDCG": nDCG, "Recall": R, "MRR": RR, "Hit": Success}

K = TypeVar("K")
Rankings = Mapping[str, Sequence[str]]
"""Query -> its documents, best first, without duplicates."""


def measured(dataset: Dataset, outcomes: Mapping[str, runs.Outcome], *, limit: int) -> runs.ModeRun:
    """Return the run of a mode; the metrics of its outcomes are set.

    Args:
        dataset: The set.
        outcomes: The outcomes of all its queries, by id.
        limit: Documents ranked for each query.
    """
    answered = {query.id: outcomes[query.id] for query in dataset.queries}
    rankings = {id: outcome.documents for id, outcome in answered.items()}
    for id, metrics in per_query(dataset.qrels, rankings, limit=limit).items():
        answered[id].metrics = metrics
    times = [outcome.milliseconds for outcome in outcomes.values()]
    median, p95 = np.percentile(times, [50, 95]).tolist()
    return runs.ModeRun(
        metrics=runs.means(answered),
        recall_curve=recall_curve(dataset.qrels, rankings, limit=limit),
        milliseconds=runs.Latency(median=round(median, 2), p95=round(p95, 2)),
        queries=answered,
        negatives={query.id: outcomes[query.id] for query in dataset.negatives},
    )


def per_query(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[str, dict[str, float]]:
    """Return every metric of every judged query; 0 for a query without a ranking or hits.

    Args:
        qrels: The judgements.
        rankings: The rankings.
        limit: Length of the rankings; metrics with a larger cutoff are omitted.
    """
    measures = {}
    for name in runs.METRICS:
        kind, _, cutoff = name.partition("@")
        if int(cutoff) <= limit:
            measures[_MEASURES[kind] @ int(cutoff)] = name
    return _values(measures, qrels, rankings)


def recall_curve(qrels: Qrels, rankings: Rankings, *, limit: int) -> dict[int, float]:
    """Return rank -> mean recall at that rank, up to ``limit``."""
    ranks = [rank for rank in CUTOFFS if rank <= limit]
    values = _values({R @ rank: rank for rank in ranks}, qrels, rankings).values()
    return {rank: fmean(each[rank] for each in values) for rank in ranks}


def _values(
    measures: Mapping[Any, K], qrels: Qrels, rankings: Rankings
) -> dict[str, dict[K, float]]:
    """Return the value of each measure by its name, for each judged query."""
    found = {query: dict.fromkeys(measures.values(), 0.0) for query in qrels}
    scored = {
        query: {document: -float(rank) for rank, document in enumerate(documents)}
        for query, documents in rankings.items()
    }
    for value in ir_measures.iter_calc(list(measures), qrels, scored):
        found[value.query_id][measures[value.measure]] = value.value
    return found


ShowProgress = Callable[[str, int], AbstractContextManager[Advance]]
"""Shows the progress of a named operation of some length during a block."""

_DIGITS = 12
_LONGEST_SLUG = 40
_DESCRIBED = ("model", "dimensions", "chunks", "sourceCount", "language", "generation", "state")
"""Fields of the collection that a run records."""


async def evaluate(
    client: ToolClient,
    dataset: Dataset,
    options: EvaluationOptions,
    recipe: Mapping[str, Any],
    progress: ShowProgress,
) -> runs.EvaluationRun:
    """Evaluate a set in every requested mode.

    Args:
        client: The connection.
        dataset: The set.
        options: The options.
        recipe: Indexing options, as fields of ``search-index``.
        progress: Shows the progress to the user.

    Raises:
        SearchError, KadiError: if indexing or a query fails.
    """
    call = partial(client.call, timeout=options.timeout)
    slug = collection_name(dataset.directory)
    known = _known_settings(client, recipe)
    collection = options.collection or corpus_collection(slug, dataset, known)
    indexing = await index_missing(
        client, dataset, {**recipe, "collection": collection}, options, progress
    )
    about = await call("search-collection-info", {"collection": collection, "limit": 1})
    fields = options.query_fields(recipe)
    limit = min(options.limit, client.settings.limits.limit)
    modes = {}
    queries = (*dataset.queries, *dataset.negatives)
    for mode in options.mode or Mode:
        request = {"collection": collection, **fields, "mode": mode.value}
        with progress(mode, len(queries)) as advance:
            outcomes = await run_queries(
                partial(run_query, call, request, limit=limit),
                queries,
                options.concurrency,
                advance,
            )
        modes[mode.value] = measured(dataset, outcomes, limit=options.limit)
    return runs.EvaluationRun(
        name=options.name or slug,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={
            "abilitySearch": __version__,
            "python": platform.python_version(),
            "irMeasures": importlib.metadata.version("ir-measures"),
        },
        dataset=dataset.description,
        collection={"name": collection} | {name: about[name] for name in _DESCRIBED},
        settings={"ranking": client.settings.ranking.model_dump(mode="json"), "recipe": known},
        options=fields,
        limit=options.limit,
        concurrency=options.concurrency,
        indexing=indexing,
        modes=modes,
    )


def _known_settings(client: ToolClient, recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine how a corpus is indexed, as far as they are known here.

    A worker elsewhere may have other settings than this machine; a stack that was started for
    the evaluation has the same.
    """
    settings, stack = client.settings, client.target.stack
    return {
        "model": (stack.model if stack else None) or settings.embedding.model,
        "longest": settings.embedding.max_tokens,
        "chunking": settings.chunking.model_dump(mode="json"),
        "k1": settings.ranking.bm25_k1,
        "b": settings.ranking.bm25_b,
        **recipe,
    }


def corpus_collection(slug: str, dataset: Dataset, recipe: Mapping[str, Any]) -> str:
    """Return the collection name of a corpus indexed with ``recipe``; it contains a hash of both.

    Args:
        slug: Name of the directory, as a valid collection name.
        dataset: The set.
        recipe: All settings that determine how the corpus is indexed, as JSON values.
    """
    parts = (LAYOUT, dataset.corpus_digest, recipe)
    digest = sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
    return f"eval-{slug[:_LONGEST_SLUG]}-{digest[:_DIGITS]}"


async def index_missing(
    client: ToolClient,
    dataset: Dataset,
    fields: Mapping[str, Any],
    options: EvaluationOptions,
    progress: ShowProgress,
) -> runs.Indexing:
    """Index the documents that are not indexed yet, in batches of bounded size.

    Args:
        client: The connection.
        dataset: The set.
        fields: Fields of ``search-index``, with the collection.
        options: The options.
        progress: Shows the progress to the user.

    Raises:
        SearchError: if the collection is empty because no document could be indexed.
    """
    started = time.perf_counter()
    call = partial(client.call, timeout=options.timeout)
    collection, stored = fields["collection"], set[str]()
    known = (await call("search-collections", {}))["collections"]
    if any(item["name"] == collection for item in known):
        if options.fresh:
            await call("search-delete", {"collection": collection})
        else:
            stored = set(await list_sources(call, collection))
    missing = (each for each in dataset.documents() if each["source"] not in stored)
    limits = client.settings.limits
    result, done = runs.Indexing(seconds=0.0, added=0, failed=[]), 0
    with progress("indexing", len(dataset.sources - stored)) as advance:
        for batch in batches(
            missing,
            lambda document: text_bytes(document["content"]),
            most=min(BATCH_DOCUMENTS, limits.batch_documents),
            most_bytes=min(BATCH_BYTES, limits.batch_bytes),
        ):
            answer = await client.run_job(
                "search-index",
                {**fields, "documents": batch},
                timeout=options.timeout,
                advance=advance,
                before=done,
            )
            done += len(batch)
            result.added += answer["added"]
            result.failed += answer["failed"]
    if not stored and not result.added:
        raise SearchError(f"no document could be indexed: {result.failed[0]['error']}")
    result.seconds = round(time.perf_counter() - started, 2)
    return result


async def run_queries(
    ask: Callable[[JudgedQuery], Awaitable[runs.Outcome]],
    queries: Sequence[JudgedQuery],
    concurrency: int,
    advance: Advance,
) -> dict[str, runs.Outcome]:
    """Return the outcome of each query by its id; raise the first failure unchanged."""
    outcomes: dict[str, runs.Outcome] = {}
    waiting = iter(queries)

    async def work() -> None:
        for query in waiting:
            outcomes[query.id] = await ask(query)
            advance(len(outcomes), len(queries), "")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(work())
    except ExceptionGroup as failures:
        raise first_failure(failures) from failures
    return outcomes


async def run_query(
    call: Call, fields: Mapping[str, Any], query: JudgedQuery, *, limit: int
) -> runs.Outcome:
    """Run one query, and rank documents by their best chunk.

    Args:
        call: Calls a tool.
        fields: Fields of every query, including the collection and the mode.
        query: The query; its own fields take precedence.
        limit: Documents to rank.

    Raises:
        SearchError: if it cannot be answered in this mode; also raises the tool's failures.
    """
    own = {"query": query.text} | ({} if query.as_of is None else {"asOf": query.as_of})
    started = time.perf_counter()
    answer = await call("search-query", {"maxPerSource": 1, **fields, **own, "limit": limit})
    milliseconds = (time.perf_counter() - started) * 1e3
    if degraded := answer.get("degraded"):
        if degraded["code"] == INDEX_DOUBTED:
            raise SearchError(
                f"the answer to query {query.id!r} may be incomplete: {degraded['reason']}",
                hint="Call again when `ability-search doctor` no longer says so.",
            )
        raise SearchError(
            f"query {query.id!r} was searched by {degraded['mode']} only: {degraded['reason']}",
            hint="A run must not mix modes. Fix the cause, or use --mode keyword.",
        )
    best: dict[str, float] = {}
    for hit in answer["results"]:
        best.setdefault(hit["source"], hit["score"])
    return runs.Outcome(
        text=query.text,
        category=query.category,
        documents=list(best),
        scores=[round(score, 6) for score in best.values()],
        milliseconds=round(milliseconds, 3),
        warnings=answer.get("warnings") or [],
    )
