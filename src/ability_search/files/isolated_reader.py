"""Reading files, the risky ones in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO, Self, cast

import msgspec

from ability_search.files.reader_messages import Reply, Request, read_frame, write_frame
from ability_search.text.loaders import FOREIGN, Bounds, Extracted, Unreadable, extract

_CHILD = "ability_search.files.reader_process"
_MEMORY = 2 << 30
"""Bytes of address space that reading a file may take."""


class Extractor:
    """Reads files, those in formats of :data:`FOREIGN` in a child process.

    A file that makes the child crash, hang or take too much memory costs itself only: the child is
    ended, and the next file gets a new one. Blocks; for one thread at a time, except for
    :meth:`close`, which ends what is going on.

    Args:
        bounds: How much may be read from one file.
        timeout: Seconds for one file.
    """

    def __init__(self, bounds: Bounds, *, timeout: float) -> None:
        self._bounds = bounds
        self._timeout = timeout
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def extract(self, name: str, data: bytes, format: str | None) -> Extracted:
        """Read the text of a file, as :func:`ability_search.text.loaders.extract` does.

        Raises:
            Unreadable: if there is no text that can be read, or not in time.
        """
        if format not in FOREIGN:
            return extract(name, data, format, self._bounds)
        request = Request(name, data, format, self._bounds)
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
        """End the child; what is being read then is not."""
        self._closed = True
        self._end_child()

    def _running(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise Unreadable("stopped before it was read")
            if self._child is None:
                self._child = subprocess.Popen(
                    # -P: the working directory may hold anything, also modules.
                    [sys.executable, "-P", "-m", _CHILD, str(_MEMORY)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    # Threads that nothing uses would reserve memory for every processor.
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
    """The child's answer; ``None`` if it is gone."""
    try:
        write_frame(cast(BinaryIO, child.stdin), request)
        body = read_frame(cast(BinaryIO, child.stdout))
    except (OSError, ValueError):
        # Gone, or closed by another thread.
        return None
    return None if body is None else msgspec.msgpack.decode(body, type=Reply)
