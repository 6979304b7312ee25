"""Bin widths of a histogram."""

from __future__ import annotations

_STEPS = (1, 2, 5)


def bin_width(least: int, most: int, *, bins: int) -> int:
    """Return the least of 1, 2, 5, 10, 20, 50, ... that covers ``least`` to ``most`` with ``bins``.

    Bins begin at multiples of the width, so there may be one more than ``bins``.
    """
    scale = 1
    while True:
        for step in _STEPS:
            if step * scale * bins > most - least:
                return step * scale
        scale *= 10
