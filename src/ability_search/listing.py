"""Paged listing of a collection's sources."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from ability_search.collection import Collection
from ability_search.errors import InvalidInput, NotFound
from ability_search.ports import Store
from ability_search.store import arcadedb
from ability_search.store.registry import Registry


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page of sources in order; ``cursor`` marks the next page, ``None`` on the last one."""

    collection: Collection
    sources: tuple[str, ...]
    cursor: str | None


async def list_sources(
    store: Store, registry: Registry, name: str, *, limit: int, cursor: str | None
) -> SourcePage:
    """Return one page of a collection's sources, and the collection as it is now.

    Raises:
        NotFound: if there is no such collection.
        InvalidInput: if the cursor was not returned with an earlier page.
    """
    after = "" if cursor is None else _read_cursor(cursor)
    found = await registry.get(name)
    collection = await registry.reload(found.name)
    if collection is None:
        raise NotFound("collection", name)
    rows = await store.read(*arcadedb.list_sources(collection.type, after=after, limit=limit + 1))
    names = tuple(row["source"] for row in rows)
    more = len(names) > limit
    return SourcePage(collection, names[:limit], _cursor(names[limit - 1]) if more else None)


def _cursor(source: str) -> str:
    return base64.urlsafe_b64encode(source.encode()).decode("ascii")


def _read_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as exc:
        raise InvalidInput(
            "cursor", "not a cursor of this tool", hint="Pass nextCursor of the previous page."
        ) from exc
