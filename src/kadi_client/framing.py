"""Messages in a byte stream: ``Content-Length`` headers, or one message a line."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass

from kadi_client.errors import INVALID_REQUEST, PARSE_ERROR, FrameTooLarge, ProtocolError

MAX_HEADER_BYTES = 8192
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]*:")
_LENGTH = re.compile(rb"(?i)content-length:[ \t]*([0-9]{1,18})[ \t]*")


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``headed`` tells whether it came with a ``Content-Length``."""

    body: bytes
    headed: bool


def frame(body: bytes, *, headed: bool = True) -> bytes:
    """Return a JSON message as text for the wire."""
    if headed:
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    # In JSON a raw line break can only be white space between tokens.
    return body.replace(b"\n", b" ") + b"\n"


class MessageReader:
    """Cuts a byte stream into messages, whatever the size of the pieces it is fed.

    Both framings may alternate. What cannot be read is reported once and skipped: a message over
    ``max_bytes`` without keeping it, anything else up to the next line. Memory stays bounded by
    ``max_bytes`` and the last piece fed.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()
        self._found: list[Message | ProtocolError] = []
        self._within_message = self._within_body = False
        self._parser = self._parse()
        next(self._parser)

    def feed(self, data: bytes) -> list[Message | ProtocolError]:
        """Take in a piece of the stream.

        Returns:
            The messages it completes, and an error for each that cannot be read, in order.
        """
        self._buffer += data
        next(self._parser)
        found, self._found = self._found, []
        return found

    def end(self) -> list[Message | ProtocolError]:
        """Take in the end of the stream, which also ends a last line."""
        found = self.feed(b"\n") if self._buffer and not self._within_body else []
        if self._within_message:
            found.append(ProtocolError("the stream ends within a message", code=PARSE_ERROR))
        return found

    def _parse(self) -> Generator[None]:
        """Read messages for ever; yields to wait for more of the stream, as what it calls does."""
        while True:
            line = yield from self._line(self._max_bytes)
            if line is not None and _HEADER.match(line):
                self._within_message = True
                line = yield from self._read_headed(line)
                self._within_message = False
            if line is not None and line.strip():
                self._found.append(Message(line, headed=False))

    def _read_headed(self, line: bytes | None) -> Generator[None, None, bytes | None]:
        """Read the message that begins with a header line; return a line that is not of it."""
        length: int | None = None
        while line:
            if not _HEADER.match(line):
                text = "a message header that does not end"
                self._found.append(ProtocolError(text, code=PARSE_ERROR))
                return line
            if match := _LENGTH.fullmatch(line):
                length = int(match[1])
            line = yield from self._line(MAX_HEADER_BYTES)
        if line is not None:
            yield from self._read_body(length)
        return None

    def _read_body(self, length: int | None) -> Generator[None]:
        if length is None:
            text = "a message header without a valid Content-Length"
            self._found.append(ProtocolError(text, code=INVALID_REQUEST))
        elif length > self._max_bytes:
            self._found.append(FrameTooLarge(length, self._max_bytes))
            self._within_message = False
            while length > len(self._buffer):
                length -= len(self._buffer)
                self._buffer.clear()
                yield
            del self._buffer[:length]
        else:
            self._within_body = True
            while length > len(self._buffer):
                yield
            self._within_body = False
            self._found.append(Message(bytes(self._buffer[:length]), headed=True))
            del self._buffer[:length]

    def _line(self, limit: int) -> Generator[None, None, bytes | None]:
        """Read a line; return ``None`` for one over the limit, which is not kept."""
        scanned, too_long = 0, False
        while (end := self._buffer.find(b"\n", scanned)) < 0:
            if too_long or len(self._buffer) > limit:
                if not too_long:
                    self._found.append(FrameTooLarge(len(self._buffer), limit))
                too_long = True
                self._buffer.clear()
            scanned = len(self._buffer)
            yield
        line = bytes(self._buffer[:end]).removesuffix(b"\r")
        del self._buffer[: end + 1]
        if not too_long and len(line) > limit:
            self._found.append(FrameTooLarge(len(line), limit))
            too_long = True
        return None if too_long else line
