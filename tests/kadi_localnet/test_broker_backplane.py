"""Brokers, their clients and a real NATS server: who may join, and who goes where."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.networks import TOKEN, connected

from kadi_client import Connection, NotConnected, Tool
from kadi_localnet.broker import BackplaneLost, Limits, serve_broker, server
from kadi_localnet.broker.backplane import Backplane
from kadi_localnet.broker.cluster import EVERYONE

NOWHERE = "ws://127.0.0.1:1/kadi"


async def echo(tool_input: dict[str, Any], _call: Any) -> dict[str, Any]:
    return tool_input


ECHO = Tool("echo", "", {"type": "object"}, echo)


@pytest.mark.parametrize("stranger", ["", "guess@", "user:guess@"])
async def test_a_broker_without_the_token_is_refused(
    nats_url: str, stranger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_JOIN_SECONDS", 0.0)
    url = nats_url.replace(f"{TOKEN}@", stranger)
    with pytest.raises(BackplaneLost, match="Authorization Violation") as refused:
        async with serve_broker(port=0, backplane=url):
            pass
    assert "guess" not in str(refused.value)


@pytest.mark.parametrize("url", ["", "http://localhost:4222", "nats://a,amqp://b", "amqp://a"])
async def test_an_address_of_something_else_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="nats://token@localhost:4222"):
        async with serve_broker(port=0, backplane=url):
            pass


async def test_a_message_reaches_one_broker_all_brokers_or_nobody(nats_url: str) -> None:
    backplane = Backplane(nats_url)
    first, second = Receiver(), Receiver()
    async with backplane.join("one", first) as send, backplane.join("two", second):
        messages = [str(number).encode() for number in range(100)]
        for message in messages:
            await send("two", message)
        await send(EVERYONE, b"all")
        await send("three", b"lost")
        async with asyncio.timeout(10):
            await first.has(2)
            await second.has(101)
    assert second.noted[:101] == [*messages, b"all"]
    assert sorted(map(str, first.noted[:2])) == ["b'all'", "three"]


class Receiver:
    """Notes what it receives."""

    def __init__(self) -> None:
        self.noted: list[bytes | str] = []
        self.arrived = asyncio.Event()

    def received(self, message: bytes) -> None:
        self.noted.append(message)
        self.arrived.set()

    def unreachable(self, broker: str) -> None:
        self.noted.append(broker)
        self.arrived.set()

    def lost(self) -> None:
        """Its own end is none of the messages."""

    async def has(self, number: int) -> None:
        while len(self.noted) < number:
            self.arrived.clear()
            await self.arrived.wait()


async def test_a_client_takes_the_first_broker_that_can_be_reached(nats_url: str) -> None:
    async with (
        connected(nats_url, size=2) as network,
        Connection(f"{NOWHERE}, {network.url}", tools=[ECHO]),
        Connection(f"{network.url},{NOWHERE}") as caller,
    ):
        assert await caller.invoke("echo", {"a": 1}) == {"a": 1}
    with pytest.raises(NotConnected):
        async with Connection(f"{NOWHERE},{NOWHERE}"):
            pass


async def test_a_client_that_loses_its_broker_goes_to_the_next(nats_url: str) -> None:
    limits = Limits(handshake_timeout=0.5)
    async with serve_broker(port=0, backplane=nats_url, limits=limits) as second:
        async with serve_broker(port=0, backplane=nats_url, limits=limits) as first:
            provider = Connection(f"{first.url},{second.url}", tools=[ECHO], grace=0)
            await provider.open()
            caller = Connection(f"{first.url},{second.url}", grace=0)
            await caller.open()
            assert await caller.invoke("echo", {"a": 1}) == {"a": 1}
        async with asyncio.timeout(10):
            # Until the first broker is forgotten, its tools are counted, too.
            while second.stats()["brokers"] > 1 or not second.stats()["tools"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await caller.invoke("echo", {"a": 2}) == {"a": 2}
        await caller.close()
        await provider.close()
