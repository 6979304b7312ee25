"""Verification of a new generation before it goes live, and of live ones from time to time."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ability_search.collection import Collection
from ability_search.documents import SparseVector
from ability_search.errors import SearchError, Unverified
from ability_search.index.index_fields import RebuildFields
from ability_search.index.index_ports import IndexPorts
from ability_search.store.pages import COUNTED, count, read_page, read_pages, read_together
from ability_search.store.port import Store
from ability_search.store.records import Row, Search, WeightedChunk
from ability_search.store.values import KINDS_LAYER, Chunks, Columns, Count, Read, Sources

_SAMPLE = 5
_CHECKED = 2000
"""Chunks whose vectors are checked at once."""
_NEIGHBOURS = 10
_NEAR = 0.001
"""Tolerance by which the best score may fall below a chunk's score with itself."""

_NEWEST = 2
"""Number of sources that were stored last of which chunks are checked. The chunks with the last
record ids may be older ones: an engine gives those of deleted records again."""
_OF_NEWEST = 4
"""Maximum number of their checked chunks."""
_OTHERS = 2
"""Number of other checked chunks, chosen at random."""

log = logging.getLogger(__name__)


async def verify(store: Store, built: Collection) -> None:
    """Verify the counts, check every vector, and search for a sample of chunks.

    Raises:
        Unverified: if the generation does not match its record.
        DatabaseUnavailable: if the store did not answer.
    """
    sources, chunks, own, kinds = (
        answer.groups[None]
        for answer in await count(
            store,
            Count(Sources(filter=COUNTED), built),
            Count(Sources(), built, sums=["chunks"]),
            *(Count(Chunks(layer), built) for layer in ("", KINDS_LAYER)),
        )
    )
    _require("sources", sources[0], built.sources)
    _require("chunks", chunks[1], built.chunks)
    _require("chunks", own[0], built.chunks - built.kind_chunks)
    _require("chunks", kinds[0], built.kind_chunks)
    if bad := await _unusable(store, built):
        raise Unverified(f"the vectors of {bad} chunks are unusable")
    for lost in await not_found(store, built, await sampled(store, built, _SAMPLE)):
        raise Unverified(lost)


async def _unusable(store: Store, built: Collection) -> int:
    """Count the chunks whose vector has not the size of the model or not unit length."""
    unusable = 0
    for layer in ("", KINDS_LAYER):
        ask = Read(Chunks(layer), built, Columns(("dimensions",)), _CHECKED)
        async for page in read_pages(store, ask):
            unusable += sum(row["dimensions"] != built.dimensions for row in page.items)
    return unusable


async def sampled(store: Store, collection: Collection, size: int) -> list[WeightedChunk]:
    """Return a random choice of indexed chunks, always the same, with their vectors."""
    columns = Columns(("chunk_id", "terms", "weights", "embedding"))
    of = Chunks(indexed=True)
    page = await read_page(store, Read(of, collection, columns, size, order="vector_key"))
    return [WeightedChunk(**row) for row in page.items]


async def not_found(
    store: Store,
    collection: Collection,
    chunks: Sequence[WeightedChunk],
    *,
    kinds: bool = False,
) -> list[str]:
    """Return which of the chunks are not found by their own terms, or by their vectors if given.

    An equal chunk counts, too. Those of ``kinds`` have indexes of their own.
    """
    searches: list[Search] = []
    expected: list[tuple[str, float]] = []
    for number, chunk in enumerate(chunks):
        if chunk.embedding is not None:
            searches.append(Search(f"semantic{number}", chunk.embedding, _NEIGHBOURS, kinds=kinds))
            expected.append((f"chunk {chunk.chunk_id} is not found by semantic search", 1.0))
        if chunk.terms:
            terms = SparseVector(chunk.terms, chunk.weights)
            searches.append(Search(f"keyword{number}", terms, _NEIGHBOURS, kinds=kinds))
            score = sum(weight * weight for weight in chunk.weights)
            expected.append((f"chunk {chunk.chunk_id} is not found by keyword search", score))
    rows = (await store.search(collection, searches, Columns())).rows if searches else {}
    return [
        lost
        for search, (lost, score) in zip(searches, expected, strict=True)
        if not _reaches(rows[search.name], score)
    ]


