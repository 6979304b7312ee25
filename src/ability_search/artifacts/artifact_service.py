"""Export, import and build artifacts with the services of a worker in this process."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from pathlib import Path

from ability_search.artifacts.artifact_reader import Artifact, digest, read_manifest
from ability_search.artifacts.builder import Building, Built
from ability_search.artifacts.exporter import Exporting
from ability_search.artifacts.importer import Importable, Importing, holds
from ability_search.artifacts.manifest import MANIFEST, ChunksManifest, Damaged, SkillsManifest
from ability_search.artifacts.skill_indexes import read_skills
from ability_search.artifacts.tiers import choose
from ability_search.config.schema import Settings
from ability_search.documents import Document
from ability_search.errors import NotFound
from ability_search.index.generations import Generations
from ability_search.index.index_calls import IndexOptions, Report
from ability_search.index.indexer import Indexing
from ability_search.index.maintenance import Maintenance
from ability_search.index.preparation import LAYOUT
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.text.token_counter import TokenCounter

_DIGITS = 12
_LONGEST = 50
"""Longest prefix of a name, to leave room for the digits."""

ShowProgress = Callable[[str], AbstractContextManager[Report]]
"""Shows the progress of a named operation during a block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """How to build an artifact."""

    base: Path | None
    """Artifact to reuse vectors from."""
    model: str | None
    """Embedding model; ``None`` for the configured one."""
    force: bool
    """Whether to embed every text again."""
    revision: str | None
    """Revision of the sources; ``None`` for a hash of their texts."""


class ArtifactService:
    """Exports collections, and imports and builds artifacts.

    Args:
        store: The database.
        registry: The collections.
        indexing: Indexes the documents of a build.
        maintenance: Prepares an imported collection for searching.
        generations: Makes an imported collection visible.
        settings: Batch sizes, and the default embedding model.
        count: Counts tokens.
        counter: Name of that token counter.
        progress: Shows the progress to the user.
        warn: Takes warnings for the user.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        indexing: Indexing,
        maintenance: Maintenance,
        generations: Generations,
        *,
        settings: Settings,
        count: TokenCounter,
        counter: str,
        progress: ShowProgress,
        warn: Callable[[str], None],
    ) -> None:
        self.registry = registry
        self._indexing = indexing
        self._importing = Importing(store, registry, maintenance, generations, settings=settings)
        self._exporting = Exporting(store, registry, count=count, counter=counter)
        self._building = Building(store, registry, indexing, self._importing, self._exporting)
        self._settings = settings
        self._count = count
        self._counter = counter
        self._progress = progress
        self._warn = warn

    def open(self, directory: Path) -> Importable:
        """Open an artifact; raises as :func:`open_artifact`."""
        return open_artifact(
            directory, settings=self._settings, count=self._count, counter=self._counter
        )

    async def export(
        self, name: str, directory: Path, *, revision: str | None = None, usage: bool = False
    ) -> ChunksManifest:
        """Export a collection; raises as :meth:`Exporting.export`."""
        with self._progress(name) as report:
            return await self._exporting.export(
                name, directory, report, revision=revision, usage=usage
            )

    async def import_artifact(
        self, artifact: Importable, name: str, *, model: str | None = None, replace: bool
    ) -> None:
        """Import an artifact; raises as :meth:`Importing.import_artifact`."""
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
        """Build an artifact from documents; raises as :meth:`Building.build`."""
        model = options.model or self._settings.embedding.model
        with self._progress(name) as report:
            return await self._building.build(
                name,
                directory,
                documents,
                IndexOptions(model=model, force=options.force, embed_all=options.force),
                report,
                base=await self._open_base(options.base, model) if options.base else None,
                revision=options.revision,
            )

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


def open_artifact(
    directory: Path, *, settings: Settings, count: TokenCounter, counter: str
) -> Importable:
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
        return read_skills(directory, manifest, settings=settings, count=count, counter=counter)
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
