"""How much of a query a text has word for word.

BM25 and cosines do not see in which order words stand; who quotes does. Pairs of neighbouring
words are the ordered windows of the sequential dependence model: Metzler & Croft, A Markov Random
Field Model for Term Dependencies (2005). Texts written without spaces have no pairs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

WORDS_LIMIT: Final = 32
"""A query of more words is looked for by what it says, not by how it says it."""
_WORD = re.compile(r"\w+")
_BREAKS = {code: " " for code in range(128) if not _WORD.match(chr(code))}


@dataclass(frozen=True, slots=True)
class Phrasing:
    """The pairs of neighbouring words of a query.

    Attributes:
        pairs: Each once, as it stands in a text that :func:`spaced` made, its spaces included.
        weights: What each tells, >= 0, of sum 1.
    """

    pairs: tuple[str, ...]
    weights: tuple[float, ...]

    def share(self, text: str) -> float:
        """Return the weights of the pairs that stand in ``text``, 0 to 1."""
        plain = spaced(text)
        found = zip(self.pairs, self.weights, strict=True)
        return min(1.0, sum(weight for pair, weight in found if pair in plain))


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, in compatibility form (NFKC) and case-folded."""
    if text.isascii():
        return text.lower().translate(_BREAKS).split()
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def spaced(text: str) -> str:
    """Return the words of a text with one space before, between and behind them."""
    return f" {' '.join(words_of(text))} "


def phrasing(words: Sequence[str], informations: Sequence[float]) -> Phrasing | None:
    """Return the pairs of a query, each weighed by what its two words tell.

    Args:
        words: Of the query, in order.
        informations: Inverse document frequency of each, >= 0.

    Returns:
        ``None`` for a query without a pair, for one of more than :data:`WORDS_LIMIT` words, and
        if no word tells anything.
    """
    if len(words) > WORDS_LIMIT:
        return None
    pairs = {
        f" {words[place]} {words[place + 1]} ": informations[place] + informations[place + 1]
        for place in range(len(words) - 1)
    }
    total = sum(pairs.values())
    if not total > 0:
        return None
    return Phrasing(tuple(pairs), tuple(weight / total for weight in pairs.values()))


def raised(scores: Floats, shares: Floats, *, weight: float) -> Floats:
    """Raise scores by how much of a query stands in each text as it is: ``s + w p^2 (1 - s)``.

    The square is for quotations: some pair of a long question stands in many texts.

    Args:
        scores: In [0, 1], shape (n,).
        shares: Of :meth:`Phrasing.share`, ``p``, shape (n,).
        weight: 0 (scores stay as they are) to 1.

    Returns:
        In [0, 1], shape (n,); none is lower than it was.
    """
    return np.asarray(scores + weight * shares**2 * (1.0 - scores))
