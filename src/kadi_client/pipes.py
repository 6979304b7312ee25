"""Blocking byte streams, read and written in separate threads.

The event loop can watch a pipe but not a regular file, and making a terminal non-blocking also
affects the shell and our own standard error. Threads work for all of them. They are daemon
threads, so that one stuck in a system call does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import select
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)

PIECE_BYTES = 64 * 1024
UNREAD_PIECES = 16
FINISH_SECONDS = 5.0


class PipeReader:
    """A reader that returns a stream piece by piece, at most ``UNREAD_PIECES`` pieces ahead.

    It works on a duplicate of ``fd``; the owner may close ``fd`` at any time.
    """

    def __init__(self, fd: int) -> None:
        self._fd = os.dup(fd)
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(UNREAD_PIECES)
        self._stopped = False
        threading.Thread(target=self._read, name="kadi-stdin", daemon=True).start()

    async def next(self) -> bytes:
        """Return the next piece; empty at the end of the stream and after :meth:`stop`."""
        if self._stopped and self._pieces.empty():
            return b""
        piece = await self._pieces.get()
        self._room.release()
        return piece

    def stop(self) -> None:
        """Stop reading; a pending :meth:`next` returns."""
        self._stopped = True
        self._pieces.put_nowait(b"")
        self._room.release()

    def _read(self) -> None:
        piece = b"-"
        try:
            while piece:
                self._room.acquire()
                if self._stopped:
                    return
                piece = self._read_piece()
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:
            logger.debug("the event loop was closed before the input ended")
        finally:
            os.close(self._fd)

    def _read_piece(self) -> bytes:
        while True:
            try:
                return os.read(self._fd, PIECE_BYTES)
            except BlockingIOError:
                select.select([self._fd], [], [])
            except OSError as exc:
                logger.warning("input lost: %s", exc)
                return b""


class PipeWriter:
    """A writer that keeps order. ``on_broken`` is called once if the other end is closed.

    It works on a duplicate of ``fd``, which is closed once everything is written.
    """

    def __init__(self, fd: int, on_broken: Callable[[], None]) -> None:
        self._fd = os.dup(fd)
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes | asyncio.Event | None] = queue.SimpleQueue()
        self.broken = False
        threading.Thread(target=self._write, name="kadi-stdout", daemon=True).start()

    def put(self, data: bytes) -> None:
        """Queue bytes to be written, without waiting."""
        self._queue.put(data)

    async def drain(self) -> None:
        """Wait until what is queued is written, or the other end is closed."""
        written = asyncio.Event()
        self._queue.put(written)
        await written.wait()

    async def finish(self) -> None:
        """Write what is queued; give up after ``FINISH_SECONDS``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                await self.drain()
        self._queue.put(None)

    def _write(self) -> None:
        try:
            while (item := self._queue.get()) is not None:
                if isinstance(item, asyncio.Event):
                    self._loop.call_soon_threadsafe(item.set)
                elif not self.broken:
                    self._write_all(item)
        except RuntimeError:
            logger.debug("the event loop was closed before the output was written")
        finally:
            os.close(self._fd)

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:
                select.select([], [self._fd], [])
            except OSError as exc:
                logger.warning("output lost: %s", exc)
                self.broken = True
                self._loop.call_soon_threadsafe(self._on_broken)
                return
