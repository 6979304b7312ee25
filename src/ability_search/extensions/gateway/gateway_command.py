"""`gateway`: serve the tools over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from ability_search import __version__
from ability_search.config.schema import Settings
from ability_search.errors import InvalidInput
from ability_search.extension import loaded
from ability_search.extensions.cli.app import app, command
from ability_search.extensions.cli.component_run import Component, serve
from ability_search.extensions.cli.extras import require_extra
from ability_search.extensions.cli.parameters import (
    SupervisedOption,
    WaitOption,
    host_option,
    port_option,
)
from ability_search.extensions.cli.tool_calls import Caller, LiveConnection, needed_tools
from ability_search.extensions.gateway.network_state import Network
from ability_search.extensions.gateway.settings import Gateway
from ability_search.network import part_connection
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.tools.table import all_tools

if TYPE_CHECKING:
    from ability_search.extensions.gateway.request_bodies import FileParts
    from ability_search.files.file_documents import Extractor

_WORKER_SECONDS = 10.0
"""Seconds that a request to the gateway waits for a restarting worker."""
_BROKER_SECONDS = 1.0
"""Seconds that a request to the gateway waits for a disconnected broker."""


@command(app, "gateway")
def gateway(
    host: Annotated[str | None, host_option("gateway_host")] = None,
    port: Annotated[int | None, port_option("gateway_port")] = None,
    wait: WaitOption = 30.0,
    supervised: SupervisedOption = False,
) -> None:
    """Serve the tools over HTTP, and over MCP at /mcp, until stopped.

    GET /openapi.json describes the routes. To listen on an address other than
    loopback, set the bearer token SEARCH_GATEWAY_TOKEN; callers must send it.

    Example:
        ability-search gateway --port 8070
    """
    opener = partial(open_gateway, host=host, port=port, wait=wait)
    serve("gateway", opener, supervised=supervised)


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    meter: Meter = UNMETERED,
    *,
    host: str | None = None,
    port: int | None = None,
    wait: float,
) -> AsyncIterator[Component]:
    """Run the gateway: the tools over HTTP, and the routes of other extensions.

    The default address is that of the settings.

    Raises:
        ConfigurationError: if the extra is missing, or the address cannot be bound.
        KadiError: if the broker cannot be reached.
    """
    require_extra("gateway")
    from ability_search.extensions.cli.http_server import serve_http
    from ability_search.extensions.cli.prometheus_meter import PrometheusMeter
    from ability_search.extensions.gateway.event_stream import Streams
    from ability_search.extensions.gateway.gateway import application
    from ability_search.extensions.gateway.operations import Handlers, call_observer

    own = settings.of(Gateway)
    host = own.host if host is None else host
    port = own.port if port is None else port
    live = LiveConnection(patience=_BROKER_SECONDS)
    # The gateway serves /metrics itself, also where no metrics port is configured.
    recorded = (
        meter if isinstance(meter, PrometheusMeter) else PrometheusMeter("gateway", __version__)
    )
    caller = Caller(live, timeout=own.timeout, observe=call_observer(recorded))
    streams, values = Streams(live), settings.limits.values
    reader = _FileReader(settings)
    network = Network(live, needed_tools(settings))
    patience = dict.fromkeys((row.name for row in all_tools()), _WORKER_SECONDS)
    connection = part_connection(settings, "gateway", connect_timeout=wait, patience=patience)
    token = own.token.get_secret_value() if own.token else None
    async with AsyncExitStack() as stack:
        # Closed last: requests in progress need it.
        stack.push_async_callback(connection.close)
        stack.callback(reader.close)
        opened = [import_module(name).open_routes(settings, caller) for name in loaded().routes]
        added = [await stack.enter_async_context(each) for each in opened]
        handlers = Handlers(caller, own, recorded, network, streams, reader.read, values)
        app = application(handlers, host=host, added=added)
        url = await stack.enter_async_context(
            serve_http(app, host, port, token=token, prefix="gateway")
        )
        for each in added:
            await stack.enter_async_context(each.running())
        stack.callback(streams.close)
        await connection.open()
        live.use(connection)
        details = {"address": url, "url": url, "port": int(url.rpartition(":")[2])}
        yield Component(details, connection)


class _FileReader:
    """Reads files that are sent to the gateway, one at a time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._extractor: Extractor | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="files")

    async def read(self, name: str, data: bytes) -> FileParts:
        """Return the documents of a file, and its unread parts; that of an empty file is blank.

        Raises:
            InvalidInput: if the text cannot be read, or may hold a secret.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._read, name, data)

    def _read(self, name: str, data: bytes) -> FileParts:
        from ability_search.documents import Document
        from ability_search.extensions.cli.local_files import wire_document
        from ability_search.files.credentials import holds_credentials
        from ability_search.files.file_documents import File, open_extractor
        from ability_search.files.selection import SECRET, is_secret
        from ability_search.text import loaders

        if is_secret(name) or holds_credentials(data):
            raise InvalidInput(name, SECRET)
        if self._extractor is None:
            self._extractor = open_extractor(self._settings)
        try:
            file = File(name, data, loaders.format_of(name, data))
            found = self._extractor.extract(name, data, file.format)
        except loaders.Unreadable as exc:
            if str(exc) != loaders.EMPTY:
                raise InvalidInput(name, str(exc)) from exc
            return [wire_document(Document(name, name, ""))], ()
        documents, unread = file.documents(found)
        return list(map(wire_document, documents)), [(each.path, each.reason) for each in unread]

    def close(self) -> None:
        """End a read in progress."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._extractor is not None:
            self._extractor.close()
