"""The command line: one module a command group, and the composition of the parts."""

from ability_search.cli.app import main

__all__ = ["main"]
