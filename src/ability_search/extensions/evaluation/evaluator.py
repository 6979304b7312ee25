"""One evaluation over a connection: index missing documents, run the queries, score the hits."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any

from ability_search import __version__
from ability_search.bounded_batches import batches
from ability_search.client.tool_client import (
    BATCH_BYTES,
    BATCH_DOCUMENTS,
    Advance,
    Call,
    ToolClient,
)
from ability_search.errors import SearchError
from ability_search.extensions.cli.trees import collection_name
from ability_search.extensions.cli.upload import list_sources
from ability_search.extensions.evaluation.judged_sets import Dataset
from ability_search.extensions.evaluation.measurement import QueryRun, chunks_for, measure
from ability_search.extensions.evaluation.runs import Indexing, ModeRun, Run, SetDescription
from ability_search.index.preparation import LAYOUT

ShowProgress = Callable[[str, int], AbstractContextManager[Advance]]
"""Shows the progress of a named operation of some length during a block."""

Send = Callable[[Sequence[Mapping[str, Any]], int], Awaitable[dict[str, Any]]]
"""Indexes a batch, given the number of documents sent before; returns the search-index result."""

_DIGITS = 12
_LONGEST_SLUG = 40
_DESCRIBED = ("model", "dimensions", "chunks", "sourceCount", "language", "generation", "state")
"""Fields of the collection that a run records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationOptions:
    """Options of an evaluation."""

    name: str
    modes: Sequence[str]
    limit: int
    """Documents ranked for each query."""
    fields: Mapping[str, Any]
    """Additional fields of the queries."""
    collection: str | None
    """Collection to index into; ``None`` for one named by a hash of its content."""
    recipe: Mapping[str, Any]
    """Indexing options, as fields of ``search-index``."""
    fresh: bool
    """Whether to delete the collection first."""
    concurrency: int
    """Concurrent queries."""
    timeout: float
    """Timeout of a call, in seconds."""


async def evaluate(
    client: ToolClient, dataset: Dataset, options: EvaluationOptions, progress: ShowProgress
) -> Run:
    """Evaluate a set in every requested mode.

    Raises:
        SearchError, KadiError: if indexing or a query fails.
    """
    call = partial(client.call, timeout=options.timeout)
    recipe = _recipe(client, options)
    collection = options.collection or corpus_collection(
        collection_name(dataset.directory), dataset, recipe
    )
    indexing = await _index(client, dataset, collection, options, progress)
    about = await call("search-collection-info", {"collection": collection, "limit": 1})
    query_run = QueryRun(
        call=call,
        fields={"collection": collection, **options.fields},
        limit=options.limit,
        chunks=chunks_for(options.limit, chunks=about["chunks"], sources=about["sourceCount"]),
        most_chunks=client.settings.limits.limit,
        concurrency=options.concurrency,
    )
    return Run(
        name=options.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={
            "abilitySearch": __version__,
            "python": platform.python_version(),
            "irMeasures": importlib.metadata.version("ir-measures"),
        },
        dataset=_description(dataset),
        collection={"name": collection} | {name: about[name] for name in _DESCRIBED},
        settings={"ranking": client.settings.ranking.model_dump(mode="json"), "recipe": recipe},
        options=dict(options.fields),
        limit=options.limit,
        concurrency=options.concurrency,
        indexing=indexing,
        modes={mode: await _run_mode(query_run, dataset, mode, progress) for mode in options.modes},
    )


def _recipe(client: ToolClient, options: EvaluationOptions) -> dict[str, Any]:
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
        **options.recipe,
    }


async def _index(
    client: ToolClient,
    dataset: Dataset,
    collection: str,
    options: EvaluationOptions,
    progress: ShowProgress,
) -> Indexing:
    call = partial(client.call, timeout=options.timeout)
    stored = await stored_sources(call, collection)
    if stored and options.fresh:
        await call("search-delete", {"collection": collection})
        stored = set()
    limits = client.settings.limits
    with progress("indexing", len(dataset.sources - stored)) as advance:

        async def send(batch: Sequence[Mapping[str, Any]], done: int) -> dict[str, Any]:
            return await client.run_job(
                "search-index",
                {**options.recipe, "collection": collection, "documents": batch},
                timeout=options.timeout,
                advance=advance,
                before=done,
            )

        return await index_missing(
            dataset,
            stored,
            send,
            most=min(BATCH_DOCUMENTS, limits.batch_documents),
            most_bytes=min(BATCH_BYTES, limits.batch_bytes),
        )


async def _run_mode(
    query_run: QueryRun, dataset: Dataset, mode: str, progress: ShowProgress
) -> ModeRun:
    total = len(dataset.queries) + len(dataset.negatives)
    with progress(mode, total) as advance:
        return await measure(query_run, dataset, mode, lambda done: advance(done, total, ""))


def _description(dataset: Dataset) -> SetDescription:
    return SetDescription(
        name=dataset.directory.resolve().name,
        digest=dataset.digest,
        documents=len(dataset.sources) + dataset.blank,
        blank=dataset.blank,
        queries=len(dataset.queries),
        negatives=len(dataset.negatives),
        unjudged=dataset.unjudged,
        dated=sum(query.as_of is not None for query in (*dataset.queries, *dataset.negatives)),
    )


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


async def stored_sources(call: Call, collection: str) -> set[str]:
    """Return the sources of a collection; empty if it does not exist."""
    known = (await call("search-collections", {}))["collections"]
    if all(item["name"] != collection for item in known):
        return set()
    return set(await list_sources(call, collection))


async def index_missing(
    dataset: Dataset, stored: set[str], send: Send, *, most: int, most_bytes: int
) -> Indexing:
    """Index the documents that are not indexed yet, in batches of bounded size.

    Raises:
        SearchError: if the collection is empty because no document could be indexed.
    """
    started = time.perf_counter()
    result = Indexing(seconds=0.0, added=0, failed=[])
    if not dataset.sources <= stored:
        missing = (item for item in dataset.documents() if item["source"] not in stored)
        done = 0
        for batch in batches(missing, content_bytes, most=most, most_bytes=most_bytes):
            answer = await send(batch, done)
            done += len(batch)
            result.added += answer["added"]
            result.failed += answer["failed"]
        if not stored and not result.added:
            raise SearchError(f"no document could be indexed: {result.failed[0]['error']}")
    result.seconds = round(time.perf_counter() - started, 2)
    return result


def content_bytes(document: Mapping[str, Any]) -> int:
    """Return the size of a document's text in bytes."""
    return len(document["content"].encode())
