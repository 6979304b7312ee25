"""Pseudo-relevance feedback: a second search with what the first hits add to the query.

The query vector moves towards the first hits (Rocchio), and their characteristic terms join its
own (RM3). The candidates of this second search replace the first ones. Only ``minScore`` still
uses the cosine to the query's own vector.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from ability_search.documents import Floats
from ability_search.extensions.reranking import Feedback, RerankingOptions
from ability_search.search.candidates import Candidate, Candidates, Learned
from ability_search.search.fusion import TAU
from ability_search.search.query_vectors import moved_vector
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import OWN, SearchRequest
from ability_search.store.pages import read_chunks
from ability_search.store.values import Columns
from ability_search.text.bm25 import QueryTerms, inverse_document_frequency, joined
from ability_search.text.term_ids import are_of_content
from ability_search.text.term_statistics import TermStatistics


def feedback_weights(scores: npt.ArrayLike) -> Floats:
    """Return the weight of each hit: ``exp((s_j - s_1) / tau)``, scaled to sum 1.

    A clear winner gets nearly all the weight; hits of equal score get equal weights.

    Args:
        scores: scores of the hits, the best of them ``s_1``, shape (m,), m >= 1.
    """
    found = np.asarray(scores, dtype=np.float64)
    raw = np.exp((found - found.max()) / TAU)
    return np.asarray(raw / raw.sum())


def expansion_terms(
    examples: Sequence[tuple[Sequence[int], Sequence[float]]],
    weights: npt.ArrayLike,
    statistics: TermStatistics,
    *,
    own: Collection[int],
    count: int,
) -> QueryTerms:
    """Return the expansion terms: those with the greatest ``idf sum_j w_j d_j``.

    ``d_j`` is the term's weight in a hit. Only content terms count that are not in the query and
    that also occur in a chunk outside the feedback hits: others would find nothing new.

    Args:
        examples: ids and weights of the terms of each hit, as stored.
        weights: weights of the hits, shape (m,), summing to 1.
        statistics: term statistics of the collection.
        own: ids of the query's terms.
        count: maximum number of terms.

    Returns:
        The terms with these weights, their sum as information; ties go to the lower ids.
    """
    shares = np.asarray(weights, dtype=np.float64)
    every = np.array([each for found, _ in examples for each in found], np.int32)
    shared = np.array(
        [share * each for share, (_, found) in zip(shares, examples, strict=True) for each in found]
    )
    ids, places, having = np.unique(every, return_inverse=True, return_counts=True)
    frequencies = statistics.document_frequencies(ids)
    rarity = inverse_document_frequency(frequencies, statistics.chunks)
    values = rarity * np.bincount(places, shared, len(ids))
    known = np.isin(ids, np.array(list(own), np.int32))
    values[~are_of_content(ids) | known | (frequencies <= having)] = 0.0
    best = np.sort(np.argsort(-values, kind="stable")[:count])
    kept = best[values[best] > 0]
    chosen: list[float] = values[kept].tolist()
    return QueryTerms(tuple(ids[kept].tolist()), tuple(chosen), sum(chosen))


async def learn(option: Feedback, candidates: Candidates, ports: Ports) -> None:
    """Let the query expanded by its first hits be searched; none, if none is similar enough."""
    learned = candidates.learned
    if learned is not None:
        if candidates.request is learned.request and candidates.query.asked.explain:
            for item in candidates.found:
                item.trace[NAME] = {"cosine": item.moved, "bm25": item.bm25}
        return
    if candidates.failed:
        return
    request, hits = candidates.request, []
    for item in (await candidates.first_hits())[: option.chunks]:
        similarity = item.fused if request.vector is None else item.cosine or 0.0
        hits += [item] if similarity >= option.min_similarity else []
    columns = Columns(("handle", "terms", "weights", "embedding"))
    handles = [item.handle for item in hits]
    rows = await read_chunks(ports.store, handles, candidates.collection, columns)
    found = [(item, rows.get(item.handle)) for item in hits]
    examples = [(item, row) for item, row in found if row and row["embedding"]]
    if not examples:
        candidates.explained[NAME] = {"chunks": {}, "terms": 0}
        return
    candidates.learned = expanded(candidates.request, examples, option, candidates.statistics)


def expanded(
    request: SearchRequest,
    examples: Sequence[tuple[Candidate, Mapping[str, Any]]],
    option: Feedback,
    statistics: TermStatistics | None,
) -> Learned:
    """Return the searches of the expanded query.

    Args:
        request: The searches of the original query.
        examples: The feedback hits, best first, with rows of their terms, weights and embeddings;
            at least one.
        option: The feedback options.
        statistics: Term statistics of the collection, if terms are searched.
    """
    shares = feedback_weights([item.score for item, _ in examples])
    vector, terms = request.vector, request.terms
    added = 0
    if vector is not None:
        embeddings = [row["embedding"] for _, row in examples]
        vector = moved_vector(vector, embeddings, shares, beta=option.weight).tolist()
    if terms is not None and statistics is not None:
        named = [terms, *request.products.values()]
        further = expansion_terms(
            [(row["terms"], row["weights"]) for _, row in examples],
            shares,
            statistics,
            own={each for one in named for each in one.ids},
            count=option.terms,
        )
        added = len(further.ids)
        terms = joined(terms, further, weight=option.weight)
    compared = {} if request.vector is None else {OWN: request.vector}
    cosines = {**compared, **request.cosines}
    again = replace(request, vector=vector, terms=terms, cosines=cosines)
    weights = dict(zip([item.chunk_id for item, _ in examples], shares.tolist(), strict=True))
    return Learned(
        again,
        {NAME: {"chunks": weights, "terms": added}},
        failure="pseudo-relevance feedback was not applied",
    )


def feedback(asked: RerankingOptions) -> Feedback | None:
    """Return the option of a request; ``None`` if nothing is learned."""
    option = Feedback() if asked.prf is True else asked.prf or None
    return option if option is not None and option.weight > 0 else None


NAME = "prf"
PSEUDO_RELEVANCE = Stage(NAME, Phase.FIND, 10, learn, option=feedback)