class SelfRepair:
    """Checks whether keyword search finds chunks by their own terms, and has collections rebuilt.

    The engine does not log changes to a sparse vector index. After a kill of the database server,
    the index permanently lacks what was committed since it was last written to disk, and keyword
    search does not find it. The records themselves are complete, so a reindex restores the index
    without embedding anything.

    Args:
        ports: The ports and settings of indexing.
        start: Starts a reindex, see :meth:`.Reindexer.start`.
    """

    def __init__(
        self, ports: IndexPorts, start: Callable[[str, RebuildFields], Awaitable[object]]
    ) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._doubts = ports.registry.doubts
        self._start = start
        self._repaired: set[str] = set()
        """Generations for which a reindex was started; it is started once only."""

    async def check(self) -> None:
        """Check all collections, and start a reindex of those that lost index entries.

        Raises:
            DatabaseUnavailable: if the check must be postponed.
        """
        self._doubts.raised.clear()
        try:
            collections = await self._registry.all()
            restarts = self._doubts.restarts
            for collection in collections:
                await self._check_one(collection)
        except SearchError:
            if self._doubts.pending:
                self._doubts.raised.set()
            raise
        types = {collection.type for collection in collections}
        self._doubts.settle(types, restarts=restarts)

    async def _check_one(self, collection: Collection) -> None:
        """Note whether the keyword index of a collection is complete; start a reindex if not."""
        if collection.type in self._repaired:
            return
        # A restart during the check makes its outcome worthless.
        restarts = self._doubts.restarts
        # Checked twice, because a chunk may be replaced during the first check.
        lost = await self._lost(collection) and await self._lost(collection)
        if lost or restarts == self._doubts.restarts:
            self._doubts.found(collection.type, complete=not lost)
        if lost:
            await self._repair(collection)

    async def _lost(self, collection: Collection) -> bool:
        """Return True if a stored chunk is not found by its terms."""
        return collection.chunks > 0 and (
            await self._lost_in(collection, "")
            or (collection.kind_chunks > 0 and await self._lost_in(collection, KINDS_LAYER))
        )

    async def _lost_in(self, collection: Collection, layer: str) -> bool:
        """Return True if a stored chunk of a layer, which has an index of its own, is not found."""
        of, columns = Chunks(layer, indexed=True), Columns(("chunk_id", "terms", "weights"))
        named = Columns(("source",))
        last = Read(Sources(), collection, named, _NEWEST, order="stored", descending=True)
        others = Read(of, collection, columns, _OTHERS, "vector_key", after=secrets.token_hex(16))
        sources, chosen = await read_together(self._store, last, others)
        of_newest = replace(of, sources=[row["source"] for row in sources.items])
        newest = await read_page(self._store, Read(of_newest, collection, columns, _OF_NEWEST))
        chunks = [WeightedChunk(**row) for page in (newest, chosen) for row in page.items]
        return bool(await not_found(self._store, collection, chunks, kinds=bool(layer)))

    async def _repair(self, collection: Collection) -> None:
        log.error(
            "the keyword index of %s is incomplete, as after a kill of the database server:"
            " starting a reindex",
            collection.name,
        )
        try:
            await self._start(collection.name, RebuildFields())
        except SearchError as exc:
            log.warning("could not start the reindex of %s yet: %s", collection.name, exc)
        else:
            self._repaired.add(collection.type)


def _reaches(rows: Sequence[Row], score: float) -> bool:
    return bool(rows) and rows[0].score >= score * (1 - _NEAR)


def _require(counted: str, stored: int, recorded: int) -> None:
    if stored != recorded:
        raise Unverified(f"{stored} of {recorded} {counted} are stored")
