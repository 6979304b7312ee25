"""Self-repair: reindexing of collections whose sparse vector index lost entries.

The engine does not log changes to a sparse vector index. After a kill of the database server, the
index permanently lacks what was committed since it was last written to disk, and keyword search
does not find it. The records themselves are complete, so a reindex restores the index without
embedding anything.
"""

from __future__ import annotations

import logging
import secrets

from ability_search.collection import Collection
from ability_search.errors import SearchError
from ability_search.index.index_calls import IndexOptions
from ability_search.index.index_ports import IndexPorts
from ability_search.index.reindex import Reindexer
from ability_search.index.verification import found_by_terms
from ability_search.store.pages import read_together
from ability_search.store.records import WeightedChunk
from ability_search.store.values import Chunks, Columns, Read

log = logging.getLogger(__name__)

_NEWEST = 2
"""Number of checked chunks that were stored last."""
_OTHERS = 2
"""Number of other checked chunks, chosen at random."""


class SelfRepair:
    """Checks whether keyword search finds chunks by their own terms."""

    def __init__(self, ports: IndexPorts, reindexing: Reindexer) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._reindexing = reindexing
        self._repaired: set[str] = set()
        """Generations for which a reindex was started; it is started once only."""

    async def check(self) -> None:
        """Check all collections, and start a reindex of those that lost index entries.

        Raises:
            DatabaseUnavailable: if the check must be postponed.
        """
        for collection in await self._registry.all():
            if not collection.chunks or collection.type in self._repaired:
                continue
            # Checked twice, because a chunk may be replaced during the first check.
            if await self._lost(collection) and await self._lost(collection):
                await self._repair(collection)

    async def _lost(self, collection: Collection) -> bool:
        """Return True if a stored chunk is not found by its terms."""
        of, columns = Chunks(indexed=True), Columns(("chunk_id", "terms", "weights"))
        newest = Read(of, collection, columns, _NEWEST, order="stored", descending=True)
        others = Read(of, collection, columns, _OTHERS, "vector_key", after=secrets.token_hex(16))
        for page in await read_together(self._store, newest, others):
            for row in page.items:
                if not await found_by_terms(self._store, collection, WeightedChunk(**row)):
                    return True
        return False

    async def _repair(self, collection: Collection) -> None:
        log.error(
            "the keyword index of %s is incomplete, as after a kill of the database server:"
            " starting a reindex",
            collection.name,
        )
        try:
            await self._reindexing.start(collection.name, IndexOptions())
        except SearchError as exc:
            log.warning("could not start the reindex of %s yet: %s", collection.name, exc)
        else:
            self._repaired.add(collection.type)
