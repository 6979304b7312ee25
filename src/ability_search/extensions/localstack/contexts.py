"""Each component as a context that runs it: broker, database, models, worker, gateway."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ability_search import __version__
from ability_search.config.schema import Settings
from ability_search.edges.tool_calls import Caller, LiveConnection
from ability_search.errors import ConfigurationError, InvalidInput, first_failure
from ability_search.extensions.cli.component_run import Component
from ability_search.extensions.gateway.network_state import ComponentStates
from ability_search.extensions.localstack.component_metrics import (
    ModelObserver,
    watch_broker,
    watch_database,
    watch_engine,
    watch_models,
)
from ability_search.extensions.localstack.served_models import models_config
from ability_search.network import component_key, part_connection
from ability_search.ops.extras import (
    EXTRAS,
    install_command,
    missing_modules,
    require_extra,
)
from ability_search.ops.locks import locked
from ability_search.ops.metrics.call_metrics import metered_tools
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.tools.table import BY_NAME, needed_tools
from kadi_client import Connection, Identity

if TYPE_CHECKING:
    from ability_search.extensions.answers.answerer import Answerer, Search
    from ability_search.extensions.gateway.shortcuts import FileParts
    from ability_search.files.isolated_reader import Extractor
    from kadi_localnet.database.backend import Backend

log = logging.getLogger(__name__)

_MIB = 1024 * 1024
_STUCK = 70
"""Exit code of a database ability whose engine does not answer any more."""
_TOKEN_BYTES = 32

_WORKER_SECONDS = 10.0
"""Seconds that a request to the gateway waits for a restarting worker."""
_BROKER_SECONDS = 1.0
"""Seconds that a request to the gateway waits for a disconnected broker."""


@asynccontextmanager
async def open_backplane(
    settings: Settings, _meter: Meter = UNMETERED, *, port: int = 0
) -> AsyncIterator[Component]:
    """Run a NATS server on the loopback interface; it keeps its token in the data directory.

    Raises:
        ConfigurationError: if nats-server is missing or does not start, or has ended.
    """
    from ability_search.extensions.localstack.local_stack import require_nats_server
    from kadi_localnet.broker import BackplaneLost
    from kadi_localnet.broker.nats_server import run_nats_server

    executable = require_nats_server()
    directory = settings.files.data_dir / "backplane"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = directory / "token"
    if not token.exists():
        token.touch(mode=0o600)
        token.write_text(secrets.token_urlsafe(_TOKEN_BYTES), encoding="ascii")
    known = token.read_text(encoding="ascii")

    async def watch(process: asyncio.subprocess.Process) -> None:
        code = await process.wait()
        raise ConfigurationError(f"nats-server ended with exit code {code}")

    try:
        async with (
            run_nats_server(executable, directory, token=known, port=port) as (process, bound),
            asyncio.TaskGroup() as group,
        ):
            watching = group.create_task(watch(process))
            address = f"127.0.0.1:{bound}"
            url = f"nats://{known}@{address}"
            yield Component({"address": f"nats://{address}", "url": url, "port": bound})
            watching.cancel()
    except BackplaneLost as exc:
        hint = "Choose another port with --port (0 for a free one)."
        raise ConfigurationError(str(exc), hint=hint) from exc
    except ExceptionGroup as failures:
        raise first_failure(failures) from failures


@asynccontextmanager
async def open_broker(
    settings: Settings,
    meter: Meter = UNMETERED,
    *,
    host: str | None = None,
    port: int | None = None,
) -> AsyncIterator[Component]:
    """Run the broker of this machine; the default address is that of the settings.

    Raises:
        ConfigurationError: if the port cannot be bound, or the backplane cannot be reached.
    """
    from kadi_localnet.broker import Access, BackplaneLost, Limits, serve_broker

    local = settings.local_broker
    backplane = local.backplane.get_secret_value() if local.backplane else None
    if backplane is not None:
        require_extra("nats")
    host = local.host if host is None else host
    port = local.port if port is None else port
    size = settings.limits.message_bytes
    limits = Limits(
        max_message_bytes=size,
        event_bytes=local.event_bytes,
        outbox_bytes=max(Limits().outbox_bytes, 2 * size),
        memory_bytes=max(local.memory, 4 * size),
    )
    async with AsyncExitStack() as stack:
        try:
            broker = await stack.enter_async_context(
                serve_broker(
                    host,
                    port,
                    limits=limits,
                    access=Access(
                        members=_by_name(local.members),
                        providers=_by_name(local.providers),
                    ),
                    backplane=backplane,
                )
            )
        except (BackplaneLost, ValueError) as exc:
            raise ConfigurationError(
                str(exc), hint="Start it, or correct SEARCH_LOCAL_BROKER_BACKPLANE."
            ) from exc
        except OSError as exc:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {os.strerror(exc.errno or 0)}",
                hint="Choose another port with --port (0 for a free one) or"
                " SEARCH_LOCAL_BROKER_PORT; to use a broker that is already running there, add"
                " --no-broker.",
            ) from exc
        watch_broker(meter, broker)
        bound = int(broker.url.rpartition(":")[2].partition("/")[0])
        yield Component({"address": broker.url, "url": broker.url, "port": bound})


def _by_name(pairs: Sequence[str]) -> dict[str, set[str]]:
    """Return the agents of each name in pairs ``NAME=AGENT_ID``."""
    agents: dict[str, set[str]] = {}
    for pair in pairs:
        name, _, agent = pair.rpartition("=")
        agents.setdefault(name, set()).add(agent)
    return agents


@asynccontextmanager
async def open_database(
    settings: Settings, meter: Meter = UNMETERED, *, wait: float
) -> AsyncIterator[Component]:
    """Run the database ability over the embedded engine, or over a server or cluster.

    Raises:
        ConfigurationError: if the engine is missing or does not start.
        KadiError: if the broker cannot be reached.
    """
    try:
        from kadi_localnet.database.backend import DatabaseError
        from kadi_localnet.database.tools import MAX_WAITING, database_tools, shared_threads

        backend, address = _backend(settings)
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"the embedded database engine is not installed ({exc.name} is missing)",
            hint=f"Run: {install_command('local')}",
        ) from exc
    threads = shared_threads(backend)
    offered = database_tools(
        backend,
        timeout=settings.database.timeout,
        longest=max(settings.arcadedb.statement_timeout, settings.database.timeout),
        threads=threads,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(backend.close)
        start = getattr(backend, "start", None)
        try:
            if start is not None:
                stack.enter_context(_own_identity(settings))
                await start()
        except DatabaseError as exc:
            raise ConfigurationError(str(exc)) from exc
        if start is not None:
            watch_engine(meter, threads)
        watch_database(meter, backend.counts)
        # The worker makes all calls, so the turns of those it makes them for are those of threads.
        connection = part_connection(
            settings,
            "database",
            metered_tools(offered, meter),
            connect_timeout=wait,
            max_concurrent=4 * MAX_WAITING,
        )
        await stack.enter_async_context(connection)
        yield Component({"address": address}, connection)


@contextmanager
def _own_identity(settings: Settings) -> Iterator[None]:
    """Keep other engines on this machine from serving under the identity of this one.

    Workers identify databases by the agents that offer them.

    Raises:
        ConfigurationError: if another one serves under it.
    """
    path = component_key(settings, "database")
    Identity.load_or_create(path)
    taken = ConfigurationError(
        f"another database serves under the identity {path}",
        hint="Stop it, or set SEARCH_IDENTITY_FILE to another file for one of them.",
    )
    with locked(path, taken):
        yield


def _backend(settings: Settings) -> tuple[Backend, str]:
    arcadedb = settings.arcadedb
    if arcadedb.backend == "http":
        from kadi_localnet.database.remote_server import HttpDatabases

        password = arcadedb.password.get_secret_value() if arcadedb.password else ""
        urls = [url.get_secret_value() for url in arcadedb.urls]
        shown = ", ".join(map(str, arcadedb.urls))
        databases = HttpDatabases(
            urls,
            user=arcadedb.user,
            password=password,
            max_bytes=settings.limits.message_bytes,
            spread_reads=arcadedb.spread_reads,
        )
        return databases, shown
    from kadi_localnet.database.embedded import EmbeddedDatabases

    directory = settings.files.data_dir / "databases"
    heap = arcadedb.heap // _MIB if arcadedb.heap else None
    embedded = EmbeddedDatabases(
        directory,
        heap_mb=heap,
        max_bytes=settings.limits.message_bytes,
        stuck=lambda: os._exit(_STUCK),
    )
    return embedded, str(directory)


@asynccontextmanager
async def open_models(
    settings: Settings,
    meter: Meter = UNMETERED,
    *,
    host: str | None = None,
    port: int | None = None,
    wait: float,
) -> AsyncIterator[Component]:
    """Run the model manager: its tools on the network, and the same API over HTTP.

    The default address of the API is that of the settings.

    Raises:
        ConfigurationError: if a model or a package it needs is missing.
        KadiError: if the broker cannot be reached.
    """
    configuration = models_config(settings)
    from ability_search.ops.http_access import guarded
    from ability_search.ops.http_server import serve_http
    from kadi_localnet import models

    own = settings.models
    host = own.http_host if host is None else host
    port = own.http_port if port is None else port
    token = own.http_token.get_secret_value() if own.http_token else None
    async with AsyncExitStack() as stack:
        try:
            served = await stack.enter_async_context(
                models.open_models(configuration, observer=ModelObserver(meter))
            )
        except models.ModelSetupError as exc:
            hint = "Correct the settings model_*; `ability-search models list` shows the models."
            raise ConfigurationError(str(exc), hint=exc.hint or hint) from exc
        app = guarded(served.application(token=token), host)
        url = await stack.enter_async_context(
            serve_http(app, host, port, token=token, prefix="model_http")
        )
        watch_models(meter, served)
        tools = metered_tools(served.tools, meter)
        connection = part_connection(settings, "models", tools, connect_timeout=wait)
        await stack.enter_async_context(connection)
        about = {name: _about(served.describe(name)) for name in served.names}
        details = {
            "address": f"{url}/v1",
            "port": int(url.rpartition(":")[2]),
            "models": about,
        }
        yield Component(details, connection)


def _about(model: Any) -> dict[str, Any]:
    return {
        "dimensions": model.dimensions,
        "maxTokens": model.max_tokens,
        "tokenizer": str(model.tokenizer) if model.tokenizer else None,
    }


@asynccontextmanager
async def open_search(
    settings: Settings, meter: Meter = UNMETERED, *, wait: float, memory: bool = False
) -> AsyncIterator[Component]:
    """Run a worker with its tools on the network; with ``memory`` it needs no database.

    Raises:
        ConfigurationError: if a required secret is missing.
        KadiError: if the broker cannot be reached.
    """
    from ability_search.worker import in_memory, open_worker

    if memory:
        settings = in_memory(settings)
    async with open_worker(
        settings, base=Path.cwd(), connect_timeout=wait, meter=meter
    ) as connection:
        yield Component({"address": "search-* tools"}, connection)


@asynccontextmanager
async def open_gateway(
    settings: Settings,
    meter: Meter = UNMETERED,
    *,
    host: str | None = None,
    port: int | None = None,
    wait: float,
) -> AsyncIterator[Component]:
    """Run the gateway: the tools over HTTP, and over MCP if that extra is installed.

    The default address is that of the settings.

    Raises:
        ConfigurationError: if the extra is missing, or the address cannot be bound.
        KadiError: if the broker cannot be reached.
    """
    require_extra("gateway")
    from ability_search.extensions.gateway.event_stream import Streams
    from ability_search.extensions.gateway.gateway import application
    from ability_search.extensions.gateway.operations import Handlers, call_observer
    from ability_search.ops.http_server import serve_http
    from ability_search.ops.metrics.prometheus_meter import PrometheusMeter

    own = settings.gateway
    host = own.host if host is None else host
    port = own.port if port is None else port
    live = LiveConnection(patience=_BROKER_SECONDS)
    # The gateway serves /metrics itself, also where no metrics port is configured.
    recorded = (
        meter if isinstance(meter, PrometheusMeter) else PrometheusMeter("gateway", __version__)
    )
    caller = Caller(live, timeout=own.timeout, observe=call_observer(recorded))
    streams = Streams(live)
    needed = needed_tools(
        memory=settings.database.memory, models_api=settings.embedding.transport == "api"
    )
    reader = _FileReader(settings)
    states = ComponentStates(live, needed)
    patience = dict.fromkeys(BY_NAME, _WORKER_SECONDS)
    connection = part_connection(settings, "gateway", connect_timeout=wait, patience=patience)
    token = own.token.get_secret_value() if own.token else None
    async with AsyncExitStack() as stack:
        # Closed last: requests in progress need it.
        stack.push_async_callback(connection.close)
        stack.callback(reader.close)
        answerer = await stack.enter_async_context(
            open_answerer(settings, partial(caller.read, "search-query"), live.connection)
        )
        mcp = None
        if not missing_modules(EXTRAS["mcp"]):
            from ability_search.extensions.mcp.mcp_server import McpEndpoint

            mcp = McpEndpoint(
                caller, answerer, max_bytes=own.request_bytes, profile=own.mcp_profile
            )
        handlers = Handlers(
            caller, answerer, own, recorded, states, reader.read, settings.limits.values
        )
        app = application(handlers, streams, host=host, mcp=mcp or _no_mcp)
        url = await stack.enter_async_context(
            serve_http(app, host, port, token=token, prefix="gateway")
        )
        if mcp is not None:
            await stack.enter_async_context(mcp.running())
        stack.callback(streams.close)
        await connection.open()
        live.use(connection)
        details = {"address": url, "url": url, "port": int(url.rpartition(":")[2])}
        yield Component(details, connection)


@asynccontextmanager
async def open_answerer(
    settings: Settings,
    search: Search,
    connect: Callable[[], Awaitable[Connection]],
) -> AsyncIterator[Answerer]:
    """Yield the service that answers questions with the configured language model.

    Args:
        settings: The settings.
        search: Calls search-query.
        connect: Returns the connection to the network, on which a model manager may be.

    Raises:
        ConfigurationError: if the model is behind an API whose address is missing.
    """
    from ability_search.extensions.answers.answerer import Answerer
    from ability_search.worker import ModelServers

    async def invoke(
        tool: str,
        tool_input: Mapping[str, Any],
        *,
        timeout: float = 30.0,
        target_agent: str | None = None,
    ) -> Any:
        connection = await connect()
        return await connection.invoke(tool, tool_input, timeout=timeout, target_agent=target_agent)

    async def providers(tool: str) -> frozenset[str]:
        return await (await connect()).providers(tool)

    async with ModelServers(settings, invoke, providers=providers).chat() as chat:
        yield Answerer(search, chat, settings.answers)


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
        from ability_search.files.credentials import holds_credentials
        from ability_search.files.file_documents import File, open_extractor
        from ability_search.files.selection import SECRET, is_secret
        from ability_search.sync.upload import wire_document
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


async def _no_mcp(_: Any) -> Any:
    from ability_search.extensions.gateway.problems import NotInstalled

    raise NotInstalled("the extra 'mcp' is not installed", hint=f"Run: {install_command('mcp')}")
