"""Cutting what is sent into batches of bounded size. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def batches(
    items: Iterable[T], size: Callable[[T], int], *, most: int, most_bytes: int
) -> Iterator[list[T]]:
    """Cut ``items`` into batches of at most ``most`` items and ``most_bytes`` bytes, in order.

    One that alone is larger is a batch of its own.

    Args:
        items: Taken as they are needed.
        size: The bytes of one of them, or its size in another unit.
        most: Items in a batch.
        most_bytes: Bytes in a batch, or the unit of ``size``.
    """
    batch: list[T] = []
    room = most_bytes
    for item in items:
        length = size(item)
        if batch and (len(batch) == most or length > room):
            yield batch
            batch, room = [], most_bytes
        batch.append(item)
        room -= length
    if batch:
        yield batch


def text_bytes(text: str) -> int:
    """Return the size of a text in UTF-8 in bytes, counting unpaired surrogates."""
    return len(text.encode("utf-8", "surrogatepass"))
