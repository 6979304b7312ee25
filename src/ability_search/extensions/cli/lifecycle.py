"""Signals, end of the parent, and heartbeat of a long-running process."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from ability_search.ops.metrics.meter import Meter
from ability_search.ops.metrics.metric_table import LOOP_HELD_SECONDS

log = logging.getLogger(__name__)

BEAT_SECONDS = 5.0
"""Interval between two signs of life."""
_RETURN_SECONDS = 30.0
"""Interval at which garbage is collected and freed memory is returned."""
_TICK_SECONDS = 0.1
_WARNING_SECONDS = 1.0
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_ORPHAN_SECONDS = 25.0
_STDIN = 0


@contextmanager
def stop_signals(stop: Callable[[], None], *, ending: bool = False) -> Iterator[None]:
    """Call ``stop`` in the event loop at each SIGINT, SIGTERM and SIGHUP while in the block.

    Args:
        stop: Called without arguments.
        ending: The process ends after the block: a later signal is ignored, so that it does not
            change the exit code.
    """
    loop = asyncio.get_running_loop()
    known = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    # `nohup` ignores SIGHUP; keep it ignored.
    numbers = [
        number
        for number in known
        if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN
    ]
    if sys.platform == "win32":
        before = {
            number: signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
            for number in numbers
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            if ending:
                signal.signal(number, signal.SIG_IGN)


def stop_with_parent(stop: Callable[[], None], received: Callable[[bytes], None]) -> None:
    """Call ``stop`` when standard input ends, as it does when the parent closes it or dies.

    Each of its lines before is passed to ``received``. If the process is still alive half a minute
    after the end, it exits at once, so that no orphan remains.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with suppress(OSError, RuntimeError), open(_STDIN, "rb", closefd=False) as lines:
            for line in lines:
                loop.call_soon_threadsafe(received, line)
        # The loop may have ended by itself already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(stop)
        time.sleep(_ORPHAN_SECONDS)
        log.error("not stopped in time; exiting")
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


async def run_until_stopped(
    work: Coroutine[Any, Any, None],
    received: Callable[[bytes], None] | None = None,
    *,
    ending: bool = False,
) -> None:
    """Run a coroutine; cancel it at a signal.

    With ``received`` the process is that of a parent: the coroutine is also cancelled when standard
    input ends, see :func:`stop_with_parent`. With ``ending`` the process exits after the coroutine,
    and later signals are ignored.
    """
    task = asyncio.create_task(work)
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    with stop_signals(stop, ending=ending):
        if received is not None:
            stop_with_parent(stop, received)
        try:
            await task
        except asyncio.CancelledError:
            if not asked:
                raise


@asynccontextmanager
async def heartbeat(meter: Meter, beat: Callable[[], None] | None = None) -> AsyncIterator[None]:
    """Measure during the block how long the event loop is held, and call ``beat`` from it.

    Memory that was freed goes back to the system.

    Args:
        meter: Receives the measurements.
        beat: Called every ``BEAT_SECONDS``.
    """
    tasks = [
        asyncio.create_task(_tick(meter, beat), name="heartbeat"),
        asyncio.create_task(_return_memory(), name="freed memory"),
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _return_memory() -> None:
    while True:
        await asyncio.sleep(_RETURN_SECONDS)
        gc.collect()
        await asyncio.to_thread(return_freed_memory)


async def _tick(meter: Meter, beat: Callable[[], None] | None) -> None:
    beats = time.monotonic()
    while True:
        # The clock of the loop may stand still during a callback.
        due, worked = time.monotonic() + _TICK_SECONDS, time.thread_time()
        await asyncio.sleep(_TICK_SECONDS)
        now = time.monotonic()
        held = max(0.0, now - due)
        meter.observe(LOOP_HELD_SECONDS, held)
        if held > _WARNING_SECONDS:
            # The rest is time in which the process was paused, or had no processor.
            own = min(held, time.thread_time() - worked)
            log.warning("the event loop was held for %.1f s, %.1f s of it by its work", held, own)
        if beat is not None and now >= beats:
            beat()
            beats = now + BEAT_SECONDS


def return_freed_memory() -> None:
    """Return freed memory to the system, if the C library is glibc.

    After documents of megabytes it keeps hundreds of megabytes in the heaps of the threads that
    read them. Takes milliseconds, without the interpreter lock; for a thread.
    """
    if sys.platform == "linux" and hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def write_beat() -> None:
    """Write an empty line to standard output, unless its buffer is full."""
    descriptor = sys.stdout.fileno()
    if sys.platform != "win32":
        os.set_blocking(descriptor, False)
    with suppress(OSError):
        os.write(descriptor, b"\n")
