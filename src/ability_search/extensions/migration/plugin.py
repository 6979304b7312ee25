"""Plugin of the migration from the TypeScript ability."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ability_search.extension import Command, hookimpl

if TYPE_CHECKING:
    from ability_search.client.tool_client import ToolClient


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("migrate", "ability_search.extensions.migration.migrate_command", 260),)


@hookimpl
def register_checks() -> Mapping[str, Callable[[ToolClient], Awaitable[str]]]:
    from ability_search.extensions.migration.legacy_data import check_migrated

    return {"migration": check_migrated}
