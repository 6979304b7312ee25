"""Plugin of answers with citations."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.config.setting_fields import Group
from ability_search.extension import Command, hookimpl
from ability_search.extensions.answers.settings import Answers


@hookimpl
def register_settings() -> Sequence[type[Group]]:
    return (Answers,)


@hookimpl
def register_commands() -> Sequence[Command]:
    return (Command("ask", "ability_search.extensions.answers.ask_command", 110),)


@hookimpl
def register_routes() -> Sequence[str]:
    return ("ability_search.extensions.answers.ask_route",)
