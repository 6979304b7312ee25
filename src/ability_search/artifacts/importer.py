"""An artifact -> a collection, in a generation of its own until it is complete."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from hashlib import blake2b
from itertools import islice
from typing import Protocol

import numpy as np

from ability_search.artifacts.artifact_reader import Item, Row
from ability_search.artifacts.manifest import Counts, Manifest, Origin
from ability_search.artifacts.stored_rows import (
    Contents,
    Storage,
    link_rows,
    restored_document,
    row_bytes,
)
from ability_search.collection import Collection, checked_name
from ability_search.config.loading import Settings
from ability_search.errors import (
    DatabaseUnavailable,
    EmbeddingUnavailable,
    InvalidInput,
    SearchError,
)
from ability_search.index.generations import Generations
from ability_search.index.index_calls import Progress, Report
from ability_search.index.maintenance import Maintenance
from ability_search.index.preparation import LAYOUT, Recipe
from ability_search.index.writer import new_collection
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry

log = logging.getLogger(__name__)

_ATTEMPTS = 10
_DEFAULTS: Row = {"lead": "", "metadata": {}, "dates": [], "aspectOf": None}
"""What an older artifact may leave out."""
_TOKEN_BYTES = 8
_USES = 1000
"""Uses written in one statement."""


class Importable(Protocol):
    """What can be imported, :class:`ability_search.artifacts.artifact_reader.Artifact` for one."""

    @property
    def manifest(self) -> Manifest:
        """The model and the dimensions of the vectors."""

    @property
    def origin(self) -> Origin:
        """The collection that it was."""

    @property
    def counts(self) -> Counts:
        """Return the numbers of sources and chunks, complete once all was read."""

    @property
    def fingerprint(self) -> str:
        """Hash of the contents; an import that was interrupted continues with the same one."""

    def check(self) -> None:
        """Read all of it, before anything is done."""

    def items(self) -> Iterator[Item]:
        """The sources, each checked as it is read."""

    def usage(self) -> Iterator[Row] | None:
        """Return the recorded use of chunks by agents; ``None`` if there is none."""


class Importing:
    """The import service. It needs no embedder.

    Args:
        store: The database.
        registry: Knows the collections.
        maintenance: Builds the graph of what was imported, before it is searched.
        generations: Puts a collection on what was imported.
        settings: How much is written at a time.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        maintenance: Maintenance,
        generations: Generations,
        *,
        settings: Settings,
    ) -> None:
        self._store = store
        self._generations = generations
        self._registry = registry
        self._maintenance = maintenance
        self._group_bytes = settings.database.write_group_bytes
        self._group_chunks = settings.database.write_group_chunks

    async def import_artifact(
        self,
        artifact: Importable,
        name: str,
        report: Report,
        *,
        model: str | None = None,
        replacing: bool = False,
    ) -> Collection:
        """Make an artifact the collection ``name``; all of it is checked before anything is done.

        The collection is visible once it is complete. An import that is killed leaves the old
        state; calling again continues it, and one that is not continued is removed hours later.

        Args:
            artifact: What to import.
            name: Of the collection.
            report: Receives the progress.
            model: What the embedding model is called here; ``None`` for as it is called there.
            replacing: Whether it may take the place of a collection that exists.

        Returns:
            The collection's record.

        Raises:
            Damaged: if anything of the artifact is not as it should be.
            InvalidInput: if the collection exists and is not to be replaced.
            DatabaseUnavailable: if the database did not answer.
        """
        await self._check_free(checked_name(name), replacing)
        record = _record(name, artifact, model)
        try:
            await self.load(artifact, record, report, model=model)
            total = artifact.counts.sources
            await report(Progress(name, total, total, "building the graph"))
            self._maintenance.schedule(record)
            await self._maintenance.idle()
            imported = await self._publish(artifact.origin, name, record, replacing)
        except Exception as exc:
            # Only a component is missing: the import continues later.
            if type(exc) not in (DatabaseUnavailable, EmbeddingUnavailable):
                await asyncio.shield(self.discard(record))
            raise
        await self._write_usage(artifact, name)
        # What it replaces is dropped by any worker when its grace is over, which may be now.
        await self._generations.drop_due()
        return imported

    async def load(
        self, artifact: Importable, record: str, report: Report, *, model: str | None = None
    ) -> None:
        """Bring an artifact under a record ``name@token``, where nobody sees it.

        Sources that are there already, as the artifact has them, are not written again.

        Arguments and errors as for :meth:`import_artifact`.
        """
        await asyncio.to_thread(artifact.check)
        begun = await self._registry.reload(record)
        collection = begun or await self._registry.create(
            _new_collection(artifact, record, model=model, now=_now())
        )
        storage = Storage(
            self._store,
            self._registry,
            name=record,
            message_bytes=self._group_bytes,
            now=_now,
        )
        name, done = collection.public_name, 0
        groups = self._groups(artifact, name)
        while contents := await asyncio.to_thread(next, groups, None):
            done += len(contents.records)
            if begun is not None:
                contents = await self._unstored(collection, contents)
            if contents.records and await storage.put(collection, contents) is None:
                raise DatabaseUnavailable("what was being imported is gone", hint="Call again.")
            await report(Progress(name, done, artifact.counts.sources, "importing"))
        built = await self._registry.reload(record)
        if built is None or not holds(built, artifact.counts):
            await self.discard(record)
            raise DatabaseUnavailable("not all of it was stored", hint="Call again.")

    async def discard(self, record: str) -> None:
        """Remove what was loaded, as far as the database lets us."""
        try:
            collection = await self._registry.reload(record)
            if collection is not None:
                await self._registry.drop(collection)
        except SearchError as exc:
            log.warning("could not discard %s: %s", record, exc)

    async def _unstored(self, collection: Collection, contents: Contents) -> Contents:
        """Return those of some sources that are not stored as they are here."""
        answer = await self._store.read(
            *arcadedb.source_hashes(
                collection.name, collection.type, [row["source"] for row in contents.records]
            )
        )
        stored = {row["source"]: row["contentHash"] for row in answer["sources"]}
        left = [
            (record, rows)
            for record, rows in zip(contents.records, contents.rows, strict=True)
            if stored.get(record["source"]) != record["contentHash"]
        ]
        names = {record["source"] for record, _ in left}
        return Contents(
            records=[record for record, _ in left],
            rows=[rows for _, rows in left],
            links=[link for link in contents.links if link["source"] in names],
        )

    async def _check_free(self, name: str, replacing: bool) -> Collection | None:
        live = await self._registry.reload(name)
        if live is not None and not replacing:
            raise InvalidInput(
                "collection",
                f"{name!r} exists",
                hint="Choose another name with --name, or say --replace.",
            )
        return live

    def _groups(self, artifact: Importable, name: str) -> Iterator[Contents]:
        """Yield the items of one transaction each."""
        group: list[Item] = []
        rows = size = 0
        for item in artifact.items():
            item = _renamed(item, artifact.origin.name, name)
            item_size = sum(map(row_bytes, item.rows))
            if group and (
                rows + len(item.rows) > self._group_chunks or size + item_size > self._group_bytes
            ):
                yield _contents(group)
                group, rows, size = [], 0, 0
            group.append(item)
            rows += len(item.rows)
            size += item_size
        if group:
            yield _contents(group)

    async def _publish(self, origin: Origin, name: str, record: str, replacing: bool) -> Collection:
        """Make what was built the collection."""
        for _ in range(_ATTEMPTS):
            live = await self._check_free(name, replacing)
            built = await self._registry.reload(record)
            if built is None:
                raise DatabaseUnavailable("what was imported is gone", hint="Call again.")
            imported = (
                await self._generations.publish(built, origin.created_at)
                if live is None
                else await self._generations.switch(live, built)
            )
            if imported is not None:
                log.info("imported %s with %d chunks", name, imported.chunks)
                return imported
        raise DatabaseUnavailable(
            "writers kept changing the collection", hint="Call again when fewer are writing."
        )

    async def _write_usage(self, artifact: Importable, name: str) -> None:
        """Only what a backup tells is written, in place of what is known."""
        uses = artifact.usage()
        if uses is None:
            return
        await self._registry.write(arcadedb.delete_uses(name))
        rows = (
            row
            | {"collection": name, "chunkId": _moved(row["chunkId"], artifact.origin.name, name)}
            for row in uses
        )
        while part := list(islice(rows, _USES)):
            await self._registry.write(arcadedb.put_uses(part))


