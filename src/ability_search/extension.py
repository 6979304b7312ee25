"""Extensions: what may be added to the core, and which of it is loaded.

An extension is a module, its *plugin*, with functions marked by :data:`hookimpl`; each returns what
the extension adds in one respect, see :class:`Hooks`. Plugins of this package are the modules
``ability_search.extensions.<name>.plugin``; other packages name theirs as entry points of the group
``ability_search``. Both are registered in the same way. A plugin imports nothing heavy, since every
process loads it: it names modules, which are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import pluggy

from ability_search.config.plugins import ENTRY_POINTS, SETTING, installed_plugins
from ability_search.errors import ConfigurationError
from ability_search.text.formats import Format, FormatTable

if TYPE_CHECKING:
    from ability_search.config.schema import Settings
    from ability_search.config.setting_fields import Group
    from ability_search.index.index_ports import AddedSteps
    from ability_search.search.options import QueryInput
    from ability_search.search.stage import Stage, StageFactory
    from ability_search.tools.calls import Handler, Services
    from ability_search.tools.tool_row import ToolRow

hookspec = pluggy.HookspecMarker(ENTRY_POINTS)
hookimpl = pluggy.HookimplMarker(ENTRY_POINTS)
"""Marks a function of a plugin as one of :class:`Hooks`."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the command line."""

    name: str
    module: str
    """The module that adds the command to :data:`ability_search.extensions.cli.app.app`; it is
    imported when the command is called or the help is shown."""
    place: int
    """Commands are listed in ascending order of it."""


@dataclass(frozen=True, slots=True)
class StackComponent:
    """A component that ``ability-search up`` runs."""

    name: str
    place: int
    """Components are listed in ascending order of it, and stopped in descending order."""
    command: tuple[str, ...]
    """Arguments of ability-search that run it; with ``--supervised`` it reports to its parent."""
    groups: Collection[type[Group]]
    """Groups of settings whose secrets it uses."""
    tools: Sequence[str] = ()
    """Tools that the broker lists when it is ready."""
    extra: str | None = None
    """Extra of this package that it needs; a stack without it has no such component."""
    address: Callable[[Settings], tuple[str, int]] | None = None
    """Returns host and port in the settings that it listens on; ``None`` if it has no port."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A check of the command doctor."""

    name: str
    run: Callable[[Any], Awaitable[str]]
    """Is given a :class:`.ToolClient`, and returns what it found, if anything; raises a
    :class:`.SearchError` with the remedy."""
    needs: str = ""
    """Name of a check without which this one is skipped, such as ``database``."""


