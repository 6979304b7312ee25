from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from websockets.asyncio.client import connect
from websockets.asyncio.connection import Connection
from websockets.exceptions import ConnectionClosed
from websockets.frames import DATA_OPCODES, Frame, Opcode
from websockets.protocol import CLIENT, CLOSING, SERVER, Protocol, Side
from websockets.utils import accept_key

from kadi_client.sockets import ClientSocket, MessageSocket

MOST = 70_000
TEXT, BINARY, CONTINUED, PING = 0x81, 0x82, 0x80, 0x89
BEGUN, GOES_ON, RESERVED, UNKNOWN = 0x01, 0x00, 0xC1, 0x83
LARGE = st.sampled_from((125, 126, 127, 65_535, 65_536, MOST, MOST + 1)).map(bytes)
S = TypeVar("S", bound=Connection)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.written.append(b"the end")


class Reference(Connection):
    """Takes every frame from the library."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.messages: list[bytes] = []
        self.begun = b""

    def process_event(self, event: Any) -> None:
        if not isinstance(event, Frame) or event.opcode not in DATA_OPCODES:
            super().process_event(event)
            return
        self.begun += event.data
        if event.fin:
            self.messages.append(self.begun)
            self.begun = b""


def opened(kind: type[S], side: Side) -> tuple[S, Wire]:
    """An end of a connection whose handshake is over."""
    socket, wire = kind(Protocol(side, max_size=MOST)), Wire()
    socket.connection_made(wire)
    return socket, wire


def frame(first: int, data: bytes, *, masked: bool) -> bytes:
    return bytes([first]) + Frame(Opcode.TEXT, data).serialize(mask=masked)[1:]


async def taken(socket: MessageSocket) -> list[bytes]:
    """The messages that are delivered."""
    messages: list[bytes] = []
    delivering = asyncio.create_task(socket.deliver(messages.append))
    await asyncio.sleep(0)
    delivering.cancel()
    return messages


@given(
    side=st.sampled_from([CLIENT, SERVER]),
    frames=st.lists(
        st.tuples(
            st.sampled_from([TEXT] * 6 + [BINARY, PING, BEGUN, GOES_ON, CONTINUED])
            | st.sampled_from([TEXT] * 9 + [RESERVED, UNKNOWN]),
            st.binary(max_size=20) | LARGE,
            st.sampled_from([True] * 29 + [False]),
        ),
        max_size=8,
    ),
    cuts=st.lists(st.floats(0, 1), max_size=8),
    tiny=st.booleans(),
)
@settings(max_examples=examples(300), deadline=None)
async def test_frames_in_pieces_are_read_as_the_library_reads_them(
    side: Side, frames: list[tuple[int, bytes, bool]], cuts: list[float], tiny: bool
) -> None:
    data = b"".join(frame(a, b, masked=(side is SERVER) == well) for a, b, well in frames)
    step = 1 if tiny and len(data) < 500 else max(1, len(data))
    places = sorted({*range(0, len(data), step), len(data), *(int(at * len(data)) for at in cuts)})
    await compare(side, (data[begin:end] for begin, end in pairwise(places)))


@pytest.mark.parametrize("side", [CLIENT, SERVER])
@pytest.mark.parametrize("size", [MOST, MOST + 1])
async def test_the_size_of_a_message_is_limited(side: Side, size: int) -> None:
    data = frame(TEXT, bytes(size), masked=side is SERVER)
    await compare(side, (data, frame(TEXT, b"next", masked=side is SERVER)))


async def compare(side: Side, pieces: Iterable[bytes]) -> None:
    """Compare what comes of data with what comes of it in the library."""
    socket, wire = opened(MessageSocket, side)
    reference, expected = opened(Reference, side)
    first = frame(PING, b"", masked=side is SERVER)
    for piece in (first, *pieces):
        socket.data_received(piece)
        reference.data_received(piece)
    assert await taken(socket) == reference.messages
    assert socket.protocol.state is reference.protocol.state
    assert socket.protocol.close_sent == reference.protocol.close_sent
    if side is SERVER:
        assert b"".join(wire.written) == b"".join(expected.written)
    else:  # the masks differ
        assert len(b"".join(wire.written)) == len(b"".join(expected.written))


@pytest.mark.parametrize("side", [CLIENT, SERVER])
async def test_messages_are_written_as_frames_that_the_library_reads(side: Side) -> None:
    messages = [b"", b"x", *(b"x" * size for size in (125, 126, 127, 65_535, 65_536, MOST))]
    socket, wire = opened(MessageSocket, side)
    socket.send_at_once(iter([*messages, None]).__next__)
    peer = Protocol(SERVER if side is CLIENT else CLIENT, max_size=MOST)
    peer.receive_data(b"".join(wire.written))
    assert peer.events_received() == [Frame(Opcode.TEXT, each) for each in messages]


async def test_a_message_to_a_connection_that_closes_is_dropped() -> None:
    socket, wire = opened(MessageSocket, SERVER)
    socket.protocol.state = CLOSING
    socket.send_at_once(iter([b"late", None]).__next__)
    assert wire.written == []


async def test_frames_that_come_with_the_handshake_are_delivered() -> None:
    frames = b"".join(frame(TEXT, each, masked=False) for each in (b"first", b"second", b"third"))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        key = request.partition("Sec-WebSocket-Key: ")[2].split("\r\n")[0]
        head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += f"Sec-WebSocket-Accept: {accept_key(key)}\r\n\r\n"
        writer.write(head.encode() + frames[:9])  # all of the first and two bytes of the second
        await connected.wait()
        writer.write(frames[9:])
        writer.close()

    messages: list[bytes] = []
    connected = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        socket = await connect(url, create_connection=ClientSocket, compression=None)
        connected.set()
        with pytest.raises(ConnectionClosed):
            await cast(ClientSocket, socket).deliver(messages.append)
    assert messages == [b"first", b"second", b"third"]
