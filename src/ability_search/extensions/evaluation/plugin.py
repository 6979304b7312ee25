"""Plugin of the evaluation."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.extension import Command, hookimpl


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("eval", "ability_search.extensions.evaluation.evaluation_commands", 270),)
