"""A store in memory: the reference of the store port, for tests and for try-outs.

Searches are exact. Methods do not wait for anything, so each is atomic for the callers of one
event loop. What is stored and what is returned are copies, or cannot be changed.
"""

from __future__ import annotations

from ability_search.collection import Collection
from ability_search.store.memory_index import MemoryDocuments
from ability_search.store.memory_read import MemoryReads
from ability_search.store.memory_search import MemorySearch
from ability_search.store.memory_tables import Generation, Tables
from ability_search.store.values import of_generation


class _Generations(Tables):
    """See :class:`ability_search.store.port.GenerationStore`."""

    async def create_generation(self, collection: Collection) -> None:
        self._generations.setdefault(collection.type, Generation())

    async def generations(self) -> list[str]:
        return list(self._generations)

    async def drop_generation(self, generation: str) -> None:
        self._generations.pop(generation, None)
        self._clear(of_generation(generation))


class MemoryStore(_Generations, MemorySearch, MemoryReads, MemoryDocuments):
    """A complete :class:`ability_search.store.port.Store`.

    Args:
        now: The clock of the store, in epoch milliseconds.
        scan_below: Number of chunks from which a generation counts as having a vector graph.
    """
