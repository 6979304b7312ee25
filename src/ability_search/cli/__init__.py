"""The command line: one module a command group, and the composition of the parts."""

from ability_search.cli import (
    collection,
    direct,
    doctor,
    indexing,
    models,
    search,
    secret,
    services,
    up,
)
from ability_search.cli.app import app, main

# Their import adds the commands.
COMMANDS = (up, doctor, indexing, search, collection, direct, services, models, secret)

__all__ = ["COMMANDS", "app", "main"]
