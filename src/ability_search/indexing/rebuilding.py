"""Building a new generation of a collection from the contents of the live one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ability_search.collection import Collection
from ability_search.config.schema import Settings
from ability_search.documents import Document
from ability_search.errors import DatabaseUnavailable, NotFound
from ability_search.generations import Generations
from ability_search.indexing.maintenance import Maintenance
from ability_search.indexing.options import IndexOptions
from ability_search.indexing.preparing import prepare, restored_document
from ability_search.indexing.reports import IndexReport, Progress, Report
from ability_search.indexing.service import Indexing
from ability_search.indexing.verifying import verify
from ability_search.indexing.writing import expected_length, new_collection
from ability_search.ports import Embedder, Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry
from ability_search.text.analyzer import analyzer_for
from ability_search.text.token_counter import TokenCounter

_PAGE = 500
"""Sources compared at a time."""
_PART = 64
"""Sources restored at a time."""
_SAMPLE = 16
"""Sources from which the average length of chunks is estimated."""
_PASSES = 10
"""Maximum number of passes that catch up with concurrent writes before giving up."""

Tell = Callable[[int, int, str], Awaitable[None]]
"""A callback for progress: sources done, sources in total, stage."""


class Rebuilding:
    """Builds generations; the state of a build is kept in the database only.

    Args:
        store: The database.
        embedder: The embedder.
        registry: The registry of collections.
        generations: Switches a collection to a new generation.
        indexing: The index service.
        maintenance: Builds the vector graph before the generation goes live.
        settings: Settings of embedding and ranking.
        count: Counts tokens.
        now: Returns the time in epoch milliseconds.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        registry: Registry,
        generations: Generations,
        indexing: Indexing,
        maintenance: Maintenance,
        *,
        settings: Settings,
        count: TokenCounter,
        now: Callable[[], int],
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._registry = registry
        self._generations = generations
        self._indexing = indexing
        self._maintenance = maintenance
        self._settings = settings
        self._count = count
        self._now = now

    def resolved(self, live: Collection, options: IndexOptions) -> IndexOptions:
        """Return the options with open ones filled in from the live generation.

        Raises:
            InvalidInput: if an option is invalid.
        """
        language = options.language or live.language
        recipe = self._indexing.recipe(options, replace(live, language=language))
        return replace(
            options,
            model=options.model or live.model,
            chunk_strategy=recipe.chunk_strategy,
            max_tokens=recipe.chunk_size,
            overlap=recipe.chunk_overlap,
            language=recipe.language,
            kinds=recipe.kinds,
            kinds_by=recipe.kinds_by,
            # The sources that differ are determined by comparing both generations.
            force=True,
        )

    async def begin(self, live: Collection, record: str, options: IndexOptions) -> Collection:
        """Create the types of an empty generation and return its record, which is not stored yet.

        Args:
            live: The live generation.
            record: Name of the record.
            options: Options as returned by :meth:`resolved`.

        Raises:
            EmbeddingUnavailable: if the model is not available.
            DatabaseUnavailable: if the database is not available.
        """
        recipe = self._indexing.recipe(options, replace(live, language=options.language or ""))
        model = options.model or live.model
        embedding = self._settings.embedding
        vectors = await self._embedder.embed(
            model, [live.name], timeout=embedding.timeout * embedding.attempts
        )
        rows = await self._store.read(*arcadedb.source_records(live.type, after="", limit=_SAMPLE))
        documents = [document for row in rows if (document := await self._restored(live, row))]
        analyzer = analyzer_for(recipe.language)
        sample = await asyncio.to_thread(
            lambda: [
                prepare(each, recipe, content_hash="", analyzer=analyzer, count=self._count)
                for each in documents
            ]
        )
        built = new_collection(
            record,
            model=model,
            dimensions=vectors.shape[1],
            recipe=recipe,
            average_length=expected_length(sample),
            k1=self._settings.ranking.bm25_k1,
            b=self._settings.ranking.bm25_b,
            now=self._now(),
        )
        await self._registry.write(
            arcadedb.create_generation(built.type, dimensions=built.dimensions)
        )
        return built

    async def build(self, name: str, record: str, options: IndexOptions, tell: Tell) -> None:
        """Complete the generation of a record and switch the collection to it.

        The generation may have been begun by any worker and be in any state. The switch happens
        only if a comparison found nothing missing and neither generation changed since, so no
        write to either is lost or undone.

        Raises:
            NotFound: if the collection or the record is gone.
            Unverified: if the verification of the new generation failed.
            EmbeddingUnavailable: if the embedder failed; what was stored until then is kept.
            DatabaseUnavailable: if the database failed, or concurrent writes did not stop.
        """
        told = _Told()
        verified = False
        passes = 0
        while passes < _PASSES:
            live, built = await self._current(name), await self._current(record)
            if await self._catch_up(live, built, options, tell, told):
                passes += 1
            elif not verified:
                total = live.sources
                await tell(total, total, "building the graph")
                await self._maintenance.tend(record)
                await tell(total, total, "verifying")
                ranking = self._settings.ranking
                built = await self._current(record)
                await verify(
                    self._store, built, beam=ranking.ef_search, scan_below=ranking.scan_below
                )
                verified = True
            elif await self._generations.switch(live, built, _result(live, built, told)):
                self._maintenance.schedule(name)
                return
            else:
                passes += 1
        raise DatabaseUnavailable(
            "concurrent writes kept changing the collection",
            hint="Try again when there are fewer writes.",
        )

    async def _catch_up(
        self,
        live: Collection,
        built: Collection,
        options: IndexOptions,
        tell: Tell,
        told: _Told,
    ) -> int:
        """Update the new generation to match the live one; return the number of changed sources."""
        floor, seen, changed = "", 0, 0
        while True:
            page = await self._store.read(
                *arcadedb.compare_sources(live.type, built.type, after=floor, limit=_PAGE)
            )
            if not page["live"]:
                break
            origins = {row["source"]: row.get("origin") for row in page["built"]}
            wanted = [
                row["source"]
                for row in page["live"]
                if origins.get(row["source"]) != row["contentHash"]
            ]
            seen += len(page["live"]) - len(wanted)
            for part in _parts(wanted):

                async def further(progress: Progress, before: int = seen) -> None:
                    await tell(before + progress.done, live.sources, "reindexing")

                told.add(await self._add(live, built, part, options, further))
                seen += len(part)
            if not wanted:
                await tell(seen, live.sources, "comparing")
            floor = page["live"][-1]["source"]
            changed += len(wanted)
        current = await self._current(built.name)
        if current.sources != live.sources:
            changed += await self._remove_others(live, current)
        return changed

    async def _add(
        self,
        live: Collection,
        built: Collection,
        sources: Sequence[str],
        options: IndexOptions,
        report: Report,
    ) -> IndexReport:
        """Index the current contents of sources in the new generation; skip deleted ones."""
        rows = await self._store.read(*arcadedb.sources_named(live.type, sources))
        documents = [document for row in rows if (document := await self._restored(live, row))]
        part = await self._indexing.index_into(
            built.name, await self._current(built.name), documents, options, report
        )
        if part.failed:
            raise part.failed[0].error
        return part

    async def _remove_others(self, live: Collection, built: Collection) -> int:
        """Delete the sources that the live generation does not have; return their number."""
        floor, removed = "", 0
        while True:
            page = await self._store.read(
                *arcadedb.compare_sources(built.type, live.type, after=floor, limit=_PAGE)
            )
            if not page["live"]:
                return removed
            floor = page["live"][-1]["source"]
            kept = {row["source"] for row in page["built"]}
            gone = [row["source"] for row in page["live"] if row["source"] not in kept]
            if gone:
                await self._indexing.remove(built, gone, aspects=False)
                removed += len(gone)

    async def _restored(self, live: Collection, row: dict[str, Any]) -> Document | None:
        """Restore the document of a Source record; ``None`` if its chunks were replaced meanwhile.

        The replacement increased the revision, so the next pass handles the source again.
        """
        chunk_type = arcadedb.aspect_type(live.type) if row.get("aspectOf") else live.type
        passages = await self._store.read(*arcadedb.source_passages(chunk_type, row["source"]))
        return restored_document(row, passages) if len(passages) == row["chunks"] else None

    async def _current(self, record: str) -> Collection:
        current = await self._registry.reload(record)
        if current is None:
            raise NotFound("collection", record.partition("@")[0])
        return current


@dataclass(slots=True)
class _Told:
    """Totals for the result, counted since the build was last started or resumed."""

    reused: int = 0
    warnings: list[str] = field(default_factory=list)

    def add(self, part: IndexReport) -> None:
        self.reused += part.reused
        self.warnings += [each for each in part.warnings if each not in self.warnings]


def _result(live: Collection, built: Collection, told: _Told) -> dict[str, Any]:
    return {
        "generation": live.generation + 1,
        "documents": built.sources,
        "chunks": built.chunks,
        "deleted": live.chunks,
        "model": built.model,
        "dimensions": built.dimensions,
        "reused": told.reused,
        "warnings": told.warnings,
    }


def _parts(sources: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(sources), _PART):
        yield sources[start : start + _PART]
