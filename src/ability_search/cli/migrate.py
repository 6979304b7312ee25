"""`migrate`: convert the data of the earlier TypeScript ability."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import BrokerOption, JsonOption
from ability_search.cli.failures import FAILED
from ability_search.cli.transfer import CollectionsOption

# The command imports the modules that do the work, so that other commands start faster.


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
        typer.Option(help="Model that made the embeddings.  [default: the configured one]"),
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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
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
    from ability_search.cli import migrating

    if drop_old and collection:
        raise typer.BadParameter("not allowed with --collection", param_hint="--drop-old")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise typer.BadParameter("confirm with --yes, or use --dry-run", param_hint="--yes")
    wishes = migrating.Wishes(database, collection or (), prefix, model, embed, drop_old)
    if dry_run or not yes:
        run, survey = asyncio.run(migrating.planned(broker, wishes, quiet=as_json))
    if not dry_run:
        if not yes:
            typer.confirm(migrating.question(run, survey), abort=True, err=True)
        run, survey = asyncio.run(migrating.performed(broker, wishes, quiet=as_json))
    if as_json:
        output.print_json(migrating.told(run, survey))
    if survey.problems:
        raise typer.Exit(FAILED)
