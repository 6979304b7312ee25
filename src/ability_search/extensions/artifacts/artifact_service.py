"""Export, import and build artifacts with the services of a worker in this process."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Sequence
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from ability_search.client.tool_client import (
    Target,
    client_identity,
    joined_environ,
    require_shared,
)
from ability_search.client.trust import MODEL_APIS, require_trusted
from ability_search.collection import Collection, checked_name
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import InvalidInput, NotFound
from ability_search.extension import loaded
from ability_search.extensions.artifacts.artifact_format import (
    MANIFEST,
    ChunksManifest,
    Damaged,
    SkillsManifest,
)
from ability_search.extensions.artifacts.artifact_reader import Artifact, read_manifest
from ability_search.extensions.artifacts.exporter import Exporter
from ability_search.extensions.artifacts.importer import Importer, holds
from ability_search.extensions.artifacts.skill_indexes import SkillsArtifact, read_skills
from ability_search.extensions.cli.clients import CLIENT_NAME, choose_target, client_settings
from ability_search.extensions.cli.local_files import UploadReport, read_documents
from ability_search.files.selection import Selection
from ability_search.filters.tree import Not
from ability_search.index.index_calls import Report
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import AddedSteps
from ability_search.index.jobs import new_record
from ability_search.index.preparation import LAYOUT
from ability_search.network import client_connection
from ability_search.store.pages import GENERATED, NAMES, read_pages
from ability_search.store.registry import Registry
from ability_search.store.values import Read, Sources
from ability_search.tools.calls import Services
from ability_search.tools.responses import index_result
from ability_search.worker import open_services, token_counter
from kadi_client import Connection

T = TypeVar("T")

_PAGE = 1000
"""Sources read at a time."""
_DIGITS = 12
_LONGEST = 50
"""Longest prefix of a name, to leave room for the digits."""

ShowProgress = Callable[[str], AbstractContextManager[Report]]
"""Shows the progress of a named operation during a block."""


@asynccontextmanager
async def open_local_services(
    settings: Settings, target: Target, *, name: str
) -> AsyncIterator[tuple[Services, Connection]]:
    """Yield the services of a worker in this process, and their connection.

    Args:
        settings: Settings of a client; those of the running stack outrank them.
        target: The broker.
        name: Display name of the connection.

    Raises:
        ConfigurationError: if the settings are invalid, the stack keeps everything in memory, or
            a found file names an API that the user does not trust.
        KadiError: if the broker cannot be reached.
    """
    require_shared(target)
    identity = client_identity(settings, target)
    if target.stack is not None:
        settings = load_settings(joined_environ(settings, os.environ), Path.cwd())
    require_trusted(settings, os.environ, *MODEL_APIS)
    # What reads or writes a whole collection outlasts a restart of the database.
    database = settings.database
    patience = max(database.patience, database.timeout)
    settings = replace(settings, database=database.model_copy(update={"patience": patience}))
    connection = client_connection(
        settings, target.url, target.networks, name=name, identity=identity
    )
    async with open_services(settings, connection, base=Path.cwd()) as services:
        yield services, connection


def with_services(broker: str | None, work: Callable[[Services, Connection], Awaitable[T]]) -> T:
    """Run ``work`` with the services of a worker in this process and return its result.

    ``broker`` is the value of the option of a command; raises as :func:`open_local_services`.
    """
    settings = client_settings()
    target = choose_target(settings, broker)

    async def run() -> T:
        async with open_local_services(settings, target, name=CLIENT_NAME) as opened:
            return await work(*opened)

    return asyncio.run(run())


@dataclass(frozen=True, slots=True)
class ArtifactService:
    """Exports collections, and imports and builds artifacts."""

    services: Services
    progress: ShowProgress
    warn: Callable[[str], None]
    """Takes warnings for the user."""

    @property
    def registry(self) -> Registry:
        """The collections."""
        return self.services.ports.registry

    async def export(
        self, name: str, directory: Path, *, revision: str | None = None, usage: bool = False
    ) -> ChunksManifest:
        """Export a collection; raises as :meth:`Exporter.export`."""
        collection = await self.registry.get(name)
        with self.progress(name) as report:
            return await Exporter(self.services.ports).export(
                collection.name, directory, report, revision=revision, usage=usage
            )

    async def import_artifact(
        self,
        artifact: Artifact | SkillsArtifact,
        name: str,
        *,
        model: str | None = None,
        replace: bool,
    ) -> None:
        """Import an artifact; raises as :meth:`Importer.import_artifact`."""
        layout = artifact.manifest.collection.layout if isinstance(artifact, Artifact) else LAYOUT
        if layout != LAYOUT:
            self.warn(
                f"the artifact was written by another version (layout {layout}, current {LAYOUT}):"
                " keyword search may miss words until its documents are indexed again"
            )
        with self.progress(name) as report:
            importer = Importer(self.services)
            await importer.import_artifact(artifact, name, report, model=model, replacing=replace)

    async def build(
        self,
        name: str,
        directory: Path,
        chosen: Sequence[Selection],
        *,
        base: Path | None,
        model: str | None,
        force: bool,
        revision: str | None,
    ) -> tuple[ChunksManifest, UploadReport]:
        """Write an artifact of local files to ``directory``, without a visible collection.

        A document is copied from the base if its text, the settings and the model are the same. A
        failure leaves the directory unchanged.

        Args:
            name: Default name of the collection.
            directory: Directory of the artifact.
            chosen: The files.
            base: Artifact to reuse vectors from.
            model: Embedding model; ``None`` for the configured one.
            force: Whether to embed every text again.
            revision: Revision of the sources; ``None`` for a hash of their texts.

        Returns:
            The manifest, and what became of the documents; unchanged ones have the vectors of the
            base, removed ones were only there.

        Raises:
            InvalidInput: if there are no documents, or the directory is not an artifact.
            EmbeddingUnavailable, DatabaseUnavailable: if the embedder or the store did not answer.
        """
        services, importer = self.services, Importer(self.services)
        model = model or services.ports.settings.embedding.model
        fields = IndexFields(model=model, force=force)
        record = new_record(checked_name(name))
        outcome = UploadReport(collection=name)
        kept: set[str] = set()
        with self.progress(name) as report:
            artifact = await self._open_base(base, model) if base else None
            try:
                if artifact is not None:
                    await importer.load(artifact, record, report, model=model)
                documents = read_documents(chosen, services.ports.settings, outcome)
                async with aclosing(documents):
                    async for batch in documents:
                        part = await services.indexing.index(record, batch, fields, report)
                        outcome.add(index_result(part, "").model_dump(mode="json", by_alias=True))
                        kept.update(document.source for document in batch)
                        kept.difference_update(failure.source for failure in part.failed)
                collection = await self.registry.reload(record)
                if collection is None or not kept:
                    raise InvalidInput("documents", "no documents were found")
                outcome.removed = await self._remove_others(collection, kept)
                exporter = Exporter(services.ports)
                manifest = await exporter.export(record, directory, report, revision=revision)
            finally:
                await asyncio.shield(importer.discard(record))
        return manifest, outcome

    async def _remove_others(self, collection: Collection, kept: Container[str]) -> int:
        """Remove all other sources; return their number."""
        removed = 0
        ask = Read(Sources(filter=Not(GENERATED)), collection, NAMES, _PAGE)
        async for page in read_pages(self.services.ports.store, ask):
            gone = [row["source"] for row in page.items if row["source"] not in kept]
            if gone:
                await self.services.sources.remove(collection, gone, children=False)
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
        self.warn(f"the base {directory} is not used: {problem}")
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
        model = self.services.ports.settings.embedding.model
        directory, messages = choose(shared, own, model=model)
        try:
            name, replaced = await self._ensure_imported(directory)
        except Damaged as exc:
            if directory == shared:
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
        artifact = open_artifact(directory, self.services.ports.settings)
        stem = artifact.collection.name[:_LONGEST]
        name = f"{stem}.{artifact.fingerprint[:_DIGITS]}"
        known = await self.registry.reload(name)
        if known is not None and holds(known, artifact.counts):
            return name, []
        await self.import_artifact(artifact, name, replace=True)
        similar = re.compile(rf"{re.escape(stem)}\.[0-9a-f]{{{_DIGITS}}}")
        names = [each.name for each in await self.registry.all()]
        replaced = [each for each in names if each != name and similar.fullmatch(each)]
        for each in replaced:
            with suppress(NotFound):  # another search has deleted it
                await self.services.sources.delete(each)
        return name, replaced


def open_artifact(directory: Path, settings: Settings) -> Artifact | SkillsArtifact:
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
        counter, label = token_counter(settings), sum(loaded().steps, start=AddedSteps()).label
        return read_skills(directory, manifest, settings=settings, counter=counter, label=label)
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


def choose(shared: Path, own: Path | None, *, model: str) -> tuple[Path, list[str]]:
    """Choose between a shared artifact and the user's own.

    The user's own is chosen if it has the revision of the shared one and the model that queries
    are embedded with.

    Args:
        shared: Directory of the shared artifact.
        own: Directory of the user's own artifact.
        model: Model that queries are embedded with.

    Returns:
        The directory, and warnings for the user: why their own artifact is not used, or why the
        shared one may give worse results.

    Raises:
        Damaged: if the shared artifact is invalid.
    """
    theirs, reasons = read_manifest(shared), []
    if own is not None:
        try:
            ours = read_manifest(own)
        except Damaged as exc:
            problem = str(exc)
        else:
            if (ours.revision, ours.model_id) == (theirs.revision, model):
                return own, []
            problem = (
                f"it has vectors of the model {ours.model_id!r}, not {model!r}"
                if ours.revision == theirs.revision
                else f"it has revision {ours.revision}, the shared index has {theirs.revision}"
            )
        reasons.append(f"the index in {own} is not used: {problem}")
    if theirs.model_id != model:
        reasons.append(
            f"the index in {shared} has vectors of the model {theirs.model_id!r}, not {model!r};"
            " if no provider serves that model, it is searched by keywords only"
        )
    return shared, reasons
