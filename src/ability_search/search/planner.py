"""Planning: the searches of a query. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ability_search.search.candidates import OWN, By, Candidates, Plan, PlannedSearch, Vectors
from ability_search.search.query import COSINE, EXPANSION, WITHOUT_EVENT, Query
from ability_search.search.stages import full_text
from ability_search.search.stages.diversity import diversifies, reach_of
from ability_search.search.stages.exclusion_penalty import phrase_products
from ability_search.search.stages.kind_search import chunk_filter, kind_searches
from ability_search.search.stages.phrase_match import pairs_of
from ability_search.search.stages.pseudo_relevance import feedback_chunks
from ability_search.search.stages.query_expansion import SHARE, search_vector
from ability_search.search.stages.time_closeness import dated_search
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import QueryTerms, inverse_document_frequency, joined, query_terms

_SEARCHED_BY = (COSINE, EXPANSION, WITHOUT_EVENT)
_WORDS = 8
"""Maximum number of query terms scored separately, the most informative ones."""


def needs_statistics(query: Query) -> bool:
    """Return whether the query needs term statistics."""
    return (
        query.asked.mode != "semantic"
        or bool(query.excluded)
        or query.dates_count
        or (query.intent is not None and query.intent.order is not None)
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

    def weigh(text: str, but: Collection[str] = ()) -> QueryTerms:
        assert statistics is not None
        terms = [term for term in analyzer_for(language).query_terms(text) if term not in but]
        return query_terms(terms, statistics, title_weight=ranking.title_weight)

    def with_expansion(terms: QueryTerms) -> QueryTerms:
        if not query.expansion:
            return terms
        own = set(analyzer_for(language).query_terms(query.asked.query))
        return joined(terms, weigh("\n".join(query.expansion), but=own), weight=SHARE)

    topic = weigh(query.topic) if statistics is not None else None
    terms = weigh(query.words) if topic is not None and vectors is None else topic
    by: dict[str, By] = {}
    if vectors is not None:
        by["semantic"] = search_vector(vectors)
    if query.asked.mode != "semantic" and terms is not None:
        by["keyword"] = with_expansion(terms)
    both = len(by) == 2
    products = phrase_products(query, weigh)
    retrievers = dict(by)
    if in_fields := full_text.full_text_terms(query, statistics, language=language):
        retrievers[full_text.NAME] = products[full_text.NAME] = in_fields
    depths = _depths(query, candidates.depth, ranking.candidates)
    plan = Plan(
        searches=_searches(query, by, retrievers, depths),
        depths=depths,
        beam=max(ranking.ef_search, depths[-1]),
        scan_below=ranking.scan_below,
        fields=candidates.fields,
        first=feedback_chunks(query),
        cosines=_compared(vectors or {}),
        products=products,
    )
    if topic is None or statistics is None:
        return plan
    rarest = float(inverse_document_frequency([1], statistics.chunks)[0])
    return replace(
        plan,
        informative=topic.information / rarest,
        words=_words(query, topic, candidates) if both else {},
        phrases=pairs_of(query, statistics, language=language)
        if both and ranking.phrasing > 0
        else None,
    )


def _searches(
    query: Query, by: dict[str, By], retrievers: dict[str, By], depths: tuple[int, ...]
) -> list[PlannedSearch]:
    """Return the searches: of all retrievers, of kinds, and of the requested period."""
    filter = chunk_filter(query)
    searches = [PlannedSearch(name, each, depths[-1], filter) for name, each in retrievers.items()]
    searches += kind_searches(query, by, depths[-1])
    if retrievers:
        dated = dated_search(query, next(iter(retrievers.values())), depths[0])
        searches += [dated] if dated else []
    return searches


def _words(query: Query, topic: QueryTerms, candidates: Candidates) -> dict[str, QueryTerms]:
    """Return the topic's single terms, if scores are combined."""
    fusion = query.asked.fusion
    if (fusion.method if fusion else candidates.ranking.fusion) != "convex":
        return {}
    analyzer = analyzer_for(candidates.collection.language)
    words = topic.of_each_term(analyzer.query_terms(query.topic), most=_WORDS)
    return {f"word{place}": word for place, word in enumerate(words)} if len(words) > 1 else {}


def _depths(query: Query, depth: int, candidates: int) -> tuple[int, ...]:
    """Return the depths of the plan: enough for the page and for what options read on any page."""
    wanted = [depth, feedback_chunks(query)]
    if query.asked.reranker is not None:
        wanted.append(query.asked.reranker.top)
    if diversifies(query):
        wanted.append(reach_of(query.end))
    depths = [candidates]
    while depths[-1] < max(wanted):
        depths.append(2 * depths[-1])
    return tuple(depths)


def _compared(vectors: Vectors) -> Vectors:
    """Return the vectors that candidates are compared with, without that of the search."""
    apart = {name: each for name, each in vectors.items() if name not in _SEARCHED_BY}
    return {OWN: vectors[COSINE], **apart} if EXPANSION in vectors else apart