class SearchOptions(Protocol):
    """Options of the command search: a dataclass whose fields are options of it."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def apply(self, request: dict[str, Any], *, broker: str | None, hidden: bool) -> Iterable[str]:
        """Change the request, and return warnings about it.

        Args:
            request: Options of :meth:`.SearchClient.query`; ``collection`` may be ``None``.
            broker: Address of the broker; ``None`` for the usual one.
            hidden: Whether no progress is shown.
        """
        raise NotImplementedError


class Hooks:
    """The functions that a plugin may have, each called when what it returns is needed."""

    @hookspec
    def register_settings(self) -> Sequence[type[Group]]:
        """Return groups of settings; :meth:`.Settings.of` returns their values.

        It is called before the extensions are chosen, also of a plugin that is then left out.
        """
        raise NotImplementedError

    @hookspec
    def register_commands(self) -> Sequence[Command]:
        """Return commands of the command line."""
        raise NotImplementedError

    @hookspec
    def register_components(self) -> Sequence[StackComponent]:
        """Return components of the stack on one machine."""
        raise NotImplementedError

    @hookspec
    def register_routes(self) -> Sequence[str]:
        """Return modules with routes of the gateway.

        Each has ``OPERATIONS``, which OpenAPI describes, and ``open_routes``, an asynchronous
        context manager that takes the settings and a :class:`.Caller` and yields an
        :class:`~ability_search.extensions.gateway.gateway.AddedRoutes`.
        """
        raise NotImplementedError

    @hookspec
    def register_checks(self) -> Sequence[HealthCheck]:
        """Return checks of the command doctor."""
        raise NotImplementedError

    @hookspec
    def register_search_options(self) -> Sequence[type[SearchOptions]]:
        """Return further options of the command search."""
        raise NotImplementedError

    @hookspec
    def register_query_options(self) -> Sequence[type[QueryInput]]:
        """Return models of further options of search-query."""
        raise NotImplementedError

    @hookspec
    def register_stages(self) -> Sequence[Stage | StageFactory]:
        """Return stages of a query, or functions that open one over the ports of search."""
        raise NotImplementedError

    @hookspec
    def register_steps(self) -> AddedSteps:
        """Return steps of indexing."""
        raise NotImplementedError

    @hookspec
    def register_formats(self) -> Sequence[Format]:
        """Return formats of documents; one of a known name replaces it."""
        raise NotImplementedError

    @hookspec
    def register_tools(self) -> Sequence[ToolRow]:
        """Return tools that a worker may offer, which :meth:`open_tools` implements.

        A worker registers those whose family, the name before the first dash, is in the setting
        ``offer``; ``ability-search up`` offers all of them unless that is set.
        """
        raise NotImplementedError

    @hookspec
    def open_tools(self, services: Services) -> Mapping[str, Handler]:
        """Return the handlers of the tools over the services of a worker, by name of the tool.

        It is called if the worker offers at least one of them.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension that is installed."""

    name: str
    origin: str
    """``built in``, or the name and version of the package that it comes from."""
    plugin: ModuleType

    @property
    def added(self) -> tuple[str, ...]:
        """The respects in which it adds something, such as ``commands``."""
        hooks = (name for name in vars(Hooks) if name.startswith("register_"))
        return tuple(name.removeprefix("register_") for name in hooks if hasattr(self.plugin, name))

    @property
    def tools(self) -> frozenset[str]:
        """The names of the tools that it adds."""
        register = getattr(self.plugin, "register_tools", tuple)
        return frozenset(row.name for row in register())


def _flat(lists: Sequence[Iterable[Any]]) -> list[Any]:
    """Return what all extensions added, in their order: hooks are called last to first."""
    return [each for entries in reversed(lists) for each in entries]


def _added(respect: str) -> Any:
    """Return the property with what all extensions added in a respect, in their order."""
    return cached_property(lambda self: _flat(getattr(self._plugins.hook, f"register_{respect}")()))


class Extensions:
    """The extensions of a process.

    Args:
        chosen: Names of extensions to load besides those that are on by default; with a minus sign
            before a name, that one is not loaded.

    Raises:
        ConfigurationError: if a name is not that of an extension, or a plugin cannot be imported.
    """

    routes: list[str] = _added("routes")
    """The modules with further routes of the gateway."""
    search_options: list[type[SearchOptions]] = _added("search_options")
    """The further options of the command search."""
    query_options: list[type[QueryInput]] = _added("query_options")
    """The models of further options of search-query."""
    stages: list[Stage | StageFactory] = _added("stages")
    """The further stages of a query."""
    tools: list[ToolRow] = _added("tools")
    """The further tools of the worker."""

    def __init__(self, chosen: Sequence[str] = ()) -> None:
        found = installed_plugins()
        unknown = sorted({name.removeprefix("-") for name in chosen} - found.keys())
        if unknown:
            raise ConfigurationError(
                f"{SETTING}: {', '.join(unknown)}: no such extension",
                hint=f"Use names among {', '.join(sorted(found))}.",
            )
        left_out = {name.removeprefix("-") for name in chosen if name.startswith("-")}
        self._plugins = pluggy.PluginManager(ENTRY_POINTS)
        self._plugins.add_hookspecs(Hooks)
        self.extensions: list[Extension] = []
        for name, each in found.items():
            if name in left_out:
                continue
            plugin, _ = each.imported()
            extension = Extension(name, each.origin, plugin)
            self._plugins.register(extension.plugin, name=name)
            self.extensions.append(extension)

    @cached_property
    def commands(self) -> dict[str, Command]:
        """The commands by name, in the order of the help."""
        commands = _flat(self._plugins.hook.register_commands())
        return {each.name: each for each in sorted(commands, key=lambda each: each.place)}

    @cached_property
    def components(self) -> dict[str, StackComponent]:
        """The components of a stack by name, in their order."""
        components = _flat(self._plugins.hook.register_components())
        return {each.name: each for each in sorted(components, key=lambda each: each.place)}

    @cached_property
    def checks(self) -> Sequence[HealthCheck]:
        """The further checks of the command doctor."""
        return _flat(self._plugins.hook.register_checks())

    @cached_property
    def steps(self) -> list[AddedSteps]:
        """The further steps of indexing, of one extension each."""
        steps: list[AddedSteps] = self._plugins.hook.register_steps()
        return steps[::-1]

    @cached_property
    def formats(self) -> FormatTable:
        """The formats of documents, those of the core included."""
        return FormatTable(_flat(self._plugins.hook.register_formats()))

    def handlers(self, services: Services, names: Collection[str]) -> dict[str, Handler]:
        """Return the handlers of some of the further tools, and maybe of others, by name.

        Extensions without one of these tools are not asked.
        """
        idle = [
            extension.plugin for extension in self.extensions if extension.tools.isdisjoint(names)
        ]
        opened = self._plugins.subset_hook_caller("open_tools", remove_plugins=idle)
        handlers: dict[str, Handler] = {}
        for added in opened(services=services):
            handlers |= added
        return handlers


_loaded: Extensions | None = None


def load(chosen: Sequence[str] = ()) -> Extensions:
    """Load the extensions of this process, in place of those that it had.

    Arguments and errors as for :class:`Extensions`.
    """
    global _loaded
    _loaded = Extensions(chosen)
    return _loaded


def loaded() -> Extensions:
    """Return the extensions of this process; those that are on by default unless others are loaded.

    Errors as for :class:`Extensions`.
    """
    return _loaded or load()
