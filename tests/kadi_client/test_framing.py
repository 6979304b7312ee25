from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_client.errors import FrameTooLarge, ProtocolError
from kadi_client.framing import MAX_HEADER_BYTES, Message, MessageReader, frame


def read(*pieces: bytes, max_bytes: int = 100) -> list[bytes | type[ProtocolError]]:
    reader = MessageReader(max_bytes)
    items = [item for piece in pieces for item in reader.feed(piece)] + reader.end()
    return [item.body if isinstance(item, Message) else type(item) for item in items]


def test_both_framings_may_alternate() -> None:
    stream = frame(b'{"a":1}') + frame(b'{"b":2}', headed=False) + b"\r\n\n" + frame(b"{}")
    items = MessageReader(100).feed(stream)
    assert items == [
        Message(b'{"a":1}', headed=True),
        Message(b'{"b":2}', headed=False),
        Message(b"{}", headed=True),
    ]


@pytest.mark.parametrize(
    "stream",
    [
        b"content-length:2\n\n{}",
        b"Content-Type: application/json\r\nCONTENT-LENGTH: 2 \r\n\r\n{}",
        b"{}\r\n",
        b"{}",
    ],
)
def test_headers_and_line_ends_are_read_leniently(stream: bytes) -> None:
    assert read(stream) == [b"{}"]


def test_line_breaks_inside_json_do_not_break_lines() -> None:
    assert read(frame(b'{"a":\n1}', headed=False)) == [b'{"a": 1}']
    assert read(frame(b'{"a":\n1}')) == [b'{"a":\n1}']


@pytest.mark.parametrize(
    ("stream", "kind"),
    [
        (b"Content-Length: 101\r\n\r\n" + b"x" * 101, FrameTooLarge),
        (b'"' + b"x" * 200 + b'"\n', FrameTooLarge),
        (b"Content-Length: none\r\n\r\n", ProtocolError),
        (b"Content-Length: -1\r\n\r\n", ProtocolError),
        (b"INFO: starting\n", ProtocolError),
    ],
)
def test_what_cannot_be_read_is_reported_and_skipped(
    stream: bytes, kind: type[ProtocolError]
) -> None:
    following = frame(b"{}", headed=False) + frame(b"[]")
    assert read(stream + following) == [kind, b"{}", b"[]"]
    singles = [bytes([byte]) for byte in stream + following]
    assert read(*singles) == [kind, b"{}", b"[]"]


@pytest.mark.parametrize("stream", [b"Content-Length: 5\r\n\r\n{}", b"Content-Length: 5\r\n"])
def test_a_stream_that_ends_within_a_message_says_so(stream: bytes) -> None:
    assert read(stream) == [ProtocolError]


def test_memory_stays_bounded() -> None:
    reader = MessageReader(1000)
    items = []
    for _ in range(100):
        items += reader.feed(b"x" * 500)
        assert len(reader._buffer) <= 1500
    assert [type(item) for item in items] == [FrameTooLarge]
    reader.feed(b"\nContent-Length: 1000000\r\n\r\n")
    for _ in range(100):
        reader.feed(b"x" * 500)
        assert not reader._buffer
    reader = MessageReader(10 * MAX_HEADER_BYTES)
    reader.feed(b"A: b\n")
    assert any(reader.feed(b"x" * MAX_HEADER_BYTES) for _ in range(2))


@given(st.data(), st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=6))
def test_the_pieces_a_stream_comes_in_make_no_difference(
    data: st.DataObject, parts: list[tuple[bytes, bool]]
) -> None:
    stream = b"".join(frame(body) if headed else body + b"\n" for body, headed in parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    edges = [0, *cuts, len(stream)]
    pieces = [stream[start:end] for start, end in zip(edges, edges[1:], strict=False)]
    assert read(*pieces) == read(stream)


@given(st.lists(st.tuples(st.binary(max_size=60), st.booleans()), max_size=6))
def test_messages_survive_the_round_trip(parts: list[tuple[bytes, bool]]) -> None:
    bodies = [b'{"x":' + body.hex().encode() + b"}" for body, _ in parts]
    stream = b"".join(
        frame(body, headed=headed) for body, (_, headed) in zip(bodies, parts, strict=True)
    )
    assert read(stream, max_bytes=1000) == bodies
