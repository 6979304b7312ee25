"""`migrate`: what the earlier TypeScript ability stored, into the layout of today."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

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
    it was interrupted; what the ability stored stays until --drop-old. Exit code 1
    means that a collection could not be moved.

    Example:
        ability-search migrate --dry-run
        ability-search migrate --from kadi_memory --model nomic-embed-text
        ability-search migrate --drop-old
    """
    from ability_search.cli.migrating import Wishes, performed

    def agree(question: str) -> None:
        if yes:
            return
        if not sys.stdin.isatty():
            raise typer.BadParameter(f"{question} Say --yes", param_hint="--yes")
        typer.confirm(question, abort=True, err=True)

    wishes = Wishes(
        database=database,
        collections=collection or (),
        prefix=prefix,
        model=model,
        embed=embed,
        dry_run=dry_run,
        drop_old=drop_old,
    )
    if not asyncio.run(performed(broker, wishes, agree, as_json=as_json)):
        raise typer.Exit(FAILED)
