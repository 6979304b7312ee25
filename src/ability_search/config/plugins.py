"""Plugins that are installed, and the settings that they add.

The setting ``extensions`` chooses which of them are loaded, so the settings are read before that.
Those of an extension that is left out are known, too: a file may keep them.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Final

from ability_search.config.setting_fields import Group
from ability_search.errors import ConfigurationError

ENTRY_POINTS: Final = "ability_search"
"""The group of entry points."""
SETTING: Final = "SEARCH_EXTENSIONS"
_HOME: Final = "ability_search.extensions"


@dataclass(frozen=True, slots=True)
class InstalledPlugin:
    """A plugin that is installed."""

    name: str
    origin: str
    """``built in``, or the name and version of the package that it comes from."""
    entry: EntryPoint

    def imported(self) -> tuple[ModuleType, tuple[type[Group], ...]]:
        """Import the plugin; return it, and the groups of settings that it adds.

        Raises:
            ConfigurationError: if that fails, with the remedy.
        """
        try:
            module: ModuleType = self.entry.load()
            return module, tuple(getattr(module, "register_settings", tuple)())
        except Exception as exc:
            raise ConfigurationError(
                f"the extension {self.name} cannot be imported: {type(exc).__name__}: {exc}",
                hint=f"Install what it needs, or leave it out with {SETTING}=-{self.name}.",
            ) from exc


@cache
def installed_plugins() -> dict[str, InstalledPlugin]:
    """Return the plugins by name: those of this package, then those of other packages."""
    return {each.name: each for each in (*_built_in(), *_of_packages())}


def _built_in() -> Iterator[InstalledPlugin]:
    for found in pkgutil.iter_modules(import_module(_HOME).__path__):
        entry = EntryPoint(found.name, f"{_HOME}.{found.name}.plugin", ENTRY_POINTS)
        yield InstalledPlugin(found.name, "built in", entry)


def _of_packages() -> Iterator[InstalledPlugin]:
    for entry in entry_points(group=ENTRY_POINTS):
        package = entry.dist
        origin = f"{package.name} {package.version}" if package else "unknown"
        yield InstalledPlugin(entry.name, origin, entry)


def added_groups() -> list[type[Group]]:
    """Return the groups of settings of all installed extensions.

    One that cannot be imported has none here; it is reported when it is loaded.
    """
    groups: list[type[Group]] = []
    for plugin in installed_plugins().values():
        with suppress(ConfigurationError):
            groups += plugin.imported()[1]
    return groups
