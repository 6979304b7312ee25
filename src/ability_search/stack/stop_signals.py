"""When a long-running process has to stop: signals, and the end of its parent."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

log = logging.getLogger(__name__)

_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")
_ORPHAN_SECONDS = 25.0
_READ_BYTES = 4096
_STDIN = 0


@contextmanager
def stop_signals(stop: Callable[[], None], *, ending: bool = False) -> Iterator[None]:
    """Call ``stop`` in the event loop at each SIGINT, SIGTERM and SIGHUP while in the block.

    Args:
        stop: Called without arguments.
        ending: The process ends after the block: a signal that comes then is ignored, so that it
            does not decide the exit code.
    """
    loop = asyncio.get_running_loop()
    known = [getattr(signal, name) for name in _SIGNALS if hasattr(signal, name)]
    # `nohup` has SIGHUP ignored, and that must stay so.
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


def stop_with_parent(stop: Callable[[], None]) -> None:
    """Call ``stop`` when standard input ends, as it does when the parent closes it or dies.

    A process that has not stopped by itself half a minute later is ended: there must be no orphan.
    """
    loop = asyncio.get_running_loop()

    def watch() -> None:
        with suppress(OSError):
            while os.read(_STDIN, _READ_BYTES):
                pass
        # The loop may have ended by itself already.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(stop)
        time.sleep(_ORPHAN_SECONDS)
        log.error("not stopped in time, ended")
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


async def run_until_stopped(
    work: Coroutine[Any, Any, None], supervised: bool = False, *, ending: bool = False
) -> None:
    """Run a coroutine; cancel it at a signal or, if supervised, when standard input ends.

    With ``ending`` the process exits after the coroutine, and later signals are ignored.
    """
    task = asyncio.create_task(work)
    asked = False

    def stop() -> None:
        nonlocal asked
        asked = True
        task.cancel()

    with stop_signals(stop, ending=ending):
        if supervised:
            stop_with_parent(stop)
        try:
            await task
        except asyncio.CancelledError:
            if not asked:
                raise
