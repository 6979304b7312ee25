"""`worker`, `broker`, `database`: run one component in this process."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ability_search.client.tool_client import find_target, require_shared
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.cli.component_run import (
    metered,
    prepare,
    serve,
    traced,
)
from ability_search.extensions.cli.lifecycle import run_until_stopped
from ability_search.extensions.cli.parameters import SupervisedOption, WaitOption, port_option
from kadi_client import serve_stdio

# Each command imports the modules that do the work, so that other commands start faster.


@command(app, "worker")
def worker(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve over standard input and output instead.")
    ] = False,
    memory: Annotated[
        bool,
        typer.Option("--memory", help="Keep everything in memory, until the worker stops."),
    ] = False,
    wait: WaitOption = 30.0,
    supervised: SupervisedOption = False,
) -> None:
    """Serve the search tools on the broker until stopped.

    Workers are stateless: run as many as needed. A worker joins the running stack
    unless BROKER_URL names another broker. With --stdio it serves the tools over
    standard input and output (JSON-RPC, Content-Length framing or one message per
    line) and still reaches the database and the embedder over the broker. The log
    goes to standard error. A worker started by `kadi deploy` first requests its
    secrets from the deployer.

    Example:
        BROKER_URL=ws://localhost:8080/kadi ability-search worker
        ability-search worker --stdio
        ability-search worker --memory
    """
    if not (supervised or (stdio and memory)):
        settings = load_settings(os.environ, Path.cwd())
        require_shared(find_target(settings, os.environ, None), memory=memory)
    if stdio:
        # A client sends SIGTERM as soon as its `shutdown` is answered.
        serving = _serve_stdio(prepare("worker"), wait, memory=memory)
        asyncio.run(run_until_stopped(serving, ending=True))
        return
    from ability_search.extensions.localstack.contexts import open_search
    from ability_search.extensions.localstack.deployment import complete_settings

    serve(
        "worker",
        partial(open_search, wait=wait, memory=memory),
        supervised=supervised,
        complete=partial(complete_settings, wait=wait),
    )


async def _serve_stdio(settings: Settings, wait: float, *, memory: bool) -> None:
    from ability_search.extensions.localstack.deployment import complete_settings
    from ability_search.worker import LOGGED, in_memory, open_tools

    settings = await complete_settings(settings, wait=wait)
    if memory:
        settings = in_memory(settings)
    with traced(settings, "worker"):
        async with (
            metered(settings, "worker") as metering,
            open_tools(
                settings, base=Path.cwd(), connect_timeout=wait, meter=metering.meter
            ) as opened,
        ):
            await serve_stdio(
                opened[1],
                name=settings.agent.name,
                version=settings.agent.version,
                max_message_bytes=settings.limits.message_bytes,
                observe=LOGGED,
            )


@command(app, "broker")
def broker(
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on.  [default: local_broker_host]"),
    ] = None,
    port: Annotated[
        int | None,
        port_option("--port", "Port to listen on, 0 for a free one.  [default: local_broker_port]"),
    ] = None,
    supervised: SupervisedOption = False,
) -> None:
    """Run a broker for this machine until stopped.

    The broker stores nothing on disk. Anyone who can reach its port can use it, so
    it listens on the loopback interface by default.

    Example:
        ability-search broker --port 8080
    """
    from ability_search.extensions.localstack.contexts import open_broker

    serve("broker", partial(open_broker, host=host, port=port), supervised=supervised)


@command(app, "backplane")
def backplane(
    port: Annotated[
        int, port_option("--port", "Port to listen on, 0 for a free one.  [default: 4222]")
    ] = 4222,
    supervised: SupervisedOption = False,
) -> None:
    """Run a NATS server for the brokers of this machine until stopped.

    It listens on the loopback interface. Its clients need the token in
    backplane/token of the data directory. `up --brokers` starts one; on several
    machines, run NATS as its own service.

    Example:
        ability-search backplane --port 4222
    """
    from ability_search.extensions.localstack.contexts import open_backplane

    serve("backplane", partial(open_backplane, port=port), supervised=supervised)


@command(app, "database")
def database(wait: WaitOption = 30.0, supervised: SupervisedOption = False) -> None:
    """Serve the arcade-* tools over ArcadeDB until stopped.

    By default the engine runs in this process, in the data directory; the setting
    arcadedb_backend selects a server or cluster over HTTP instead.

    Example:
        ability-search database
        SEARCH_ARCADEDB_BACKEND=http SEARCH_ARCADEDB_URLS=http://db:2480 ability-search database
    """
    from ability_search.extensions.localstack.contexts import open_database

    serve("database", partial(open_database, wait=wait), supervised=supervised)
