"""`mcp`: the tools for an assistant, over standard input and output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from ability_search.cli import output
from ability_search.cli.app import app, command
from ability_search.cli.client import (
    BrokerOption,
    chosen_target,
    client_settings,
    open_client,
    target_connection,
)
from ability_search.cli.local_stack import temporary_stack
from ability_search.cli.served import INSTALL_MCP, MCP_MODULES, missing_modules
from ability_search.cli.serving import run_until_stopped
from ability_search.cli.tracing import traced
from ability_search.configuration import Settings
from ability_search.edges.calling import Caller
from ability_search.edges.line import Line
from ability_search.errors import ConfigurationError
from ability_search.stack.directory import RunningStack, read_running, released
from kadi_client import NotConnected

_START_SECONDS = 150.0
"""How long a call waits for the stack; the first start of the model builds its graph."""
_POLL_SECONDS = 1.0


@command(app, "mcp")
def mcp(broker: BrokerOption = None) -> None:
    """Serve the tools to an assistant over standard input and output (MCP).

    An assistant starts this by itself, see the README for its configuration. If
    no broker is named and no stack runs, one is started over the data directory
    and stopped at the end; further assistants join it, and the next of them
    takes over. search-index-file reads below allowed_roots. All that is told,
    is told on standard error.

    Example:
        ability-search mcp
        ability-search mcp --broker ws://localhost:8080/kadi
    """
    missing = missing_modules(MCP_MODULES)
    if missing:
        raise ConfigurationError(
            f"the extra 'mcp' is not installed: {', '.join(missing)} missing",
            hint=f"Run: {INSTALL_MCP}",
        )
    settings = client_settings()
    with traced(settings, "mcp"):
        asyncio.run(run_until_stopped(_serve(settings, broker)))


async def _serve(settings: Settings, broker: str | None) -> None:
    from ability_search.mcp.stdio import serve_stdio

    line = Line(patience=_START_SECONDS)
    caller = Caller(line, timeout=settings.gateway.timeout)
    serving = asyncio.create_task(serve_stdio(caller, max_bytes=settings.gateway.request_bytes))
    keeping = asyncio.create_task(_keep(line, settings, broker))
    try:
        await asyncio.wait({serving, keeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (serving, keeping):
            task.cancel()
        await asyncio.gather(serving, keeping, return_exceptions=True)
    for task in (serving, keeping):
        if not task.cancelled():
            task.result()


async def _keep(line: Line, settings: Settings, broker: str | None) -> None:
    """Keep the line connected; where a stack that was joined goes, another one takes its place."""
    while True:
        async with AsyncExitStack() as stack:
            joined = await _join(stack, line, settings, broker)
            try:
                await _end(joined, settings.files.data_dir)
            finally:
                line.use(None)


async def _join(
    stack: AsyncExitStack, line: Line, settings: Settings, broker: str | None
) -> RunningStack | None:
    """Connect to what is there, or to a stack that is started; tells of one that is not ours.

    Raises:
        ConfigurationError: if a stack cannot be started.
        KadiError: if a broker that is named cannot be reached.
    """
    while True:
        target = chosen_target(settings, broker)
        try:
            client = await stack.enter_async_context(open_client(broker))
            line.use(client.connection)
            return target.stack
        except NotConnected:
            if not target.assumed and target.stack is None:
                raise
        directory = settings.files.data_dir
        try:
            opening = temporary_stack(settings, directory, environ=_roots(settings))
            running = await stack.enter_async_context(opening)
        except ConfigurationError:
            if await released(directory, timeout=0):
                raise
            await asyncio.sleep(_POLL_SECONDS)  # another one starts it at this moment
            continue
        target = chosen_target(settings, running.url)
        connection = await stack.enter_async_context(target_connection(settings, target))
        line.use(connection)
        output.stderr().print("ready")
        return None


async def _end(joined: RunningStack | None, directory: Path) -> None:
    """Wait until the stack that was joined has gone; for ever if none was."""
    while joined is None or _still(joined, directory):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(_POLL_SECONDS)


def _still(joined: RunningStack, directory: Path) -> bool:
    running = read_running(directory)
    return running is not None and running.url == joined.url


def _roots(settings: Settings) -> Mapping[str, str]:
    """Keeps the files of the whole machine out of reach where nobody chose the working directory.

    An assistant may start this in the root of the file system.
    """
    directory = Path.cwd()
    if settings.files.allowed_roots != (directory,) or directory != Path(directory.anchor):
        return {}
    output.warn("search-index-file reads no files: set SEARCH_ALLOWED_ROOTS to say which it may")
    return {"SEARCH_ALLOWED_ROOTS": str(settings.files.data_dir)}
