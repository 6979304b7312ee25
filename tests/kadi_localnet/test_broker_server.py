from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.interop.kadi_peer import PATIENCE, Peer
from uvloop import new_event_loop
from websockets.exceptions import InvalidStatus
from websockets.frames import Frame, Opcode

from kadi_localnet.broker import Broker, Limits, serve_broker
from kadi_localnet.broker.cluster import Cluster

LIMITS = Limits(handshake_timeout=0.5)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with serve_broker(port=0, limits=LIMITS) as broker:
        yield broker


async def test_both_paths_lead_in_and_no_other(broker: Broker) -> None:
    root = broker.url.removesuffix("/kadi")
    for path in ("/kadi", "/", "", "/kadi?token=x"):
        await Peer.join(root + path)
    for path in ("/other", "/kadi/deeper"):
        with pytest.raises(InvalidStatus) as refused:
            await Peer.open(root + path)
        assert refused.value.response.status_code == 404


async def test_health_is_told_over_plain_http(broker: Broker) -> None:
    await Peer.join(broker.url, tools=["a", "b"])
    async with httpx.AsyncClient(trust_env=False) as client:
        address = broker.url.replace("ws://", "http://").replace("/kadi", "/health")
        answer = await client.get(address)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "status": "ok",
        "brokers": 1,
        "sessions": 1,
        "tools": 2,
        "outstanding_calls": 0,
    }


async def test_browsers_are_refused_unless_their_origin_is_allowed() -> None:
    async with serve_broker(port=0, limits=LIMITS, origins=["http://localhost:3000"]) as broker:
        with pytest.raises(InvalidStatus) as refused:
            await Peer.open(broker.url, origin="https://evil.example")
        assert refused.value.response.status_code == 403
        await (await Peer.open(broker.url, origin="http://localhost:3000")).log_in()
        await (await Peer.open(broker.url)).log_in()


async def test_what_comes_with_the_handshake_is_not_lost(broker: Broker) -> None:
    address = broker.url.removeprefix("ws://").removesuffix("/kadi")
    host, port = address.split(":")
    upgrade = (
        f"GET /kadi HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    pings = [
        Frame(Opcode.TEXT, b'{"id":%d,"method":"kadi.session.ping"}' % id_).serialize(mask=True)
        for id_ in range(3)
    ]
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(PATIENCE):
        writer.write(upgrade.encode() + b"".join(pings))
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        for id_ in range(3):
            assert b'"id":%d,"result":"pong"' % id_ in await reader.readuntil(b"}")
        writer.close()
        await writer.wait_closed()


def test_calls_that_end_at_once_harm_no_connection() -> None:
    request = {"method": "kadi.ability.request", "params": {"toolName": "echo", "timeout": 0.1}}
    calls = b"".join(
        Frame(Opcode.TEXT, json.dumps({"id": id_, **request}).encode()).serialize(mask=True)
        for id_ in ("a", "b")
    )

    async def two_at_once() -> None:
        async with serve_broker(port=0, limits=LIMITS) as broker:
            await Peer.join(broker.url, tools=["echo"])
            caller = await Peer.join(broker.url)
            caller.socket.transport.write(calls)
            for _ in range(2):
                ended = await caller.notified("kadi.ability.response")
                assert "no answer" in ended["params"]["error"]

    with asyncio.Runner(loop_factory=new_event_loop) as runner:  # as the command has it
        runner.run(two_at_once())


async def test_nothing_is_compressed(broker: Broker) -> None:
    peer = await Peer.open(broker.url)
    assert peer.socket.response is not None
    assert "Sec-WebSocket-Extensions" not in peer.socket.response.headers


async def test_a_port_that_is_taken_is_an_error(broker: Broker) -> None:
    port = int(broker.url.rsplit(":", 1)[1].removesuffix("/kadi"))
    with pytest.raises(OSError, match="address already in use"):
        async with serve_broker(port=port):
            pass


