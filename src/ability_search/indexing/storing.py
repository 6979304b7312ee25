"""Writing rows to the database, one transaction per group of sources."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable, StatementRefused
from ability_search.index.preparation import generated_sources
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import RETRIES
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.arcadedb.collections import from_record
from ability_search.store.registry import Registry
from ability_search.text.term_statistics import TermStatistics

Row = dict[str, Any]

ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class Contents:
    """The new contents of some sources."""

    records: Sequence[Row]
    """The Source record of each source."""
    rows: Sequence[Sequence[Row]]
    """The chunks of each source, with duplicates excluded from the indexes."""
    links: Sequence[Row]
    """The links of all sources."""
    stand_ins: Mapping[str, int] = field(default_factory=dict)
    """Stand-ins for duplicates in other sources: ``createdAt`` by chunkId."""
    gone: Sequence[str] = ()
    """Sources to delete without replacement."""


@dataclass(frozen=True, slots=True)
class Written:
    """The result of one transaction."""

    sources: int
    """Number of sources, not counting derived kinds; ``replaced`` counts likewise."""
    chunks: int
    replaced: int
    deduplicated: int


class Storage:
    """Write access to one collection.

    Args:
        store: The database.
        registry: The registry of collections.
        name: Name of the collection's record.
        collection: The collection, if it exists.
        message_bytes: Maximum bytes in one statement; a larger source is staged in parts.
        now: Returns the time in epoch milliseconds.
        meter: Counts retried statements.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        name: str,
        collection: Collection | None,
        message_bytes: int,
        now: Callable[[], int],
        meter: Meter = UNMETERED,
    ) -> None:
        self._store = store
        self._registry = registry
        self.name = name
        self.collection = collection
        self._message_bytes = message_bytes
        self._now = now
        self._meter = meter

    async def put(self, collection: Collection, contents: Contents) -> Written | None:
        """Replace sources in one transaction; return ``None`` if the generation is gone.

        Raises:
            DatabaseUnavailable: if the database remains unavailable; whether the transaction was
                committed is then unknown.
        """
        every = [row for rows in contents.rows for row in rows]
        duplicates = sum(bool(row.get("duplicateOf")) for row in every)
        chunks, aspects = await self._parts(contents.rows)
        await self._registry.prepare(
            collection, links=bool(contents.links), aspects=aspects.count > 0
        )
        answer = await self._transact(
            arcadedb.replace_sources(
                collection.name,
                collection.type,
                sources=[*(record["source"] for record in contents.records), *contents.gone],
                chunks=chunks,
                aspects=aspects,
                records=contents.records,
                links=contents.links,
                added=await asyncio.to_thread(_statistics, every),
                duplicates=duplicates,
                stand_ins=contents.stand_ins,
                now=self._now(),
            )
        )
        if answer is None:
            return None
        stored = chunks.count + aspects.count
        if int(answer["inserted"] or 0) != stored:
            raise StatementRefused("other", f"{answer['inserted']} of {stored} chunks were stored")
        documents = sum(not record.get("generated") for record in contents.records)
        return Written(documents, stored, int(answer["replaced"] or 0), duplicates)

    async def remove(
        self, collection: Collection, sources: Sequence[str], *, aspects: bool = True
    ) -> int | None:
        """Delete sources with the kinds derived from them, then the kinds stored by callers.

        The latter takes a second transaction. If a crash prevents it, searches still never return
        these chunks, since their document is gone.

        Returns:
            The number of deleted chunks; ``None`` if the generation is gone.
        """
        made = generated_sources(sources) if collection.aspects else []
        answer = await self._transact(
            arcadedb.replace_sources(
                collection.name, collection.type, sources=[*sources, *made], now=self._now()
            )
        )
        if answer is None:
            return None
        deleted = int(answer["deleted"] or 0)
        if not aspects or self.collection is None or not self.collection.aspects:
            return deleted
        rows = await self._store.read(*arcadedb.aspect_sources(collection.type, sources))
        if not rows:
            return deleted
        names = [row["source"] for row in rows]
        return deleted + (await self.remove(collection, names, aspects=False) or 0)

    async def _parts(
        self, per_source: Sequence[Sequence[Row]]
    ) -> tuple[arcadedb.Rows, arcadedb.Rows]:
        """Return ordinary chunks and chunks of kinds; stage what does not fit in the statement."""
        inline: dict[bool, list[Row]] = {False: [], True: []}
        tokens: dict[bool, list[str]] = {False: [], True: []}
        staged = {False: 0, True: 0}
        room = self._message_bytes
        for rows in per_source:
            size = sum(row_bytes(row) for row in rows)
            aspect = bool(rows and rows[0]["aspectOf"])
            if size <= room:
                inline[aspect] += rows
                room -= size
            else:
                tokens[aspect].append(await self._stage(rows))
                staged[aspect] += len(rows)
        chunks, aspects = (
            arcadedb.Rows(inline[aspect], tokens[aspect], staged[aspect])
            for aspect in (False, True)
        )
        return chunks, aspects

    async def _stage(self, rows: Sequence[Row]) -> str:
        token = secrets.token_hex(8)
        part: list[Row] = []
        room = self._message_bytes
        for row in rows:
            if part and row_bytes(row) > room:
                await self._run(arcadedb.stage_rows(token, part))
                part, room = [], self._message_bytes
            part.append(row)
            room -= row_bytes(row)
        await self._run(arcadedb.stage_rows(token, part))
        return token

    async def _transact(self, statement: arcadedb.Statement) -> dict[str, Any] | None:
        """Run a transaction; return ``None`` if nothing was done because the generation is gone."""
        try:
            answer: dict[str, Any] = await self._registry.amended(partial(self._run, statement))
        except StatementRefused:
            if await self._is_on(statement.params["type"]):
                raise
            return None
        if answer["revision"] is None:
            return None
        # The next group needs the record as it is after this transaction.
        self.collection = self._registry.learn(self.name, from_record(answer["collection"][0]))
        return answer

    async def _is_on(self, chunk_type: str) -> bool:
        """Return True if the generation of a refused statement still exists.

        The errors for types being dropped vary, so the record decides.
        """
        current = await self._registry.reload(self.name)
        return current is not None and current.type == chunk_type

    async def _run(self, statement: arcadedb.Statement) -> Any:
        """Run an idempotent statement, with retries that outlast a restart of the database."""
        async for attempt in AsyncRetrying(
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=0.25, max=8),
            retry=retry_if_exception(_passing),
            before_sleep=lambda _: self._meter.add(RETRIES, 1, "database"),
            reraise=True,
        ):
            with attempt:
                answer = await self._store.write(*statement)
        return answer


def row_bytes(row: Row) -> int:
    """Estimate the bytes of a row in a statement, seldom too low."""
    text = 3 * (len(row["content"]) + len(row["lead"]) + len(row["title"]))
    text += len(str(row["metadata"])) + sum(3 + len(facet) for facet in row["facets"])
    vector = row["embedding"] or row.get("spareEmbedding") or ()
    terms = row["terms"] or row.get("spareTerms") or ()
    return 600 + text + 11 * len(vector) + 18 * len(terms) + 8 * len(row["dates"])


def _statistics(rows: Sequence[Row]) -> str:
    """Return the encoded term statistics of chunks, without those of derived kinds."""
    counted = [row for row in rows if not row["aspectOf"]]
    statistics = TermStatistics.of_chunks(
        [row["terms"] or row.get("spareTerms") or () for row in counted],
        [row["lengths"] for row in counted],
    )
    return base64.b64encode(statistics.to_bytes()).decode("ascii")


def _passing(exc: BaseException) -> bool:
    if isinstance(exc, StatementRefused):
        # The statement deletes before it inserts: a duplicate is from a concurrent transaction.
        return exc.reason in ("conflict", "duplicate")
    return isinstance(exc, DatabaseUnavailable)
