"""Indexing of a corpus into a collection that later runs with the same content reuse."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from ability_search.batching import batches
from ability_search.errors import SearchError
from ability_search.evaluation.judged_sets import Dataset
from ability_search.evaluation.runs import Indexing
from ability_search.index.preparation import LAYOUT

Call = Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]
"""Calls a tool; raises its failures."""

Send = Callable[[Sequence[Mapping[str, Any]], int], Awaitable[dict[str, Any]]]
"""Indexes a batch, given the number of documents sent before; returns the search-index result."""

_PAGE = 10_000
_DIGITS = 12
_LONGEST_SLUG = 40


def collection_name(slug: str, dataset: Dataset, recipe: Mapping[str, Any]) -> str:
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
    stored: set[str] = set()
    page: dict[str, Any] = {"nextCursor": None}
    while "nextCursor" in page:
        cursor = {} if page["nextCursor"] is None else {"cursor": page["nextCursor"]}
        wanted = {"collection": collection, "limit": _PAGE, **cursor}
        page = await call("search-collection-info", wanted)
        stored.update(page["sources"])
    return stored


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
