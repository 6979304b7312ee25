"""What the extension adds. Every process loads this module, so it imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ability_search.extension import Command, HealthCheck, hookimpl

if TYPE_CHECKING:
    from ability_search.config.setting_fields import Group
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage
    from ability_search.text.formats import Format


@hookimpl
def register_settings() -> Sequence[type[Group]]:
    """Return the settings."""
    from helpdesk.settings import Helpdesk

    return [Helpdesk]


@hookimpl
def register_commands() -> Sequence[Command]:
    """Return the command."""
    return [Command("pinned", "helpdesk.command", 95)]


@hookimpl
def register_checks() -> Sequence[HealthCheck]:
    """Return the check of the command doctor."""
    from helpdesk.command import check_pinned

    return [HealthCheck("pinned", check_pinned)]


@hookimpl
def register_query_options() -> Sequence[type[QueryInput]]:
    """Return the option of search-query."""
    from helpdesk.pinned import PinnedOptions

    return [PinnedOptions]


@hookimpl
def register_stages() -> Sequence[Stage]:
    """Return the stage of a query."""
    from helpdesk.pinned import PINNED

    return [PINNED]


@hookimpl
def register_formats() -> Sequence[Format]:
    """Return the format."""
    from helpdesk.captions import CAPTIONS

    return [CAPTIONS]
