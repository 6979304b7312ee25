"""Reads of several records, in parts if they do not fit into one message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from ability_search.errors import TooLarge
from ability_search.store.port import RecordStore
from ability_search.store.values import Key, Page, Read, Record, Records

T = TypeVar("T")
Item = TypeVar("Item")


async def in_halves(
    read: Callable[[Sequence[Item]], Awaitable[list[T]]], items: Sequence[Item]
) -> list[T]:
    """Read ``items``; if the answer is too large, read each half of them.

    Raises:
        TooLarge: if the answer for one item is.
    """
    try:
        return await read(items)
    except TooLarge:
        if len(items) < 2:
            raise
    middle = len(items) // 2
    return [
        each for half in (items[:middle], items[middle:]) for each in await in_halves(read, half)
    ]


async def record_pages(
    store: RecordStore, of: Records, *, after: str | Key | None = None, limit: int | None = None
) -> AsyncIterator[Sequence[Record]]:
    """Yield the records of a selection after a key, in order, page by page; no empty page."""
    while True:
        (page,) = await store.read([Read(of, limit=limit, after=after)])
        assert isinstance(page, Page)
        if page.items:
            yield page.items
        if page.next is None:
            return
        after = page.next


async def all_records(store: RecordStore, of: Records) -> list[Record]:
    """Return the records of a selection, in order."""
    return [record async for page in record_pages(store, of) for record in page]
