"""Switching collections to new generations, and dropping unused ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from ability_search.collection import Collection, type_created_at
from ability_search.errors import SearchError
from ability_search.filters.tree import Not
from ability_search.index.index_ports import IndexPorts
from ability_search.index.jobs import records_under_construction
from ability_search.store.pages import GENERATED, read_together
from ability_search.store.port import Store
from ability_search.store.stored_collections import (
    delete_collection,
    due_generations,
    put_collection,
    retire,
)
from ability_search.store.values import Change, Columns, Put, Read, Scalar, Sources

log = logging.getLogger(__name__)

_COMPARED = 500
"""Sources compared at a time."""


@dataclass(slots=True, eq=False)
class Generations:
    """Switches collections to other generations and drops the old ones.

    The drop of a generation is recorded in the transaction that replaces it, so that any worker
    can perform it when it is due.
    """

    ports: IndexPorts
    _dropping: set[asyncio.Task[None]] = field(default_factory=set)

    async def switch(
        self, old: Collection | None, built: Collection, *, ended: Put | None = None
    ) -> Collection | None:
        """Switch a collection to the generation built under the record of ``built``.

        Args:
            old: The collection as it is; ``None`` if there is none yet.
            built: Its replacement, under the record ``name@token``.
            ended: The change of the record of the job that built it, if there is one.

        Returns:
            The collection after the switch; ``None`` if either record changed meanwhile.
        """
        name = built.public_name
        self.ports.registry.forget(name)
        self.ports.registry.forget(built.name)
        new = replace(built, name=name, revision=built.revision + 1)
        # Gone, if another worker has taken over the job.
        changes: list[Change] = [delete_collection(built, revision=built.revision)]
        if old is None:
            changes.append(put_collection(new))
        else:
            new = replace(
                new,
                generation=old.generation + 1,
                revision=max(old.revision, built.revision) + 1,
                created_at=old.created_at,
            )
            where: dict[str, Scalar | None] = {"type": old.type, "revision": old.revision}
            changes += [
                put_collection(new, where=where),
                retire(old.type, grace=round(self.ports.settings.database.grace_period * 1000)),
            ]
        if ended is not None:
            changes.append(ended)
        if not (await self.ports.store.commit(changes)).done:
            return None
        if old is not None:
            self.drop_soon(after=self.ports.settings.database.grace_period)
        return new

    async def drop_due(self) -> None:
        """Drop the generations that are due."""
        for generation in await due_generations(self.ports.store):
            await self.drop(generation)

    async def sweep(self, *, before: int) -> None:
        """Remove unfinished generations that have no job and did not change since ``before``.

        ``before`` is in epoch milliseconds.
        """
        records = await self.ports.registry.records()
        # Read last: a job that is taken over meanwhile renames its record to one not listed here.
        wanted = await records_under_construction(self.ports.store)
        for record in records:
            if record.name in wanted or record.name == record.public_name:
                continue
            if record.updated_at < before:
                await self.ports.registry.drop(record)
        used = {record.type for record in records}
        for generation in await self.ports.store.generations():
            created = type_created_at(generation)
            if generation not in used and created is not None and created < before:
                await self.drop(generation)

    async def close(self) -> None:
        """Cancel pending drops; other workers perform them."""
        for task in self._dropping:
            task.cancel()
        await asyncio.gather(*self._dropping, return_exceptions=True)

    async def drop(self, generation: str) -> None:
        """Drop a generation."""
        log.info("dropping unused generation %s", generation)
        await self.ports.store.drop_generation(generation)

    def drop_soon(self, *, after: float = 0.0) -> None:
        """Drop the generations that are due ``after`` seconds, in a background task."""
        task = asyncio.create_task(self._wait_and_drop(after), name="drop generations")
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _wait_and_drop(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            await self.drop_due()
        except SearchError as exc:
            log.warning("could not drop old generations yet: %s", exc)


async def compared_sources(
    store: Store, live: Collection, built: Collection
) -> AsyncIterator[tuple[dict[str, str], dict[str, str | None]]]:
    """Yield the sources of two generations page by page, without generated kinds.

    They are those of the live one with their content hashes, and those of the built one with
    the hashes of what they were restored from.
    """
    of, columns = Sources(filter=Not(GENERATED)), Columns(("source", "content_hash", "origin"))
    floor: str | None = ""
    while floor is not None:
        asks = [Read(of, each, columns, _COMPARED, after=floor) for each in (live, built)]
        old, new = await read_together(store, *asks)
        floor = min((p.next for p in (old, new) if isinstance(p.next, str)), default=None)
        common, restored = (
            [row for row in page.items if floor is None or row["source"] <= floor]
            for page in (old, new)
        )
        yield (
            {row["source"]: row["content_hash"] for row in common},
            {row["source"]: row["origin"] for row in restored},
        )
