"""Word pairs of a query: the share of them that a text contains.

BM25 and cosines ignore word order, which matters for quotations. Pairs of adjacent words are the
ordered windows of the sequential dependence model: Metzler & Croft, A Markov Random Field Model for
Term Dependencies (2005). Texts written without spaces have no pairs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WORDS_LIMIT: Final = 32
"""Maximum number of query words; phrases in longer queries are ignored."""
_WORD = re.compile(r"\w+")
_BREAKS = {code: " " for code in range(128) if not _WORD.match(chr(code))}


@dataclass(frozen=True, slots=True)
class PhrasePairs:
    """The pairs of adjacent words of a query.

    Attributes:
        pairs: Distinct pairs, spelled as in the result of :func:`spaced`, spaces included.
        weights: Weight of each pair, >= 0, of sum 1.
    """

    pairs: tuple[str, ...]
    weights: tuple[float, ...]

    def share(self, text: str) -> float:
        """Return the summed weight of the pairs that occur in ``text``, 0 to 1."""
        plain = spaced(text)
        found = zip(self.pairs, self.weights, strict=True)
        return min(1.0, sum(weight for pair, weight in found if pair in plain))


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, in compatibility form (NFKC) and case-folded."""
    if text.isascii():
        return text.lower().translate(_BREAKS).split()
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def spaced(text: str) -> str:
    """Return the words of a text with one space before, between and after them."""
    return f" {' '.join(words_of(text))} "


def phrase_pairs(words: Sequence[str], informations: Sequence[float]) -> PhrasePairs | None:
    """Return the word pairs of a query, weighted by the information of their words.

    Args:
        words: Words of the query, in order.
        informations: Inverse document frequency of each, >= 0.

    Returns:
        ``None`` for a query without a pair, for one of more than :data:`WORDS_LIMIT` words, and
        if no word has any information.
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
    return PhrasePairs(tuple(pairs), tuple(weight / total for weight in pairs.values()))
