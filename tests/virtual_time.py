"""A clock that jumps over waits, for tests of delays and deadlines.

What is tested must wait for timers only, not for sockets or threads.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec
from unittest.mock import patch

P = ParamSpec("P")


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while something runs.

    When everything waits it jumps to the next timer.
    """

    def __init__(self) -> None:
        super().__init__(_Jumping(self))
        self.now = 0.0

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "all tasks wait for each other"
            self._loop.now += timeout
        return ready


def without_waiting(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in a virtual loop, which also tells ``time.monotonic``."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = VirtualLoop()
        with (
            asyncio.Runner(loop_factory=lambda: loop) as runner,
            patch.object(time, "monotonic", loop.time),
        ):
            runner.run(test(*args, **kwargs))

    return run


async def later(seconds: float) -> None:
    """Let so many seconds pass in a virtual loop."""
    assert isinstance(asyncio.get_running_loop(), VirtualLoop)
    await asyncio.sleep(seconds)


def elapsed() -> float:
    """Seconds since the begin of the test in a virtual loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.now
