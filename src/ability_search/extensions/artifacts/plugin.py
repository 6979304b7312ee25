"""Plugin of portable artifacts."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, SearchOptions, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    return (
        Command("build", "ability_search.extensions.artifacts.transfer", 210),
        Command("export", "ability_search.extensions.artifacts.transfer", 220),
        Command("import", "ability_search.extensions.artifacts.transfer", 230),
        Command("backup", "ability_search.extensions.artifacts.transfer", 240),
        Command("restore", "ability_search.extensions.artifacts.transfer", 250),
    )


@hookimpl
def register_search_options() -> Sequence[type[SearchOptions]]:
    from ability_search.extensions.artifacts.transfer import ArtifactChoice

    return (ArtifactChoice,)
