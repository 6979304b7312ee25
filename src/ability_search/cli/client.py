"""The client side of the commands: choosing a broker, and calling tools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ability_search.client import calling
from ability_search.client.target import Target, find_target
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.network import client_connection
from ability_search.ops import logs
from kadi_client import Connection

T = TypeVar("T")

LONG_SECONDS = 3600.0
"""Timeout of calls that report progress, in seconds; the maximum that brokers allow."""

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker",
        metavar="URL",
        help="Broker to use instead of the running stack or the configured one.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="Timeout of a call.")
]


def client_settings() -> Settings:
    """Load the settings of a client command and set up its log.

    The log level is warning unless SEARCH_LOG_LEVEL is set.

    Raises:
        ConfigurationError: with every problem of the settings.
    """
    settings = load_settings(os.environ, Path.cwd())
    quiet = "SEARCH_LOG_LEVEL" not in os.environ
    logs.configure(
        "warning" if quiet else settings.logging.level, settings.logging.format, part="cli"
    )
    return settings


def joining(settings: Settings, environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment of a component, extended to join the stack that a client would use.

    It is unchanged if a client would not use a running stack.
    """
    target = find_target(settings, environ, None)
    if target.stack is None:
        return environ
    networks = ",".join(target.networks)
    broker = {"BROKER_URL": target.url, "BROKER_NETWORKS": networks}
    return {**target.stack.environ, **environ, **broker}


def chosen_target(settings: Settings, broker: str | None) -> Target:
    """Return the broker that a command uses; ``broker`` is the value of its option.

    Raises:
        InvalidInput: if ``broker`` is not an address.
    """
    return find_target(settings, os.environ, broker, given_as="--broker")


@dataclass(frozen=True, slots=True)
class Client:
    """A connection whose calls raise the errors that tools report."""

    connection: Connection
    settings: Settings
    target: Target

    async def call(
        self, tool: str, tool_input: Mapping[str, Any], *, timeout: float
    ) -> dict[str, Any]:
        """Call a tool.

        Raises:
            ToolError: if the tool reports a failure.
            KadiError: if the tool does not answer.
        """
        return await calling.call_tool(self.connection, tool, tool_input, timeout=timeout)


@asynccontextmanager
async def open_client(broker: str | None) -> AsyncIterator[Client]:
    """Connect as an agent with a fresh identity.

    Raises:
        ConfigurationError: if the settings cannot be used.
        KadiError: if the broker cannot be reached.
    """
    settings = client_settings()
    target = chosen_target(settings, broker)
    async with target_connection(settings, target) as connection:
        yield Client(connection, settings, target)


def target_connection(
    settings: Settings, target: Target, *, name: str = "ability-search-cli"
) -> Connection:
    """Return a connection to the broker of a command; open it with ``async with``."""
    return client_connection(settings, target.url, target.networks, name=name)


def with_client(broker: str | None, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run ``work`` with a client of its own and return its result."""

    async def run() -> T:
        async with open_client(broker) as client:
            return await work(client)

    return asyncio.run(run())


def call_tool(
    broker: str | None, tool: str, tool_input: Mapping[str, Any], timeout: float
) -> dict[str, Any]:
    """Call a tool over a connection of its own; raises as :meth:`Client.call`."""
    return with_client(broker, lambda client: client.call(tool, tool_input, timeout=timeout))


def given(**values: Any) -> dict[str, Any]:
    """Return a tool's input from command options, without ``None``, ``False`` and ``[]``."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and value is not False and value != []
    }
