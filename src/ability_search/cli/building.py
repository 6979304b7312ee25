"""`build`: make an artifact directly from local files, without a collection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import BrokerOption, JsonOption, given
from ability_search.cli.failures import FAILED
from ability_search.cli.selecting import collection_name, trees
from ability_search.cli.sending import Outcome, show_problems
from ability_search.cli.transfer import RevisionOption
from ability_search.cli.tree_options import ExcludeOption, IncludeOption

if TYPE_CHECKING:
    from ability_search.artifacts.builder import Built
    from ability_search.tools.handlers import Services

# The command imports the modules that do the work, so that other commands start faster.


@command(app, "build")
def build(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Directory or file.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Directory to write to.")],
    base: Annotated[
        Path | None,
        typer.Option(help="Artifact to reuse vectors from.  [default: the one in DIR]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Embed everything again.")] = False,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the collection.  [default: the directory's name]"),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="Make sources relative to this directory, as in `index`.")
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    model: Annotated[str | None, typer.Option(help="Embedding model.")] = None,
    revision: RevisionOption = None,
    broker: BrokerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Build an artifact from files, in the format that `export` writes.

    Unchanged files keep their vectors from the base artifact if it was built with
    the same model and settings. DIR is replaced once the new artifact is complete.
    Exit code 1 means that a document failed.

    Example:
        ability-search build skills search --include SKILL.md
        ability-search build skills own --base search --revision "$(git rev-parse HEAD)"
    """
    from ability_search.cli.transferring import built, with_services

    chosen = trees([path], root, **given(include=include, exclude=exclude))
    outcome = Outcome()
    wanted = name or collection_name(path)

    async def work(services: Services) -> Built:
        return await built(
            services,
            wanted,
            directory,
            chosen,
            outcome,
            base=None if force else base or directory,
            model=model,
            force=force,
            revision=revision,
            hidden=as_json,
        )

    manifest = with_services(broker, work).manifest
    if as_json:
        told = {"directory": str(directory), "revision": manifest.revision}
        output.print_json(outcome.document(wanted) | told)
    else:
        output.stdout().print(
            f"built [bold]{output.plain(wanted)}[/bold] in {output.plain(directory)}:"
            f" {outcome.told}",
            soft_wrap=True,
        )
        show_problems(outcome)
    if outcome.failed:
        raise typer.Exit(FAILED)
