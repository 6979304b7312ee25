"""What passes between this process and the one that reads files."""

from __future__ import annotations

import struct
from typing import BinaryIO

import msgspec

from ability_search.text.loaders import Bounds, Extracted

_LENGTH = struct.Struct("<Q")


class Request(msgspec.Struct, frozen=True):
    """A file to read."""

    name: str
    data: bytes
    format: str | None
    bounds: Bounds


class Reply(msgspec.Struct, frozen=True):
    """What was read of it, or why nothing could be."""

    found: Extracted | None = None
    problem: str = ""


def write_frame(stream: BinaryIO, message: Request | Reply) -> None:
    """Write one message, after its length."""
    body = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next message; ``None`` if the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None
