"""`export`, `import`, `backup`, `restore`, `migrate`: move collections between places."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import CLIENT_NAME, choose_target, client_settings
from ability_search.extensions.cli.parameters import (
    BrokerOption,
    CollectionArgument,
    CollectionsOption,
    JsonOption,
    RevisionOption,
    YesOption,
)
from ability_search.extensions.cli.progress import report_bar

if TYPE_CHECKING:
    from ability_search.extensions.artifacts.artifact_service import ArtifactService
    from ability_search.extensions.artifacts.manifest import ChunksManifest, Counts, Manifest
    from ability_search.extensions.migration.migration_run import MigrationOptions, MigrationRun
    from ability_search.extensions.migration.survey import OldCollection, Survey
    from ability_search.tools.calls import Services

# Each command imports the modules that do the work, so that other commands start faster.

T = TypeVar("T")

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="Directory.")]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace a collection that is not empty.")
]


def with_artifacts(
    broker: str | None,
    work: Callable[[Services, ArtifactService], Awaitable[T]],
    *,
    hidden: bool,
) -> T:
    """Run ``work`` with the services of a worker in this process and return its result.

    ``hidden`` hides the progress bars.
    """
    from ability_search.extensions.artifacts.local_services import (
        artifact_service,
        open_local_services,
    )

    settings = client_settings()
    target = choose_target(settings, broker)
    progress = partial(report_bar, hidden=hidden)

    async def run() -> T:
        async with open_local_services(settings, target, name=CLIENT_NAME) as (services, _):
            artifacts = artifact_service(services, progress=progress, warn=output.warn)
            return await work(services, artifacts)

    return asyncio.run(run())


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

    async def work(_: Services, artifacts: ArtifactService) -> ChunksManifest:
        return await artifacts.export(collection, directory, revision=revision)

    manifest = with_artifacts(broker, work, hidden=as_json)
    summary = _summary(collection, manifest, manifest.counts, directory)
    _show("exported", summary, as_json=as_json)


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
    from ability_search.extensions.artifacts.local_services import open_artifact_here

    artifact = open_artifact_here(directory, client_settings())
    wanted = name or artifact.origin.name

    async def work(_: Services, artifacts: ArtifactService) -> None:
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
    done: list[dict[str, Any]] = []

    async def work(_: Services, artifacts: ArtifactService) -> None:
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
    from ability_search.extensions.artifacts.artifact_service import saved_artifacts

    directories = saved_artifacts(directory, collection)
    if name and len(directories) != 1:
        raise typer.BadParameter("choose one collection with -c", param_hint="--name")
    done: list[dict[str, Any]] = []

    async def work(_: Services, artifacts: ArtifactService) -> None:
        for place in directories:
            artifact = artifacts.open(place)
            wanted = name or artifact.origin.name
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


@command(app, "migrate")
def migrate(
    database: Annotated[
        str | None,
        typer.Option(
            "--from", help="Database of the earlier ability.  [default: the configured one]"
        ),
    ] = None,
    collection: CollectionsOption = None,
    prefix: Annotated[str, typer.Option("--into", help="Prefix for new collection names.")] = "",
    model: Annotated[
        str | None,
        typer.Option(help="Model that made the embeddings.  [default: found by comparison]"),
    ] = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Embed chunks whose embedding is unusable.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan without changing anything.")
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Delete the old data, if all of it was migrated.")
    ] = False,
    yes: YesOption = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Migrate the data of the earlier TypeScript ability to the current layout.

    Stop the earlier ability first. Embeddings are kept. If the command is
    interrupted, run it again. The old data stays until --drop-old, which needs the
    same --from and --into. Exit code 1 means that a collection cannot be migrated.

    Example:
        ability-search migrate --dry-run
        ability-search migrate --from kadi_memory --model nomic-embed-text
        ability-search migrate --drop-old
    """
    from ability_search.extensions.migration.migration_run import MigrationOptions

    if drop_old and collection:
        raise typer.BadParameter("not allowed with --collection", param_hint="--drop-old")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise typer.BadParameter("confirm with --yes, or use --dry-run", param_hint="--yes")
    options = MigrationOptions(database, collection or (), prefix, model, embed, drop_old)

    if dry_run or not yes:
        run, survey = _with_migration(broker, options, _plan, hidden=as_json)
        if not dry_run:
            typer.confirm(_question(run, survey), abort=True, err=True)
    if not dry_run:
        run, survey = _with_migration(broker, options, _perform, hidden=as_json)
    if as_json:
        output.print_json(_plan_json(run, survey))
    if survey.problems:
        raise typer.Exit(FAILED)


