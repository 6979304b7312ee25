"""`watch`: keep a collection in sync with the files of directories."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import (
    LONG_SECONDS,
    BrokerOption,
    JsonOption,
    TimeoutOption,
    given,
    open_client,
)
from ability_search.cli.kinds import KindsByOption, KindsOption, kinds_fields
from ability_search.cli.selecting import Tree, collection_name, trees
from ability_search.cli.serving import run_until_stopped
from ability_search.cli.tree_options import CollectionOption, ExcludeOption, IncludeOption
from ability_search.cli.watching import EDITORS, Watcher, changes_of


@command(app, "watch")
def watch(
    paths: Annotated[list[Path], typer.Argument(metavar="DIRECTORY...", help="Directories.")],
    collection: CollectionOption = None,
    root: Annotated[
        Path | None,
        typer.Option(
            help="Make sources relative to this directory.  [default: the working directory, or"
            " the parent of a DIRECTORY outside it]"
        ),
    ] = None,
    include: IncludeOption = None,
    exclude: ExcludeOption = None,
    no_gitignore: Annotated[
        bool, typer.Option("--no-gitignore", help="Include files that .gitignore excludes.")
    ] = False,
    model: Annotated[str | None, typer.Option(help="Embedding model.")] = None,
    kinds: KindsOption = None,
    kinds_by: KindsByOption = None,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Index directories and keep the collection in sync with their files until Ctrl-C.

    The command first does the same as `index --sweep`, then follows new, changed,
    renamed and deleted files and prints one line per batch of changes. It retries
    while the broker or the worker is not available. With --json each line is an
    object.

    Example:
        ability-search watch docs
        ability-search watch src docs -c project --include '*.py' --include '*.md' --json
    """
    directories = [path.resolve() for path in paths]
    for path, directory in zip(paths, directories, strict=True):
        if not directory.is_dir():
            problem = "is not a directory" if directory.exists() else "no such directory"
            raise typer.BadParameter(f"{path}: {problem}", param_hint="DIRECTORY")

    def find() -> list[Tree]:
        return trees(
            paths,
            root,
            include=include or (),
            exclude=[*EDITORS, *(exclude or ())],
            gitignore=not no_gitignore,
        )

    if any(not tree.selection.prefix for tree in find()):
        output.warn(
            "the directory is the root itself: files deleted before now stay in the collection;"
            " pass the parent directory as --root to remove them"
        )
    options = given(collection=collection or collection_name(paths[0]), model=model)
    options |= kinds_fields(kinds, kinds_by)

    async def work() -> None:
        async with open_client(broker) as client:
            watcher = Watcher(client, find, options, timeout, as_json)
            await watcher.follow(changes_of(directories))

    asyncio.run(run_until_stopped(work()))
