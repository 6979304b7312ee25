"""Imports every command, for the top-level help and for tools that list all commands."""

from importlib import import_module

from ability_search.cli.app import COMMANDS, app

for _module in dict.fromkeys(COMMANDS.values()):
    import_module(f"ability_search.cli.{_module}")

__all__ = ["app"]