async def _plan(run: MigrationRun, hidden: bool) -> Survey:
    survey = await run.plan()
    if not hidden:
        _show_plan(run, survey)
    if run.options.drop_old:
        run.check_droppable(survey)
    return survey


async def _perform(run: MigrationRun, hidden: bool) -> Survey:
    survey = await run.perform()
    if not hidden:
        for line in (*_remarks(survey), _ending(run)):
            output.stdout().print(output.plain(line))
    return survey


def _with_migration(
    broker: str | None,
    options: MigrationOptions,
    work: Callable[[MigrationRun, bool], Awaitable[Survey]],
    *,
    hidden: bool,
) -> tuple[MigrationRun, Survey]:
    from ability_search.extensions.artifacts.local_services import (
        migration_run,
        open_local_services,
    )

    settings = client_settings()
    target = choose_target(settings, broker)

    def moved(each: OldCollection) -> None:
        if not hidden:
            output.stdout().print(
                f"moved [bold]{output.plain(each.becomes)}[/bold]:"
                f" {output.counted(each.chunks, 'chunk')} of"
                f" {output.counted(each.sources, 'source')}"
            )

    async def run() -> tuple[MigrationRun, Survey]:
        opened = open_local_services(settings, target, name=CLIENT_NAME)
        async with opened as (services, connection):
            progress = partial(report_bar, hidden=hidden)
            migration = migration_run(services, connection, options, progress=progress, moved=moved)
            return migration, await work(migration, hidden)

    return asyncio.run(run())


def _plan_json(run: MigrationRun, survey: Survey) -> dict[str, Any]:
    """Return the plan as a JSON object."""
    return {
        "database": run.database,
        "type": survey.chunk_type,
        "into": run.into,
        "warnings": survey.warnings,
        "collections": [
            {
                "name": each.name,
                "becomes": each.becomes,
                "state": each.state.value,
                "reason": each.reason or None,
                "chunks": each.chunks,
                "sources": each.sources,
                "dimensions": each.dimensions,
                "model": each.model or None,
                "similarity": None if each.similarity is None else round(each.similarity, 4),
                "embedded": each.embedded_again,
                "incompleteSources": each.incomplete,
                "leftOut": dict(each.left_out),
                "refused": each.refused,
            }
            for each in survey.collections
        ],
        "leftOut": dict(survey.unassigned),
    }


def _show_plan(run: MigrationRun, survey: Survey) -> None:
    where = "in place" if run.database == run.into else f"into {run.into}"
    output.stdout().print(
        f"{output.counted(survey.rows, 'chunk')} of the earlier ability in"
        f" {output.plain(run.database)}, to be migrated {output.plain(where)}"
    )
    if survey.collections:
        output.print_table(
            ("collection", "becomes", "chunks", "sources", "dimensions", "model", "state"),
            [
                (
                    each.name,
                    each.becomes,
                    each.chunks,
                    each.sources,
                    each.dimensions,
                    each.model,
                    each.state.value,
                )
                for each in survey.collections
            ],
        )
    for line in _remarks(survey):
        output.stdout().print(output.plain(line))
    for text in survey.warnings:
        output.warn(text)


def _question(run: MigrationRun, survey: Survey) -> str:
    """Return the confirmation question."""
    if not run.options.drop_old:
        return "Migrate these collections? The earlier ability must not be running."
    lost = survey.unassigned.total() + sum(each.left_out.total() for each in survey.collections)
    also = f", {lost:,} of which were not migrated" if lost else ""
    chunks = output.counted(survey.rows, "chunk")
    return f"Delete the {chunks} in {survey.chunk_type} of {run.database}{also}?"


def _ending(run: MigrationRun) -> str:
    if run.options.drop_old:
        return "deleted the data of the earlier ability"
    return f"the old data is kept as {run.kept_type} in {run.database} until --drop-old"


def _remarks(survey: Survey) -> list[str]:
    """Return one line for each remark about a collection."""
    found = []
    for each in survey.collections:
        if each.reason:
            found.append(f"{each.name}: {each.reason}")
        if each.embedded_again:
            found.append(f"{each.name}: chunks to embed again: {each.embedded_again:,}")
        if each.incomplete:
            found.append(
                f"{each.name}: incomplete sources, to be indexed again: {each.incomplete:,}"
            )
        found += [
            f"{each.name}: {source} is kept, but the model refuses a text of it: {reason}"
            for source, reason in each.refused.items()
        ]
        found += _left_out(each.name, each.left_out)
    return found + _left_out("without a collection", survey.unassigned)


def _left_out(name: str, reasons: dict[str, int]) -> list[str]:
    return [f"{name}: skipped chunks, {reason}: {count:,}" for reason, count in reasons.items()]