async def test_the_end_is_told_to_everybody_and_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with serve_broker(port=0, limits=LIMITS) as broker:
        url = broker.url
        provider, caller = await Peer.join(url, tools=["echo"]), await Peer.join(url)
        await caller.start("echo")
        observers = [asyncio.create_task(peer.closed()) for peer in (provider, caller)]
    assert await asyncio.gather(*observers) == [1001, 1001]
    assert broker.stats()["sessions"] == 0
    await asyncio.gather(provider.leave(), caller.leave())
    assert asyncio.all_tasks() == before
    with pytest.raises(ConnectionRefusedError):
        await Peer.open(url)


async def test_peers_that_do_not_react_cannot_hold_up_the_end() -> None:
    async with asyncio.timeout(PATIENCE):
        async with serve_broker(port=0, limits=LIMITS) as broker:
            port = int(broker.url.rsplit(":", 1)[1].removesuffix("/kadi"))
            mute = socket.create_connection(("127.0.0.1", port))
            publisher, stuck = await Peer.join(broker.url), await Peer.join(broker.url)
            await stuck.request("kadi.event.subscribe", {"channels": ["#"]})
            stuck.socket.transport.pause_reading()
            while not broker.stats()["outbox_frames"]:
                await publisher.request(
                    "kadi.event.publish", {"channel": "c", "data": "x" * 200_000}
                )
            await publisher.leave()
        assert broker.stats()["sessions"] == 0
        mute.close()
        stuck.vanish()


async def test_a_peer_that_ignores_its_close_is_cut_off(broker: Broker) -> None:
    publisher, stuck = await Peer.join(broker.url), await Peer.join(broker.url)
    await stuck.request("kadi.event.subscribe", {"channels": ["#"]})
    stuck.socket.transport.pause_reading()
    async with asyncio.timeout(PATIENCE):
        while not broker.stats()["outbox_frames"]:
            await publisher.request("kadi.event.publish", {"channel": "c", "data": "x" * 200_000})
        await stuck.send({"method": "kadi.session.goodbye"})
        while broker.stats()["connections"] > 1:
            await publisher.synchronise()
    assert broker.stats()["sessions"] == 1
    stuck.vanish()


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("localhost", "localhost"), ("0.0.0.0", "127.0.0.1")],
)
async def test_the_url_leads_to_the_broker(host: str, shown: str) -> None:
    async with serve_broker(host, 0, limits=LIMITS) as broker:
        assert broker.url.startswith(f"ws://{shown}:")
        await Peer.join(broker.url)


async def test_listening_to_the_world_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with serve_broker("0.0.0.0", 0, limits=LIMITS):
        pass
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_large_messages_wait_in_order_while_other_brokers_are_behind(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, caller = await Peer.join(broker.url, tools=["echo"]), await Peer.join(broker.url)
    monkeypatch.setattr(Cluster, "behind", True)
    for number, text in enumerate(["x" * 100_000, "small", "x" * 100_000]):
        params = {"toolName": "echo", "toolInput": {"number": number, "text": text}}
        await caller.send({"id": number, "method": "kadi.ability.request", "params": params})
    async with asyncio.timeout(10):
        while broker.stats()["memory_bytes"] < 100_000:
            await provider.synchronise()
    assert broker.stats()["outstanding_calls"] == 0
    monkeypatch.setattr(Cluster, "behind", False)
    broker._let_go_on()
    for number in range(3):
        asked = await provider.asked()
        assert asked["params"]["toolInput"]["number"] == number


async def test_a_held_message_of_a_client_that_left_is_processed_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "behind", True)
    provider, caller = await Peer.join(broker.url, tools=["echo"]), await Peer.join(broker.url)
    text = {"text": "x" * 100_000}
    params = {"toolName": "echo", "toolInput": text, "targetAgent": provider.agent_id}
    await caller.send({"id": 1, "method": "kadi.ability.request", "params": params})
    async with asyncio.timeout(10):
        while broker.stats()["memory_bytes"] < 100_000:
            await provider.synchronise()
        caller.vanish()
        while broker.stats()["sessions"] > 1:
            await provider.synchronise()
    monkeypatch.setattr(Cluster, "behind", False)
    calls = broker.stats()["outstanding_calls"]
    broker._let_go_on()
    assert broker.stats()["outstanding_calls"] == calls == 0
