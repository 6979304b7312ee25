"""Batches of passages to embed: how passages of many documents share calls of the embedder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ability_search.index.preparation import Prepared

FEW = 8
"""Passages in the first batch of many documents, and minimum size of the last batches."""
LOOKED_UP = 64
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


class Batches:
    """Gathers passages, for lookups of stored vectors or for calls of the embedder.

    With many documents the first batches are small, each twice as large as the one before: the
    next step starts early. If it is the last one, so are the last batches, each half of what is
    left: little is left to store when the embedder ends. Few documents go in one batch, which
    suits a remote embedder.

    Args:
        most: Maximum number of passages in a batch.
        first: Number of passages in the first batch.
        tapered: Whether the last batches are small, too.
    """

    def __init__(self, *, most: int, first: int, tapered: bool) -> None:
        self._slots: list[Slot] = []
        self._most = most
        self._size = min(first, most)
        self._tapered = tapered

    def add(self, slot: Slot) -> Iterator[list[Slot]]:
        """Add a passage; yield a batch if one is full."""
        self._slots.append(slot)
        # One full batch is kept back, to be split into the last, smaller ones.
        kept = self._size if self._tapered and self._size == self._most else 0
        if len(self._slots) == self._size + kept:
            yield self._slots[: self._size]
            self._slots = self._slots[self._size :]
            self._size = min(2 * self._size, self._most)

    def rest(self) -> Iterator[list[Slot]]:
        """Yield the last batches."""
        while left := len(self._slots):
            share = left // 2 if self._tapered and left > 2 * FEW else left
            size = min(share, self._most)
            yield self._slots[:size]
            self._slots = self._slots[size:]


def slots_of(prepared: Prepared) -> Iterator[Slot]:
    """Yield the passages of a document and of its kinds."""
    for part in prepared.parts:
        for place in range(len(part.passages)):
            yield Slot(prepared, part, place)
