"""`mcp`: serve the tools to an assistant over standard input and output."""

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
from ability_search.config.schema import Settings
from ability_search.edges.tool_calls import Caller, LiveConnection
from ability_search.errors import ConfigurationError
from ability_search.stack.data_directory import RunningStack, read_running, released
from kadi_client import NotConnected

_START_SECONDS = 150.0
"""Seconds that a call waits for the stack; the first start of the model builds its graph."""
_POLL_SECONDS = 1.0


@command(app, "mcp")
def mcp(broker: BrokerOption = None) -> None:
    """Serve the tools to an assistant over standard input and output (MCP).

    The assistant starts this command; the README shows its configuration. If no
    broker is configured and no stack is running, the command starts a stack in the
    data directory and stops it at the end. Other assistants share that stack; when
    it stops, one of them starts a new one. search-index-file reads files within
    allowed_roots. Messages go to standard error.

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
    from ability_search.mcp.mcp_server import serve_stdio

    live = LiveConnection(patience=_START_SECONDS)
    caller = Caller(live, timeout=settings.gateway.timeout)
    serving = asyncio.create_task(serve_stdio(caller, max_bytes=settings.gateway.request_bytes))
    keeping = asyncio.create_task(_keep(live, settings, broker))
    try:
        await asyncio.wait({serving, keeping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (serving, keeping):
            task.cancel()
        await asyncio.gather(serving, keeping, return_exceptions=True)
    for task in (serving, keeping):
        if not task.cancelled():
            task.result()


async def _keep(live: LiveConnection, settings: Settings, broker: str | None) -> None:
    """Keep the connection alive; when a joined stack stops, join or start another one."""
    while True:
        async with AsyncExitStack() as stack:
            joined = await _join(stack, live, settings, broker)
            try:
                await _end(joined, settings.files.data_dir)
            finally:
                live.use(None)


async def _join(
    stack: AsyncExitStack, live: LiveConnection, settings: Settings, broker: str | None
) -> RunningStack | None:
    """Connect to the usual target, or start a stack; return the stack if another process runs it.

    Raises:
        ConfigurationError: if a stack cannot be started.
        KadiError: if the configured broker cannot be reached.
    """
    while True:
        target = chosen_target(settings, broker)
        try:
            client = await stack.enter_async_context(open_client(broker))
            live.use(client.connection)
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
            await asyncio.sleep(_POLL_SECONDS)  # another process is starting one
            continue
        target = chosen_target(settings, running.url)
        connection = await stack.enter_async_context(target_connection(settings, target))
        live.use(connection)
        output.stderr().print("ready")
        return None


async def _end(joined: RunningStack | None, directory: Path) -> None:
    """Wait until the joined stack has stopped; wait forever if ``None``."""
    while joined is None or _still(joined, directory):  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(_POLL_SECONDS)


def _still(joined: RunningStack, directory: Path) -> bool:
    running = read_running(directory)
    return running is not None and running.url == joined.url


def _roots(settings: Settings) -> Mapping[str, str]:
    """Return the setting that blocks file reads if the working directory is the filesystem root.

    An assistant may start the command there, which would expose every file of the machine.
    """
    directory = Path.cwd()
    if settings.files.allowed_roots != (directory,) or directory != Path(directory.anchor):
        return {}
    output.warn(
        "search-index-file cannot read files; set SEARCH_ALLOWED_ROOTS to allow directories"
    )
    return {"SEARCH_ALLOWED_ROOTS": str(settings.files.data_dir)}
