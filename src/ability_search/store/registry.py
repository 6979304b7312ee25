"""Registry of collections: their records by name, cached.

A worker keeps no state of its own. Every statement that relies on a cached record also returns the
stored one, so that a stale copy is detected and replaced.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from ability_search.collection import FIELDS, Collection, checked_name, from_record, to_record
from ability_search.errors import NotFound, StatementRefused
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.arcadedb.layout import check_new

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOVES = 5
_TRIES = 8
_PAUSE = 0.1


class Registry:
    """The collections of one database, with the records that this worker has read so far."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Collection] = {}
        self._amended = False
        self._amending = asyncio.Lock()

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

    async def get(self, name: str) -> Collection:
        """Return the collection of that name, as :meth:`find` does.

        Raises:
            NotFound: if there is none; the error lists similar names.
        """
        found = await self.find(name)
        if found is None:
            names = [collection.name for collection in await self.all()]
            raise NotFound("collection", name, nearest=get_close_matches(name, names, n=3))
        return found

    async def reload(self, name: str) -> Collection | None:
        """Drop a collection from the cache and read its record again."""
        self._known.pop(name, None)
        return self.learn(name, await self.read(arcadedb.collection(name)))

    async def all(self) -> list[Collection]:
        """Return all collections by name; none if the database does not exist yet."""
        return [each for each in await self.records() if each.name == each.public_name]

    async def records(self) -> list[Collection]:
        """Return all records as :meth:`all` does, plus those of generations under construction."""
        found = [from_record(row) for row in await self.read(arcadedb.collections())]
        self._known = {collection.name: collection for collection in found}
        return found

    def learn(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Collection | None:
        """Cache the record that a statement returned; no row means that the collection is gone.

        Answers may arrive out of order: of one generation the later revision is kept.
        """
        if not rows:
            self._known.pop(name, None)
            return None
        read = from_record(rows[0])
        known = self._known.get(name)
        if known is None or known.type != read.type or known.revision <= read.revision:
            self._known[name] = known = read
        return known

    async def consult(
        self,
        collection: Collection,
        ask: Callable[[Collection], Awaitable[tuple[Sequence[Mapping[str, Any]], T]]],
    ) -> tuple[Collection, T] | None:
        """Run a query against a collection's live generation.

        ``ask`` returns the rows of the collection's record together with its answer. If they name
        another generation than the one queried, or that generation is gone, ``ask`` runs again on
        the current one.

        Returns:
            The collection as it is now and the answer; ``None`` if it no longer exists.

        Raises:
            DatabaseUnavailable: as from ``ask``.
        """
        name = collection.name
        for _ in range(_MOVES):
            try:
                rows, answer = await self.amended(partial(ask, collection))
            except StatementRefused:
                current = await self.reload(name)
                if current is not None and current.type == collection.type:
                    raise
            else:
                current = self.learn(name, rows)
                if current is not None and current.type == collection.type:
                    return current, answer
            if current is None:
                return None
            collection = current
        raise StatementRefused("conflict", f"{name} keeps changing its generation")

    async def create(self, collection: Collection) -> Collection:
        """Store a new collection and create the types of its generation.

        Returns:
            The collection as stored: the existing one if another worker created it first.
        """
        await self.write(
            arcadedb.create_generation(collection.type, dimensions=collection.dimensions)
        )
        try:
            await self.write(arcadedb.insert_collection(to_record(collection)))
        except StatementRefused as exc:
            if exc.reason != "duplicate":
                raise
            await self.write(arcadedb.drop_generation(collection.type))
            found = await self.reload(collection.name)
            if found is None:
                raise
            return found
        log.info("created collection %s as %s", collection.name, collection.type)
        self._known[collection.name] = collection
        return collection

    async def prepare(self, collection: Collection, *, links: bool, aspects: bool) -> None:
        """Create the types for links and aspects if they are needed and do not exist yet."""
        wanted = []
        if links and not collection.links:
            wanted.append(arcadedb.create_links(collection.type))
        if aspects and not collection.aspects:
            size = collection.dimensions
            wanted.append(arcadedb.create_aspects(collection.type, dimensions=size))
        for types in wanted:
            await _insisting(partial(self.write, types), "duplicate", "conflict")

    async def drop(self, collection: Collection) -> bool:
        """Delete a collection with all its contents and jobs.

        Returns:
            False if it was already gone or replaced.
        """
        self._known.pop(collection.name, None)
        answer = await self.write(arcadedb.delete_collection(collection.name, collection.type))
        if not answer["deleted"]:
            return False
        for chunk_type in answer["types"]:
            await self.write(arcadedb.drop_generation(chunk_type))
        log.info("dropped collection %s with %d chunks", collection.name, collection.chunks)
        return True

    def forget(self, name: str) -> None:
        """Drop a collection from the cache."""
        self._known.pop(name, None)

    async def update(self, collection: Collection, **fields: Any) -> Collection:
        """Change fields of a collection's record, named as in :class:`Collection`."""
        await self._store.write(
            *arcadedb.set_collection_fields(
                collection.name,
                collection.type,
                {FIELDS[name]: value for name, value in fields.items()},
            )
        )
        known = self._known.get(collection.name)
        if known is None or known.type != collection.type:
            known = collection
        self._known[collection.name] = replace(known, **fields)
        return self._known[collection.name]

    async def read(self, statement: arcadedb.Statement) -> list[Any]:
        """Read rows; none if nothing was stored yet. Raises as :func:`.layout.check_new`."""
        try:
            return list(await self._store.read(*statement))
        except StatementRefused as exc:
            await check_new(self._store, exc)
            return []

    async def write(self, statement: arcadedb.Statement) -> Any:
        """Write; create the schema first if it is missing, and retry on conflicts.

        Raises as :meth:`read`.
        """
        run = partial(self._store.write, *statement)
        try:
            return await _insisting(run, "conflict")
        except StatementRefused as exc:
            await check_new(self._store, exc)
            await self._create_schema()
            return await _insisting(run, "conflict")

    async def amended(self, run: Callable[[], Awaitable[T]]) -> T:
        """Run statements; if a type is missing, create the schema and run them once more.

        This adds the types that a database of an earlier version of this ability lacks.

        Raises:
            StatementRefused: as from ``run``, on the second attempt at the latest.
        """
        try:
            return await run()
        except StatementRefused as exc:
            if exc.reason != "missing_type":
                raise
        async with self._amending:
            if not self._amended:
                await self._create_schema()
                self._amended = True
        return await run()

    async def _create_schema(self) -> None:
        schema = partial(self._store.write, *arcadedb.schema())
        # Another worker may be creating it at the same time.
        await _insisting(schema, "duplicate", "conflict")


async def _insisting(run: Callable[[], Awaitable[T]], *passing: str) -> T:
    """Run a statement; retry if it is refused for one of these reasons."""
    for _ in range(_TRIES - 1):
        try:
            return await run()
        except StatementRefused as exc:
            if exc.reason not in passing:
                raise
        await asyncio.sleep(_PAUSE)
    return await run()
