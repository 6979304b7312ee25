"""Reading files, those in risky formats in a child process.

The child is this module, run as ``python -P -m ability_search.files.isolated_reader BYTES``: it
answers requests from standard input on standard output until the input ends. ``BYTES`` is its
maximum address space, on systems that can limit it.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import threading
from contextlib import suppress
from typing import BinaryIO, Self, cast

import msgspec

from ability_search.files.ocr import recognizer
from ability_search.text.loaders import FOREIGN, Bounds, Extracted, Unreadable, extract

_CHILD = "ability_search.files.isolated_reader"
_MEMORY = 2 << 30
"""Maximum address space of the child, in bytes."""
_LENGTH = struct.Struct("<Q")


class Request(msgspec.Struct, frozen=True):
    """A file to read."""

    name: str
    data: bytes
    format: str | None
    bounds: Bounds
    timeout: float


class Reply(msgspec.Struct, frozen=True):
    """The text of a file, or the reason why it cannot be read."""

    found: Extracted | None = None
    problem: str = ""


def write_frame(stream: BinaryIO, message: Request | Reply) -> None:
    """Write the length of a message and the message."""
    body = msgspec.msgpack.encode(message)
    stream.write(_LENGTH.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """Return the next message; ``None`` if the stream ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


class Extractor:
    """A reader of files; formats in :data:`FOREIGN` are read in a child process.

    A file that makes the child crash, hang or use too much memory affects no other file: the child
    is ended, and the next file starts a new one. Methods block and are for one thread at a time,
    except :meth:`close`, which also ends a read in progress.

    Args:
        bounds: Limits for one file.
        timeout: Maximum seconds for one file.
    """

    def __init__(self, bounds: Bounds, *, timeout: float) -> None:
        self._bounds = bounds
        self._timeout = timeout
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def extract(self, name: str, data: bytes, format: str | None) -> Extracted:
        """Read the text of a file, as :func:`ability_search.text.loaders.extract` does.

        Raises:
            Unreadable: if the file has no readable text, or takes longer than the timeout.
        """
        if format not in FOREIGN:
            return extract(name, data, format, self._bounds)
        request = Request(name, data, format, self._bounds, self._timeout)
        child = self._running()
        late = threading.Event()

        def end() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(self._timeout, end)
        timer.start()
        try:
            reply = _ask(child, request)
        finally:
            timer.cancel()
        if reply is None:
            self._end_child()
            if self._closed:
                raise Unreadable("stopped before it was read")
            raise Unreadable(
                f"not read within {self._timeout:g} seconds (file_timeout)"
                if late.is_set()
                else "corrupt: reading it crashed"
            )
        if reply.found is None:
            raise Unreadable(reply.problem)
        return reply.found

    def close(self) -> None:
        """End the child and any read in progress."""
        self._closed = True
        self._end_child()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise Unreadable("stopped before it was read")
            if self._child is None:
                self._child = subprocess.Popen(
                    # -P: never import modules from the working directory.
                    [sys.executable, "-P", "-m", _CHILD, str(_MEMORY)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # Unused threads would reserve address space for every processor.
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
                )
            return self._child

    def _end_child(self) -> None:
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                with suppress(OSError):
                    cast(BinaryIO, stream).close()


def _ask(child: subprocess.Popen[bytes], request: Request) -> Reply | None:
    """Return the reply of the child; ``None`` if it ended."""
    try:
        write_frame(cast(BinaryIO, child.stdin), request)
        body = read_frame(cast(BinaryIO, child.stdout))
    except (OSError, ValueError):
        # The child ended, or another thread closed its streams.
        return None
    return None if body is None else msgspec.msgpack.decode(body, type=Reply)


def answer(body: bytes) -> Reply:
    """Read the file of an encoded request."""
    request = msgspec.msgpack.decode(body, type=Request)
    recognize = recognizer(request.timeout)
    try:
        return Reply(
            extract(request.name, request.data, request.format, request.bounds, recognize=recognize)
        )
    except Unreadable as exc:
        return Reply(problem=str(exc))


def main() -> None:
    """Answer requests from standard input until it ends."""
    _limit_memory(int(sys.argv[1]))
    # Libraries that print must not write between the replies.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        while (body := read_frame(sys.stdin.buffer)) is not None:
            write_frame(out, answer(body))


def _limit_memory(most: int) -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (most, most))


if __name__ == "__main__":
    main()
