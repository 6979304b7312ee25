"""Switching collections to new generations, and dropping unused ones."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection, to_record, type_created_at
from ability_search.errors import SearchError, StatementRefused
from ability_search.store import arcadedb
from ability_search.store.registry import Registry

log = logging.getLogger(__name__)

_BESIDE_CHUNKS = re.compile(r"^(Source|Link|Aspect)(?=_)")


class Generations:
    """Switches collections to other generations and drops the old ones.

    The drop of a generation is recorded in the transaction that replaces it, so that any worker
    can perform it when it is due.

    Args:
        registry: Registry of the collections.
        grace: Seconds that a replaced generation is kept for running queries.
    """

    def __init__(self, registry: Registry, *, grace: float) -> None:
        self._registry = registry
        self._grace = grace
        self._dropping: set[asyncio.Task[None]] = set()

    async def switch(
        self, old: Collection, built: Collection, result: Mapping[str, Any] | None = None
    ) -> Collection | None:
        """Switch a collection to the generation built under the record of ``built``.

        Args:
            old: The collection as it is.
            built: Its replacement. The job that built it is marked as done.
            result: The result of that job.

        Returns:
            The collection after the switch; ``None`` if either record changed meanwhile.
        """
        self._registry.forget(old.name)
        self._registry.forget(built.name)
        new = replace(
            built,
            name=old.name,
            generation=old.generation + 1,
            revision=max(old.revision, built.revision) + 1,
            created_at=old.created_at,
        )
        answer = await self._registry.write(
            arcadedb.switch_generation(
                old.name,
                old_type=old.type,
                old_revision=old.revision,
                built=built.name,
                built_revision=built.revision,
                record=to_record(new),
                grace=round(self._grace * 1000),
                result=result or {},
            )
        )
        if not answer["switched"]:
            return None
        self._drop_later()
        return new

    async def publish(self, built: Collection, created_at: int) -> Collection | None:
        """Turn a generation built under its own record into a new collection.

        Args:
            built: The record it was built under, ``name@token``.
            created_at: Creation time of the collection, in epoch milliseconds.

        Returns:
            The collection; ``None`` if one of that name exists by now.
        """
        new = replace(
            built, name=built.public_name, revision=built.revision + 1, created_at=created_at
        )
        self._registry.forget(built.name)
        try:
            answer = await self._registry.write(
                arcadedb.publish_generation(built.name, record=to_record(new))
            )
        except StatementRefused as exc:
            if exc.reason != "duplicate":
                raise
            return None
        if not answer["published"]:
            raise StatementRefused("other", f"{built.name} is gone")
        return new

    async def drop_due(self) -> None:
        """Drop the generations that are due."""
        for row in await self._registry.read(arcadedb.due_generations()):
            await self.drop(row["type"])

    async def sweep(self, *, before: int) -> None:
        """Remove unfinished generations that have no job and did not change since ``before``.

        ``before`` is in epoch milliseconds.
        """
        records = await self._registry.records()
        # Read last: a job that is taken over meanwhile renames its record to one not listed here.
        rows = await self._registry.read(arcadedb.records_being_built())
        wanted = {row["record"] for row in rows}
        for record in records:
            if record.name in wanted or record.name == record.public_name:
                continue
            if record.updated_at < before:
                await self._registry.drop(record)
        used = {record.type for record in records}
        rows = await self._registry.read(arcadedb.stored_types())
        names = dict.fromkeys(_BESIDE_CHUNKS.sub("Chunk", row["name"]) for row in rows)
        for name in names:
            created = type_created_at(name)
            if name not in used and created is not None and created < before:
                await self.drop(name)

    async def close(self) -> None:
        """Cancel pending drops; other workers perform them."""
        for task in self._dropping:
            task.cancel()
        await asyncio.gather(*self._dropping, return_exceptions=True)

    async def drop(self, chunk_type: str) -> None:
        """Drop the types of a generation."""
        log.info("dropping unused generation %s", chunk_type)
        await self._registry.write(arcadedb.drop_generation(chunk_type))

    def drop_soon(self) -> None:
        """Drop the generations that are due, in a background task."""
        self._drop_after(0.0)

    def _drop_later(self) -> None:
        self._drop_after(self._grace)

    def _drop_after(self, seconds: float) -> None:
        task = asyncio.create_task(self._wait_and_drop(seconds), name="drop generations")
        self._dropping.add(task)
        task.add_done_callback(self._dropping.discard)

    async def _wait_and_drop(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            await self.drop_due()
        except SearchError as exc:
            log.warning("could not drop old generations yet: %s", exc)
