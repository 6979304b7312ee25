"""Documents and chunks."""

from __future__ import annotations

from functools import partial

from ability_search.collection import Collection
from ability_search.store.arcadedb.database import Database, insist
from ability_search.store.arcadedb.schema import create_aspects, create_links


class IndexSql(Database):
    """Documents and chunks of generations, see :class:`.port.IndexStore`."""

    async def create_types(self, collection: Collection, *, links: bool, kinds: bool) -> None:
        """Create the types for links and kinds if they are needed and do not exist yet."""
        wanted = []
        if links and not collection.links:
            wanted.append(create_links(collection.type))
        if kinds and not collection.aspects:
            wanted.append(create_aspects(collection.type, dimensions=collection.dimensions))
        for types in wanted:
            await insist(partial(self.write, types), "duplicate", "conflict")
