"""The gateway component: its HTTP application and its connection to the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from ability_search import __version__
from ability_search.cli.parts import Part
from ability_search.cli.served import (
    GATEWAY_MODULES,
    INSTALL_GATEWAY,
    INSTALL_MCP,
    MCP_MODULES,
    missing_modules,
)
from ability_search.config.loading import Settings
from ability_search.edges.live_connection import Line
from ability_search.edges.tool_calls import Caller
from ability_search.errors import ConfigurationError
from ability_search.network import part_connection
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.tools.table import BY_NAME

if TYPE_CHECKING:
    from ability_search.mcp.mcp_http import McpEndpoint

_WORKER_SECONDS = 10.0
"""Seconds that a request waits for a restarting worker."""
_PATIENCE = 1.0
"""Seconds that a request waits for a disconnected broker."""


@asynccontextmanager
async def open_gateway(
    settings: Settings, *, host: str, port: int, wait: float, meter: Meter = UNMETERED
) -> AsyncIterator[Part]:
    """Run the gateway: the tools over HTTP, and over MCP if that extra is installed.

    Raises:
        ConfigurationError: if the extra is missing, or the address cannot be bound.
        KadiError: if the broker cannot be reached.
    """
    missing = missing_modules(GATEWAY_MODULES)
    if missing:
        raise ConfigurationError(
            f"the extra 'gateway' is not installed: {', '.join(missing)} missing",
            hint=f"Run: {INSTALL_GATEWAY}",
        )
    from ability_search.http.app import Routes, application
    from ability_search.http.event_stream import Streams
    from ability_search.http.gateway_metrics import Metrics
    from ability_search.ops.http_server import serve_http
    from ability_search.ops.metrics.prometheus_meter import PrometheusMeter

    own = settings.gateway
    line = Line(patience=_PATIENCE)
    # The gateway serves /metrics itself, also where no metrics port is configured.
    numbers = (
        meter if isinstance(meter, PrometheusMeter) else PrometheusMeter("gateway", __version__)
    )
    metrics = Metrics(numbers)
    caller = Caller(line, timeout=own.timeout, observe=metrics.called)
    streams = Streams(line)
    routes = Routes(caller, own, metrics, models=settings.embedding.transport == "broker")
    patience = dict.fromkeys(BY_NAME, _WORKER_SECONDS)
    connection = part_connection(settings, "gateway", connect_timeout=wait, patience=patience)
    token = own.token.get_secret_value() if own.token else None
    async with AsyncExitStack() as stack:
        # Closed last: requests in progress need it.
        stack.push_async_callback(connection.close)
        mcp = None if missing_modules(MCP_MODULES) else _mcp(caller, settings)
        app = application(routes, streams, host=host, mcp=mcp or _no_mcp)
        url = await stack.enter_async_context(
            serve_http(app, host, port, token=token, prefix="gateway")
        )
        if mcp is not None:
            await stack.enter_async_context(mcp.running())
        stack.callback(streams.close)
        await connection.open()
        line.use(connection)
        yield Part({"address": url, "url": url, "port": int(url.rpartition(":")[2])}, connection)


def _mcp(caller: Caller, settings: Settings) -> McpEndpoint:
    from ability_search.mcp.mcp_http import McpEndpoint

    return McpEndpoint(caller, max_bytes=settings.gateway.request_bytes)


async def _no_mcp(_: Any) -> Any:
    from ability_search.http.problems import NotInstalled

    raise NotInstalled("the extra 'mcp' is not installed", hint=f"Run: {INSTALL_MCP}")
