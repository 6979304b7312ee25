"""`migrate`: move the data of the earlier TypeScript ability to the current layout."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import CLIENT_NAME, choose_target, client_settings
from ability_search.extensions.cli.parameters import (
    BrokerOption,
    CollectionsOption,
    JsonOption,
    YesOption,
)
from ability_search.extensions.cli.progress import report_bar

if TYPE_CHECKING:
    from ability_search.extensions.migration.migration_run import MigrationOptions, MigrationRun
    from ability_search.extensions.migration.survey import OldCollection, Survey


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
    from ability_search.extensions.artifacts.artifact_service import open_local_services
    from ability_search.extensions.migration.migration_run import migration_run

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
