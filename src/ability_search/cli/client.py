"""Reaching the tools as a client: which broker, and one call at a time."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ability_search import __version__, logs
from ability_search.cli.failures import ToolFailure
from ability_search.configuration import Settings, load_settings
from ability_search.configuration.fields import Url
from ability_search.errors import InvalidInput
from ability_search.stack.directory import RunningStack, read_running
from kadi import Connection, RemoteError

T = TypeVar("T")

LONG_SECONDS = 3600.0
"""For work that reports its progress; brokers allow no more."""

_OPEN_SECONDS = 5.0

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help="Broker to use instead of the running stack or the configured one.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Longest wait for an answer.")
]


@dataclass(frozen=True, slots=True)
class Target:
    """A broker to connect to."""

    url: str
    networks: tuple[str, ...]
    origin: str
    """Why this one."""
    stack: RunningStack | None = None
    """The running stack, if it is its broker."""
    assumed: bool = False
    """Whether it is only where a local broker would be: nothing says that there is one."""

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return str(Url(self.url))


def client_settings() -> Settings:
    """The settings of a client command, whose log shows warnings only unless told otherwise.

    Raises:
        ConfigurationError: with every problem of the settings.
    """
    settings = load_settings(os.environ, Path.cwd())
    quiet = "SEARCH_LOG_LEVEL" not in os.environ
    logs.configure(
        "warning" if quiet else settings.logging.level, settings.logging.format, part="cli"
    )
    return settings


def find_target(settings: Settings, environ: Mapping[str, str], broker: str | None) -> Target:
    """Which broker a client command uses.

    In this order: the one named on the command line; ``BROKER_URL``; a broker ``remote`` or
    ``default`` of the files; the stack that runs over the data directory; broker ``local``.

    Raises:
        InvalidInput: if the address on the command line is none.
    """
    networks = settings.broker.networks
    configured = settings.broker.url.get_secret_value()
    if broker is not None:
        if not broker.startswith(("ws://", "wss://")):
            raise InvalidInput("--broker", "expected an address like ws://localhost:8080/kadi")
        return Target(broker, networks, "--broker")
    for name in ("BROKER_URL", "KADI_BROKER_URL"):
        if environ.get(name, "").strip():
            return Target(configured, networks, name)
    if settings.broker.name != "local":
        return Target(configured, networks, f"broker {settings.broker.name} of the configuration")
    running = read_running(settings.files.data_dir)
    if running is not None:
        origin = f"the stack of process {running.pid}"
        return Target(running.url, running.networks, origin, running)
    return Target(configured, networks, "the configured broker, as no stack runs", assumed=True)


def joining(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """The environment of a part that joins the running stack, if that is what it would use."""
    target = find_target(settings, environ, None)
    if target.stack is None:
        return environ
    networks = ",".join(target.networks)
    broker = {"BROKER_URL": target.url, "BROKER_NETWORKS": networks}
    return {**target.stack.environ, **environ, **broker}


@dataclass(frozen=True, slots=True)
class Client:
    """A connection that raises what the tools report."""

    connection: Connection
    settings: Settings
    target: Target

    async def call(
        self, tool: str, tool_input: Mapping[str, Any], *, timeout: float
    ) -> dict[str, Any]:
        """Call a tool.

        Raises:
            ToolFailure: if it answers that it failed.
            KadiError: if it does not answer.
        """
        answer = await self.connection.invoke(tool, dict(tool_input), timeout=timeout)
        if not isinstance(answer, dict):
            raise RemoteError(f"{tool} answered with something that is no object")
        if answer.get("success") is False:
            raise ToolFailure(answer)
        return answer


@asynccontextmanager
async def open_client(broker: str | None) -> AsyncIterator[Client]:
    """Connect as an agent with a fresh identity.

    Raises:
        ConfigurationError: if the settings cannot be used.
        KadiError: if the broker cannot be reached.
    """
    settings = client_settings()
    target = find_target(settings, os.environ, broker)
    async with new_connection(settings, target) as connection:
        yield Client(connection, settings, target)


def new_connection(settings: Settings, target: Target) -> Connection:
    """A connection that is yet to be opened, as an agent with a fresh identity."""
    return Connection(
        target.url,
        name="ability-search-cli",
        version=__version__,
        networks=target.networks,
        max_message_bytes=settings.limits.message_bytes,
        open_timeout=_OPEN_SECONDS,
        grace=0.0,
    )


def with_client(broker: str | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """Connect, do the work, disconnect."""

    async def run() -> T:
        async with open_client(broker) as client:
            return await work(client)

    return asyncio.run(run())


def call_tool(
    broker: str | None, tool: str, tool_input: Mapping[str, Any], timeout: float
) -> dict[str, Any]:
    """One call on a connection of its own; raises as :meth:`Client.call`."""
    return with_client(broker, lambda client: client.call(tool, tool_input, timeout=timeout))


def given(**values: Any) -> dict[str, Any]:
    """A tool's input from the options that were given: ``None``, ``False`` and ``[]`` are not."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != []
    }
