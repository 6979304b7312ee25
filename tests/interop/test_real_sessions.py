"""Sessions of the real KADI client at our broker: handshake, liveness, reconnection."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.interop.conftest import CreatePython, CreateReal
from tests.interop.real_client import ClientError, NodeProcess, needs_real_client, until, within
from tests.interop.relay import Relay, relaying
from tests.networks import Network

from kadi_client import Tool
from kadi_localnet.broker import Limits, serve_broker

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), needs_real_client]


# --- handshake ---------------------------------------------------------------------------------


async def test_both_sides_derive_the_same_agent_id(real: CreateReal, relay: Relay) -> None:
    client = await real(url=relay.url)
    (authenticate,) = relay.calls("kadi.session.authenticate")
    assert relay.answer_to(authenticate)["result"] == {"agentId": client.agent_id}
    assert client.agent_id == hashlib.sha256(client.public_key.encode()).hexdigest()[:16]
    assert len(base64.b64decode(client.public_key)) == 44


async def test_ids_that_begin_at_zero_are_answered(real: CreateReal, relay: Relay) -> None:
    await real(url=relay.url)
    assert [frame["id"] for frame in relay.sent] == [0, 1, 2]
    assert [frame["id"] for frame in relay.received] == [0, 1, 2]
    (hello,) = relay.calls("kadi.session.hello")
    assert hello["params"] == {"role": "agent"}
    (register,) = relay.calls("kadi.agent.register")
    assert relay.answer_to(register)["result"]["status"] == "registered"
    assert "droppedNetworks" not in relay.answer_to(register)["result"]


async def test_string_ids_are_answered_verbatim(real: CreateReal, relay: Relay) -> None:
    caller = await real(url=relay.url)
    with pytest.raises(ClientError, match="not found on broker") as raised:
        await caller.load_broker("nobody")
    assert raised.value.code == "ABILITY_NOT_FOUND"
    (listing,) = relay.calls("kadi.ability.list")
    assert isinstance(listing["id"], str)
    assert relay.answer_to(listing)["result"] == {"tools": []}


async def test_heartbeats_keep_a_session_alive(real: CreateReal) -> None:
    limits = Limits(heartbeat=0.2, silence=0.4)
    async with serve_broker(port=0, limits=limits) as broker, relaying(broker.url) as relay:
        client = await real(url=relay.url, heartbeatInterval=50)
        await until(lambda: len(relay.calls("kadi.session.heartbeat")) > 12)
        beat, *_ = relay.calls("kadi.session.heartbeat")
        assert isinstance(beat["params"]["timestamp"], int)
        assert relay.answer_to(beat)["result"] == "pong"
        assert broker.stats()["silent"] == 0
        assert await client.ask("connected") == ["local"]
        await client.disconnect()


async def test_a_client_without_heartbeats_is_dropped_and_reconnects(
    real: CreateReal, node: NodeProcess
) -> None:
    limits = Limits(heartbeat=0.1, silence=0.2)
    async with serve_broker(port=0, limits=limits) as broker:
        client = await real(url=broker.url)
        await node.wait_logged('Connection to broker "local" lost')
        await node.wait_logged('Reconnected to broker "local" after 1 attempts')
        assert broker.stats()["silent"] >= 1
        await client.disconnect()
    node.logs.clear()


async def test_one_identity_may_hold_two_sessions(real: CreateReal, broker: Network) -> None:
    both = {"local": {"url": broker.url}, "again": {"url": broker.url}}
    client = await real(brokers=both)
    assert await client.ask("connected") == ["local", "again"]
    assert broker.stats()["authenticated"] == 2
    await client.disconnect()
    await until(lambda: broker.stats()["sessions"] == 0)


async def test_a_client_that_leaves_without_goodbye_is_awaited_and_then_forgotten(
    real: CreateReal,
) -> None:
    async with serve_broker(port=0, limits=Limits(absence=2.0)) as broker:
        provider = await real(url=broker.url, connected=False)
        caller = await real(url=broker.url)
        await provider.register_tool("echo")
        await provider.connect()
        assert await caller.invoke_remote("echo", {"a": 1}) == {"a": 1}
        await provider.disconnect()
        await until(lambda: broker.stats()["tools"] == 0)
        call = asyncio.create_task(caller.invoke_remote("echo", {"a": 2}))
        await until(lambda: broker.stats()["outstanding_calls"] == 1)
        await provider.connect()
        assert await call == {"a": 2}
        await provider.disconnect()
        await until(lambda: broker.stats()["tools"] == 0)
        with pytest.raises(ClientError, match="no provider for tool 'echo'"):
            await caller.invoke_remote("echo", {})
        await caller.disconnect()


# --- a broker that restarts --------------------------------------------------------------------


async def test_after_a_restart_both_clients_are_back_and_only_ours_resubscribes(
    node: NodeProcess, real: CreateReal, python: CreatePython
) -> None:
    async with serve_broker(port=0) as first:
        url = first.url
        theirs = await real(url=url, connected=False, maxReconnectDelay=100)
        await theirs.register_tool("theirs")
        await theirs.connect()
        ours = await python(url=url, tools=[_echo("ours")], max_backoff=0.1)
        events = await theirs.subscribe("news.#")
        subscription = ours.subscribe("news.#")
        await subscription.__aenter__()
        await ours.publish("news.first", 1)
        assert (await events.next())["data"] == 1
        assert (await anext(subscription)).data == 1
        agent = ours.agent_id
    await node.wait_logged('Connection to broker "local" lost')
    async with serve_broker(port=urlsplit(url).port or 0) as second:
        await node.wait_logged('Reconnected to broker "local"')
        await within(ours.wait_connected())
        await until(lambda: second.stats()["tools"] == 2)
        assert await ours.invoke("theirs", {"n": 1}) == {"n": 1}
        assert await theirs.invoke_remote("ours", {"n": 2}) == {"n": 2}
        assert ours.agent_id == agent
        await until(lambda: second.stats()["subscriptions"] == 1)
        await theirs.publish("news.second", 2)
        assert (await anext(subscription)).data == 2
        await theirs.synchronise()
        assert events.waiting() == []
        await subscription.__aexit__(None, None, None)
        await theirs.disconnect()
    assert not [line for line in node.logs if line.startswith("warn")]
    node.logs.clear()


async def test_subscribing_again_after_a_restart_works(
    node: NodeProcess, real: CreateReal, relay: Relay
) -> None:
    client = await real(url=relay.url, maxReconnectDelay=100)
    await client.subscribe("news.*")
    relay.cut()
    await node.wait_logged('Reconnected to broker "local"')
    again = await client.subscribe("news.*")
    await client.publish("news.third", 3)
    assert (await again.next())["source"] == client.agent_id
    node.logs.clear()


async def test_calls_in_flight_end_when_the_connection_breaks(
    node: NodeProcess, real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def hold(_input: dict[str, Any], _call: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    await python(tools=[Tool("hold", "", {"type": "object"}, hold)])
    caller = await real(url=relay.url, autoReconnect=False)
    call = asyncio.create_task(caller.invoke_remote("hold", {}))
    await within(begun.wait())
    relay.cut()
    with pytest.raises(ClientError, match="broker disconnected") as raised:
        await call
    assert raised.value.code == "BROKER_NOT_CONNECTED"
    await within(cancelled.wait())
    node.logs.clear()


def _echo(name: str) -> Tool:
    async def handle(tool_input: dict[str, Any], _call: Any) -> Any:
        return tool_input

    return Tool(name, name, {"type": "object"}, handle)
