"""Self-repair: finding collections whose sparse vector index lost entries, and reindexing them.

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
from ability_search.indexing.options import IndexOptions
from ability_search.indexing.reindexing import Reindexing
from ability_search.indexing.verifying import found_by_words
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry

log = logging.getLogger(__name__)

_NEWEST = 2
"""Number of checked chunks that were stored last."""
_ANY = 2
"""Number of other checked chunks, chosen at random."""


class Mending:
    """Checks whether keyword search finds chunks by their own terms.

    Args:
        store: The database.
        registry: The registry of collections.
        reindexing: The reindex service.
    """

    def __init__(self, store: Store, registry: Registry, reindexing: Reindexing) -> None:
        self._store = store
        self._registry = registry
        self._reindexing = reindexing
        self._mended: set[str] = set()
        """Generations for which a reindex was started; it is started once only."""

    async def look(self) -> None:
        """Check all collections, and start a reindex of those that lost index entries.

        Raises:
            DatabaseUnavailable: if the check must be postponed.
        """
        for collection in await self._registry.all():
            if not collection.chunks or collection.type in self._mended:
                continue
            # Checked twice, because a chunk may be replaced during the first check.
            if await self._lost(collection) and await self._lost(collection):
                await self._mend(collection)

    async def _lost(self, collection: Collection) -> bool:
        """Return True if a stored chunk is not found by its terms."""
        rows = await self._store.read(
            *arcadedb.some_chunks(
                collection.type, newest=_NEWEST, others=_ANY, after=secrets.token_hex(16)
            )
        )
        for row in rows["newest"] + rows["others"]:
            if not await found_by_words(self._store, collection, row):
                return True
        return False

    async def _mend(self, collection: Collection) -> None:
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
            self._mended.add(collection.type)
