"""The client for synchronous code, which may itself run inside an event loop."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from ability_search.client.search_client import SearchClient

P = ParamSpec("P")
T = TypeVar("T")

_ASYNC = re.compile(r"\bawait |\basync (?=for )")
"""Words that examples of blocking methods do without."""


def _blocking(
    method: Callable[Concatenate[SearchClient, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingSearchClient, P], T]:
    """Return a method that runs a method of :class:`SearchClient` and waits for its result."""

    @functools.wraps(method)
    def run(self: BlockingSearchClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._client, *args, **kwargs))

    run.__doc__ = _ASYNC.sub("", method.__doc__ or "")
    return run


class BlockingSearchClient:
    """A :class:`SearchClient` without ``await``; it also works in notebooks.

    Example:
        with BlockingSearchClient() as search:
            note = {"source": "n1", "title": "Backups", "content": "They run at two at night."}
            search.index("notes", [note])
            found = search.query("notes", "when is the data saved?")
            print(found.results[0].content)

    Each method runs the method of the same name on an event loop in a thread, waits for its result
    and raises the same errors.

    Args:
        url: Address of the broker, as for :class:`SearchClient`.
        networks: KADI networks to join. Default: the configured networks.
        timeout: Timeout of a call in seconds; for indexing as for :class:`SearchClient`.
    """

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

    query = _blocking(SearchClient.query)
    similar = _blocking(SearchClient.similar)
    index = _blocking(SearchClient.index)
    index_file = _blocking(SearchClient.index_file)
    reindex = _blocking(SearchClient.reindex)
    delete = _blocking(SearchClient.delete)
    collections = _blocking(SearchClient.collections)
    info = _blocking(SearchClient.info)
    call = _blocking(SearchClient.call)

    def sources(self, collection: str) -> Iterator[str]:
        """Yield the names of all sources in order, reading them page by page.

        Example:
            for source in search.sources("notes"):
                print(source)
        """
        names = self._client.sources(collection)

        async def following() -> str | None:
            return await anext(names, None)

        while (name := self._run(following())) is not None:
            yield name

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

    def _stop(self) -> None:
        loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
