"""Building a collection anew from what it stores, while the old one goes on answering."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.collection import Collection
from ability_search.documents import Document
from ability_search.errors import DatabaseUnavailable, NotFound, SearchError
from ability_search.indexing.options import IndexOptions
from ability_search.indexing.preparing import restored_document
from ability_search.indexing.reports import IndexReport, Progress, Report
from ability_search.indexing.service import Indexing
from ability_search.ports import Store

log = logging.getLogger(__name__)

_PAGE = 64
"""Sources restored at a time."""
_PASSES = 10
"""Times that writes to the live generation are caught up with before giving up."""


class Reindexing:
    """The reindex service.

    A new generation is built under a record of its own, so that nobody sees it before it is
    complete, and put in the place of the live one in one update. What was written to the live
    generation meanwhile is caught up with first.

    Args:
        store: The database.
        catalogue: Knows the collections.
        indexing: Does the work.
        grace: Seconds that the old generation stays for queries that are under way.
    """

    def __init__(
        self, store: Store, catalogue: Catalogue, indexing: Indexing, *, grace: float
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._indexing = indexing
        self._grace = grace
        self._dropping: set[asyncio.Task[None]] = set()

    async def reindex(
        self, name: str, options: IndexOptions, report: Report
    ) -> tuple[IndexReport, Collection]:
        """Chunk and embed everything anew; returns the report and the collection afterwards.

        Raises:
            NotFound: if there is no such collection.
            EmbeddingUnavailable: if the embedder gave out; the live generation is untouched.
            DatabaseUnavailable: if the database did, or writers kept being faster.
        """
        live = await self._current(name)
        record = f"{name}@{secrets.token_hex(4)}"
        recipe = self._indexing.recipe(
            options, replace(live, language=options.language or live.language)
        )
        options = replace(
            options,
            model=options.model or live.model,
            chunk_strategy=recipe.chunk_strategy,
            max_tokens=recipe.chunk_size,
            overlap=recipe.chunk_overlap,
            language=recipe.language,
            kinds=recipe.kinds,
            kinds_by=recipe.kinds_by,
        )
        try:
            return await self._build(live, record, options, report)
        except BaseException:
            await asyncio.shield(self._discard(record))
            raise

    async def close(self) -> None:
        """Drop right away what waits for its grace period."""
        for task in self._dropping:
            task.cancel()
        await asyncio.gather(*self._dropping, return_exceptions=True)

    async def _build(
        self, live: Collection, record: str, options: IndexOptions, report: Report
    ) -> tuple[IndexReport, Collection]:
        started = time.perf_counter()
        total = IndexReport(live.name, live.sources, options.model or live.model)
        built: dict[str, str] = {}
        """The hash that each source had in the live generation when it was built."""
        for _ in range(_PASSES):
            await self._catch_up(live, record, options, built, total, report)
            collection = await self._catalogue.reload(record)
            if collection is None:
                return total, live
            if collection.sources != len(built):
                raise DatabaseUnavailable("the new generation does not hold all sources")
            switched = await self._catalogue.switch(live, collection)
            if switched is not None:
                total.seconds = time.perf_counter() - started
                self._drop_later(live.type)
                return total, switched
            live = await self._current(live.name)
        raise DatabaseUnavailable(
            "writers kept changing the collection", hint="Call again when fewer are writing."
        )

    async def _catch_up(
        self,
        live: Collection,
        record: str,
        options: IndexOptions,
        built: dict[str, str],
        total: IndexReport,
        report: Report,
    ) -> None:
        """Bring the new generation to where the live one is."""
        seen: set[str] = set()
        async for page in self._pages(live):
            seen.update(row["source"] for row in page)
            restored = {
                row["source"]: (row["contentHash"], document)
                for row in page
                if built.get(row["source"]) != row["contentHash"]
                and (document := await self._restored(live, row)) is not None
            }
            if not restored:
                continue
            documents = [document for _, document in restored.values()]
            part = await self._indexing.index_into(
                record, await self._catalogue.reload(record), documents, options, _ignore
            )
            if part.failed:
                raise part.failed[0].error
            built.update({source: known for source, (known, _) in restored.items()})
            total.chunks += part.chunks
            total.reused += part.reused
            total.warnings += part.warnings
            total.dimensions = part.dimensions
            total.updated = len(built)
            await report(Progress(live.name, len(built), live.sources, "reindexing"))
        for source in built.keys() - seen:
            collection = await self._catalogue.reload(record)
            if collection is not None:
                await self._indexing.remove(collection, [source], aspects=False)
            del built[source]

    async def _pages(self, live: Collection) -> AsyncIterator[list[dict[str, Any]]]:
        floor = ""
        while True:
            page = await self._store.read(
                *statements.source_records(live.type, after=floor, limit=_PAGE)
            )
            if not page:
                return
            yield page
            floor = page[-1]["source"]

    async def _restored(self, live: Collection, row: dict[str, Any]) -> Document | None:
        """The document of a Source record; ``None`` if its chunks were replaced since it was read.

        That moved the revision on, so the next pass sees the source again.
        """
        chunk_type = statements.aspect_type(live.type) if row.get("aspectOf") else live.type
        passages = await self._store.read(*statements.source_passages(chunk_type, row["source"]))
        return restored_document(row, passages) if len(passages) == row["chunks"] else None

    async def _current(self, name: str) -> Collection:
        found = await self._catalogue.get(name)
        current = await self._catalogue.reload(found.name)
        if current is None:
            raise NotFound("collection", name)
        return current

    async def _discard(self, record: str) -> None:
        """Remove what was built in vain, as far as the database lets us."""
        try:
            collection = await self._catalogue.reload(record)
            if collection is not None:
                await self._catalogue.drop(collection)
        except SearchError as exc:
            log.warning("could not discard %s: %s", record, exc)

    def _drop_later(self, chunk_type: str) -> None:
        task = asyncio.create_task(self._drop(chunk_type), name=f"drop {chunk_type}")
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _drop(self, chunk_type: str) -> None:
        try:
            await asyncio.sleep(self._grace)
        finally:
            try:
                await asyncio.shield(self._catalogue.drop_types(chunk_type))
            except SearchError as exc:
                log.warning("could not drop %s: %s", chunk_type, exc)


async def _ignore(progress: Progress) -> None:
    """Pages of a reindexing do not report on their own."""
