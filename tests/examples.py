"""How many examples a property is tried with."""

from __future__ import annotations

import os

JUDGED = "CI" in os.environ
"""Whether a change is judged, not worked on."""


def examples(most: int) -> int:
    """So many where a change is judged, a fifth elsewhere, as each run has others."""
    return most if JUDGED else max(1, most // 5)
