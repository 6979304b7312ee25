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
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

PATIENCE = 5.0
"""Seconds for which a drop waits for searches: one that takes longer builds a graph first, for
which it does not hold the lock."""
_PAUSE = 0.002

_SEARCHED = re.compile(r"vectorNeighbors`?\(\s*+'([^'\[]++)\[", re.IGNORECASE)
_DROPPED = re.compile(r"\bDROP\s++(?:TYPE|INDEX)\s++`?([^\s`\[;]++)", re.IGNORECASE)


_Types = Counter[tuple[str, str]]
"""Types as ``(database, name)``, each with the number of calls that use it."""


@dataclass(slots=True)
class Use:
    """The use of types by the statements of a call."""

    running: Future[Any] | None = None
    """The work of the call in a thread, which goes on if nobody waits for it any more."""


class IndexUse:
    """The types whose vector indexes are being searched, or dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.searched: _Types = Counter()
        self.dropped: _Types = Counter()

    @asynccontextmanager
    async def of(
        self, database: str, texts: Iterable[str], *, searched: Iterable[str] = ()
    ) -> AsyncIterator[Use]:
        """Use the types that statements search or drop, and those ``searched``, when possible.

        A drop goes before searches that ask later. The engine may not notice at once that nobody
        waits for a statement any more, so after a timeout or a cancellation the types stay in use
        until :attr:`Use.running` has ended, else for ``PATIENCE``.
        """
        text = " ".join(texts)
        names = {*_SEARCHED.findall(text), *searched}
        used = Counter({(database, name) for name in names})
        dropped = Counter({(database, name) for name in dropped_types(text)})
        while not self._begin(used, dropped):  # noqa: ASYNC110 - a thread may use them, too
            await asyncio.sleep(_PAUSE)
        use, given_up = Use(), False
        try:
            deadline = time.monotonic() + PATIENCE
            while self._is_searched(dropped) and time.monotonic() < deadline:  # noqa: ASYNC110
                await asyncio.sleep(_PAUSE)
            try:
                yield use
            except (TimeoutError, asyncio.CancelledError):
                given_up = True
                raise
        finally:
            if use.running is not None:
                use.running.add_done_callback(lambda _: self._end(used, dropped))
            elif given_up:
                asyncio.get_running_loop().call_later(PATIENCE, self._end, used, dropped)
            else:
                self._end(used, dropped)

    @contextmanager
    def searching(self, database: str, name: str) -> Iterator[None]:
        """Search the vector index of a type, in a thread, once that type is not being dropped."""
        searched = Counter({(database, name)})
        while not self._begin(searched, Counter()):
            time.sleep(_PAUSE)
        try:
            yield
        finally:
            self._end(searched, Counter())

    def _begin(self, searched: _Types, dropped: _Types) -> bool:
        with self._lock:
            may_begin = self.dropped.keys().isdisjoint(searched)
            if may_begin:
                self.searched += searched
                self.dropped += dropped
        return may_begin

    def _end(self, searched: _Types, dropped: _Types) -> None:
        with self._lock:
            self.searched -= searched
            self.dropped -= dropped

    def _is_searched(self, names: _Types) -> bool:
        with self._lock:
            return not self.searched.keys().isdisjoint(names)


def dropped_types(text: str) -> list[str]:
    """Return the types that statements drop, or of which they drop an index."""
    return _DROPPED.findall(text)
