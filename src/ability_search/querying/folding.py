"""Replacement of aspects by the chunks that are shown in their stead. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ability_search.querying.model import Candidate


def folded(blocks: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
    """Replace aspects by the chunks they stand for, each with the best of its scores.

    Args:
        blocks: Scored candidates; a chunk in one block is left out of later blocks.
    """
    listed: set[str] = set()
    found = []
    for block in blocks:
        best: dict[str, Candidate] = {}
        for item in block:
            chunk_id = (item.stands_for or item).chunk_id
            other = best.get(chunk_id)
            if chunk_id not in listed and (other is None or item.score > other.score):
                best[chunk_id] = item
        listed |= best.keys()
        if best:
            found.append([_in_its_place(item) for item in best.values()])
    return found


def _in_its_place(item: Candidate) -> Candidate:
    target = item.stands_for
    if target is None:
        return item
    target.fused = target.score = item.score
    target.trace |= item.trace
    target.trace["extended"] = {
        "chunkId": item.chunk_id,
        "kind": item.columns["kind"],
        "score": item.score,
    }
    return target
