"""Commits that the indexes do not know of yet.

The engine makes the records of a transaction visible first and adds them to the vector and sparse
indexes afterwards, one posting after the other; the commit returns when all are added. In between,
some milliseconds for a small group, a search finds neither what was replaced nor its replacement.
So such a transaction leaves a note that is deleted after it, and a search that sees a note is
repeated.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

_PATIENCE = 30_000
"""Milliseconds after which a note is one that a crash has left behind."""

COMMIT = f"""
        INSERT INTO Unindexed SET type = :type, token = :commit, at = `date.currentTimestamp`();
        COMMIT;
        BEGIN;
        DELETE FROM Unindexed
            WHERE token = :commit OR at < `date.currentTimestamp`() - {_PATIENCE};
        COMMIT RETRY 10;
"""
"""Ends a transaction on chunks of ``:type``, with what :func:`commit_params` binds."""

NOTES = (
    "SELECT at FROM Unindexed"
    f" WHERE type = :type AND at >= `date.currentTimestamp`() - {_PATIENCE} LIMIT 1"
)
"""A row if what is searched next of ``:type`` may be incomplete."""


def commit_params(*written: object) -> dict[str, Any]:
    """Return the parameters of :data:`COMMIT` except ``:type``; ``written`` names the commit."""
    return {"commit": blake2b(repr(written).encode(), digest_size=16).hexdigest()}
