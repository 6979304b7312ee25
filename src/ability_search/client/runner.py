"""Runs coroutines for synchronous code, which may itself run inside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Runner:
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Return whether the loop is running."""
        return self._loop is not None

    def start(self) -> None:
        """Start the loop; does nothing if it is running."""
        if self._loop is not None:
            return
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="search client", daemon=True
        )
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; interrupting the wait cancels it.

        Raises:
            RuntimeError: if the loop is not running.
        """
        if self._loop is None:
            work.close()
            raise RuntimeError("not open: use `with BlockingSearchClient(...) as search`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        missing = object()

        async def following() -> T | object:
            return await anext(items, missing)

        while (item := self.run(following())) is not missing:
            yield item  # type: ignore[misc]

    def stop(self) -> None:
        """Stop the loop and its thread."""
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
