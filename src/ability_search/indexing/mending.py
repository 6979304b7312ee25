"""Finding collections that the database has lost words of, and building them anew.

A sparse vector index of the engine is in no log: a database server that is killed lacks, for the
keyword search and for good, what was committed since that index was written to disk last. The
records are all there, so a reindex with nothing to embed brings everything back.
"""

from __future__ import annotations

import logging
import secrets

from ability_search import statements
from ability_search.catalogue import Catalogue
from ability_search.collection import Collection
from ability_search.errors import SearchError
from ability_search.indexing.options import IndexOptions
from ability_search.indexing.reindexing import Reindexing
from ability_search.indexing.verifying import found_by_words
from ability_search.ports import Store

log = logging.getLogger(__name__)

_NEWEST = 2
"""Of the chunks that are looked for, those stored last."""
_ANY = 2
"""And others."""


class Mending:
    """Looks for chunks by their own words.

    Args:
        store: The database.
        catalogue: Knows the collections.
        reindexing: Builds anew.
    """

    def __init__(self, store: Store, catalogue: Catalogue, reindexing: Reindexing) -> None:
        self._store = store
        self._catalogue = catalogue
        self._reindexing = reindexing
        self._mended: set[str] = set()
        """Generations that were found wanting, which is done something about once."""

    async def look(self) -> None:
        """Look at every collection, and begin a reindex of those that have lost words.

        Raises:
            DatabaseUnavailable: if it has to be put off.
        """
        for collection in await self._catalogue.all():
            if not collection.chunks or collection.type in self._mended:
                continue
            # What is replaced at this moment is not there the second time.
            if await self._lost(collection) and await self._lost(collection):
                await self._mend(collection)

    async def _lost(self, collection: Collection) -> bool:
        """Whether a chunk that is stored is not found by its words."""
        rows = await self._store.read(
            *statements.some_chunks(
                collection.type, newest=_NEWEST, others=_ANY, after=secrets.token_hex(16)
            )
        )
        for row in rows["newest"] + rows["others"]:
            if not await found_by_words(self._store, collection, row):
                return True
        return False

    async def _mend(self, collection: Collection) -> None:
        log.error(
            "%s has lost words, as after a kill of the database server: it is built anew",
            collection.name,
        )
        try:
            await self._reindexing.start(collection.name, IndexOptions())
        except SearchError as exc:
            log.warning("%s is not built anew yet: %s", collection.name, exc)
        else:
            self._mended.add(collection.type)
