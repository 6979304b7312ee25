"""`build`, `export`, `import`, `backup`, `restore`; `search --artifact`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ability_search.extensions.cli import output, parameters
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import client_settings, report_bar

if TYPE_CHECKING:
    from ability_search.extensions.artifacts.artifact_format import ChunksManifest, Counts, Manifest
    from ability_search.extensions.artifacts.artifact_service import ArtifactService
    from ability_search.extensions.cli.local_files import UploadReport

# Each command imports the modules that do the work, so that other commands start faster.

T = TypeVar("T")

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Directory.")]
ReplaceOption = Annotated[bool, "Replace a collection that is not empty."]


def with_artifacts(
    broker: str | None, work: Callable[[ArtifactService], Awaitable[T]], *, hidden: bool
) -> T:
    """Run ``work`` on artifacts as :func:`.with_services`; ``hidden`` hides the progress bars."""
    from ability_search.extensions.artifacts.artifact_service import ArtifactService, with_services

    progress = partial(report_bar, hidden=hidden)
    return with_services(
        broker, lambda services, _: work(ArtifactService(services, progress, output.warn))
    )


@command(app, "build")
def build(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Directory or file.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to write to.")],
    base: Annotated[
        Path | None, "Artifact to reuse vectors from.  [default: the one in DIR]"
    ] = None,
    force: Annotated[bool, "Embed everything again."] = False,
    name: Annotated[str | None, "Name of the collection.  [default: the directory's name]"] = None,
    *,
    files: parameters.Patterns,
    model: parameters.ModelOption = None,
    revision: parameters.RevisionOption = None,
    broker: parameters.BrokerOption = None,
    as_json: parameters.JsonOption = False,
) -> None:
    """Build an artifact from files, in the format that `export` writes.

    Unchanged files keep their vectors from the base artifact if it was built with
    the same model and settings. DIR is replaced once the new artifact is complete.
    Exit code 1 means that a document failed.

    Example:
        ability-search build skills search --include SKILL.md
        ability-search build skills own --base search --revision "$(git rev-parse HEAD)"
    """
    from ability_search.extensions.cli.local_files import collection_name, select_paths

    chosen = select_paths(
        [path], files.root, **parameters.given(include=files.include, exclude=files.exclude)
    )
    wanted = name or collection_name(path)
    reused = None if force else base or directory

    async def work(artifacts: ArtifactService) -> tuple[ChunksManifest, UploadReport]:
        return await artifacts.build(
            wanted, directory, chosen, base=reused, model=model, force=force, revision=revision
        )

    manifest, outcome = with_artifacts(broker, work, hidden=as_json)
    if as_json:
        artifact = {"directory": str(directory), "revision": manifest.revision}
        output.print_json(outcome.as_json() | artifact)
    else:
        output.stdout().print(
            f"built [bold]{output.plain(wanted)}[/bold] in {output.plain(directory)}:"
            f" {outcome.summary}"
        )
        outcome.print_problems()
    if outcome.failed:
        raise typer.Exit(FAILED)


@command(app, "export")
def export(
    collection: parameters.CollectionArgument,
    directory: DirectoryArgument,
    revision: parameters.RevisionOption = None,
    broker: parameters.BrokerOption = None,
    as_json: parameters.JsonOption = False,
) -> None:
    """Export a collection with its vectors to a directory.

    An existing artifact in DIR is replaced once the new one is complete. `import`
    reads the artifact on this network or another one.

    Example:
        ability-search export docs artifacts/docs
        ability-search export skills search --revision "$(git rev-parse HEAD)"
    """

    async def work(artifacts: ArtifactService) -> ChunksManifest:
        return await artifacts.export(collection, directory, revision=revision)

    manifest = with_artifacts(broker, work, hidden=as_json)
    summary = _summary(collection, manifest, manifest.counts, directory)
    _show("exported", summary, as_json=as_json)


@command(app, "import")
def import_(
    directory: DirectoryArgument,
    name: Annotated[str | None, "Name of the collection.  [default: the exported name]"] = None,
    model: Annotated[str | None, "Name of its embedding model on this network."] = None,
    replace: ReplaceOption = False,
    check: Annotated[bool, "Check the artifact without importing it."] = False,
    broker: parameters.BrokerOption = None,
    as_json: parameters.JsonOption = False,
) -> None:
    """Import an exported collection; its vectors are used as they are.

    The artifact is checked first. The collection becomes visible once it is
    complete.

    Example:
        ability-search import artifacts/docs
        ability-search import artifacts/docs --name docs-2 --json
        ability-search import artifacts/docs --replace
    """
    from ability_search.extensions.artifacts.artifact_service import open_artifact

    artifact = open_artifact(directory, client_settings())
    wanted = name or artifact.collection.name

    async def work(artifacts: ArtifactService) -> None:
        await artifacts.import_artifact(artifact, wanted, model=model, replace=replace)

    if check:
        artifact.check()
    else:
        with_artifacts(broker, work, hidden=as_json)
    summary = _summary(wanted, artifact.manifest, artifact.counts, directory)
    _show("checked" if check else "imported", summary, as_json=as_json)


@command(app, "backup")
def backup(
    directory: DirectoryArgument,
    collection: parameters.CollectionsOption = None,
    broker: parameters.BrokerOption = None,
    as_json: parameters.JsonOption = False,
) -> None:
    """Export all collections, each to its own directory below DIR.

    In addition to the data of `export`, a backup records which chunks were shown to
    which agents.

    Example:
        ability-search backup backups/monday
        ability-search backup backups/docs -c docs
    """
    done: list[dict[str, Any]] = []

    async def work(artifacts: ArtifactService) -> None:
        for name in collection or [each.name for each in await artifacts.registry.all()]:
            target = directory / name
            manifest = await artifacts.export(name, target, usage=True)
            done.append(_summary(name, manifest, manifest.counts, target))
            if not as_json:
                _show("saved", done[-1])

    with_artifacts(broker, work, hidden=as_json)
    if as_json:
        output.print_json({"collections": done})


@command(app, "restore")
def restore(
    directory: DirectoryArgument,
    collection: parameters.CollectionsOption = None,
    name: Annotated[str | None, "New name, if only one collection is restored."] = None,
    replace: ReplaceOption = False,
    broker: parameters.BrokerOption = None,
    as_json: parameters.JsonOption = False,
) -> None:
    """Import the collections of a backup.

    Example:
        ability-search restore backups/monday
        ability-search restore backups/monday -c docs --name docs-of-monday
    """
    from ability_search.extensions.artifacts.artifact_service import open_artifact, saved_artifacts

    directories = saved_artifacts(directory, collection)
    if name and len(directories) != 1:
        raise typer.BadParameter("choose one collection with -c", param_hint="--name")
    done: list[dict[str, Any]] = []

    async def work(artifacts: ArtifactService) -> None:
        for place in directories:
            artifact = open_artifact(place, artifacts.services.ports.settings)
            wanted = name or artifact.collection.name
            await artifacts.import_artifact(artifact, wanted, replace=replace)
            done.append(_summary(wanted, artifact.manifest, artifact.counts, place))
            if not as_json:
                _show("restored", done[-1])

    with_artifacts(broker, work, hidden=as_json)
    if as_json:
        output.print_json({"collections": done})


def _summary(name: str, manifest: Manifest, counts: Counts, directory: Path) -> dict[str, Any]:
    return {
        "collection": name,
        "directory": str(directory),
        **counts.model_dump(by_alias=True),
        "model": manifest.model_id,
        "dimensions": manifest.dim,
        "revision": manifest.revision,
        "bytes": sum((directory / file).stat().st_size for file in manifest.files),
    }


def _show(done: str, summary: Mapping[str, Any], *, as_json: bool = False) -> None:
    if as_json:
        output.print_json(summary)
        return
    output.stdout().print(
        f"{done} [bold]{output.plain(summary['collection'])}[/bold]:"
        f" {output.counted(summary['chunks'], 'chunk')} of"
        f" {output.counted(summary['sources'], 'source')}, {output.size(summary['bytes'])} in"
        f" {output.plain(summary['directory'])}"
    )


@dataclass(frozen=True, slots=True)
class ArtifactChoice:
    """Options of `search` for an artifact in place of a collection."""

    artifact: Annotated[Path | None, "Search an artifact instead; it is imported once.", "DIR"] = (
        None
    )
    own: Annotated[
        Path | None, "Prefer this artifact of your own if its revision and model match.", "DIR"
    ] = None

    def apply(self, request: dict[str, Any], *, broker: str | None, hidden: bool) -> Sequence[str]:
        """Choose the collection of the artifact; return warnings about the choice."""
        own, artifact = self.own, self.artifact
        if artifact is None:
            if own is not None:
                raise typer.BadParameter("requires --artifact", param_hint="--own")
            return ()
        if request["collection"]:
            raise typer.BadParameter("not allowed with --collection", param_hint="--artifact")
        name, warnings = with_artifacts(
            broker, lambda artifacts: artifacts.choose_collection(artifact, own), hidden=hidden
        )
        request["collection"] = [name]
        return warnings
