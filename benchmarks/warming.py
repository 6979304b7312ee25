"""When a part has run long enough to be measured.

The engine compiles what it runs often, and is faster for it after some thousand queries or chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

_MOST_ROUNDS = 30
_LAST_ROUNDS = 3
_FALLING = 0.98
"""One of the last rounds takes less than this share of every one before."""


def is_warming(rounds: Sequence[float]) -> bool:
    """Whether rounds still get faster, by the time that each took so far."""
    before, last = rounds[:-_LAST_ROUNDS], rounds[-_LAST_ROUNDS:]
    return len(rounds) < _MOST_ROUNDS and (not before or min(last) < _FALLING * min(before))
