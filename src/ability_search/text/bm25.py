"""BM25 as a sparse dot product of document weights and query weights.

The score of a chunk is the sum, over the query's terms and fields, of query weight times document
weight. For a term of frequency ``f`` in a field of ``dl`` terms a document stores::

    w = f (k1 + 1) / (f + K),    K = k1 (1 - b + b dl / avgdl)

Robertson & Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009); the inverse
document frequency is Lucene's, which is never negative. The title and the content are scored as one
text in which the title stands :data:`TITLE_COUNT` times, as in section 3.6 there (BM25F): ``f`` and
``dl`` count it so. They are stored as two fields that can be searched separately: a term of the
title weighs what the title adds to the content, so that both together are that one text. Other
fields have no length (``K = k1``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.collection import K1, B
from ability_search.documents import Floats, SparseVector
from ability_search.text.term_ids import (
    CONTENT,
    CONTEXT,
    TITLE,
    TermIds,
    are_of_content,
    content_places,
    term_id,
)
from ability_search.text.term_statistics import TermStatistics

Weights = npt.NDArray[np.float32]

TITLE_COUNT: Final = 4
"""nDCG@10 of the keyword retriever with 1, 2, 3, 4, 5 and 7, of questions on abstracts: .479, .489,
.506, .513, .509 and .508; which tool: .290, .305, .315, .316, .315 and .319."""
CONTEXT_WEIGHT: Final = 0.3
"""Conversations, nDCG@10 of hybrid search by .2, .3 and .45: .562, .571 and .571."""
QUERY_TERMS_LIMIT: Final = 256
"""Maximum distinct terms of a query: those of greatest weight, ties by position in the query. A
term that no chunk has never displaces another."""
_DECIMALS = 5
_LEAST = 10.0**-_DECIMALS


@dataclass(frozen=True, slots=True)
class QueryTerms(SparseVector):
    """A query of the sparse index.

    Attributes:
        ids: term ids, ascending, unique; including terms unknown to the statistics, which may be
            older than the chunks.
        weights: positive query weights aligned with ``ids``.
        information: score of a chunk that has each of the terms once in a content of average
            length; terms unknown to the collection are included. 0 without terms.
    """

    ids: tuple[int, ...]
    weights: tuple[float, ...]
    information: float

    def normalized(self, scores: npt.ArrayLike) -> Floats:
        """Map BM25 scores of this query to [0, 1]: ``1 - exp(-score / information)``.

        Increasing, and independent of other results, hence comparable between queries: 0 is a chunk
        without any of the terms, .63 one with each of them once.
        """
        raw = np.asarray(scores, dtype=np.float64)
        if self.information <= 0:
            return np.zeros_like(raw)
        return np.asarray(-np.expm1(-np.fmax(raw, 0.0) / self.information))


def counted_length(*, title: int, content: int) -> int:
    """Return ``dl`` of a chunk with these numbers of terms."""
    return TITLE_COUNT * title + content


def document_vector(
    fields: Mapping[str, Sequence[str]], *, average_length: float, k1: float = K1, b: float = B
) -> tuple[TermIds, Weights]:
    """Return the term ids of a chunk, ascending and unique, and their document weights.

    Args:
        fields: the terms of each field by its name, repetitions included.
        average_length: mean :func:`counted_length` of the collection; with 0 every chunk is treated
            as of average length.
        k1: term frequency saturation, >= 0.
        b: length normalization of title and content, 0 (none) to 1.

    Returns:
        Shape (n,) both, the weights in (0, k1 + 1]; empty if no field has terms.
    """
    # In plain Python: of the few terms of a chunk, each call of numpy costs more than they do.
    counts = {name: Counter(terms) for name, terms in fields.items()}
    content, title = counts.get(CONTENT, Counter()), counts.get(TITLE, Counter())
    length = counted_length(title=title.total(), content=content.total())
    heaviest: dict[int, float] = {}
    for name, counted in counts.items():
        own = length if name in (CONTENT, TITLE) else None
        saturation = _saturation(own, average_length, k1, b)
        for term, count in counted.items():
            within = content[term] if name == TITLE else 0
            if name == TITLE:
                count = within + TITLE_COUNT * count
            weight = count * (k1 + 1) / (count + saturation)
            if within:
                weight = max(weight - within * (k1 + 1) / (within + saturation), _LEAST)
            id_ = term_id(name, term)
            if weight > heaviest.get(id_, 0.0):
                heaviest[id_] = weight
    ids = sorted(heaviest)
    return np.array(ids, np.int32), np.array([heaviest[id_] for id_ in ids], np.float32)


def reweighted(
    ids: Sequence[int],
    weights: Sequence[float],
    *,
    lengths: Sequence[int],
    old_average: float,
    new_average: float,
    k1: float = K1,
    b: float = B,
) -> list[float]:
    """Return the document weights of a chunk for another average length.

    The frequencies are recovered by :func:`term_frequencies`; fields other than the title and the
    content keep their weights.

    Args:
        ids: as returned by :func:`document_vector`.
        weights: aligned with ``ids``; five decimals suffice.
        lengths: of the chunk, see :attr:`.ChunkRecord.lengths`.
        old_average: the average length that the weights were computed with.
        new_average: the average length to use instead.
        k1: as used for the weights; it cannot be changed here.
        b: as used for the weights; it cannot be changed here.
    """
    stored = np.asarray(weights, dtype=np.float64)
    known = np.asarray(ids, dtype=np.int32)
    length = lengths[-1]
    of_content, places = are_of_content(known), content_places(known)
    of_title = places > -2
    within = np.where(places >= 0, stored[np.maximum(places, 0)], 0.0)
    frequencies, before = (
        term_frequencies(each, length=length, average_length=old_average, k1=k1, b=b)
        for each in (stored + within, within)
    )
    saturation = _saturation(length, new_average, k1, b)
    before = np.where(within > 0, before, 0.0)
    renewed = np.where(of_content, _saturated(frequencies, saturation, k1), stored)
    renewed[of_title] = _added(before, frequencies, saturation, k1)[of_title]
    values: list[float] = renewed.round(_DECIMALS).tolist()
    return values


def term_frequencies(
    weights: npt.ArrayLike, *, length: int, average_length: float, k1: float = K1, b: float = B
) -> Floats:
    """Recover the frequencies of content terms from their weights: ``f = w K / (k1 + 1 - w)``.

    Whole numbers; for weights with five decimals exact up to about 400 occurrences and never above
    the chunk's length. With ``k1`` 0 a weight carries no information, and all frequencies are 1.
    """
    saturated = np.asarray(weights, dtype=np.float64)
    room = np.maximum(k1 + 1 - saturated, 1e-9)
    found = np.rint(saturated * _saturation(length, average_length, k1, b) / room)
    return np.asarray(np.clip(found, 1, max(length, 1)))


def inverse_document_frequency(frequencies: npt.ArrayLike, chunks: int) -> Floats:
    """Return ``ln(1 + (N - df + .5) / (df + .5))`` for document frequencies, always > 0.

    A frequency above ``chunks`` counts as ``chunks``.
    """
    df = np.minimum(np.asarray(frequencies, dtype=np.float64), chunks)
    return np.asarray(np.log1p((chunks - df + 0.5) / (df + 0.5)))


@lru_cache
def rarest_idf(chunks: int) -> float:
    """Return the inverse document frequency of a term in one of so many chunks."""
    return float(inverse_document_frequency([1], chunks)[0])


def query_terms(terms: Sequence[str], statistics: TermStatistics) -> QueryTerms:
    """Return the weighted terms of a query in all fields, see :func:`terms_in_fields`.

    Args:
        terms: the analyzed query.
        statistics: term statistics of the collection.
    """
    fields = {CONTENT: 1.0, TITLE: 1.0, CONTEXT: CONTEXT_WEIGHT}
    return terms_in_fields(terms, statistics, fields, spare=CONTEXT)


def terms_in_fields(
    terms: Sequence[str], statistics: TermStatistics, fields: Mapping[str, float], spare: str = ""
) -> QueryTerms:
    """Return the weighted terms of a query in the given fields.

    A term of frequency ``q`` in the query weighs ``q idf`` times the weight of the field. Its
    document frequency is the highest one of the content and of these fields, so that a common word
    does not look rare because few chunks have a title; a context repeats contents and does not
    count.

    Args:
        terms: the analyzed query in order, repetitions included; no terms give an empty query.
        statistics: term statistics of the collection.
        fields: weights >= 0 by field name; fields of weight 0 are not searched.
        spare: a field that is not searched if no chunk has any of the terms there.
    """
    counts = Counter(terms)
    fields = {name: weight for name, weight in fields.items() if weight > 0}
    if not counts or not fields:
        return QueryTerms((), (), 0.0)
    # In plain Python where it can be: of few terms, each call of numpy costs more than they do.
    names = [*{CONTENT: 0.0, **fields}]
    ids = [[term_id(name, term) for term in counts] for name in names]
    found = statistics.document_frequencies(np.array(ids, np.int32)).tolist()
    known = [own for name, own in zip(names, found, strict=True) if name != CONTEXT]
    frequencies = [*map(max, *known)] if len(known) > 1 else known[0]
    weights = inverse_document_frequency(frequencies, statistics.chunks)
    weights *= np.array([*counts.values()], np.float64)
    heaviest = (-weights).tolist()
    kept = sorted(range(len(counts)), key=lambda at: (frequencies[at] == 0, heaviest[at]))
    weights = weights[kept[:QUERY_TERMS_LIMIT]]
    chosen: dict[int, float] = {}
    for field, own, present in zip(names, ids, found, strict=True):
        if field not in fields or (field == spare and not any(present)):
            continue
        scaled = (weights * fields[field]).astype(np.float32).tolist()
        for at, weight in zip(kept, scaled, strict=False):
            chosen[own[at]] = max(weight, chosen.get(own[at], 0.0))
    return _sorted(chosen, float(weights.sum()))


def joined(own: QueryTerms, further: QueryTerms, *, weight: float) -> QueryTerms:
    """Add expansion terms to a query, bounded so that its own terms dominate.

    Each added term keeps ``weight min(1, I / I')`` of its weight, I and I' being the information
    of both: together they weigh at most ``weight`` times the query's own terms. This is the
    interpolation of RM3 (Abdul-Jaleel et al., UMass at TREC 2004), with weights for
    probabilities.

    Args:
        own: the query; if it has no terms or no information, it is returned unchanged.
        further: terms that the query does not have.
        weight: 0 (the query is unchanged) to 1.
    """
    share = weight * min(1.0, own.information / max(further.information, 1e-9))
    if share <= 0 or not further.ids:
        return own
    added = (share * np.array(further.weights)).astype(np.float32).tolist()
    heaviest = dict(zip(own.ids, own.weights, strict=True))
    for id_, weight_ in zip(further.ids, added, strict=True):
        heaviest[id_] = max(weight_, heaviest.get(id_, 0.0))
    return _sorted(heaviest, own.information + share * further.information)


def _sorted(heaviest: Mapping[int, float], information: float) -> QueryTerms:
    ids = sorted(heaviest)
    return QueryTerms(tuple(ids), tuple(map(heaviest.__getitem__, ids)), information)


def _saturation(length: int | None, average: float, k1: float, b: float) -> float:
    """Return ``K`` of the formula; without a length or an average, that of average length."""
    if length is None or average <= 0:
        return k1
    return k1 * (1 - b + b * length / average)


def _saturated(frequencies: Floats, saturation: float, k1: float) -> Floats:
    return np.asarray(frequencies * (k1 + 1) / (frequencies + saturation))


def _added(before: Floats, frequencies: Floats, saturation: float, k1: float) -> Floats:
    """Return how much more a term weighs than with the frequency ``before``; always > 0."""
    without = np.where(before > 0, _saturated(np.maximum(before, 1.0), saturation, k1), 0.0)
    return np.maximum(_saturated(frequencies, saturation, k1) - without, _LEAST)
