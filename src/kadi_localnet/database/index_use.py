"""Keeps drops of types apart from searches of their vector indexes.

In the engine, a search holds the lock of its vector index and waits for that of the database, while
a drop holds that of the database and waits for that of the index: if they meet, neither ends, and
nothing else in the database does.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from kadi_localnet.database.backend import Statement

PATIENCE = 5.0
"""Seconds for which a drop waits for searches: one that takes longer builds a graph first, for
which it does not hold the lock."""
_PAUSE = 0.002

_SEARCHED = re.compile(r"vectorNeighbors`?\(\s*+'([^'\[]++)\[", re.IGNORECASE)
_DROPPED = re.compile(r"\bDROP\s++(?:TYPE|INDEX)\s++`?([^\s`\[;]++)", re.IGNORECASE)


class IndexUse:
    """The types whose vector indexes are being searched, or dropped."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.searched: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()

    @contextmanager
    def of(
        self, statements: Iterable[Statement], pause: Callable[[float], None] = time.sleep
    ) -> Iterator[None]:
        """Use the types that the statements search or drop, as soon as that is possible.

        Args:
            statements: Statements to run in the block.
            pause: Waits for some seconds; may raise to give up.
        """
        with _waiting(_Use(self, *_types(statements)), pause):
            yield

    @contextmanager
    def searching(self, name: str) -> Iterator[None]:
        """Search the vector index of a type once that type is not being dropped."""
        with _waiting(_Use(self, [name], []), time.sleep):
            yield

    @asynccontextmanager
    async def on_server(self, statements: Iterable[Statement]) -> AsyncIterator[None]:
        """Use the types, as :meth:`of`, for statements that a server runs.

        A server does not notice that nobody waits for a statement any more, so after a timeout or
        a cancellation the types stay in use for ``PATIENCE``.
        """
        use = _Use(self, *_types(statements))
        given_up = False
        try:
            for seconds in use.waits():
                await asyncio.sleep(seconds)
            try:
                yield
            except (TimeoutError, asyncio.CancelledError):
                given_up = True
                raise
        finally:
            if given_up:
                asyncio.get_running_loop().call_later(PATIENCE, use.end)
            else:
                use.end()


class _Use:
    """The use of types by one call: those that it searches and those that it drops."""

    def __init__(self, indexes: IndexUse, searched: Iterable[str], dropped: Iterable[str]) -> None:
        self._indexes = indexes
        self._searched = Counter(set(searched))
        self._dropped = Counter(set(dropped))
        self._has_begun = False

    def waits(self) -> Iterator[float]:
        """Begin the use: yield seconds to wait, until the call may run.

        A drop goes before searches that ask later.
        """
        while not self._begun():
            yield _PAUSE
        deadline = time.monotonic() + PATIENCE
        while self._dropped and self._in_use() and time.monotonic() < deadline:
            yield _PAUSE

    def end(self) -> None:
        """End the use, if it has begun."""
        if self._has_begun:
            with self._indexes.lock:
                self._indexes.searched -= self._searched
                self._indexes.dropped -= self._dropped

    def _begun(self) -> bool:
        indexes = self._indexes
        with indexes.lock:
            if not indexes.dropped.keys() & self._searched.keys():
                indexes.searched += self._searched
                indexes.dropped += self._dropped
                self._has_begun = True
        return self._has_begun

    def _in_use(self) -> bool:
        with self._indexes.lock:
            return bool(self._indexes.searched.keys() & self._dropped.keys())


@contextmanager
def _waiting(use: _Use, pause: Callable[[float], None]) -> Iterator[None]:
    try:
        for seconds in use.waits():
            pause(seconds)
        yield
    finally:
        use.end()


def dropped_types(statements: Iterable[Statement]) -> list[str]:
    """Return the types that statements drop, or of which they drop an index."""
    return _types(statements)[1]


def _types(statements: Iterable[Statement]) -> tuple[list[str], list[str]]:
    """Return the types that statements search, and those that they drop."""
    text = " ".join(each.text for each in statements)
    return _SEARCHED.findall(text), _DROPPED.findall(text)
