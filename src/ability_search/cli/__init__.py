"""The command line: one module a command group, and the composition of the parts."""

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
from ability_search.cli.app import app, main

# Their import adds the commands.
COMMANDS = (
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

__all__ = ["COMMANDS", "app", "main"]
