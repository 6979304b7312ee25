"""Export, import and build artifacts with the services of a worker in this process."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from ability_search.collection import Collection, checked_name
from ability_search.config.schema import Settings
from ability_search.documents import Document
from ability_search.errors import InvalidInput, NotFound
from ability_search.extensions.artifacts.artifact_reader import Artifact, digest, read_manifest
from ability_search.extensions.artifacts.exporter import Exporter
from ability_search.extensions.artifacts.importer import Importable, Importer, holds
from ability_search.extensions.artifacts.manifest import (
    MANIFEST,
    ChunksManifest,
    Damaged,
    Manifest,
    SkillsManifest,
)
from ability_search.extensions.artifacts.skill_indexes import read_skills
from ability_search.index.generations import Generations
from ability_search.index.index_calls import IndexOptions, IndexReport, Report
from ability_search.index.index_ports import IndexPorts
from ability_search.index.indexer import Indexer
from ability_search.index.jobs import new_record
from ability_search.index.maintenance import Maintenance
from ability_search.index.preparation import LAYOUT
from ability_search.text.token_counter import TokenCounter

_PAGE = 1000
"""Sources read at a time."""
_DIGITS = 12
_LONGEST = 50
"""Longest prefix of a name, to leave room for the digits."""

ShowProgress = Callable[[str], AbstractContextManager[Report]]
"""Shows the progress of a named operation during a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """Options of building an artifact."""

    base: Path | None
    """Artifact to reuse vectors from."""
    model: str | None
    """Embedding model; ``None`` for the configured one."""
    force: bool
    """Whether to embed every text again."""
    revision: str | None
    """Revision of the sources; ``None`` for a hash of their texts."""


@dataclass(frozen=True, slots=True)
class Built:
    """The result of a build."""

    manifest: ChunksManifest
    reports: list[IndexReport]
    """One for each batch; unchanged documents have the vectors of the base."""
    removed: int
    """Number of sources that only the base had."""


class ArtifactService:
    """Exports collections, and imports and builds artifacts.

    Args:
        ports: The ports and settings of indexing.
        indexing: Indexes the documents of a build.
        maintenance: Prepares an imported collection for searching.
        generations: Makes an imported collection visible.
        progress: Shows the progress to the user.
        warn: Takes warnings for the user.
    """

    def __init__(
        self,
        ports: IndexPorts,
        indexing: Indexer,
        maintenance: Maintenance,
        generations: Generations,
        *,
        progress: ShowProgress,
        warn: Callable[[str], None],
    ) -> None:
        self.registry = ports.registry
        self._store = ports.store
        self._settings = ports.settings
        self._counter = ports.counter
        self._indexing = indexing
        self._importing = Importer(ports, maintenance, generations)
        self._exporting = Exporter(ports)
        self._progress = progress
        self._warn = warn

    def open(self, directory: Path) -> Importable:
        """Open an artifact; raises as :func:`open_artifact`."""
        return open_artifact(directory, settings=self._settings, counter=self._counter)

    async def export(
        self, name: str, directory: Path, *, revision: str | None = None, usage: bool = False
    ) -> ChunksManifest:
        """Export a collection; raises as :meth:`Exporter.export`."""
        with self._progress(name) as report:
            return await self._exporting.export(
                name, directory, report, revision=revision, usage=usage
            )

    async def import_artifact(
        self, artifact: Importable, name: str, *, model: str | None = None, replace: bool
    ) -> None:
        """Import an artifact; raises as :meth:`Importer.import_artifact`."""
        layout = artifact.origin.layout
        if layout != LAYOUT:
            self._warn(
                f"the artifact was written by another version (layout {layout}, current {LAYOUT}):"
                " keyword search may miss words until its documents are indexed again"
            )
        with self._progress(name) as report:
            await self._importing.import_artifact(
                artifact, name, report, model=model, replacing=replace
            )

    async def build(
        self,
        name: str,
        directory: Path,
        documents: AsyncIterator[Sequence[Document]],
        options: BuildOptions,
    ) -> Built:
        """Write an artifact of documents to ``directory``, without a visible collection.

        A document is copied from the base if its text, the settings and the model are the same. A
        failure leaves the directory unchanged.

        Args:
            name: Default name of the collection.
            directory: Directory of the artifact.
            documents: The documents in batches.
            options: How to build it.

        Raises:
            InvalidInput: if there are no documents, or the directory is not an artifact.
            Damaged: if the base is invalid.
            EmbeddingUnavailable: if the embedder did not answer.
            DatabaseUnavailable: if the store did not answer.
        """
        model = options.model or self._settings.embedding.model
        chosen = IndexOptions(model=model, force=options.force, embed_all=options.force)
        record = new_record(checked_name(name))
        reports: list[IndexReport] = []
        kept: set[str] = set()
        with self._progress(name) as report:
            base = await self._open_base(options.base, model) if options.base else None
            try:
                if base is not None:
                    await self._importing.load(base, record, report)
                async for batch in documents:
                    collection = await self.registry.reload(record)
                    part = await self._indexing.index_into(
                        record, collection, batch, chosen, report
                    )
                    reports.append(part)
                    kept.update(document.source for document in batch)
                    kept.difference_update(failure.source for failure in part.failed)
                collection = await self.registry.reload(record)
                removed = await self._remove_others(collection, kept) if collection else 0
                if collection is None or not kept:
                    raise InvalidInput("documents", "no documents were found")
                manifest = await self._exporting.export_record(
                    record, directory, report, revision=options.revision
                )
            finally:
                await asyncio.shield(self._importing.discard(record))
        return Built(manifest, reports, removed)

    async def _remove_others(self, collection: Collection, kept: Container[str]) -> int:
        """Remove all other sources; return their number."""
        after, removed = "", 0
        while page := await self._store.source_records(collection.type, after=after, limit=_PAGE):
            after = page[-1].source
            gone = [each.source for each in page if each.source not in kept]
            if gone:
                await self._indexing.remove(collection, gone, children=False)
                removed += len(gone)
        return removed

    async def _open_base(self, directory: Path, model: str) -> Artifact | None:
        """Return the base artifact; if it cannot be used, warn and return ``None``."""
        if not (directory / MANIFEST).exists():
            return None
        try:
            manifest = read_manifest(directory)
            if not isinstance(manifest, ChunksManifest):
                problem = "it is not an artifact of chunks"
            elif manifest.model_id != model:
                problem = f"its model is {manifest.model_id!r}, not {model!r}"
            else:
                artifact = Artifact(directory, manifest)
                await asyncio.to_thread(artifact.check)
                return artifact
        except Damaged as exc:
            problem = str(exc)
        self._warn(f"the base {directory} is not used: {problem}")
        return None

    async def choose_collection(self, shared: Path, own: Path | None) -> tuple[str, list[str]]:
        """Return the collection of a shared artifact or of the user's own; import it if needed.

        An import replaces the collections of other artifacts of that name, so that a search of all
        collections finds one version.

        Returns:
            The name of the collection, and messages about the choice for the user.

        Raises:
            Damaged: if the shared artifact is needed and is damaged.
        """
        choice = choose(shared, own, model=self._settings.embedding.model)
        messages = list(choice.reasons)
        try:
            name, replaced = await self._ensure_imported(choice.directory)
        except Damaged as exc:
            if choice.directory == shared:
                raise
            messages.append(f"the index in {own} cannot be used: {exc}")
            name, replaced = await self._ensure_imported(shared)
        if replaced:
            messages.append(f"{name} replaces {', '.join(replaced)}, of the same artifact")
        return name, messages

    async def _ensure_imported(self, directory: Path) -> tuple[str, list[str]]:
        """Return the collection of an artifact, whose name no other artifact has.

        If it was imported now, the collections of other artifacts of the same name are deleted, and
        returned too.
        """
        artifact = self.open(directory)
        stem = artifact.origin.name[:_LONGEST]
        name = f"{stem}.{digest(directory)[:_DIGITS]}"
        known = await self.registry.reload(name)
        if known is not None and holds(known, artifact.counts):
            return name, []
        await self.import_artifact(artifact, name, replace=True)
        similar = re.compile(rf"{re.escape(stem)}\.[0-9a-f]{{{_DIGITS}}}")
        names = [each.name for each in await self.registry.all()]
        replaced = [each for each in names if each != name and similar.fullmatch(each)]
        for each in replaced:
            with suppress(NotFound):  # another search has deleted it
                await self._indexing.delete(each)
        return name, replaced


