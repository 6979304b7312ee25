"""`worker`, `broker`, `database`, `gateway`: run one component in this process."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from ability_search.cli.app import app, command
from ability_search.cli.metering import metered
from ability_search.cli.part_options import SupervisedOption, WaitOption, port_option
from ability_search.cli.serving import prepare, run_until_stopped, serve
from ability_search.cli.tracing import traced
from ability_search.config.schema import Settings
from ability_search.ops.metrics.meter import Meter
from kadi_client import serve_stdio

if TYPE_CHECKING:
    from ability_search.cli.parts import Part

# Each command imports the modules that do the work, so that other commands start faster.


@command(app, "worker")
def worker(
    stdio: Annotated[
        bool, typer.Option("--stdio", help="Serve over standard input and output instead.")
    ] = False,
    wait: WaitOption = 30.0,
    supervised: SupervisedOption = False,
) -> None:
    """Serve the eight search tools on the broker until stopped.

    Workers are stateless: run as many as needed. A worker joins the running stack
    unless BROKER_URL names another broker. With --stdio it serves the tools over
    standard input and output (JSON-RPC, Content-Length framing or one message per
    line) and still reaches the database and the embedder over the broker. The log
    goes to standard error. A worker started by `kadi deploy` first requests its
    secrets from the deployer.

    Example:
        BROKER_URL=ws://localhost:8080/kadi ability-search worker
        ability-search worker --stdio
    """
    if stdio:
        # A client sends SIGTERM as soon as its `shutdown` is answered.
        asyncio.run(run_until_stopped(_serve_stdio(prepare("worker"), wait), ending=True))
        return
    from ability_search.cli.worker import complete, open_search

    serve(
        "worker",
        lambda settings, meter: open_search(settings, wait=wait, meter=meter),
        supervised=supervised,
        complete=lambda settings: complete(settings, wait=wait),
    )


async def _serve_stdio(settings: Settings, wait: float) -> None:
    from ability_search.cli.worker import complete, open_search_tools
    from ability_search.worker import LOGGED

    settings = await complete(settings, wait=wait)
    with traced(settings, "worker"):
        async with (
            metered(settings, "worker") as metering,
            open_search_tools(settings, wait=wait, meter=metering.meter) as tools,
        ):
            await serve_stdio(
                tools,
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
    from ability_search.cli.parts import open_broker

    def open_part(settings: Settings, meter: Meter) -> AbstractAsyncContextManager[Part]:
        local = settings.local_broker
        return open_broker(
            settings,
            host=local.host if host is None else host,
            port=local.port if port is None else port,
            meter=meter,
        )

    serve("broker", open_part, supervised=supervised)


@command(app, "database")
def database(wait: WaitOption = 30.0, supervised: SupervisedOption = False) -> None:
    """Serve the arcade-* tools over ArcadeDB until stopped.

    By default the engine runs in this process, in the data directory; the setting
    arcadedb_backend selects a server or cluster over HTTP instead.

    Example:
        ability-search database
        SEARCH_ARCADEDB_BACKEND=http SEARCH_ARCADEDB_URLS=http://db:2480 ability-search database
    """
    from ability_search.cli.parts import open_database

    serve(
        "database",
        lambda settings, meter: open_database(settings, wait=wait, meter=meter),
        supervised=supervised,
    )


@command(app, "gateway")
def gateway(
    host: Annotated[
        str | None,
        typer.Option("--host", help="Address to listen on.  [default: gateway_host]"),
    ] = None,
    port: Annotated[
        int | None,
        port_option("--port", "Port to listen on, 0 for a free one.  [default: gateway_port]"),
    ] = None,
    wait: WaitOption = 30.0,
    supervised: SupervisedOption = False,
) -> None:
    """Serve the tools over HTTP, and over MCP at /mcp, until stopped.

    GET /openapi.json describes the routes. To listen on an address other than
    loopback, set the bearer token SEARCH_GATEWAY_TOKEN; callers must send it.

    Example:
        ability-search gateway --port 8070
    """
    from ability_search.cli.edges import open_gateway

    def open_part(settings: Settings, meter: Meter) -> AbstractAsyncContextManager[Part]:
        own = settings.gateway
        return open_gateway(
            settings,
            host=own.host if host is None else host,
            port=own.port if port is None else port,
            wait=wait,
            meter=meter,
        )

    serve("gateway", open_part, supervised=supervised)
