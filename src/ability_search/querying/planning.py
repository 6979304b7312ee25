"""Planning: the database searches of a query. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ability_search.config.schema import Ranking
from ability_search.querying import (
    dating,
    diversity,
    exclusion,
    expanding,
    extending,
    fulltext,
    ordering,
    rewording,
    surroundings,
    temporal,
)
from ability_search.querying.candidates import OWN, Plan, Search
from ability_search.querying.model import Query
from ability_search.querying.phrasing import phrasing_of
from ability_search.querying.stages import columns
from ability_search.ranking.phrasing import Phrasing
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import QueryTerms, inverse_document_frequency, joined, query_terms
from ability_search.text.term_statistics import TermStatistics

_SEARCHED_BY = ("cosine", rewording.VECTOR, dating.BESIDE)

_WORDS = 8
"""Maximum number of query terms scored separately, the most informative ones."""

Vectors = Mapping[str, Sequence[float]]
"""Vectors of a query, by the column for a chunk's cosine to them; its own is ``cosine``."""


def needs_statistics(query: Query) -> bool:
    """Return whether the query needs term statistics."""
    return (
        query.mode != "semantic"
        or bool(query.excluded)
        or temporal.wanted(query)
        or ordering.wanted(query)
        or fulltext.wanted(query)
    )


def planned(
    query: Query,
    vectors: Vectors | None,
    statistics: TermStatistics | None,
    *,
    depth: int,
    language: str,
    ranking: Ranking,
) -> Plan:
    """Return the plan of a query's searches.

    Args:
        query: The query.
        vectors: The query's, by the name of :func:`.meaning.embedded_texts`; ``None`` without.
        statistics: Term statistics, if the query :func:`needs_statistics`.
        depth: Minimum number of candidates per retriever.
        language: Language of the collection.
        ranking: Defaults.
    """

    def weigh(text: str, but: Collection[str] = ()) -> QueryTerms:
        assert statistics is not None
        terms = [term for term in analyzer_for(language).query_terms(text) if term not in but]
        return query_terms(terms, statistics, title_weight=ranking.title_weight)

    def worded(terms: QueryTerms) -> QueryTerms:
        if not query.wording:
            return terms
        own = set(analyzer_for(language).query_terms(query.text))
        return joined(terms, weigh("\n".join(query.wording), but=own), weight=rewording.SHARE)

    depths = _depths(query, depth, ranking.candidates)
    topic = weigh(query.topic) if statistics is not None else None
    terms = weigh(query.words) if topic is not None and vectors is None else topic
    by = {
        "semantic": None if vectors is None else rewording.worded_vector(vectors),
        "keyword": None if query.mode == "semantic" or terms is None else worded(terms),
    }
    arms = {name: each for name, each in by.items() if each is not None}
    aspects = extending.aspect_searches(query, arms, depths[-1])
    products = exclusion.products(query, weigh) | dating.products(query, weigh)
    if full_text := fulltext.full_text_terms(query, statistics, language=language):
        arms[fulltext.NAME] = products[fulltext.NAME] = full_text
    predicate = extending.chunk_predicate(query)
    searches = [Search(name, each, depths[-1], predicate) for name, each in arms.items()]
    searches += aspects
    if arms and (dated := temporal.dated_search(query, next(iter(arms.values())), depths[0])):
        searches.append(dated)
    return Plan(
        searches=searches,
        depths=depths,
        beam=max(ranking.ef_search, depths[-1]),
        scan_below=ranking.scan_below,
        columns=[*columns(query), *extending.columns(query), *surroundings.columns(query)],
        first=expanding.learnable(query),
        cosines=_compared(vectors or {}),
        products=products,
        phrasing=_phrasing(query, arms, statistics, language=language, ranking=ranking),
        words=_words(query, arms, topic, language=language, ranking=ranking),
        informative=_informative(topic, statistics),
    )


def _words(
    query: Query,
    arms: Collection[str],
    topic: QueryTerms | None,
    *,
    language: str,
    ranking: Ranking,
) -> dict[str, QueryTerms]:
    """Return the topic's single terms, if both retrievers' scores are combined."""
    method = query.fusion.method if query.fusion else ranking.fusion
    if topic is None or method != "convex" or not _both(arms):
        return {}
    words = topic.of_each_term(analyzer_for(language).query_terms(query.topic), most=_WORDS)
    return {f"word{place}": word for place, word in enumerate(words)} if len(words) > 1 else {}


def _depths(query: Query, depth: int, candidates: int) -> tuple[int, ...]:
    """Return the depths of the plan: enough for the page and for what options read on any page."""
    wanted = [depth, expanding.learnable(query)]
    if query.options.reranker is not None:
        wanted.append(query.options.reranker.top)
    if diversity.wanted(query):
        wanted.append(diversity.reach(query.offset + query.limit))
    depths = [candidates]
    while depths[-1] < max(wanted):
        depths.append(2 * depths[-1])
    return tuple(depths)


def _compared(vectors: Vectors) -> Vectors:
    """Return the vectors that candidates are compared with, besides that of the search."""
    apart = {name: each for name, each in vectors.items() if name not in _SEARCHED_BY}
    return {OWN: vectors["cosine"], **apart} if rewording.VECTOR in vectors else apart


def _both(arms: Collection[str]) -> bool:
    return {"semantic", "keyword"} <= set(arms)


def _phrasing(
    query: Query,
    arms: Collection[str],
    statistics: TermStatistics | None,
    *,
    language: str,
    ranking: Ranking,
) -> Phrasing | None:
    if statistics is None or ranking.phrasing == 0 or not _both(arms):
        return None
    return phrasing_of(query, statistics, language=language)


def _informative(terms: QueryTerms | None, statistics: TermStatistics | None) -> float:
    if terms is None or statistics is None:
        return 0.0
    return terms.information / float(inverse_document_frequency([1], statistics.chunks)[0])
