"""The command line: one module per command group, and the assembly of the components."""

from ability_search.cli.app import main

__all__ = ["main"]
