"""`migrate`: move the data of the earlier TypeScript ability to the current layout."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import FAILED, app, command
from ability_search.extensions.cli.clients import report_bar
from ability_search.extensions.cli.parameters import BrokerOption, JsonOption, YesOption
from ability_search.extensions.migration.survey import MigrationOptions, OldCollection, Survey

if TYPE_CHECKING:
    from ability_search.extensions.migration.migration import Migration
    from ability_search.tools.calls import Services
    from kadi_client import Connection


@command(app, "migrate")
def migrate(
    options: MigrationOptions,
    *,
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
    if options.drop_old and options.collection:
        raise typer.BadParameter("not allowed with --collection", param_hint="--drop-old")
    if not (yes or options.dry_run or sys.stdin.isatty()):
        raise typer.BadParameter("confirm with --yes, or use --dry-run", param_hint="--yes")
    if options.dry_run or not yes:
        migration, survey = _with_migration(broker, options, _plan, hidden=as_json)
        if not options.dry_run:
            typer.confirm(_question(migration, survey), abort=True, err=True)
    if not options.dry_run:
        migration, survey = _with_migration(broker, options, _perform, hidden=as_json)
    if as_json:
        output.print_json(_plan_json(migration, survey))
    if survey.problems:
        raise typer.Exit(FAILED)


async def _plan(migration: Migration, hidden: bool) -> Survey:
    survey = await migration.plan()
    if not hidden:
        _show_plan(migration, survey)
    if migration.options.drop_old:
        migration.check_droppable(survey)
    return survey


async def _perform(migration: Migration, hidden: bool) -> Survey:
    if migration.options.drop_old:
        survey = await migration.drop()
        ending = "deleted the data of the earlier ability"
    else:
        survey = await migration.perform(partial(_show_moved, hidden=hidden))
        kept = f"{migration.kept_type} in {migration.database}"
        ending = f"the old data is kept as {kept} until --drop-old"
    if not hidden:
        _print([*_remarks(survey), ending])
    return survey


def _with_migration(
    broker: str | None,
    options: MigrationOptions,
    work: Callable[[Migration, bool], Awaitable[Survey]],
    *,
    hidden: bool,
) -> tuple[Migration, Survey]:
    from ability_search.extensions.artifacts.artifact_service import with_services
    from ability_search.extensions.migration.migration import Migration

    progress = partial(report_bar, hidden=hidden)

    async def run(services: Services, connection: Connection) -> tuple[Migration, Survey]:
        migration = Migration(services, connection, options, progress=progress)
        return migration, await work(migration, hidden)

    return with_services(broker, run)


def _plan_json(run: Migration, survey: Survey) -> dict[str, Any]:
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


def _show_plan(run: Migration, survey: Survey) -> None:
    where = "in place" if run.database == run.into else f"into {run.into}"
    output.stdout().print(
        f"{output.counted(survey.rows, 'chunk')} of the earlier ability in"
        f" {output.plain(run.database)}, to be migrated {output.plain(where)}"
    )
    if survey.collections:
        columns = ("name", "becomes", "chunks", "sources", "dimensions", "model", "state")
        output.print_table(
            ("collection", *columns[1:]),
            [[getattr(each, name) for name in columns] for each in survey.collections],
        )
    _print(_remarks(survey))
    for text in survey.warnings:
        output.warn(text)


def _show_moved(old: OldCollection, *, hidden: bool) -> None:
    if not hidden:
        output.stdout().print(
            f"moved [bold]{output.plain(old.becomes)}[/bold]:"
            f" {output.counted(old.chunks, 'chunk')} of {output.counted(old.sources, 'source')}"
        )


def _print(lines: Sequence[str]) -> None:
    for line in lines:
        output.stdout().print(output.plain(line))


def _question(run: Migration, survey: Survey) -> str:
    """Return the confirmation question."""
    if not run.options.drop_old:
        return "Migrate these collections? The earlier ability must not be running."
    lost = survey.unassigned.total() + sum(each.left_out.total() for each in survey.collections)
    also = f", {lost:,} of which were not migrated" if lost else ""
    chunks = output.counted(survey.rows, "chunk")
    return f"Delete the {chunks} in {survey.chunk_type} of {run.database}{also}?"


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
