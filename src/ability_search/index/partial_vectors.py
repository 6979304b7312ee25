"""Vectors of stored texts that the embedder refuses, made of the parts that it accepts.

A rebuild and a migration lose no text, so a refused one is stored with such a vector: keyword
search finds it as before, semantic search by what the embedder could read of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import numpy as np

from ability_search.documents import Vector
from ability_search.errors import TextsRefused

Embed = Callable[[list[str]], Awaitable[Vector]]

_DEPTH = 5
"""Number of times that a text is halved, into 32 parts."""
_LONG_WORD = 16
"""Characters from which a text without spaces is halved, too."""
NEUTRAL = "text"
"""A text that every model embeds; its vector stands for a text of which no part is accepted."""


async def vectors_or_refusals(embed: Embed, texts: list[str]) -> list[Vector | TextsRefused]:
    """Return the vector of each text, or the reason why it has none."""
    try:
        return list(await embed(texts)) if texts else []
    except TextsRefused as exc:
        return list(exc.rows)


async def every_vector(
    embed: Embed, texts: list[str]
) -> tuple[list[Vector], Mapping[int, TextsRefused]]:
    """Return a vector for every text, and the errors of the refused ones by place.

    That of a refused text is the mean of the vectors of its accepted parts, of unit length.

    Raises:
        EmbeddingUnavailable: if the embedder failed.
    """
    rows = await vectors_or_refusals(embed, texts)
    refused = {place: row for place, row in enumerate(rows) if isinstance(row, TextsRefused)}
    sums: dict[int, Vector] = {}
    parts = [
        (place, half)
        for place, error in refused.items()
        if not error.unanswered
        for half in _halves(texts[place])
    ]
    for _ in range(_DEPTH):
        found = await vectors_or_refusals(embed, [text for _, text in parts])
        left = []
        for (place, text), row in zip(parts, found, strict=True):
            if isinstance(row, TextsRefused):
                left += [(place, half) for half in _halves(text)]
            else:
                sums[place] = sums.get(place, np.zeros_like(row)) + len(text) * row
        parts = left
    if refused.keys() - sums.keys():
        (neutral,) = await embed([NEUTRAL])
        sums |= dict.fromkeys(refused.keys() - sums.keys(), neutral)
    vectors = [
        sums[place] / np.linalg.norm(sums[place]) if isinstance(row, TextsRefused) else row
        for place, row in enumerate(rows)
    ]
    return vectors, refused


def _halves(text: str) -> list[str]:
    """Return the two halves of a text, cut between words if it has spaces; none of a short word."""
    text = text.strip()
    middle = len(text) // 2
    cut = max(text.rfind(" ", 0, middle + 1), 0) or max(text.find(" ", middle), 0)
    if not cut and len(text) < _LONG_WORD:
        return []
    cut = cut or middle
    return [text[:cut], text[cut:]]
