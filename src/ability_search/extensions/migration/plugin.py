"""Plugin of the migration from the TypeScript ability."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    """Return the commands."""
    return (Command("migrate", "ability_search.extensions.migration.migrate_command", 260),)
