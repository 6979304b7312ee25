"""Export, import and build from the command line, with the services of a worker in this process."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ability_search.artifacts.artifact_reader import Artifact, digest, read_manifest
from ability_search.artifacts.builder import Building, Built
from ability_search.artifacts.exporter import Exporting
from ability_search.artifacts.importer import Importable, Importing, holds
from ability_search.artifacts.manifest import MANIFEST, ChunksManifest, Damaged, SkillsManifest
from ability_search.artifacts.skill_indexes import read_skills
from ability_search.artifacts.tiers import choose
from ability_search.cli import output
from ability_search.cli.client import chosen_target, client_settings, joining, target_connection
from ability_search.cli.progress import progress_bar
from ability_search.cli.selecting import Tree, read_trees
from ability_search.cli.sending import Outcome
from ability_search.client.following import Advance
from ability_search.config.loading import Settings, load_settings
from ability_search.documents import Document
from ability_search.errors import NotFound
from ability_search.files.file_documents import Reading, open_extractor
from ability_search.index.index_calls import IndexOptions, Progress
from ability_search.index.preparation import LAYOUT
from ability_search.tools.handlers import Services
from ability_search.tools.responses import index_result
from ability_search.worker import open_services, token_counter
from kadi_client import Connection

_DIGITS = 12
_LONGEST = 50
"""Longest prefix of a name, to leave room for the digits."""

T = TypeVar("T")


def with_services(broker: str | None, work: Callable[[Services], Awaitable[T]]) -> T:
    """Run ``work`` with the services of a worker in this process and return its result."""

    async def run() -> T:
        async with services_here(broker) as services:
            return await work(services)

    return asyncio.run(run())


@asynccontextmanager
async def services_here(broker: str | None) -> AsyncIterator[Services]:
    """Yield the services of a worker in this process, over the broker that a client uses.

    Raises:
        ConfigurationError: if the settings are invalid.
        KadiError: if the broker cannot be reached.
    """
    async with services_and_connection(broker) as (services, _):
        yield services


@asynccontextmanager
async def services_and_connection(
    broker: str | None,
) -> AsyncIterator[tuple[Services, Connection]]:
    """Yield the services of :func:`services_here` and their connection."""
    settings = client_settings()
    target = chosen_target(settings, broker)
    if target.stack is not None:
        settings = load_settings(joining(settings, os.environ), Path.cwd())
    connection = target_connection(settings, target)
    async with open_services(settings, connection, base=Path.cwd()) as services:
        yield services, connection


async def exported(
    services: Services,
    name: str,
    directory: Path,
    *,
    revision: str | None = None,
    usage: bool = False,
    hidden: bool,
) -> ChunksManifest:
    """Export a collection, with a progress bar; raises as :meth:`Exporting.export`."""
    with progress_bar(name, total=None, hidden=hidden) as advance:
        return await _exporting(services).export(
            name, directory, reporting(advance), revision=revision, usage=usage
        )


async def imported(
    services: Services,
    artifact: Importable,
    name: str,
    *,
    model: str | None = None,
    replace: bool,
    hidden: bool,
) -> None:
    """Import an artifact, with a progress bar; raises as :meth:`Importing.import_artifact`."""
    if artifact.origin.layout != LAYOUT:
        output.warn(
            f"the artifact was written by another version (layout {artifact.origin.layout}, current"
            f" {LAYOUT}): keyword search may miss words until its documents are indexed again"
        )
    with progress_bar(name, total=None, hidden=hidden) as advance:
        await importing_of(services).import_artifact(
            artifact, name, reporting(advance), model=model, replacing=replace
        )


async def built(
    services: Services,
    name: str,
    directory: Path,
    chosen: Sequence[Tree],
    outcome: Outcome,
    *,
    base: Path | None,
    model: str | None,
    force: bool,
    revision: str | None,
    hidden: bool,
) -> Built:
    """Build an artifact from files, with a progress bar; raises as :meth:`Building.build`."""
    building = Building(
        services.store,
        services.registry,
        services.indexing,
        importing_of(services),
        _exporting(services),
    )
    wanted = model or services.settings.embedding.model
    for tree in chosen:
        outcome.skip(tree.selection.skipped)
    with (
        progress_bar(name, total=None, hidden=hidden) as advance,
        open_extractor(services.settings) as extractor,
    ):
        found = await building.build(
            name,
            directory,
            _documents(read_trees(chosen, services.settings.limits, extractor), outcome),
            IndexOptions(model=wanted, force=force, anew=force),
            reporting(advance),
            base=None if base is None else await _base(base, wanted),
            revision=revision,
        )
    for report in found.reports:
        outcome.add(index_result(report, "").model_dump(mode="json", by_alias=True))
    outcome.removed = found.removed
    return found


async def answering(
    services: Services, shared: Path, own: Path | None, *, hidden: bool
) -> tuple[str, list[str]]:
    """Return the collection of a shared artifact or of the user's own; import it if needed.

    Returns:
        The name of the collection, and messages about the choice for the user.

    Raises:
        Damaged: if the shared artifact is needed and is damaged.
    """
    choice = choose(shared, own, model=services.settings.embedding.model)
    said = list(choice.reasons)
    try:
        name, earlier = await _at_hand(services, choice.directory, hidden=hidden)
    except Damaged as exc:
        if choice.directory == shared:
            raise
        said.append(f"the index in {own} cannot be used: {exc}")
        name, earlier = await _at_hand(services, shared, hidden=hidden)
    if earlier:
        said.append(
            f"other artifacts of that name are still imported as {', '.join(earlier)};"
            " `ability-search delete` removes those no longer needed"
        )
    return name, said


async def _at_hand(services: Services, directory: Path, *, hidden: bool) -> tuple[str, list[str]]:
    """Return the collection of an artifact, whose name no other artifact has.

    If it was imported now, also return the collections of other artifacts of the same name.
    """
    artifact = open_artifact(directory, services.settings)
    stem = artifact.origin.name[:_LONGEST]
    name = f"{stem}.{digest(directory)[:_DIGITS]}"
    known = await services.registry.reload(name)
    if known is not None and holds(known, artifact.counts):
        return name, []
    await imported(services, artifact, name, replace=True, hidden=hidden)
    alike = re.compile(rf"{re.escape(stem)}\.[0-9a-f]{{{_DIGITS}}}")
    names = [each.name for each in await services.registry.all()]
    return name, [each for each in names if each != name and alike.fullmatch(each)]


async def _documents(
    readings: Iterator[Reading], outcome: Outcome
) -> AsyncIterator[list[Document]]:
    """Yield the documents read from files, as they would be sent to a worker."""
    while (reading := await asyncio.to_thread(next, readings, None)) is not None:
        outcome.skip(reading.skipped)
        yield [replace(each, file=False) for each in reading.documents]


async def _base(directory: Path, model: str) -> Artifact | None:
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
    output.warn(f"the base {directory} is not used: {problem}")
    return None


def _exporting(services: Services) -> Exporting:
    count, counter = token_counter(services.settings)
    return Exporting(services.store, services.registry, count=count, counter=counter)


def importing_of(services: Services) -> Importing:
    """Return the import service."""
    return Importing(
        services.store,
        services.registry,
        services.maintenance,
        services.generations,
        settings=services.settings,
    )


def reporting(advance: Advance) -> Callable[[Progress], Awaitable[None]]:
    """Return a callback that advances a progress bar."""

    async def report(progress: Progress) -> None:
        advance(progress.done, progress.total, progress.stage)

    return report


def open_artifact(directory: Path, settings: Settings) -> Importable:
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
        count, counter = token_counter(settings)
        return read_skills(directory, manifest, settings=settings, count=count, counter=counter)
    return Artifact(directory, manifest)


def saved(directory: Path, names: Sequence[str] | None) -> list[Path]:
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
