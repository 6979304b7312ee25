"""The worker as a part, on the network or over other streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ability_search.cli.parts import Part, new_connection
from ability_search.configuration import Settings, complete_secrets
from ability_search.remote import BrokerStore
from ability_search.tools import search_tools
from ability_search.worker import build_services, open_embedder, open_worker
from kadi import Tool


@asynccontextmanager
async def open_search(settings: Settings, *, wait: float) -> AsyncIterator[Part]:
    """The worker, its tools on the network.

    Raises:
        ConfigurationError: if a required secret is nowhere to be had.
        KadiError: if the broker cannot be reached.
    """
    settings = await _completed(settings, wait)
    async with open_worker(settings, base=Path.cwd(), connect_timeout=wait) as connection:
        yield Part({"address": "search-* tools"}, connection)


@asynccontextmanager
async def open_search_tools(settings: Settings, *, wait: float) -> AsyncIterator[list[Tool]]:
    """The worker's tools, to be served elsewhere than on the network that it works over.

    Raises:
        ConfigurationError: if a required secret is nowhere to be had.
        KadiError: if the broker cannot be reached.
    """
    settings = await _completed(settings, wait)
    connection = new_connection(settings, "stdio", (), wait)
    database = settings.database
    async with AsyncExitStack() as stack:
        embedder = await stack.enter_async_context(open_embedder(settings, connection.invoke))
        store = BrokerStore(connection.invoke, database=database.name, timeout=database.timeout)
        services = build_services(settings, store, embedder, base=Path.cwd())
        await stack.enter_async_context(connection)
        stack.push_async_callback(services.reindexing.close)
        stack.push_async_callback(services.maintenance.close)
        yield search_tools(services)


async def _completed(settings: Settings, wait: float) -> Settings:
    if not settings.missing_secrets:
        return settings
    async with new_connection(settings, "secrets", (), wait) as connection:
        return await complete_secrets(settings, connection.invoke)
