"""Keeps drops of types apart from searches of their vector indexes.

In the engine, a search holds the lock of its vector index and waits for that of the database, while
a drop holds that of the database and waits for that of the index: if they meet, neither ends, and
nothing else in the database does.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from kadi_localnet.database.backend import Statement

PATIENCE = 5.0
"""Seconds for which a drop waits for searches: one that takes longer builds a graph first, for
which it does not hold the lock."""
_PAUSE = 0.002

_SEARCHED = re.compile(r"vectorNeighbors`?\(\s*+'([^'\[]++)\[", re.IGNORECASE)
_DROPPED = re.compile(r"\bDROP\s++(?:TYPE|INDEX)\s++`?([^\s`\[;]++)", re.IGNORECASE)


class IndexUse:
    """The types of one database whose vector indexes are being searched, or dropped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._searched: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()

    @contextmanager
    def of(
        self, statements: Iterable[Statement], pause: Callable[[float], None] = time.sleep
    ) -> Iterator[None]:
        """Use the types that the statements search or drop, as soon as that is possible.

        Args:
            statements: Statements to run in the block.
            pause: Waits for some seconds; may raise to give up.
        """
        texts = [each.text for each in statements]
        searched = {name for text in texts for name in _SEARCHED.findall(text)}
        dropped = {name for text in texts for name in _DROPPED.findall(text)}
        with self.searching(searched, pause), self._dropping(dropped, pause):
            yield

    @contextmanager
    def searching(
        self, names: Iterable[str], pause: Callable[[float], None] = time.sleep
    ) -> Iterator[None]:
        """Search the vector indexes of some types once none of them is being dropped."""
        used = set(names)
        while not self._entered(used):
            pause(_PAUSE)
        try:
            yield
        finally:
            with self._lock:
                self._searched -= Counter(used)

    @contextmanager
    def _dropping(self, names: set[str], pause: Callable[[float], None]) -> Iterator[None]:
        with self._lock:
            self._dropped.update(names)
        try:
            deadline = time.monotonic() + PATIENCE
            while self._searched.keys() & names and time.monotonic() < deadline:
                pause(_PAUSE)
            yield
        finally:
            with self._lock:
                self._dropped -= Counter(names)

    def _entered(self, names: set[str]) -> bool:
        with self._lock:
            if self._dropped.keys() & names:
                return False
            self._searched.update(names)
            return True
