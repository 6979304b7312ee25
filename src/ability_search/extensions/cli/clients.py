"""Connections of the commands: settings, broker, tool calls and their progress."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ability_search.client.tool_client import (
    LONG_SECONDS,
    Advance,
    Target,
    ToolClient,
    client_target,
)
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.extensions.cli import logs, output
from ability_search.extensions.cli.parameters import BrokerOption, JsonOption, TimeoutOption, given
from ability_search.extensions.cli.settings import Logging

if TYPE_CHECKING:
    from ability_search.index.index_calls import Report

T = TypeVar("T")

CLIENT_NAME = "ability-search-cli"


def client_settings() -> Settings:
    """Load the settings of a client command and set up its log.

    The log level is warning unless SEARCH_LOG_LEVEL is set.

    Raises:
        ConfigurationError: with every problem of the settings.
    """
    settings = load_settings(os.environ, Path.cwd())
    logging = settings.of(Logging)
    level = logging.level if logs.level_is_set() else "warning"
    logs.configure(level, logging.format, component="cli")
    return settings


def choose_target(settings: Settings, broker: str | None) -> Target:
    """Return the broker that a command uses; ``broker`` is the value of its option.

    Raises:
        ConfigurationError: if a found file names it, and the user does not trust the address.
        InvalidInput: if ``broker`` is not an address.
    """
    return client_target(settings, os.environ, broker, given_as="--broker")


def new_client(broker: str | None) -> ToolClient:
    """Return the client of a command; open it with ``async with``.

    Raises:
        ConfigurationError: if the settings cannot be used.
        InvalidInput: if ``broker`` is not an address.
    """
    settings = client_settings()
    return ToolClient(settings, choose_target(settings, broker), name=CLIENT_NAME)


def with_client(broker: str | None, work: Callable[[ToolClient], Awaitable[T]]) -> T:
    """Run ``work`` with a client of its own and return its result."""

    async def run() -> T:
        async with new_client(broker) as client:
            return await work(client)

    return asyncio.run(run())


def call_tool(
    broker: str | None, tool: str, tool_input: Mapping[str, Any], timeout: float
) -> dict[str, Any]:
    """Call a tool over a connection of its own; raises as :meth:`ToolClient.call`."""
    return with_client(broker, lambda client: client.call(tool, tool_input, timeout=timeout))


@dataclass(frozen=True, slots=True)
class CallOptions:
    """The options of a command that calls tools and prints an answer."""

    broker: BrokerOption = None
    timeout: TimeoutOption = 60.0
    as_json: JsonOption = False

    def call(self, tool: str, **fields: Any) -> dict[str, Any]:
        """Call a tool with the fields that were given; raises as :meth:`ToolClient.call`."""
        return call_tool(self.broker, tool, given(**fields), self.timeout)

    def run(self, tool: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Run a job on a collection with a progress bar, and return the answer of its tool."""

        async def work(client: ToolClient) -> dict[str, Any]:
            with progress_bar(wanted["collection"], total=None, hidden=self.as_json) as advance:
                return await client.run_job(tool, wanted, timeout=self.timeout, advance=advance)

        return with_client(self.broker, work)

    def printed(self, answer: Any) -> bool:
        """Print an answer as JSON, if that is wanted; return whether it is."""
        if self.as_json:
            output.print_json(answer)
        return self.as_json


CALL = CallOptions()
LONG_CALL = CallOptions(timeout=LONG_SECONDS)
"""The usual options of a command, and those of one that runs a job."""


@contextmanager
def progress_bar(name: str, *, total: int | None, hidden: bool) -> Iterator[Advance]:
    """Show a progress bar on stderr during the block, if stderr is a terminal.

    ``total`` is a number of documents; if ``None``, the progress events set it. For 0 nothing is
    shown.
    """
    console = output.stderr()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=hidden or total == 0 or not console.is_terminal,
    )
    with bar:
        task = bar.add_task(output.plain(name), total=total)

        def advance(done: int, of: int, stage: str) -> None:
            bar.update(
                task,
                completed=done,
                total=of if total is None else total,
                description=output.plain(f"{name} {stage}".strip()),
            )

        yield advance


@contextmanager
def report_bar(name: str, *, hidden: bool) -> Iterator[Report]:
    """Show a progress bar as :func:`progress_bar`; yield a callback for the indexing services."""
    with progress_bar(name, total=None, hidden=hidden) as advance:

        async def report(done: int, total: int, stage: str) -> None:
            advance(done, total, stage)

        yield report
