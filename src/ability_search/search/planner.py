"""Planning: the searches of a query. Pure."""

from __future__ import annotations

from dataclasses import replace

from ability_search.extensions.kinds.kind_search import chunk_filter, kind_filter
from ability_search.extensions.understanding.exclusion_penalty import phrase_products
from ability_search.extensions.understanding.query_expansion import SHARE, search_vector
from ability_search.extensions.understanding.time_closeness import dated_filter
from ability_search.search.candidates import Candidates
from ability_search.search.fusion import trust
from ability_search.search.plan import FULL_TEXT, OWN, Plan, Vectors
from ability_search.search.query import COSINE, EXPANSION, Query
from ability_search.search.stages.diversity import reach_of
from ability_search.search.stages.full_text import full_text_terms
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import QueryTerms, inverse_document_frequency, joined, query_terms

_SEARCHED_BY = (COSINE, EXPANSION)


def needs_statistics(query: Query) -> bool:
    """Return whether the query needs term statistics."""
    return (
        query.asked.mode != "semantic"
        or bool(query.intent.excluded)
        or query.intent.period is not None
        or query.intent.order is not None
        or query.full_text is not None
    )


def planned(candidates: Candidates, query: Query, vectors: Vectors | None) -> Plan:
    """Return the plan of a query's searches.

    Args:
        candidates: The collection and its term statistics, the depth and the fields.
        query: The query.
        vectors: Its vectors; ``None`` without.
    """
    ranking, statistics = candidates.ranking, candidates.statistics
    language = candidates.collection.language
    depths = _depths(query, candidates.depth, ranking.candidates)
    plan = Plan(
        vector=None if vectors is None else search_vector(vectors),
        filter=chunk_filter(query),
        kinds=kind_filter(query),
        dated=dated_filter(query),
        depths=depths,
        beam=ranking.ef_search,
        scan_below=ranking.scan_below,
        fields=candidates.fields,
        first=query.feedback.chunks if query.feedback else 0,
        cosines=_compared(vectors or {}),
    )
    if statistics is None:
        return plan

    analyzer = analyzer_for(language)

    def weigh(text: str) -> QueryTerms:
        return query_terms(analyzer.query_terms(text), statistics)

    def extended(terms: QueryTerms, further: str, known: str, weight: float) -> QueryTerms:
        own = set(analyzer.query_terms(known))
        added = [term for term in analyzer.query_terms(further) if term not in own]
        return joined(terms, query_terms(added, statistics), weight=weight)

    topic = weigh(query.intent.topic)
    terms = None
    if query.asked.mode != "semantic":
        terms = topic
        if query.intent.words != query.intent.topic:
            # The words of a time add nothing to a model that knows the texts.
            share = SHARE if vectors is None else SHARE * (1 - trust(candidates.collection))
            terms = extended(terms, query.intent.words, query.intent.topic, share)
        if query.expansion:
            terms = extended(terms, "\n".join(query.expansion), query.asked.query, SHARE)
    products = phrase_products(query, weigh)
    if in_fields := full_text_terms(query, statistics, language=language):
        products[FULL_TEXT] = in_fields
    rarest = float(inverse_document_frequency([1], statistics.chunks)[0])
    return replace(
        plan,
        terms=terms,
        products=products,
        specific=min(1.0, max(topic.weights, default=0.0) / rarest),
        informative=topic.information / rarest,
    )


def ranked_for(query: Query) -> int:
    """Return how many ranked candidates the page and the options read."""
    asked = query.asked
    read = asked.reranker.top if asked.reranker is not None else 0
    compared = reach_of(query.end) if query.diversity is not None else 0
    return max(query.end, read, compared)


def _depths(query: Query, depth: int, candidates: int) -> tuple[int, ...]:
    """Return the depths of the plan; the page decides only how many there are."""
    depths = [max(candidates, query.feedback.chunks if query.feedback else 0)]
    while depths[-1] < max(depth, ranked_for(query)):
        depths.append(2 * depths[-1])
    return tuple(depths)


def _compared(vectors: Vectors) -> Vectors:
    """Return the vectors that candidates are compared with, without that of the search."""
    apart = {name: each for name, each in vectors.items() if name not in _SEARCHED_BY}
    return {OWN: vectors[COSINE], **apart} if EXPANSION in vectors else apart
