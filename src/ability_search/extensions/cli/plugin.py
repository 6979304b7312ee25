"""Plugin of the command line."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.config.setting_fields import Group
from ability_search.extension import Command, hookimpl
from ability_search.extensions.cli.settings import Logging, Metrics


@hookimpl
def register_settings() -> Sequence[type[Group]]:
    return (Logging, Metrics)


@hookimpl
def register_commands() -> Sequence[Command]:
    return (
        Command("extensions", "ability_search.extensions.cli.app", 75),
        Command("index", "ability_search.extensions.cli.index", 80),
        Command("search", "ability_search.extensions.cli.search_commands", 100),
        Command("similar", "ability_search.extensions.cli.search_commands", 120),
        Command("mark", "ability_search.extensions.cli.search_commands", 130),
        Command("collections", "ability_search.extensions.cli.collections", 140),
        Command("info", "ability_search.extensions.cli.collections", 150),
        Command("delete", "ability_search.extensions.cli.collections", 160),
        Command("reindex", "ability_search.extensions.cli.collections", 170),
        Command("call", "ability_search.extensions.cli.collections", 280),
        Command("secret", "ability_search.extensions.cli.secret", 360),
    )
