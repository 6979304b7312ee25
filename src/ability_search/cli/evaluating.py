"""One evaluation over a connection: index missing documents, run the queries, score the hits."""

from __future__ import annotations

import importlib.metadata
import platform
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ability_search import __version__
from ability_search.cli.client import Client
from ability_search.cli.progress import progress_bar
from ability_search.cli.selecting import BATCH_BYTES, BATCH_DOCUMENTS
from ability_search.cli.selecting import collection_name as slug
from ability_search.client.following import following
from ability_search.evaluation.corpus_index import collection_name, index_missing, stored_sources
from ability_search.evaluation.judged_sets import Dataset
from ability_search.evaluation.runs import Indexing, ModeRun, Run, SetDescription

if TYPE_CHECKING:
    from ability_search.evaluation.measurement import Asking

_DESCRIBED = ("model", "dimensions", "chunks", "sourceCount", "language", "generation", "state")
"""Fields of the collection that a run records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The parameters of an evaluation."""

    name: str
    modes: Sequence[str]
    limit: int
    """Documents ranked for each query."""
    options: Mapping[str, Any]
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
    hidden: bool
    """Whether to hide the progress bar."""


async def measured(client: Client, dataset: Dataset, wanted: Wanted) -> Run:
    """Evaluate a set in every requested mode.

    Raises:
        SearchError, KadiError: if indexing or a query fails.
    """
    from ability_search.evaluation.measurement import Asking, chunks_for

    call = partial(client.call, timeout=wanted.timeout)
    recipe = _recipe(client, wanted)
    collection = wanted.collection or collection_name(slug(dataset.directory), dataset, recipe)
    indexing = await _index(client, dataset, collection, wanted)
    about = await call("search-collection-info", {"collection": collection, "limit": 1})
    asking = Asking(
        call=call,
        fields={"collection": collection, **wanted.options},
        limit=wanted.limit,
        chunks=chunks_for(wanted.limit, chunks=about["chunks"], sources=about["sourceCount"]),
        most_chunks=client.settings.limits.limit,
        concurrency=wanted.concurrency,
    )
    return Run(
        name=wanted.name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        versions={
            "abilitySearch": __version__,
            "python": platform.python_version(),
            "irMeasures": importlib.metadata.version("ir-measures"),
        },
        dataset=_description(dataset),
        collection={"name": collection} | {name: about[name] for name in _DESCRIBED},
        settings={"ranking": client.settings.ranking.model_dump(mode="json"), "recipe": recipe},
        options=dict(wanted.options),
        limit=wanted.limit,
        concurrency=wanted.concurrency,
        indexing=indexing,
        modes={mode: await _ask(asking, dataset, mode, wanted) for mode in wanted.modes},
    )


def _recipe(client: Client, wanted: Wanted) -> dict[str, Any]:
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
        **wanted.recipe,
    }


async def _index(client: Client, dataset: Dataset, collection: str, wanted: Wanted) -> Indexing:
    call = partial(client.call, timeout=wanted.timeout)
    stored = await stored_sources(call, collection)
    if stored and wanted.fresh:
        await call("search-delete", {"collection": collection})
        stored = set()
    total = len(dataset.sources - stored)
    limits = client.settings.limits
    with progress_bar("indexing", total=total, hidden=wanted.hidden) as advance:

        async def send(batch: Sequence[Mapping[str, Any]], done: int) -> dict[str, Any]:
            job = secrets.token_hex(8)
            request = {**wanted.recipe, "collection": collection, "documents": batch, "jobId": job}
            async with following(client.connection, job, advance, before=done):
                return await call("search-index", request)

        return await index_missing(
            dataset,
            stored,
            send,
            most=min(BATCH_DOCUMENTS, limits.batch_documents),
            most_bytes=min(BATCH_BYTES, limits.batch_bytes),
        )


async def _ask(asking: Asking, dataset: Dataset, mode: str, wanted: Wanted) -> ModeRun:
    from ability_search.evaluation.measurement import measure

    total = len(dataset.queries) + len(dataset.negatives)
    with progress_bar(mode, total=total, hidden=wanted.hidden) as advance:
        return await measure(asking, dataset, mode, lambda done: advance(done, total, ""))


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
