"""Merging of adjacent hits of one text."""

from __future__ import annotations

from collections.abc import Hashable, Sequence


def merged(hits: Sequence[tuple[Hashable, int]], *, most: int, reach: int, span: int) -> list[int]:
    """Return which hit each hit is merged into, until ``most`` hits remain.

    A hit joins the best hit before it that it is near to, or that another hit near to it has
    joined. The result for a hit does not depend on those after it.

    Args:
        hits: Best first; the text of each hit and its chunk number in that text.
        most: Number of hits to keep; hits after the last of them are not examined.
        reach: Maximum distance between the numbers of near hits.
        span: Maximum count of numbers, from the least to the greatest, in one merged hit.

    Returns:
        For each examined hit the place of the hit it is merged into; its own if it is kept.
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
