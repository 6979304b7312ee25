"""Imports an artifact as a collection, in a separate generation until it is complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import islice
from typing import TypeVar

from ability_search.bounded_batches import batches
from ability_search.collection import Collection, checked_model, checked_name, new_collection
from ability_search.errors import (
    DatabaseUnavailable,
    EmbeddingUnavailable,
    InvalidInput,
    SearchError,
)
from ability_search.extensions.artifacts.artifact_format import Counts
from ability_search.extensions.artifacts.artifact_reader import Importable, Item, moved
from ability_search.extensions.sessions.uses import put_use, uses_of
from ability_search.index.index_calls import Report
from ability_search.index.preparation import LAYOUT, links_of, restored_document
from ability_search.retry import growing, retry
from ability_search.store.pages import HASHES, read_all
from ability_search.store.records import Replacement, chunk_bytes
from ability_search.store.values import Delete, Read, Sources
from ability_search.text.term_statistics import TermStatistics
from ability_search.tools.calls import Services

log = logging.getLogger(__name__)

T = TypeVar("T")

_ATTEMPTS = 10
_LONGEST_PAUSE = 5.0
"""Maximum seconds between two attempts."""
_TOKEN_BYTES = 8
_USES = 1000
"""Uses written in one statement."""


@dataclass(frozen=True, slots=True)
class Importer:
    """Imports collections. It needs no embedder."""

    services: Services

    async def import_artifact(
        self,
        artifact: Importable,
        name: str,
        report: Report,
        *,
        model: str | None = None,
        replacing: bool = False,
    ) -> Collection:
        """Check the whole artifact, then import it as the collection ``name``.

        The collection is visible once it is complete. The import continues after a restart of the
        database. An interrupted one leaves the old state; calling again continues it. Otherwise it
        is removed after some hours.

        Args:
            artifact: The artifact.
            name: Name of the collection.
            report: Receives the progress.
            model: Name of the embedding model here; ``None`` for the one in the artifact.
            replacing: Replace an existing collection.

        Returns:
            The collection's record.

        Raises:
            Damaged: if the artifact is invalid.
            InvalidInput: if the collection is not empty and ``replacing`` is false, or the name of
                the collection or of the model is not valid.
            DatabaseUnavailable: if the store did not answer.
        """
        _check_free(name, await self.services.ports.registry.reload(checked_name(name)), replacing)
        model = checked_model(model or artifact.collection.model)
        # The same contents are loaded under the same name, so that an import can be continued.
        parts = "\n".join((LAYOUT, artifact.fingerprint, model))
        record = f"{name}@{blake2b(parts.encode(), digest_size=_TOKEN_BYTES).hexdigest()}"
        try:
            built = await self._repeated(partial(self.load, artifact, record, report, model=model))
            total = artifact.counts.sources
            await report(total, total, "building the graph")
            self.services.maintenance.schedule(record)
            await self.services.maintenance.idle()
            created_at = artifact.collection.created_at
            imported = await self._repeated(partial(self._publish, built, created_at, replacing))
        except Exception as exc:
            # If a component is unavailable, the import can be continued later.
            if type(exc) not in (DatabaseUnavailable, EmbeddingUnavailable):
                await asyncio.shield(self.discard(record))
            raise
        await self._repeated(partial(self._write_usage, artifact, name))
        # The grace period of the replaced generation may be over already.
        await self._repeated(self.services.generations.drop_due)
        return imported

    async def _repeated(self, step: Callable[[], Awaitable[T]]) -> T:
        """Run a step; repeat it while the database is unavailable, for example restarting."""
        return await retry(
            step,
            when=lambda exc: type(exc) is DatabaseUnavailable,
            attempts=_ATTEMPTS,
            pause=growing(0.5, longest=_LONGEST_PAUSE),
            within=self.services.ports.settings.jobs.patience,
        )

    async def load(
        self, artifact: Importable, record: str, report: Report, *, model: str
    ) -> Collection:
        """Load an artifact under a record ``name@token``, where it is not visible; return that.

        Sources that are stored already with the same content are not written again.

        The arguments and errors are those of :meth:`import_artifact`.
        """
        await asyncio.to_thread(artifact.check)
        registry, store = self.services.ports.registry, self.services.ports.store
        database = self.services.ports.settings.database
        begun = await registry.reload(record)
        if begun is None:
            was = artifact.collection
            new = new_collection(
                record,
                replace(was, model=model),
                dimensions=was.dimensions,
                average_length=was.average_length,
                now=self.services.ports.now(),
            )
            collection = await registry.create(new)
        else:
            collection = begun
        name, done = collection.public_name, 0
        most, most_bytes = database.write_group_chunks, database.write_group_bytes

        def size(item: Item) -> int:
            """Return the bytes of an item; each chunk has at least its share of a full group."""
            return sum(max(most_bytes // most, chunk_bytes(chunk)) for chunk in item.chunks)

        groups = batches(artifact.items(name), size, most=most, most_bytes=most_bytes)
        while group := await asyncio.to_thread(next, groups, None):
            done += len(group)
            if begun is not None:
                ask = Read(Sources([each.record.source for each in group]), collection, HASHES)
                hashes = {row["source"]: row["content_hash"] for row in await read_all(store, ask)}
                group = [
                    each
                    for each in group
                    if hashes.get(each.record.source) != each.record.content_hash
                ]
            if group:
                contents = await asyncio.to_thread(_replacement, group)
                replaced = await store.replace(collection, contents)
                if replaced is None:
                    raise DatabaseUnavailable("the imported data was deleted", hint="Call again.")
                collection = replaced.collection
            await report(done, artifact.counts.sources, "importing")
        built = await registry.reload(record)
        if built is None or not holds(built, artifact.counts):
            await self.discard(record)
            raise DatabaseUnavailable("the import is incomplete", hint="Call again.")
        return built

    async def discard(self, record: str) -> None:
        """Remove loaded data; log a warning if the store fails."""
        try:
            collection = await self.services.ports.registry.reload(record)
            if collection is not None:
                await self.services.ports.registry.drop(collection)
        except SearchError as exc:
            log.warning("could not discard %s: %s", record, exc)

    async def _publish(self, loaded: Collection, created_at: int, replacing: bool) -> Collection:
        """Publish the loaded generation as the collection, unless an earlier attempt did so."""
        name = loaded.public_name
        for _ in range(_ATTEMPTS):
            live = await self.services.ports.registry.reload(name)
            if live is not None and live.type == loaded.type:
                return live
            _check_free(name, live, replacing)
            built = await self.services.ports.registry.reload(loaded.name)
            if built is None:
                raise DatabaseUnavailable("the imported data was deleted", hint="Call again.")
            built = replace(built, created_at=created_at)
            imported = await self.services.generations.switch(live, built)
            if imported is not None:
                log.info("imported %s with %d chunks", name, imported.chunks)
                return imported
        raise DatabaseUnavailable(
            "writers kept changing the collection", hint="Call again when there are fewer writes."
        )

    async def _write_usage(self, artifact: Importable, name: str) -> None:
        """Replace the recorded use by that of the artifact, if it is a backup."""
        uses = artifact.usage()
        if uses is None:
            return
        await self.services.ports.store.commit([Delete(uses_of(name))])
        renamed = (
            replace(use, collection=name, chunk_id=moved(use.chunk_id, name)) for use in uses
        )
        while part := list(islice(renamed, _USES)):
            await self.services.ports.store.commit(list(map(put_use, part)))


def _check_free(name: str, live: Collection | None, replacing: bool) -> None:
    if live is not None and live.sources and not replacing:
        raise InvalidInput(
            "collection",
            f"{name!r} exists and is not empty",
            hint="Choose another name with --name, or use --replace.",
        )


def holds(collection: Collection, counts: Counts) -> bool:
    """Return whether a collection has the counts of an artifact."""
    held = asdict(collection)
    return all(held[name] == count for name, count in counts.model_dump(exclude={"usage"}).items())


def _replacement(group: Sequence[Item]) -> Replacement:
    counted = [chunk for item in group for chunk in item.chunks if chunk.of is None]
    statistics = TermStatistics.of_chunks(
        [chunk.terms for chunk in counted], [chunk.lengths for chunk in counted]
    )
    return Replacement(
        sources=[item.record.source for item in group],
        records=[item.record for item in group],
        chunks=[item.chunks for item in group],
        links=[link for item in group for link in links_of(restored_document(item.record, ()))],
        term_statistics=statistics.to_bytes(),
    )
