"""Plugin of portable artifacts."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    """Return the commands."""
    return (
        Command("export", "ability_search.extensions.artifacts.transfer", 220),
        Command("import", "ability_search.extensions.artifacts.transfer", 230),
        Command("backup", "ability_search.extensions.artifacts.transfer", 240),
        Command("restore", "ability_search.extensions.artifacts.transfer", 250),
        Command("migrate", "ability_search.extensions.artifacts.transfer", 260),
    )
