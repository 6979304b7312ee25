"""A new generation of a collection, made from what the live one stores."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ability_search import statements
from ability_search.analysis import analyzer_for
from ability_search.catalogue import Catalogue
from ability_search.chunking import TokenCounter
from ability_search.collection import Collection
from ability_search.configuration import Settings
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

_PAGE = 500
"""Sources compared at a time."""
_PART = 64
"""Sources restored at a time."""
_SAMPLE = 16
"""Sources that tell how long chunks will be."""
_PASSES = 10
"""Times that writes to the live generation are caught up with before others go first."""

Tell = Callable[[int, int, str], Awaitable[None]]
"""Is told the sources done, the sources in total, and the stage."""


class Rebuilding:
    """Builds generations; all that is known of how far one is, is in the database.

    Args:
        store: The database.
        embedder: The models.
        catalogue: Knows the collections.
        generations: Puts a collection on what was built.
        indexing: Does the work.
        maintenance: Builds the graph before anybody searches it.
        settings: How it is verified.
        count: Counts tokens.
        now: The time in epoch milliseconds.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        catalogue: Catalogue,
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
        self._catalogue = catalogue
        self._generations = generations
        self._indexing = indexing
        self._maintenance = maintenance
        self._settings = settings
        self._count = count
        self._now = now

    def resolved(self, live: Collection, options: IndexOptions) -> IndexOptions:
        """The options with what they leave open as it is in the live generation.

        Raises:
            InvalidInput: if one of them is wrong.
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
            # What differs is known already.
            force=True,
        )

    async def begin(self, live: Collection, record: str, options: IndexOptions) -> Collection:
        """An empty generation, its types stored, under a record that is not.

        Args:
            live: What is to be built anew.
            record: The name of the record.
            options: As :meth:`resolved` gives them.

        Raises:
            EmbeddingUnavailable: if the model is not to be had.
            DatabaseUnavailable: if the database is not.
        """
        recipe = self._indexing.recipe(options, replace(live, language=options.language or ""))
        model = options.model or live.model
        embedding = self._settings.embedding
        vectors = await self._embedder.embed(
            model, [live.name], timeout=embedding.timeout * embedding.attempts
        )
        rows = await self._store.read(
            *statements.source_records(live.type, after="", limit=_SAMPLE)
        )
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
        await self._catalogue.write(
            statements.create_generation(built.type, dimensions=built.dimensions)
        )
        return built

    async def build(self, name: str, record: str, options: IndexOptions, tell: Tell) -> None:
        """Complete the generation of a record and put the collection on it.

        It may have been begun by anybody and be in any state. The collection is put on it only
        if neither of them changed since both were compared and nothing was missing, so nothing
        that a writer to either did is lost or undone.

        Raises:
            NotFound: if the collection or the record is gone.
            Unverified: if not all of it was stored as it should be.
            EmbeddingUnavailable: if the embedder gave out; what was stored by then stays.
            DatabaseUnavailable: if the database did, or writers kept being faster.
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
            "writers kept changing the collection", hint="Call again when fewer are writing."
        )

    async def _catch_up(
        self,
        live: Collection,
        built: Collection,
        options: IndexOptions,
        tell: Tell,
        told: _Told,
    ) -> int:
        """Bring the new generation to where the live one is; how many sources it took."""
        floor, seen, changed = "", 0, 0
        while True:
            page = await self._store.read(
                *statements.compare_sources(live.type, built.type, after=floor, limit=_PAGE)
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
        """Build sources as they are now; those that are gone by now are left out."""
        rows = await self._store.read(*statements.sources_named(live.type, sources))
        documents = [document for row in rows if (document := await self._restored(live, row))]
        part = await self._indexing.index_into(
            built.name, await self._current(built.name), documents, options, report
        )
        if part.failed:
            raise part.failed[0].error
        return part

    async def _remove_others(self, live: Collection, built: Collection) -> int:
        """Remove the sources that the live generation does not have; how many those were."""
        floor, removed = "", 0
        while True:
            page = await self._store.read(
                *statements.compare_sources(built.type, live.type, after=floor, limit=_PAGE)
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
        """The document of a Source record; ``None`` if its chunks were replaced since it was read.

        That moved the revision on, so the next pass sees the source again.
        """
        chunk_type = statements.aspect_type(live.type) if row.get("aspectOf") else live.type
        passages = await self._store.read(*statements.source_passages(chunk_type, row["source"]))
        return restored_document(row, passages) if len(passages) == row["chunks"] else None

    async def _current(self, record: str) -> Collection:
        current = await self._catalogue.reload(record)
        if current is None:
            raise NotFound("collection", record.partition("@")[0])
        return current


@dataclass(slots=True)
class _Told:
    """What is told of the sources that were built without an interruption."""

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