def holds(collection: Collection, counts: Counts) -> bool:
    """Return whether a collection holds as much of everything as an artifact tells."""
    held = asdict(collection)
    return all(held[name] == count for name, count in counts.model_dump(exclude={"usage"}).items())


def _record(name: str, artifact: Importable, model: str | None) -> str:
    """The record that a collection is built under, the same for the same contents."""
    parts = (LAYOUT, artifact.fingerprint, model or artifact.manifest.model_id)
    digest = blake2b("\n".join(parts).encode(), digest_size=_TOKEN_BYTES)
    return f"{name}@{digest.hexdigest()}"


def _new_collection(
    artifact: Importable, record: str, *, model: str | None, now: int
) -> Collection:
    origin = artifact.origin
    recipe = Recipe(
        origin.chunk_strategy,
        origin.chunk_size,
        origin.chunk_overlap,
        origin.language,
        kinds=origin.kinds,
        kinds_by=origin.kinds_by,
    )
    return new_collection(
        record,
        model=model or artifact.manifest.model_id,
        dimensions=artifact.manifest.dim,
        recipe=recipe,
        average_length=origin.average_length,
        k1=origin.bm25_k1,
        b=origin.bm25_b,
        now=now,
    )


def _renamed(item: Item, origin: str, name: str) -> Item:
    """A source as another collection holds it, its vectors with its rows."""
    rows = []
    # Rounded as when they are indexed, which is exact: see preparing.
    vectors = np.round(item.vectors.astype(np.float64), 7).tolist()
    for row, vector in zip(item.rows, vectors, strict=True):
        stand_in = row.get("duplicateOf")
        moved = _DEFAULTS | row
        moved |= {"collection": name, "chunkId": _moved(row["chunkId"], origin, name)}
        moved |= {"embedding": None if stand_in else vector}
        if stand_in:
            moved |= {"duplicateOf": _moved(stand_in, origin, name), "spareEmbedding": vector}
        rows.append(moved)
    return Item(item.record, rows, item.vectors)


def _moved(chunk_id: str, origin: str, name: str) -> str:
    return f"{name}:{chunk_id.removeprefix(f'{origin}:')}"


def _contents(group: Sequence[Item]) -> Contents:
    documents = [restored_document(item.record, ()) for item in group]
    return Contents(
        records=[item.record for item in group],
        rows=[item.rows for item in group],
        links=[link for document in documents for link in link_rows(document)],
    )


def _now() -> int:
    return time.time_ns() // 1_000_000
