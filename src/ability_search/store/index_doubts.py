"""Doubts about keyword indexes, which may lack entries after a restart of the database."""

from __future__ import annotations

import asyncio

UNCHECKED = (
    "the database was restarted, and whether its keyword index is complete is still being checked"
)
INCOMPLETE = (
    "the keyword index lacks entries, as after a kill of the database server: search-reindex"
    " restores it, and was started unless another job of the collection runs"
)
INDEX_DOUBTED = "index_incomplete"
"""Code of an answer that is degraded for one of these reasons."""


class IndexDoubts:
    """The state of the keyword indexes of this worker's database, as far as it is known.

    Every restart puts all collections in doubt, until the check of each is done. Nothing is in
    doubt where nobody checks: outside of a worker.

    Attributes:
        restarts: Number of the restarts that were seen.
        raised: Set when a restart was seen and no check has begun since.
        checking: Whether somebody checks when ``raised`` is set.
    """

    def __init__(self) -> None:
        self.restarts = 0
        self.raised = asyncio.Event()
        self.checking = False
        self._all = False
        self._complete: set[str] = set()
        """Generations that were checked or made since the last restart."""
        self._incomplete: set[str] = set()

    def restarted(self) -> None:
        """Put all collections in doubt."""
        self.restarts += 1
        self._all = True
        self._complete.clear()
        self.raised.set()

    @property
    def pending(self) -> bool:
        """Return whether a check is due."""
        return self._all

    def reason(self, generation: str) -> str | None:
        """Return why keyword results of a generation may be incomplete; ``None`` if complete."""
        if generation in self._incomplete:
            return INCOMPLETE
        if self.checking and self._all and generation not in self._complete:
            return UNCHECKED
        return None

    def found(self, generation: str, *, complete: bool) -> None:
        """Note the outcome of a check, or that a generation is new and so complete."""
        if complete:
            self._incomplete.discard(generation)
            self._complete.add(generation)
        else:
            self._incomplete.add(generation)

    def settle(self, generations: set[str], *, restarts: int) -> None:
        """Note that all generations were checked, unless there was a restart meanwhile.

        Others than these were made after the restart or are gone.
        """
        self._incomplete &= generations
        if restarts == self.restarts:
            self._all = False
            self._complete.clear()
