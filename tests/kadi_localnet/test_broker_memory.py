"""Messages that would take a broker's memory or hold its loop, over real sockets."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

import pytest
from tests.interop.kadi_peer import PATIENCE, Peer
from websockets.frames import Frame, Opcode

from kadi_localnet.broker import Broker, Limits, serve_broker

pytestmark = pytest.mark.process

KIB, MIB = 1024, 1024 * 1024
_SIZE = 12 * MIB
_BEAT_S = 0.002
_HELD_S = 0.25
"""The loop is held for some 50 ms at most; a busy machine prolongs that."""

_CALL = b'{"id":1,"method":"kadi.ability.request","params":{"toolName":"echo",%b}}'
_EMPTY = b"{}," * (_SIZE // 3) + b"1"


def serialized(message: bytes) -> bytes:
    return Frame(Opcode.TEXT, message).serialize(mask=True)


def begin(peer: Peer, size: int) -> None:
    """Send the first ``size`` bytes of a message of twice the size."""
    peer.socket.transport.write(serialized(b"x" * 2 * size)[:size])


async def until_held(broker: Broker, size: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while broker.stats()["memory_bytes"] < size:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(_BEAT_S)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(
            lambda: (
                _CALL
                % b'"toolInput":{"_kadi":{},%b}'
                % b",".join(b'"k%07d":1' % number for number in range(_SIZE // 12))
            ),
            id="members beside hints",
        ),
        pytest.param(lambda: _CALL % b'"directReply":[%b]' % _EMPTY, id="option"),
        pytest.param(
            lambda: _CALL % b'"toolInput":{"a":"%b"}' % (b"\\ud800" * (_SIZE // 6)), id="halves"
        ),
        pytest.param(lambda: b'{"id":[%b],"result":1}' % _EMPTY, id="id"),
    ],
)
async def test_no_message_holds_the_loop(message: Callable[[], bytes]) -> None:
    async with serve_broker(port=0) as broker:
        await Peer.join(broker.url, tools=["echo"])
        hostile, other = await Peer.join(broker.url), await Peer.join(broker.url)
        hostile.socket.transport.write(serialized(message()))
        longest = 0.0
        done = asyncio.create_task(hostile.synchronise())
        while not done.done():
            began = time.process_time()
            await asyncio.sleep(_BEAT_S)
            longest = max(longest, time.process_time() - began)
        await done
        await other.synchronise()
    assert longest < _HELD_S


_FRAMES = 60_000
_FLOOD_S = 60.0


@pytest.mark.parametrize("sessions", [1, 20])
@pytest.mark.parametrize(
    ("frame", "count"),
    [
        pytest.param(Frame(Opcode.TEXT, b""), "bad_frames", id="empty"),
        pytest.param(Frame(Opcode.TEXT, b"{}"), "bad_frames", id="no request"),
        pytest.param(Frame(Opcode.TEXT, b'{"method":"","id":1}'), "refused", id="no method"),
    ],
)
async def test_a_flood_of_small_frames_is_processed_in_turns_with_others(
    frame: Frame, count: str, sessions: int
) -> None:
    async with serve_broker(port=0) as broker:
        other = await Peer.join(broker.url)
        hostile = [await Peer.join(broker.url) for _ in range(sessions)]
        for each in hostile:
            each.socket.transport.write(frame.serialize(mask=True) * (_FRAMES // sessions))
        most = before = 0
        # Whoever stops to read is closed, and the rest of the flood is ignored.
        reading = [asyncio.create_task(each.closed(_FLOOD_S)) for each in hostile]
        async with asyncio.timeout(_FLOOD_S):
            while before < _FRAMES:
                await asyncio.sleep(0)
                now = broker.stats()[count]
                most, before = max(most, now - before), now
        assert most < 1_500  # of the 13,000 to 43,000 that one reading may hold
        await other.synchronise()
        for each, task in zip(hostile, reading, strict=True):
            each.vanish()
            task.cancel()


@pytest.mark.parametrize("first", [0, 300 * KIB], ids=["small", "after a large one"])
async def test_a_flood_of_events_to_many_is_processed_in_turns_with_others(first: int) -> None:
    async with serve_broker(port=0) as broker:
        hostile, other = await Peer.join(broker.url), await Peer.join(broker.url)
        subscribers = [await Peer.join(broker.url) for _ in range(100)]
        for each in subscribers:
            await each.request("kadi.event.subscribe", {"pattern": "#"})
            each.socket.transport.pause_reading()
        begin = b'{"method":"kadi.event.publish","params":{"channel":"c","data":"%b"}}'
        flood = serialized(begin % (b"x" * first)) + serialized(begin % b"") * 500
        hostile.socket.transport.write(flood)
        most = before = 0
        async with asyncio.timeout(60):
            while before < 100 * 501:
                await asyncio.sleep(0)
                now = broker.stats()["events_delivered"]
                most, before = max(most, now - before), now
        assert most < 3_000  # of the 4,500 that a slice of one reading may hold, and 50,000 in all
        await other.synchronise()
        for each in subscribers:
            each.vanish()


async def test_a_message_before_authentication_is_not_awaited_beyond_its_limit() -> None:
    async with serve_broker(port=0) as broker:
        stranger = await Peer.open(broker.url)
        begin(stranger, 100 * KIB)
        assert await stranger.closed() == 1009


async def test_small_sessions_are_served_while_memory_is_short_and_the_largest_is_closed() -> None:
    limits = Limits(
        max_message_bytes=MIB, memory_bytes=4 * MIB, patience=0.2, handshake_timeout=0.5
    )
    async with serve_broker(port=0, limits=limits) as broker:
        provider, caller = await Peer.join(broker.url, tools=["echo"]), await Peer.join(broker.url)
        greedy = [await Peer.join(broker.url) for _ in range(5)]
        for each in greedy:
            begin(each, 500 * KIB)
        await until_held(broker, 2 * MIB)
        call = asyncio.create_task(caller.call("echo"))
        await provider.answer(await provider.asked(), "served")
        assert (await call)["result"] == "served"
        async with asyncio.timeout(PATIENCE):
            while not broker.stats()["overflows"]:
                await caller.synchronise()
        assert broker.stats()["memory_bytes"] <= 2 * MIB


async def test_the_rest_of_a_message_is_read_while_memory_is_short() -> None:
    limits = Limits(max_message_bytes=MIB, memory_bytes=4 * MIB)
    async with serve_broker(port=0, limits=limits) as broker:
        provider = await Peer.join(broker.url, tools=["echo"])
        callers = [await Peer.join(broker.url) for _ in range(5)]
        message = serialized(_CALL % b'"toolInput":{"a":"%b"}' % (b"x" * 800 * KIB))
        for each in callers:
            each.socket.transport.write(message[: 500 * KIB])
        await until_held(broker, 2 * MIB)
        for each in callers:
            each.socket.transport.write(message[500 * KIB :])
        for _ in callers:
            await provider.answer(await provider.asked(), "served")
        for each in callers:
            ended = await each.notified("kadi.ability.response")
            assert ended["params"]["result"] == "served"
        assert broker.stats()["overflows"] == 0


_STUCK = 50
_EVENT = 128 * KIB


async def test_subscribers_that_never_read_stop_nobody_and_take_a_bounded_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    limits = Limits(max_message_bytes=4 * MIB, memory_bytes=32 * MIB, event_bytes=2 * _EVENT)
    async with serve_broker(port=0, limits=limits) as broker:
        provider, caller = await Peer.join(broker.url, tools=["echo"]), await Peer.join(broker.url)
        publisher, reader = await Peer.join(broker.url), await Peer.join(broker.url)
        stuck = [await Peer.join(broker.url) for _ in range(_STUCK)]
        for each in (reader, *stuck):
            await each.request("kadi.event.subscribe", {"pattern": "#"})
        for each in stuck:
            each.socket.transport.pause_reading()
            buffers = each.socket.transport.get_extra_info("socket")
            buffers.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        number = 0
        while broker.stats()["events_dropped"] < 20 * _STUCK:
            number += 1
            event = {"channel": "c", "data": f"{number:{_EVENT}}"}
            assert await publisher.request("kadi.event.publish", event) == {"status": "published"}
            received = await reader.notified("kadi.event.delivery")
            assert int(received["params"]["data"]) == number
            call = await caller.start("echo")
            await provider.answer(await provider.asked(), number)
            assert (await caller.outcome(call))["result"] == number
            assert broker.stats()["memory_bytes"] <= limits.memory_bytes // 2
        assert broker.stats()["sessions"] == 4 + _STUCK
        said = [record for record in caplog.records if "does not read" in record.getMessage()]
        assert 0 < len(said) <= _STUCK
        for each in stuck:
            each.vanish()


async def test_a_session_that_reads_no_answers_to_its_pings_is_cut_off() -> None:
    limits = Limits(max_message_bytes=MIB, outbox_bytes=MIB, memory_bytes=64 * MIB)
    async with serve_broker(port=0, limits=limits) as broker:
        hostile, other = await Peer.join(broker.url), await Peer.join(broker.url)
        hostile.socket.transport.pause_reading()
        pings = Frame(Opcode.PING, b"x" * 125).serialize(mask=True) * 1000
        async with asyncio.timeout(PATIENCE):
            while broker.stats()["connections"] > 1:
                if hostile.socket.transport.get_write_buffer_size() < MIB:
                    hostile.socket.transport.write(pings)
                await other.synchronise()
                assert broker.stats()["memory_bytes"] < 2 * MIB
        assert broker.stats()["overflows"] == 1
        hostile.vanish()


async def test_connections_that_do_not_authenticate_give_way_to_others() -> None:
    async with serve_broker(port=0, limits=Limits(connections=6)) as broker:
        provider = await Peer.join(broker.url, tools=["echo"])
        port = int(broker.url.rpartition(":")[2].partition("/")[0])
        strangers = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        half_open = [await Peer.open(broker.url) for _ in range(10)]
        caller = await Peer.join(broker.url)
        call = asyncio.create_task(caller.call("echo"))
        await provider.answer(await provider.asked(), "served")
        assert (await call)["result"] == "served"
        assert broker.stats()["connections"] <= 6
        for _, writer in strangers:
            writer.transport.abort()
        for each in half_open:
            each.vanish()


async def test_a_large_event_for_many_is_sent_in_turns_with_others() -> None:
    async with serve_broker(port=0) as broker:
        publisher = await Peer.join(broker.url)
        subscribers = [await Peer.join(broker.url) for _ in range(40)]
        for each in subscribers:
            await each.request("kadi.event.subscribe", {"pattern": "#"})
        event = {"channel": "c", "data": "x" * 500 * KIB}
        frame = {"id": "p", "method": "kadi.event.publish", "params": event}
        await publisher.send(frame)
        waiting, most, turns = 0, 0, 0
        async with asyncio.timeout(PATIENCE):
            while broker.stats()["events_delivered"] < 40 or waiting:
                await asyncio.sleep(0)
                now = broker.stats()["outbox_bytes"]
                most, turns = max(most, waiting - now), turns + (now < waiting)
                waiting = now
        assert turns > 1
        assert most <= 3 * MIB
        for each in subscribers:
            delivered = await each.notified("kadi.event.delivery")
            assert len(delivered["params"]["data"]) == 500 * KIB
