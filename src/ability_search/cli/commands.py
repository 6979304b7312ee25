"""All commands at once: for the help, and for what looks at every one of them."""

from importlib import import_module

from ability_search.cli.app import COMMANDS, app

for _module in dict.fromkeys(COMMANDS.values()):
    import_module(f"ability_search.cli.{_module}")

__all__ = ["app"]
