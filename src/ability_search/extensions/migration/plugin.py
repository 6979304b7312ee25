"""Plugin of the migration from the TypeScript ability."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, HealthCheck, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("migrate", "ability_search.extensions.migration.migrate_command", 260),)


@hookimpl
def register_checks() -> Sequence[HealthCheck]:
    from ability_search.extensions.migration.legacy_data import check_migrated

    return (HealthCheck("migration", check_migrated, needs="database"),)
