"""Plugin of the command that follows the files of directories."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("watch", "ability_search.extensions.watch.watcher", 90),)
