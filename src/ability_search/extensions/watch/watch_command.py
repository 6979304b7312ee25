"""`watch`: keep a collection in sync with the files of directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ability_search.client.tool_client import LONG_SECONDS
from ability_search.errors import InvalidInput
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.cli.clients import new_client
from ability_search.extensions.cli.lifecycle import run_until_stopped
from ability_search.extensions.cli.parameters import (
    BrokerOption,
    CollectionOption,
    JsonOption,
    Patterns,
    TimeoutOption,
    tool_fields,
)
from ability_search.extensions.cli.trees import Root, Tree, choose_roots, trees
from ability_search.extensions.cli.upload import find_place
from ability_search.extensions.watch.watcher import EDITORS, Watcher, WatchLog, changes_of
from ability_search.index.index_fields import IndexFields

_RETURN_SECONDS = 2.0
"""Pause between two looks for a directory that is gone."""


@command(app, "watch")
def watch(
    paths: Annotated[list[Path], typer.Argument(metavar="DIRECTORY...", help="Directories.")],
    collection: CollectionOption = None,
    no_gitignore: Annotated[
        bool, typer.Option("--no-gitignore", help="Include files that .gitignore excludes.")
    ] = False,
    *,
    files: Patterns,
    indexing: IndexFields,
    broker: BrokerOption = None,
    timeout: TimeoutOption = LONG_SECONDS,
    as_json: JsonOption = False,
) -> None:
    """Index directories and keep the collection in sync with their files until Ctrl-C.

    The command first does the same as `index --sweep`, then follows new, changed,
    renamed and deleted files and prints one line per batch of changes. It retries
    while the broker or the worker is not available. If a directory vanishes, such as
    that of a drive, its sources are kept, and the command waits until it is back.
    With --json each line is an object.

    Example:
        ability-search watch docs
        ability-search watch src docs -c project --include '*.py' --include '*.md' --json
    """
    directories = [path.resolve() for path in paths]
    for path, directory in zip(paths, directories, strict=True):
        if not directory.is_dir():
            problem = "is not a directory" if directory.exists() else "no such directory"
            raise typer.BadParameter(f"{path}: {problem}", param_hint="DIRECTORY")

    def find(roots: Sequence[Root]) -> list[Tree]:
        return trees(
            directories,
            roots,
            include=files.include or (),
            exclude=files.exclude or (),
            temporary=EDITORS,
            gitignore=not no_gitignore,
        )

    find(choose_roots(paths, files.root))  # a wrong pattern is reported before anything starts
    options = tool_fields(indexing)

    async def work() -> None:
        async with new_client(broker) as client:
            locate = partial(find_place, paths=paths, collection=collection, root=files.root)
            report = WatchLog(as_json=as_json)
            new_watcher = partial(Watcher, client, locate, find, options, timeout, report)
            await _follow(directories, new_watcher, report)

    asyncio.run(run_until_stopped(work()))


async def _follow(
    directories: Sequence[Path], new_watcher: Callable[[], Watcher], report: WatchLog
) -> None:
    """Follow the changes in directories; while one of them is gone, wait for it."""
    awaited: list[Path] = []
    while True:
        missing = [each for each in directories if not each.is_dir()]
        if missing:
            if missing != awaited:
                report.missing(missing)
            await asyncio.sleep(_RETURN_SECONDS)
        else:
            try:
                await new_watcher().follow(changes_of(directories))
            except InvalidInput:
                if all(map(Path.is_dir, directories)):
                    raise
        awaited = missing
