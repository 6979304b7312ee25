"""`mcp`: serve the tools to an assistant over standard input and output."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

from ability_search.client.trust import MODEL_APIS, require_trusted
from ability_search.config.schema import Settings
from ability_search.errors import first_failure
from ability_search.extensions.cli import output
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.cli.clients import choose_target, client_settings
from ability_search.extensions.cli.component_run import traced
from ability_search.extensions.cli.extras import require_extra
from ability_search.extensions.cli.lifecycle import run_until_stopped
from ability_search.extensions.cli.parameters import BrokerOption
from ability_search.extensions.cli.tool_calls import Caller, LiveConnection
from ability_search.extensions.gateway.settings import Gateway, McpProfile
from ability_search.tools.table import listed_tools

_START_SECONDS = 150.0
"""Seconds that a call waits for the stack; the first start of the model builds its graph."""

ProfileOption = Annotated[McpProfile | None, "How the tools are listed.  [default: mcp_profile]"]


@command(app, "mcp")
def mcp(broker: BrokerOption = None, profile: ProfileOption = None) -> None:
    """Serve the tools to an assistant over standard input and output (MCP).

    The assistant starts this command; the README shows its configuration. If no
    broker is configured and no stack is running, the command starts a stack in the
    data directory and stops it at the end. Other assistants share that stack; when
    it stops, one of them starts a new one. search-index-file reads files within
    allowed_roots. Messages go to standard error. The profile lean lists short schemas
    and returns hits as references, which search-read reads; full lists the tools
    with all parameters.

    Example:
        ability-search mcp
        ability-search mcp --profile full
        ability-search mcp --broker ws://localhost:8080/kadi
    """
    require_extra("mcp")
    settings = client_settings()
    require_trusted(settings, os.environ, *MODEL_APIS)
    choose_target(settings, broker)  # an address that is refused ends the command at once
    with traced(settings, "mcp"):
        asyncio.run(run_until_stopped(_serve(settings, broker, profile)))


async def _serve(settings: Settings, broker: str | None, profile: McpProfile | None) -> None:
    from ability_search.extensions.answers.answerer import open_answerer
    from ability_search.extensions.localstack.supervisor import keep_connected
    from ability_search.extensions.mcp.mcp_server import serve_stdio

    gateway = settings.of(Gateway)
    live = LiveConnection(patience=_START_SECONDS)
    caller = Caller(live, timeout=gateway.timeout)
    search = partial(caller.read, "search-query")
    environ = _restrict_files(settings)
    try:
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(keep_connected(live, settings, broker, environ))
            async with open_answerer(settings, search, live.connection) as answerer:
                await serve_stdio(
                    caller,
                    answerer,
                    max_bytes=gateway.request_bytes,
                    profile=profile or gateway.mcp_profile,
                    rows=listed_tools(settings.loading.offer),
                )
            keeping.cancel()
    except ExceptionGroup as failures:
        raise first_failure(failures) from failures


def _restrict_files(settings: Settings) -> Mapping[str, str]:
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
