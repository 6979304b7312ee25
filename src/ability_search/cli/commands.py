"""All commands at once: for the help, and for what looks at every one of them."""

from ability_search.cli import (
    building,
    collection,
    direct,
    doctor,
    evaluation,
    indexing,
    mcp,
    migrate,
    models,
    search,
    secret,
    services,
    top,
    transfer,
    up,
    watch,
)
from ability_search.cli.app import app

# Their import adds the commands.
MODULES = (
    up,
    top,
    doctor,
    indexing,
    watch,
    search,
    collection,
    building,
    transfer,
    migrate,
    evaluation,
    direct,
    mcp,
    services,
    models,
    secret,
)

__all__ = ["MODULES", "app"]
