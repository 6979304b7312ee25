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

# Their import adds the commands, in the order of the modules.
COMMANDS = (up, services, models, indexing, search, collection, secret, direct, doctor)

__all__ = ["COMMANDS", "app", "main"]
