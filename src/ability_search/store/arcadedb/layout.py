"""Whether a database is new, or somebody else's."""

from __future__ import annotations

from ability_search.errors import EarlierLayout, StatementRefused
from ability_search.ports import Store
from ability_search.store import arcadedb

_MISSING = ("missing_database", "missing_type")


async def check_new(store: Store, refusal: StatementRefused) -> None:
    """See that a statement was refused because nothing was stored yet.

    Raises:
        StatementRefused: the refusal itself, if it was for another reason.
        EarlierLayout: if types are missing because the earlier ability stored its chunks there.
        DatabaseUnavailable: if the database does not answer.
    """
    if refusal.reason not in _MISSING:
        raise refusal
    try:
        rows = await store.read(*arcadedb.base_type())
    except StatementRefused as exc:
        if exc.reason not in _MISSING:
            raise
        return
    if any(row.get("type") == "document" for row in rows):
        raise EarlierLayout
