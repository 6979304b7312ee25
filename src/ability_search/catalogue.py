"""Which collections there are, and what is known of each.

A worker keeps no state of its own: what is remembered here is a copy, and every statement that
relies on it brings the collection's record along, so that an outdated copy is noticed and renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from ability_search import statements
from ability_search.collection import (
    FIELDS,
    Collection,
    checked_name,
    from_record,
    to_record,
)
from ability_search.errors import NotFound, StatementRefused
from ability_search.layout import check_new
from ability_search.ports import Store

log = logging.getLogger(__name__)

T = TypeVar("T")

_MOVES = 5
_TRIES = 8
_PAUSE = 0.1


class Catalogue:
    """The collections of one database, as far as this worker has had to do with them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, Collection] = {}
        self._amended = False
        self._amending = asyncio.Lock()

    @property
    def remembered(self) -> int:
        """How many records are remembered."""
        return len(self._known)

    async def find(self, name: str) -> Collection | None:
        """The collection of that name, as remembered or else as stored; ``None`` if there is none.

        Raises:
            InvalidInput: if it cannot be a collection's name.
            DatabaseUnavailable: if the database does not answer.
        """
        known = self._known.get(checked_name(name))
        return known or await self.reload(name)

    async def get(self, name: str) -> Collection:
        """As :meth:`find`.

        Raises:
            NotFound: if there is none, naming those whose names come close.
        """
        found = await self.find(name)
        if found is None:
            names = [collection.name for collection in await self.all()]
            raise NotFound("collection", name, nearest=get_close_matches(name, names, n=3))
        return found

    async def reload(self, name: str) -> Collection | None:
        """Forget what is remembered of a collection and read its record."""
        self._known.pop(name, None)
        return self.learn(name, await self.read(statements.collection(name)))

    async def all(self) -> list[Collection]:
        """All collections by name; none where the database does not exist yet."""
        return [each for each in await self.records() if each.name == each.public_name]

    async def records(self) -> list[Collection]:
        """As :meth:`all`, with the records of generations that are being built."""
        found = [from_record(row) for row in await self.read(statements.collections())]
        self._known = {collection.name: collection for collection in found}
        return found

    def learn(self, name: str, rows: Sequence[Mapping[str, Any]]) -> Collection | None:
        """Remember the record that a statement brought along; no row means there is none.

        Answers may overtake each other: of one generation the later revision is kept.
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
        """Ask something of a collection's live generation.

        ``ask`` returns the rows of the collection's record beside its answer. Where they name
        another generation than was asked, or the generation is gone, it asks the current one.

        Returns:
            The collection as it is now and the answer; ``None`` if it does not exist any more.

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
        raise StatementRefused("conflict", f"{name} changes its generation again and again")

    async def create(self, collection: Collection) -> Collection:
        """Store a new collection with the types of its generation.

        Returns:
            The collection as stored: another one if somebody else was faster.
        """
        await self.write(
            statements.create_generation(collection.type, dimensions=collection.dimensions)
        )
        try:
            await self.write(statements.insert_collection(to_record(collection)))
        except StatementRefused as exc:
            if exc.reason != "duplicate":
                raise
            await self.write(statements.drop_generation(collection.type))
            found = await self.reload(collection.name)
            if found is None:
                raise
            return found
        log.info("created collection %s as %s", collection.name, collection.type)
        self._known[collection.name] = collection
        return collection

    async def prepare(self, collection: Collection, *, links: bool, aspects: bool) -> None:
        """Create the types for links and aspects, where they are wanted and there are none yet."""
        wanted = []
        if links and not collection.links:
            wanted.append(statements.create_links(collection.type))
        if aspects and not collection.aspects:
            size = collection.dimensions
            wanted.append(statements.create_aspects(collection.type, dimensions=size))
        for types in wanted:
            await _insisting(partial(self.write, types), "duplicate", "conflict")

    async def drop(self, collection: Collection) -> bool:
        """Delete a collection with everything in it, its jobs too.

        Returns:
            False if it was gone or replaced already.
        """
        self._known.pop(collection.name, None)
        answer = await self.write(statements.delete_collection(collection.name, collection.type))
        if not answer["deleted"]:
            return False
        for chunk_type in answer["types"]:
            await self.write(statements.drop_generation(chunk_type))
        log.info("dropped collection %s with %d chunks", collection.name, collection.chunks)
        return True

    def forget(self, name: str) -> None:
        """Forget what is remembered of a collection."""
        self._known.pop(name, None)

    async def update(self, collection: Collection, **fields: Any) -> Collection:
        """Change fields of a collection's record, named as in :class:`Collection`."""
        await self._store.write(
            *statements.set_collection_fields(
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

    async def read(self, statement: statements.Statement) -> list[Any]:
        """Read rows; none where nothing was stored yet. Raises as :func:`.layout.check_new`."""
        try:
            return list(await self._store.read(*statement))
        except StatementRefused as exc:
            await check_new(self._store, exc)
            return []

    async def write(self, statement: statements.Statement) -> Any:
        """Write, creating the schema first where it is missing; again if others were in the way.

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
        """Run statements, once more where a type is missing.

        What a database of an earlier version of this ability lacks is there then.

        Raises:
            StatementRefused: as from ``run``, the second time at the latest.
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
        schema = partial(self._store.write, *statements.schema())
        # Somebody else may be creating it just now.
        await _insisting(schema, "duplicate", "conflict")


async def _insisting(run: Callable[[], Awaitable[T]], *passing: str) -> T:
    """Run a statement, again after refusals for these reasons."""
    for _ in range(_TRIES - 1):
        try:
            return await run()
        except StatementRefused as exc:
            if exc.reason not in passing:
                raise
        await asyncio.sleep(_PAUSE)
    return await run()
