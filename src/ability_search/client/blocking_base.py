"""Run the asynchronous client for synchronous code, which may itself run inside an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from typing import Any, Self, TypeVar

from ability_search.client.search_client import SearchClient

T = TypeVar("T")


class BlockingBase:
    """A :class:`SearchClient` on an event loop in a thread; the generated methods call it."""

    def __init__(
        self,
        url: str | None = None,
        *,
        networks: Sequence[str] | None = None,
        timeout: float = 60.0,
    ) -> None:
        self._client = SearchClient(url, networks=networks, timeout=timeout)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def open(self) -> Self:
        """Connect; does nothing if it is connected."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._loop.run_forever, name="search client", daemon=True
            )
            self._thread.start()
        try:
            self._run(self._client.open())
        except BaseException:
            self._stop()
            raise
        return self

    def close(self) -> None:
        """Disconnect; does nothing if it is not connected."""
        if self._loop is not None:
            try:
                self._run(self._client.close())
            finally:
                self._stop()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; interrupting the wait cancels it.

        Raises:
            RuntimeError: if the client is not open.
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

    def _each(self, items: AsyncIterator[T]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator."""
        missing = object()

        async def following() -> T | object:
            return await anext(items, missing)

        while (item := self._run(following())) is not missing:
            yield item  # type: ignore[misc]

    def _stop(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
