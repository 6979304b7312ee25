"""Registry of collections: their records by name, cached.

A worker keeps no state of its own. Every statement that relies on a cached record also returns the
stored one, so that a stale copy is detected and replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Protocol, TypeVar

from ability_search.collection import Collection, checked_name, public_name
from ability_search.errors import DatabaseUnavailable, GenerationGone, NotFound, StatementRefused
from ability_search.store.index_doubts import IndexDoubts
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.stored_collections import (
    COLLECTION,
    change_collection,
    collection_of,
    delete_collection,
    put_collection,
    read_collection,
    read_collections,
    retire,
)
from ability_search.store.values import Change, Delete, Read, Records, of_collection

log = logging.getLogger(__name__)


class Answered(Protocol):
    """An answer of the store, with the collection's record as it was then."""

    @property
    def current(self) -> Collection | None:
        """The record; ``None`` if the collection is gone."""


A = TypeVar("A", bound=Answered)

_MOVES = 5
"""Generations that a query follows a collection to."""


class Registry:
    """The collections of one store, with the records that this worker has read so far.

    Attributes:
        doubts: Which of their keyword indexes may be incomplete.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Collection] = {}
        self.doubts = IndexDoubts()

    @property
    def remembered(self) -> int:
        """Number of cached records."""
        return len(self._known)

    async def find(self, name: str) -> Collection | None:
        """Return the collection of that name, cached or read; ``None`` if none exists.

        Raises:
            InvalidInput: if ``name`` is not a valid collection name.
            DatabaseUnavailable: if the database does not answer.
        """
        known = self._known.get(checked_name(name))
        return known or await self.reload(name)

    async def get(self, name: str, *, fresh: bool = False) -> Collection:
        """Return the collection of that name, as :meth:`find` does; read anew if ``fresh``.

        Raises:
            NotFound: if there is none; the error lists similar names.
        """
        found = await (self.reload(checked_name(name)) if fresh else self.find(name))
        if found is None:
            names = [collection.name for collection in await self.all()]
            raise NotFound("collection", name, nearest=get_close_matches(name, names, n=3))
        return found

    async def reload(self, name: str) -> Collection | None:
        """Drop a collection from the cache and read its record again."""
        self._known.pop(name, None)
        return self.learn(name, await read_collection(self._store, name))

    async def current(self, name: str) -> Collection:
        """Read the record of a collection again.

        Raises:
            NotFound: if it is gone.
        """
        current = await self.reload(name)
        if current is None:
            raise NotFound("collection", public_name(name))
        return current

    async def all(self) -> list[Collection]:
        """Return all collections by name."""
        return [each for each in await self.records() if each.name == each.public_name]

    async def records(self) -> list[Collection]:
        """Return all records as :meth:`all` does, plus those of generations under construction."""
        found = await read_collections(self._store)
        self._known = {collection.name: collection for collection in found}
        return found

    def learn(self, name: str, read: Collection | None) -> Collection | None:
        """Cache a record that the store returned; ``None`` means that the collection is gone.

        Answers may arrive out of order: of one generation the later revision is kept.
        """
        if read is None:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known.type != read.type or known.revision <= read.revision:
            self._known[name] = known = read
        return known

    async def consult(
        self, collection: Collection, ask: Callable[[Collection], Awaitable[A]]
    ) -> tuple[Collection, A] | None:
        """Run a query against a collection's live generation.

        ``ask`` queries the generation of the record that it is given. If the store answers with
        the record of another generation, or the generation is gone, ``ask`` runs again on the
        current one.

        Returns:
            The collection as it is now and the answer; ``None`` if it no longer exists.

        Raises:
            DatabaseUnavailable: as from ``ask``.
        """
        for _ in range(_MOVES):
            current, answer = await self.ask(collection, ask)
            if current is None:
                return None
            if answer is not None:
                return current, answer
            collection = current
        name = collection.name
        raise DatabaseUnavailable(f"{name} keeps changing its generation", hint="Call again.")

    async def ask(
        self, collection: Collection, query: Callable[[Collection], Awaitable[A]]
    ) -> tuple[Collection | None, A | None]:
        """Query the generation of a collection's record, as it is known.

        Returns:
            The collection as it is now, ``None`` if it no longer exists; and the answer, if it is
            on that generation.

        Raises:
            DatabaseUnavailable: as from ``query``.
        """
        try:
            answer = await query(collection)
        except (GenerationGone, StatementRefused):
            # The errors for types being dropped vary, so the record decides.
            current = await self.reload(collection.name)
            if current is not None and current.type == collection.type:
                raise
            return current, None
        current = self.learn(collection.name, answer.current)
        moved = current is None or current.type != collection.type
        return current, None if moved else answer

    async def create(self, collection: Collection) -> Collection:
        """Store a new collection with an empty generation.

        Returns:
            The collection as stored: the existing one if another worker created it first.
        """
        await self._store.create_generation(collection)
        committed = await self._store.commit([put_collection(collection)])
        stored = collection
        if committed.done:
            # No restart of the database has taken anything from a generation that is new.
            self.doubts.found(collection.type, complete=True)
            log.info("created collection %s as %s", collection.name, collection.type)
        elif committed.record is None:
            return await self.create(collection)
        else:
            stored = collection_of(committed.record)
        if stored.type != collection.type:
            await self._store.drop_generation(collection.type)
        self._known[collection.name] = stored
        return stored

    async def drop(self, collection: Collection) -> bool:
        """Delete a collection with all that belongs to it; of one being built only the record.

        Returns:
            False if it was already gone or replaced.
        """
        name = collection.name
        self._known.pop(name, None)
        gone = [collection.type]
        changes: list[Change] = [delete_collection(collection, type=collection.type)]
        if name == collection.public_name:
            every = await read_all(self._store, Read(Records(COLLECTION, of_collection(name))))
            gone += [each.type for each in map(collection_of, every) if each.name != name]
            changes.append(Delete(Records(None, of_collection(name))))
        changes += [retire(generation, grace=0) for generation in gone]
        if not (await self._store.commit(changes)).done:
            return False
        for generation in gone:
            await self._store.drop_generation(generation)
        log.info("dropped collection %s with %d chunks", collection.name, collection.chunks)
        return True

    def forget(self, name: str) -> None:
        """Drop a collection from the cache."""
        self._known.pop(name, None)

    async def update(self, collection: Collection, **fields: Any) -> Collection:
        """Change fields of a collection's record, named as in :class:`Collection`."""
        await self._store.commit([change_collection(collection, fields)])
        known = self._known.get(collection.name)
        if known is None or known.type != collection.type:
            known = collection
        self._known[collection.name] = replace(known, **fields)
        return self._known[collection.name]
