"""A broker, and clients of both kinds that leave it at the end of the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio
from tests.interop.real_client import NodeProcess, RealClient, running_node
from tests.interop.relay import Relay, relaying
from tests.networks import Network, connected

from kadi_client import Connection

CreateReal = Callable[..., Awaitable[RealClient]]
CreatePython = Callable[..., Awaitable[Connection]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node() -> AsyncIterator[NodeProcess]:
    async with running_node() as node:
        yield node
    assert (node.process.returncode, node.stderr.decode()) == (0, "")


@pytest_asyncio.fixture(loop_scope="module")
async def broker(network_of: str | None) -> AsyncIterator[Network]:
    async with connected(network_of) as network:
        yield network


@pytest.fixture(
    scope="session",
    params=[None, pytest.param("nats_url", marks=pytest.mark.process)],
    ids=["one", "nats"],
)
def network_of(request: pytest.FixtureRequest) -> str | None:
    """The backplane of the network; ``None`` for a single broker."""
    return None if request.param is None else str(request.getfixturevalue(request.param))


@pytest_asyncio.fixture(loop_scope="module")
async def relay(broker: Network) -> AsyncIterator[Relay]:
    async with relaying(broker.url) as relay:
        yield relay


@pytest_asyncio.fixture(loop_scope="module")
async def real(node: NodeProcess, broker: Network, relay: Relay) -> AsyncIterator[CreateReal]:
    """Create clients that are connected, to the broker if no ``url`` is given.

    After the test they have printed nothing, unless the test has cleared ``node.logs``. They leave
    before the broker and the relay do.
    """
    clients: list[RealClient] = []

    async def create(*, url: str = "", connected: bool = True, **config: Any) -> RealClient:
        client = await node.create(url or broker.url, **config)
        clients.append(client)
        if connected:
            await client.connect()
        return client

    node.logs.clear()
    yield create
    for client in clients:
        await client.disconnect()
    assert node.logs == []


@pytest_asyncio.fixture(loop_scope="module")
async def python(broker: Network) -> AsyncIterator[CreatePython]:
    """Create connections of our own client."""
    async with AsyncExitStack() as stack:

        async def create(*, url: str = "", **options: Any) -> Connection:
            options = {"grace": 0.0, **options}
            return await stack.enter_async_context(Connection(url or broker.url, **options))

        yield create
