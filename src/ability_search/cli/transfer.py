"""`export`, `import`, `backup`, `restore`: save and load collections as directories."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import BrokerOption, JsonOption, client_settings
from ability_search.cli.collection import CollectionArgument

if TYPE_CHECKING:
    from ability_search.artifacts.manifest import Counts, Manifest
    from ability_search.tools.handlers import Services

# Each command imports the modules that do the work, so that other commands start faster.

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Directory.")]
CollectionsOption = Annotated[
    list[str] | None,
    typer.Option("--collection", "-c", help="Only this collection; repeatable."),
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Replace an existing collection.")]
RevisionOption = Annotated[
    str | None,
    typer.Option(help="Revision of the sources.  [default: a hash of their texts]"),
]


@command(app, "export")
def export(
    collection: CollectionArgument,
    directory: DirectoryArgument,
    revision: RevisionOption = None,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export a collection with its vectors to a directory.

    An existing artifact in DIR is replaced once the new one is complete. `import`
    reads the artifact on this network or another one.

    Example:
        ability-search export docs artifacts/docs
        ability-search export skills search --revision "$(git rev-parse HEAD)"
    """
    from ability_search.cli.transferring import exported, with_services

    async def work(services: Services) -> dict[str, Any]:
        manifest = await exported(
            services, collection, directory, revision=revision, hidden=as_json
        )
        return _told(collection, manifest, manifest.counts, directory)

    _show("exported", with_services(broker, work), as_json=as_json)


@command(app, "import")
def import_(
    directory: DirectoryArgument,
    name: Annotated[
        str | None, typer.Option(help="Name of the collection.  [default: the exported name]")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Name of its embedding model on this network.")
    ] = None,
    replace: ReplaceOption = False,
    check: Annotated[
        bool, typer.Option("--check", help="Check the artifact without importing it.")
    ] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import an exported collection; its vectors are used as they are.

    The artifact is checked first. The collection becomes visible once it is
    complete.

    Example:
        ability-search import artifacts/docs
        ability-search import artifacts/docs --name docs-2 --json
        ability-search import artifacts/docs --replace
    """
    from ability_search.cli.transferring import imported, open_artifact, with_services

    artifact = open_artifact(directory, client_settings())
    wanted = name or artifact.origin.name

    async def work(services: Services) -> None:
        await imported(services, artifact, wanted, model=model, replace=replace, hidden=as_json)

    if check:
        artifact.check()
    else:
        with_services(broker, work)
    told = _told(wanted, artifact.manifest, artifact.counts, directory)
    _show("checked" if check else "imported", told, as_json=as_json)


@command(app, "backup")
def backup(
    directory: DirectoryArgument,
    collection: CollectionsOption = None,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Export all collections, each to its own directory below DIR.

    In addition to the data of `export`, a backup records which chunks were shown to
    which agents.

    Example:
        ability-search backup backups/monday
        ability-search backup backups/docs -c docs
    """
    from ability_search.cli.transferring import exported, with_services

    done: list[dict[str, Any]] = []

    async def work(services: Services) -> None:
        for name in collection or [each.name for each in await services.registry.all()]:
            target = directory / name
            manifest = await exported(services, name, target, usage=True, hidden=as_json)
            done.append(_told(name, manifest, manifest.counts, target))
            if not as_json:
                _show("saved", done[-1])

    with_services(broker, work)
    if as_json:
        output.print_json({"collections": done})


@command(app, "restore")
def restore(
    directory: DirectoryArgument,
    collection: CollectionsOption = None,
    name: Annotated[
        str | None, typer.Option(help="New name, if only one collection is restored.")
    ] = None,
    replace: ReplaceOption = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import the collections of a backup.

    Example:
        ability-search restore backups/monday
        ability-search restore backups/monday -c docs --name docs-of-monday
    """
    from ability_search.cli.transferring import imported, open_artifact, saved, with_services

    directories = saved(directory, collection)
    if name and len(directories) != 1:
        raise typer.BadParameter("choose one collection with -c", param_hint="--name")
    done: list[dict[str, Any]] = []

    async def work(services: Services) -> None:
        for place in directories:
            artifact = open_artifact(place, services.settings)
            wanted = name or artifact.origin.name
            await imported(services, artifact, wanted, replace=replace, hidden=as_json)
            done.append(_told(wanted, artifact.manifest, artifact.counts, place))
            if not as_json:
                _show("restored", done[-1])

    with_services(broker, work)
    if as_json:
        output.print_json({"collections": done})


def _told(name: str, manifest: Manifest, counts: Counts, directory: Path) -> dict[str, Any]:
    return {
        "collection": name,
        "directory": str(directory),
        **counts.model_dump(),
        "model": manifest.model_id,
        "dimensions": manifest.dim,
        "revision": manifest.revision,
        "bytes": sum((directory / file).stat().st_size for file in manifest.files),
    }


def _show(what: str, told: Mapping[str, Any], *, as_json: bool = False) -> None:
    if as_json:
        output.print_json(told)
        return
    output.stdout().print(
        f"{what} [bold]{output.plain(told['collection'])}[/bold]:"
        f" {output.counted(told['chunks'], 'chunk')} of"
        f" {output.counted(told['sources'], 'source')}, {output.size(told['bytes'])} in"
        f" {output.plain(told['directory'])}",
        soft_wrap=True,
    )
