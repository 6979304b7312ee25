"""`migrate`: what the earlier TypeScript ability stored, into the layout of today."""

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

# What does the work is imported by the command: a search need not wait for it.


@command(app, "migrate")
def migrate(
    database: Annotated[
        str | None,
        typer.Option("--from", help="Database that it wrote to.  [default: the configured one]"),
    ] = None,
    collection: CollectionsOption = None,
    prefix: Annotated[str, typer.Option("--into", help="What new names begin with.")] = "",
    model: Annotated[
        str | None,
        typer.Option(help="Model that made the embeddings.  [default: the configured one]"),
    ] = None,
    embed: Annotated[
        bool, typer.Option("--embed", help="Embed chunks whose embedding is of no use.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    drop_old: Annotated[
        bool, typer.Option("--drop-old", help="Drop what it stored, if all of it was moved.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Move what the earlier TypeScript ability stored into the layout of today.

    Embeddings are kept. Stop the earlier ability first. Run the command again if
    it was interrupted. What the ability stored stays until --drop-old, which takes
    the same --from and --into. Exit code 1 means that a collection cannot be moved.

    Example:
        ability-search migrate --dry-run
        ability-search migrate --from kadi_memory --model nomic-embed-text
        ability-search migrate --drop-old
    """
    from ability_search.cli import migrating

    if drop_old and collection:
        raise typer.BadParameter("drops all collections, not only some", param_hint="--drop-old")
    if not (yes or dry_run or sys.stdin.isatty()):
        raise typer.BadParameter("say --yes to do it, or --dry-run", param_hint="--yes")
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
