"""The command line: one module per command group, and the assembly of the components."""

from ability_search.extensions.cli.app import main

__all__ = ["main"]
