"""A queue of deadlines, optimised for deadlines that are mostly cancelled."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator
from itertools import count
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_SLACK = 64


class Deadlines(Generic[K]):
    """Deadlines ordered by time, one per key.

    Cancelling a deadline leaves its entry in the heap. The heap is rebuilt when such entries
    outnumber the live ones, so that memory stays proportional to the number of live deadlines and
    every operation is amortised logarithmic.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, K]] = []
        self._entries: dict[K, int] = {}
        self._serial = count()

    def set(self, key: K, at: float) -> None:
        """Set or move the deadline of ``key``."""
        serial = next(self._serial)
        self._entries[key] = serial
        heapq.heappush(self._heap, (at, serial, key))
        self._compact()

    def discard(self, key: K) -> None:
        """Cancel a deadline; ignore an unknown key."""
        if self._entries.pop(key, None) is not None:
            self._compact()

    def next(self) -> float | None:
        """Return the earliest deadline; ``None`` if there is none."""
        while self._heap and not self._is_live(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys that are due, earliest first, ties in the order set.

        Deadlines may be set and cancelled meanwhile.
        """
        while (at := self.next()) is not None and at <= now:
            key = heapq.heappop(self._heap)[2]
            del self._entries[key]
            yield key

    def __len__(self) -> int:
        return len(self._entries)

    def _is_live(self, entry: tuple[float, int, K]) -> bool:
        return self._entries.get(entry[2]) == entry[1]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._entries) + _SLACK:
            self._heap = [entry for entry in self._heap if self._is_live(entry)]
            heapq.heapify(self._heap)


Actions = Deadlines[tuple[Callable[[Any, float], None], Any]]
"""Deadlines of functions, which take a subject and the time."""
