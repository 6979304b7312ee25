"""The broker, the database and the models, each as a context that runs the component."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ability_search.cli.metering import (
    ModelObserver,
    watch_broker,
    watch_database,
    watch_engine,
    watch_models,
)
from ability_search.cli.served import INSTALL_LOCAL, models_config
from ability_search.config.loading import Settings
from ability_search.errors import ConfigurationError
from ability_search.network import part_connection
from ability_search.ops.metrics.call_metrics import metered_tools
from ability_search.ops.metrics.meter import UNMETERED, Meter
from kadi_client import Brokers, Connection

if TYPE_CHECKING:
    from kadi_localnet.database.backend import Backend

log = logging.getLogger(__name__)

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A running component."""

    details: Mapping[str, Any] = field(default_factory=dict)
    """Details for a supervising parent: ``address`` (for display), ``url``, ``port``."""
    connection: Connection | Brokers | None = None
    """Its connection to the network."""


@asynccontextmanager
async def open_broker(
    settings: Settings, *, host: str, port: int, meter: Meter = UNMETERED
) -> AsyncIterator[Part]:
    """Run the broker of this machine.

    Raises:
        ConfigurationError: if the port cannot be bound.
    """
    from kadi_localnet.broker import Access, Limits, serve_broker

    size = settings.limits.message_bytes
    limits = Limits(max_message_bytes=size, outbox_bytes=max(Limits().outbox_bytes, 2 * size))
    async with AsyncExitStack() as stack:
        try:
            broker = await stack.enter_async_context(
                serve_broker(
                    host,
                    port,
                    limits=limits,
                    access=Access(networks=settings.local_broker.networks),
                )
            )
        except OSError as exc:
            raise ConfigurationError(
                f"cannot listen on {host}:{port}: {os.strerror(exc.errno or 0)}",
                hint="Choose another port with --port (0 for a free one) or"
                " SEARCH_LOCAL_BROKER_PORT; to use a broker that is already running there, add"
                " --no-broker.",
            ) from exc
        _warn_of_missing_networks(settings)
        watch_broker(meter, broker)
        bound = int(broker.url.rpartition(":")[2].partition("/")[0])
        yield Part({"address": broker.url, "url": broker.url, "port": bound})


def _warn_of_missing_networks(settings: Settings) -> None:
    there = settings.local_broker.networks
    missing = [name for name in settings.broker.networks if name not in there]
    if there and missing:
        log.warning(
            "local_broker_networks lacks %s, which this installation joins: its own components are"
            " not visible there",
            ", ".join(missing),
        )


@asynccontextmanager
async def open_database(
    settings: Settings, *, wait: float, meter: Meter = UNMETERED
) -> AsyncIterator[Part]:
    """Run the database ability over the embedded engine, or over a server or cluster.

    Raises:
        ConfigurationError: if the engine is missing or does not start.
        KadiError: if the broker cannot be reached.
    """
    try:
        from kadi_localnet.database.backend import DatabaseError
        from kadi_localnet.database.tools import database_tools, shared_threads

        backend, address = _backend(settings)
    except ModuleNotFoundError as exc:
        raise ConfigurationError(
            f"the embedded database engine is not installed ({exc.name} is missing)",
            hint=f"Run: {INSTALL_LOCAL}",
        ) from exc
    threads = shared_threads(backend)
    offered = database_tools(
        backend,
        timeout=settings.database.timeout,
        longest=max(settings.arcadedb.statement_timeout, settings.database.timeout),
        languages=settings.arcadedb.languages,
        threads=threads,
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(backend.close)
        start = getattr(backend, "start", None)
        if start is not None:
            try:
                await start()
            except DatabaseError as exc:
                raise ConfigurationError(str(exc)) from exc
            watch_engine(meter, threads)
        watch_database(meter, backend.counts)
        connection = part_connection(
            settings, "database", metered_tools(offered, meter), connect_timeout=wait
        )
        await stack.enter_async_context(connection)
        yield Part({"address": address}, connection)


def _backend(settings: Settings) -> tuple[Backend, str]:
    arcadedb = settings.arcadedb
    if arcadedb.backend == "http":
        from kadi_localnet.database.remote_server import HttpDatabases

        password = arcadedb.password.get_secret_value() if arcadedb.password else ""
        urls = [url.get_secret_value() for url in arcadedb.urls]
        shown = ", ".join(map(str, arcadedb.urls))
        return HttpDatabases(urls, user=arcadedb.user, password=password), shown
    from kadi_localnet.database.embedded import EmbeddedDatabases

    directory = settings.files.data_dir / "databases"
    heap = arcadedb.heap // MIB if arcadedb.heap else None
    return EmbeddedDatabases(directory, heap_mb=heap), str(directory)


@asynccontextmanager
async def open_models(
    settings: Settings, *, host: str, port: int, wait: float, meter: Meter = UNMETERED
) -> AsyncIterator[Part]:
    """Run the model manager: its tools on the network, and the same API over HTTP.

    Raises:
        ConfigurationError: if a model or a package it needs is missing.
        KadiError: if the broker cannot be reached.
    """
    configuration = models_config(settings)
    from ability_search.ops.http_access import guarded
    from ability_search.ops.http_server import serve_http
    from kadi_localnet import models

    token = settings.models.http_token
    secret = token.get_secret_value() if token else None
    async with AsyncExitStack() as stack:
        try:
            served = await stack.enter_async_context(
                models.open_models(configuration, observer=ModelObserver(meter))
            )
        except models.ModelSetupError as exc:
            hint = "Correct the settings model_*; `ability-search models list` shows the models."
            raise ConfigurationError(str(exc), hint=hint) from exc
        app = guarded(served.application(token=secret), host)
        url = await stack.enter_async_context(
            serve_http(app, host, port, token=secret, prefix="model_http")
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
        yield Part(details, connection)


def _about(model: Any) -> dict[str, Any]:
    return {
        "local": model.local,
        "dimensions": model.dimensions,
        "maxTokens": model.max_tokens,
        "tokenizer": str(model.tokenizer) if model.tokenizer else None,
    }
