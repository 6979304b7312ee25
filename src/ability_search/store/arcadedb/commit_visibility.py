"""Commit visibility: notes of commits that are still being indexed.

The engine makes the records of a transaction visible first and enters them into the vector and
sparse indexes after that, one posting after the other; the commit returns when all are entered. In
between, some milliseconds for a small group, a search finds neither the replaced chunks nor the new
ones. Therefore such a transaction leaves a note that is removed after it, and a search that finds a
note runs again.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

_PATIENCE = 30_000
"""Milliseconds after which a note counts as left behind by a crash."""

COMMIT = f"""
        INSERT INTO Unindexed SET type = :type, token = :commit, at = `date.currentTimestamp`();
        COMMIT;
        BEGIN;
        DELETE FROM Unindexed
            WHERE token = :commit OR at < `date.currentTimestamp`() - {_PATIENCE};
        COMMIT RETRY 10;
"""
"""Ends a transaction on chunks of ``:type``; :func:`commit_params` returns its parameters."""

NOTES = (
    "SELECT at FROM Unindexed"
    f" WHERE type = :type AND at >= `date.currentTimestamp`() - {_PATIENCE} LIMIT 1"
)
"""Returns a row if a search of ``:type`` may be incomplete now."""


def commit_params(*written: object) -> dict[str, Any]:
    """Return the parameters of :data:`COMMIT` besides ``:type``, by what identifies the commit."""
    return {"commit": blake2b(repr(written).encode(), digest_size=16).hexdigest()}
