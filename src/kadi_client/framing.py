"""Messages in a byte stream: ``Content-Length`` headers, or one message a line."""

from __future__ import annotations

import re
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
        self._scanned = 0
        self._in_header = False
        self._length: int | None = None
        self._body: int | None = None
        self._skip = 0
        self._skip_line = False

    def feed(self, data: bytes) -> list[Message | ProtocolError]:
        """Take in a piece of the stream.

        Returns:
            The messages it completes, and an error for each that cannot be read, in order.
        """
        self._buffer += data
        found: list[Message | ProtocolError] = []
        while self._step(found):
            pass
        return found

    def end(self) -> list[Message | ProtocolError]:
        """Take in the end of the stream, which also ends a last line."""
        found: list[Message | ProtocolError] = []
        if self._buffer and self._body is None and not self._skip_line:
            found = self.feed(b"\n")
        if self._body is not None or self._in_header:
            found.append(ProtocolError("the stream ends within a message", code=PARSE_ERROR))
        self._buffer.clear()
        return found

    def _step(self, found: list[Message | ProtocolError]) -> bool:
        """Consume one unit from the buffer; False if more input is needed for it."""
        if self._skip:
            return self._discard()
        if self._body is not None:
            return self._take_body(self._body, found)
        line = self._take_line(found)
        if line is None:
            return False
        if _HEADER.match(line) or (self._in_header and not line):
            self._take_header(line, found)
            return True
        if self._in_header:
            self._in_header, self._length = False, None
            found.append(ProtocolError("a message header that does not end", code=PARSE_ERROR))
        if line.strip():
            found.append(self._checked(line))
        return True

    def _discard(self) -> bool:
        size = min(self._skip, len(self._buffer))
        del self._buffer[:size]
        self._skip -= size
        return size > 0

    def _take_body(self, size: int, found: list[Message | ProtocolError]) -> bool:
        if len(self._buffer) < size:
            return False
        found.append(Message(bytes(self._buffer[:size]), headed=True))
        del self._buffer[:size]
        self._body = None
        return True

    def _take_line(self, found: list[Message | ProtocolError]) -> bytes | None:
        end = self._buffer.find(b"\n", self._scanned)
        limit = MAX_HEADER_BYTES if self._in_header else self._max_bytes
        if end < 0:
            self._scanned = len(self._buffer)
            if self._scanned > limit:
                self._too_long(limit, found)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        if self._skip_line:
            self._skip_line = False
            return b""
        return line.removesuffix(b"\r")

    def _too_long(self, limit: int, found: list[Message | ProtocolError]) -> None:
        """Drop a line that is too long already; the rest of it is dropped as it comes."""
        if not self._skip_line:
            found.append(FrameTooLarge(len(self._buffer), limit))
        self._skip_line = True
        self._in_header = False
        self._length = None
        self._scanned = 0
        self._buffer.clear()

    def _take_header(self, line: bytes, found: list[Message | ProtocolError]) -> None:
        self._in_header = True
        if line:
            match = _LENGTH.fullmatch(line)
            if match:
                self._length = int(match[1])
            return
        self._in_header = False
        length, self._length = self._length, None
        if length is None:
            text = "a message header without a valid Content-Length"
            found.append(ProtocolError(text, code=INVALID_REQUEST))
        elif length > self._max_bytes:
            found.append(FrameTooLarge(length, self._max_bytes))
            self._skip = length
        else:
            self._body = length

    def _checked(self, line: bytes) -> Message | ProtocolError:
        if len(line) > self._max_bytes:
            return FrameTooLarge(len(line), self._max_bytes)
        return Message(line, headed=False)
