"""Batches of passages to embed: how passages of many documents share calls of the embedder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ability_search.index.preparation import Prepared

_FEW = 8
"""Passages in the first batch of many documents, and minimum size of the last batches."""
_LOOKED_UP = 64
"""Passages per lookup of stored vectors."""


class Slot(NamedTuple):
    """A passage of a document or of a derived kind that waits for its vector."""

    whole: Prepared
    part: Prepared
    place: int

    @property
    def text(self) -> str:
        """The text to embed for the passage."""
        return self.part.texts[self.place]


class Lookups:
    """Gathers passages for lookups of stored vectors.

    Args:
        gradual: Whether there are many documents; the first lookup is small then, and covers only
            the first two batches.
    """

    def __init__(self, *, gradual: bool) -> None:
        self._slots: list[Slot] = []
        self._size = 3 * _FEW if gradual else _LOOKED_UP

    def add(self, prepared: Prepared) -> Iterator[list[Slot]]:
        """Add the passages of a document; yield the lookups that are full."""
        for slot in slots_of(prepared):
            self._slots.append(slot)
            if len(self._slots) == self._size:
                yield self._slots
                self._slots, self._size = [], _LOOKED_UP

    def rest(self) -> Iterator[list[Slot]]:
        """Yield the last lookup, if there are passages left."""
        if self._slots:
            yield self._slots


class Batches:
    """Gathers passages for calls of the embedder.

    With many documents the first batches are small, each twice as large as the one before, and so
    are the last ones, each half of what is left: the embedder starts early, and little is left to
    store when it ends. Few documents go in one batch, which suits a remote embedder.

    Args:
        most: Maximum number of passages in a batch.
        gradual: Whether there are many documents.
    """

    def __init__(self, *, most: int, gradual: bool) -> None:
        self._slots: list[Slot] = []
        self._most = most
        self._gradual = gradual
        self._size = min(_FEW, most) if gradual else most

    def add(self, slot: Slot) -> Iterator[list[Slot]]:
        """Add a passage; yield a batch if one is full."""
        self._slots.append(slot)
        # One full batch is kept back, to be split into the last, smaller ones.
        kept = self._size if self._gradual and self._size == self._most else 0
        if len(self._slots) == self._size + kept:
            yield self._slots[: self._size]
            self._slots = self._slots[self._size :]
            self._size = min(2 * self._size, self._most)

    def rest(self) -> Iterator[list[Slot]]:
        """Yield the last batches."""
        while left := len(self._slots):
            share = left // 2 if self._gradual and left > 2 * _FEW else left
            size = min(share, self._most)
            yield self._slots[:size]
            self._slots = self._slots[size:]


def slots_of(prepared: Prepared) -> Iterator[Slot]:
    """Yield the passages of a document and of its kinds."""
    for part in prepared.parts:
        for place in range(len(part.passages)):
            yield Slot(prepared, part, place)
