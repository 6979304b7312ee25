"""Reads of several records, in parts if they do not fit into one message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from ability_search.errors import TooLarge

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
