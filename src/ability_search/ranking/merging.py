"""Hits that stand side by side in one text -> the best of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def merged(hits: Sequence[tuple[Hashable, int]], *, most: int, reach: int, span: int) -> list[int]:
    """Which hit each is merged into, until there are enough that stand.

    A hit joins the best one before it that it is near to, or that another near to it has joined.
    What was decided of a hit does not depend on those after it.

    Args:
        hits: Best first; each the text it is from and its number in the order of that text.
        most: How many are to stand; those after the last of them are not looked at.
        reach: How far apart the numbers of near ones may be.
        span: How many numbers, from the least to the greatest, may come together.

    Returns:
        For each hit that was looked at the place of the one it is merged into, its own where it
        stands.
    """
    owner: dict[tuple[Hashable, int], int] = {}
    extents: dict[int, tuple[int, int]] = {}
    into: list[int] = []
    for place, (text, number) in enumerate(hits):
        if len(extents) == most:
            break
        near = {
            owner[text, other]
            for other in range(number - reach, number + reach + 1)
            if (text, other) in owner
        }
        head = place
        extent = number, number
        for standing in sorted(near):
            low, high = extents[standing]
            wider = min(low, number), max(high, number)
            if wider[1] - wider[0] < span:
                head, extent = standing, wider
                break
        extents[head] = extent
        owner[text, number] = head
        into.append(head)
    return into
