"""The worker component, on the network or over stdio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ability_search.cli.deployment import add_deployed_secrets
from ability_search.cli.parts import Part
from ability_search.config.loader import complete_secrets
from ability_search.config.schema import Settings
from ability_search.network import part_connection
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.worker import open_tools, open_worker
from kadi_client import Tool


@asynccontextmanager
async def open_search(
    settings: Settings, *, wait: float, meter: Meter = UNMETERED
) -> AsyncIterator[Part]:
    """Run the worker with its tools on the network.

    Raises:
        ConfigurationError: if a required secret is missing.
        KadiError: if the broker cannot be reached.
    """
    async with open_worker(
        settings, base=Path.cwd(), connect_timeout=wait, meter=meter
    ) as connection:
        yield Part({"address": "search-* tools"}, connection)


@asynccontextmanager
async def open_search_tools(
    settings: Settings, *, wait: float, meter: Meter = UNMETERED
) -> AsyncIterator[list[Tool]]:
    """Yield the worker's tools, to be served elsewhere than on the network.

    Raises:
        ConfigurationError: if a required secret is missing.
        KadiError: if the broker cannot be reached.
    """
    async with open_tools(settings, base=Path.cwd(), connect_timeout=wait, meter=meter) as (
        _,
        tools,
    ):
        yield tools


async def complete(settings: Settings, *, wait: float) -> Settings:
    """Return the settings with the secrets of the deployer, then those of a secret ability.

    The deployer is asked only in a deployment, the secret ability only for missing secrets.

    Raises:
        ConfigurationError: if a required secret is not found.
        KadiError: if the broker cannot be reached.
    """
    settings = await add_deployed_secrets(settings, wait=wait)
    if not settings.missing_secrets:
        return settings
    async with part_connection(settings, "secrets", connect_timeout=wait) as connection:
        return await complete_secrets(settings, connection.invoke)
