"""The oldest release of ArcadeDB that this ability can use."""

from __future__ import annotations

import re

from ability_search.errors import EngineTooOld

OLDEST_ENGINE = (26, 10, 2)
"""Earlier engines cannot filter a sparse vector search by rows, those before 26.9.1 restored
deleted postings, and those before 26.3 have no sparse vector index."""

_NUMBERS = re.compile(r"\s*(\d+)\.(\d+)(?:\.(\d+))?")


def is_too_old(version: str) -> bool:
    """Return whether a version, in the words of an engine, is older than :data:`OLDEST_ENGINE`.

    A version that cannot be read is not.
    """
    match = _NUMBERS.match(version)
    if match is None:
        return False
    return tuple(int(number or 0) for number in match.groups()) < OLDEST_ENGINE


def too_old(version: str, where: str, *, hint: str | None = None) -> EngineTooOld:
    """Return the error for an engine; ``where`` names the agent that offers it."""
    number = version.split()[0]
    needed = ".".join(map(str, OLDEST_ENGINE))
    return EngineTooOld(
        f"ArcadeDB {number} found at {where}, {needed} or later is needed", hint=hint
    )
