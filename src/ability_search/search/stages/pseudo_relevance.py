"""Pseudo-relevance feedback: a second search with what the first hits add to the query.

The query vector moves towards the first hits (Rocchio), and their characteristic terms join its
own (RM3). The candidates of this second search replace the first ones. Only ``minScore`` still
uses the cosine to the query's own vector.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ability_search.documents import Floats
from ability_search.errors import DatabaseUnavailable
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.options import Feedback
from ability_search.search.plan import OWN, Plan
from ability_search.search.retrievers import retrieve
from ability_search.search.stage import Ports, option_stage
from ability_search.text.bm25 import QueryTerms, inverse_document_frequency, joined
from ability_search.text.term_ids import are_of_content
from ability_search.text.term_statistics import TermStatistics

TAU: Final = 0.1
"""Difference in score that makes a factor of e in the weight of a hit."""


def feedback_weights(scores: npt.ArrayLike) -> Floats:
    """Return the weight of each hit: ``exp((s_j - s_1) / tau)``, scaled to sum 1.

    A clear winner gets nearly all the weight; hits of equal score get equal weights.

    Args:
        scores: scores of the hits, the best of them ``s_1``, shape (m,), m >= 1.
    """
    found = np.asarray(scores, dtype=np.float64)
    raw = np.exp((found - found.max()) / TAU)
    return np.asarray(raw / raw.sum())


def moved_vector(
    vector: npt.ArrayLike, examples: npt.ArrayLike, weights: npt.ArrayLike, *, beta: float
) -> Floats:
    """Return the query vector moved towards its first hits, ``q + beta sum_j w_j t_j``, normalized.

    Args:
        vector: query vector of unit length, shape (d,).
        examples: vectors of the m feedback hits, of unit length, shape (m, d).
        weights: weights of those m, shape (m,), summing to 1.
        beta: how far the vector moves.

    Returns:
        Shape (d,), of unit length; the query vector itself if the sum is zero.
    """
    own, towards, share = (np.asarray(each, np.float64) for each in (vector, examples, weights))
    moved = own + beta * share @ towards
    length = float(np.linalg.norm(moved))
    return np.asarray(moved / length if length > 0 else own)


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


async def search_again(option: Feedback, candidates: Candidates, ports: Ports) -> None:
    """Search again with the query expanded by its first hits; unchanged if none is similar enough.

    Raises:
        NotFound: if the collection is gone.
    """
    plan = candidates.plan
    examples = _examples(await candidates.first_hits(), plan, option)
    if not examples:
        candidates.plan = replace(plan, learned={"chunks": {}, "terms": 0})
        return
    try:
        await retrieve(candidates, expanded(plan, examples, option, candidates.statistics), ports)
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"pseudo-relevance feedback was not applied: {exc}")
        return
    if candidates.query.asked.explain:
        for item in candidates.found:
            item.trace[NAME] = {"cosine": item.moved, "bm25": item.bm25}


def _examples(hits: Sequence[Candidate], plan: Plan, option: Feedback) -> list[Candidate]:
    """Return the first hits of the least similarity required; by keyword score without a vector."""

    def similarity(item: Candidate) -> float:
        return item.fused if plan.vector is None else item.cosine or 0.0

    known = [item for item in hits if item.columns.get("embedding") is not None]
    return [item for item in known[: option.chunks] if similarity(item) >= option.min_similarity]


def expanded(
    plan: Plan, examples: Sequence[Candidate], option: Feedback, statistics: TermStatistics | None
) -> Plan:
    """Return the plan of the expanded query.

    Args:
        plan: Plan of the original query.
        examples: The feedback hits, best first, with their terms and embeddings; at least one.
        option: The feedback options.
        statistics: Term statistics of the collection, if terms are searched.
    """
    shares = feedback_weights([item.score for item in examples])
    vector, terms = plan.vector, plan.terms
    added = 0
    if vector is not None:
        embeddings = [item.columns["embedding"] for item in examples]
        vector = moved_vector(vector, embeddings, shares, beta=option.weight).tolist()
    if terms is not None and statistics is not None:
        named = [terms, *plan.products.values()]
        further = expansion_terms(
            [(item.columns["terms"], item.columns["weights"]) for item in examples],
            shares,
            statistics,
            own={each for one in named for each in one.ids},
            count=option.terms,
        )
        added = len(further.ids)
        terms = joined(terms, further, weight=option.weight)
    return replace(
        plan,
        vector=vector,
        terms=terms,
        cosines=plan.cosines if plan.vector is None else {OWN: plan.vector, **plan.cosines},
        first=0,
        learned={
            "chunks": dict(zip([item.chunk_id for item in examples], shares.tolist(), strict=True)),
            "terms": added,
        },
    )


NAME = "prf"
PSEUDO_RELEVANCE = option_stage(
    NAME, lambda query: query.feedback, search_again, when=lambda candidates: not candidates.failed
)