def open_artifact(directory: Path, *, settings: Settings, counter: TokenCounter) -> Importable:
    """Open an artifact of either kind.

    Raises:
        NotFound: if the directory has no artifact.
        Damaged: if the artifact is damaged.
    """
    if not os.path.lexists(directory / MANIFEST):
        hint = f"Choose a directory with {MANIFEST}, as written by `export` and `build`."
        raise NotFound("artifact", str(directory), hint=hint)
    manifest = read_manifest(directory)
    if isinstance(manifest, SkillsManifest):
        return read_skills(directory, manifest, settings=settings, counter=counter)
    return Artifact(directory, manifest)


def saved_artifacts(directory: Path, names: Sequence[str] | None) -> list[Path]:
    """Return the artifacts of a backup, all or those of the named collections.

    Raises:
        NotFound: if there are none, or a named collection is missing.
    """
    found = {path.parent.name: path.parent for path in sorted(directory.glob(f"*/{MANIFEST}"))}
    for name in names or ():
        if name not in found:
            raise NotFound("collection in the backup", name, nearest=list(found)[:5])
    if not found:
        raise NotFound("backup", str(directory))
    return [found[name] for name in (names or found)]


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen artifact.

    Attributes:
        directory: Its directory.
        reasons: Warnings for the user, one sentence each: why their own artifact is not used, or
            why the shared one may give worse results.
    """

    directory: Path
    reasons: tuple[str, ...] = ()


def choose(shared: Path, own: Path | None, *, model: str) -> Choice:
    """Choose between a shared artifact and the user's own.

    The user's own is chosen if it has the revision of the shared one and the model that queries
    are embedded with.

    Args:
        shared: Directory of the shared artifact.
        own: Directory of the user's own artifact.
        model: Model that queries are embedded with.

    Raises:
        Damaged: if the shared artifact is invalid.
    """
    theirs = read_manifest(shared)
    against = None if own is None else _against(own, theirs, model)
    if own is not None and against is None:
        return Choice(own)
    reasons = [] if against is None else [f"the index in {own} is not used: {against}"]
    if theirs.model_id != model:
        reasons.append(
            f"the index in {shared} has vectors of the model {theirs.model_id!r}, not {model!r};"
            " if no provider serves that model, it is searched by keywords only"
        )
    return Choice(shared, tuple(reasons))


def _against(own: Path, shared: Manifest, model: str) -> str | None:
    """Return why the user's own artifact cannot be used; ``None`` if it can be."""
    try:
        manifest = read_manifest(own)
    except Damaged as exc:
        return str(exc)
    if manifest.revision != shared.revision:
        return f"it has revision {manifest.revision}, the shared index has {shared.revision}"
    if manifest.model_id != model:
        return f"it has vectors of the model {manifest.model_id!r}, not {model!r}"
    return None
