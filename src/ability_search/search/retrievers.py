"""Retrievers: the candidates of a query, from the store in one round trip."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ability_search.collection import Collection
from ability_search.errors import InvalidInput, NotFound, StatementRefused
from ability_search.filters.tree import combine
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.fusion import expected_orders, trust
from ability_search.search.query_vectors import moved_vector
from ability_search.search.response import Degraded
from ability_search.search.stage import Ports
from ability_search.search.wants import COSINE, OWN, Product, SearchRequest, Vectors, Wants
from ability_search.store.index_doubts import INDEX_DOUBTED, IndexDoubts
from ability_search.store.records import Ahead, Row, Search, Searched
from ability_search.text.analyzer import analyzer_for
from ability_search.text.bm25 import QueryTerms, joined, query_terms, rarest_idf, terms_in_fields
from ability_search.text.term_statistics import TermStatistics

log = logging.getLogger(__name__)

Lists = Mapping[str, Sequence[Row]]
"""Rows found by each retriever, by its name."""

_OTHER: Mapping[str, str] = {"semantic": "keyword", "keyword": "semantic"}

_READ_AHEAD = 50
"""Hits of the longest page whose texts are read with the candidates."""


def requested(candidates: Candidates) -> SearchRequest:
    """Return the searches for what is wanted, with the vectors and the term statistics.

    Raises:
        InvalidInput: if words are wanted in another language than the collection's.
    """
    query, wants, ranking = candidates.query, candidates.wants, candidates.ranking
    vectors, statistics = candidates.vectors, candidates.statistics
    filter, depths = query.filter, [ranking.candidates]
    while depths[-1] < max(candidates.depth, wants.depth) + wants.spare:
        depths.append(2 * depths[-1])  # the page decides only how many there are
    request = SearchRequest(
        vector=None if vectors is None else _search_vector(vectors, wants),
        filter=filter if wants.narrow is None else combine(wants.narrow, filter),
        further=wants.searches,
        depths=tuple(depths),
        fields=wants.fields,
        cosines=_compared(vectors or {}, wants),
    )
    if statistics is None:
        return request
    analyzer = analyzer_for(candidates.collection.language)
    topic = query_terms(analyzer.query_terms(query.topic), statistics)
    rarest = rarest_idf(statistics.chunks)
    return replace(
        request,
        terms=None if query.asked.mode == "semantic" else _terms(topic, candidates, statistics),
        products={
            name: _product(name, product, candidates.collection, statistics)
            for name, product in wants.products.items()
        },
        retrieving=[name for name, product in wants.products.items() if product.retrieves],
        specific=min(1.0, max(topic.weights, default=0.0) / rarest),
        informative=topic.information / rarest,
    )


def _search_vector(vectors: Vectors, wants: Wants) -> Sequence[float]:
    """Return the query vector, moved towards those of further texts if there are any."""
    if not wants.towards:
        return vectors[COSINE]
    further = [vectors[name] for name in wants.towards]
    moved: list[float] = moved_vector(
        vectors[COSINE], further, [*wants.towards.values()], beta=1.0
    ).tolist()
    return moved


def _compared(vectors: Vectors, wants: Wants) -> Vectors:
    """Return the vectors that candidates are compared with, without that of the search."""
    apart = {
        name: vector
        for name, vector in vectors.items()
        if name != COSINE and name not in wants.towards
    }
    return {OWN: vectors[COSINE], **apart} if vectors and wants.towards else apart


def _terms(topic: QueryTerms, candidates: Candidates, statistics: TermStatistics) -> QueryTerms:
    """Return the terms of the keyword retriever: those of the topic, and further words."""
    analyzer = analyzer_for(candidates.collection.language)
    terms = topic
    for words in candidates.wants.words:
        weight = words.weight
        if words.untrusted and candidates.vectors is not None:
            weight *= 1 - trust(candidates.collection)
        known = set(analyzer.query_terms(words.known))
        added = [term for term in analyzer.query_terms(words.text) if term not in known]
        terms = joined(terms, query_terms(added, statistics), weight=weight)
    return terms


def _product(
    name: str, product: Product, collection: Collection, statistics: TermStatistics
) -> QueryTerms:
    analyzer = analyzer_for(collection.language)
    if product.language and product.language.strip().lower() != analyzer.language:
        raise InvalidInput(
            f"{name}.language",
            f"the collection is analyzed as {collection.language!r}",
            hint="Omit language, or use search-reindex to change the collection's.",
        )
    terms = analyzer.query_terms(product.text)
    if not product.fields:
        return query_terms(terms, statistics)
    return terms_in_fields(terms, statistics, dict.fromkeys(product.fields, 1.0))


async def retrieve(candidates: Candidates, ports: Ports) -> bool:
    """Search for the candidates; the failure of one search leaves the others, with a warning.

    A search that was too slow, or conflicted, is not repeated.

    Returns:
        False if the collection is no longer what its record says, such as on another generation;
        the candidates are unchanged then.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if all searches failed.
    """
    request, assumed = candidates.request, candidates.collection
    searches = request.searches()
    failed: dict[str, str] = {}
    try:
        current, lists = await _search(assumed, request, searches, ports, _ahead(candidates))
    except StatementRefused as exc:
        if len(searches) < 2 or exc.reason != "other":
            raise
        log.warning("combined search failed, searching each retriever: %s", exc.detail[:500])
        current, lists = assumed, {}
        for search in searches:
            try:
                current, found = await _search(assumed, request, [search], ports)
            except StatementRefused as refused:
                failed[search.name], last = str(refused), refused
            else:
                lists = {**lists, **found}
        if not lists:
            raise last from exc
    if not request.holds(assumed, current):
        return False
    candidates.collection = current
    candidates.found = await ports.turns.run(
        lambda: pooled(lists, current, request.depths),
        work=sum(map(len, lists.values())),
    )
    candidates.failed = failed
    candidates.unfinished = [
        each.name
        for each in searches
        if each.limit == request.depths[-1] and len(lists.get(each.name, ())) >= each.limit
    ]
    _report(candidates)
    _report_doubts(candidates, ports.registry.doubts)
    return True


async def _search(
    collection: Collection,
    request: SearchRequest,
    searches: Sequence[Search],
    ports: Ports,
    ahead: Ahead | None = None,
) -> tuple[Collection, Lists]:
    """Run some of the searches; return the collection as it is now, and their rows.

    There are no rows if it is on another generation.
    """
    # Without a search by its vector, compare nothing with it: that may be what failed.
    by_vector = request.names("semantic")
    compares = any(each.name in by_vector for each in searches)
    columns = request.columns(request.vector if compares else None)

    async def ask(known: Collection) -> Searched:
        return await ports.store.search(known, searches, columns, ahead=ahead)

    current, read = await ports.registry.ask(collection, ask)
    if current is None:
        raise NotFound("collection", collection.name)
    return current, {} if read is None else read.rows


def _ahead(candidates: Candidates) -> Ahead | None:
    """Return which texts to read with the search: those that probably are the page."""
    query = candidates.query
    if query.several or query.end > _READ_AHEAD:
        return None
    return Ahead(query.end + candidates.wants.spare, expected_orders(candidates))


def _report(candidates: Candidates) -> None:
    """Warn of retrievers that failed, and mark the answer as degraded."""
    for name, reason in candidates.failed.items():
        candidates.warn(f"the {name} retriever failed: {reason}")
        if name in _OTHER and candidates.degraded is None:
            candidates.degraded = Degraded(
                reason=reason, code="database_unavailable", mode=_OTHER[name]
            )


def _report_doubts(candidates: Candidates, doubts: IndexDoubts) -> None:
    """Mark an answer with keyword results as degraded while their index may be incomplete."""
    mode = candidates.query.asked.mode
    reason = doubts.reason(candidates.collection.type)
    if reason is None or mode == "semantic":
        return
    if candidates.degraded is None:
        candidates.degraded = Degraded(reason=reason, code=INDEX_DOUBTED, mode=mode)
    elif candidates.degraded.code != INDEX_DOUBTED:
        candidates.warn(reason)


def pooled(lists: Lists, collection: Collection, depths: Sequence[int]) -> list[Candidate]:
    """Merge the rows of all retrievers, each chunk once.

    Args:
        lists: Rows by retriever name, best first, in the order of the searches; if a chunk was
            replaced in between, the last search wins.
        collection: Their collection.
        depths: Depths of the request.
    """
    pool: dict[str, Candidate] = {}
    first = depths[0]
    for name, rows in lists.items():
        for rank, row in enumerate(rows, start=1):
            depth = first if rank <= first else depths[bisect_left(depths[:-1], rank)]
            candidate = pool.get(row.chunk_id)
            if candidate is None or candidate.handle != row.handle:
                candidate = pool[row.chunk_id] = candidate_of(row, collection, depth=depth)
            elif candidate.columns is not row.columns or depth < candidate.depth:
                candidate.reach(candidate_of(row, collection, depth=depth))
            candidate.ranks[name] = rank
            candidate.values[name] = row.score
    return list(pool.values())


def candidate_of(row: Row, collection: Collection, *, depth: int) -> Candidate:
    """Return the candidate of a row, with its cosines to the vector of the search and the query."""
    columns, searched = row.columns, row.columns.get(COSINE)
    cosine, moved = (columns[OWN], searched) if OWN in columns else (searched, None)
    found = row.handle, row.chunk_id, depth, collection
    return Candidate(*found, cosine, moved, columns=columns, row=row.text)


def explained_retrieval(candidates: Candidates) -> dict[str, Any]:
    """Return how the candidates were found, for ``explain``."""
    request, terms, collection = candidates.request, candidates.request.terms, candidates.collection
    found = {
        "arms": [search.name for search in request.searches()],
        "candidates": len(candidates.found),
        "candidatesPerArm": request.depths[-1],
        "vectorSearch": None
        if request.vector is None
        else "scan"
        if collection.scanned(below=candidates.ranking.scan_below)
        else "graph",
        "terms": None if terms is None else len(terms.ids),
        "generation": collection.generation,
        "revision": collection.revision,
        "filtered": candidates.query.filter is not None,
    }
    if request.vector is not None:
        found["calibration"] = {
            name: getattr(collection, name) for name in ("chance", "near", "agreement")
        }
    if len(candidates.weights) > 1:
        found["weights"] = dict(candidates.weights)
    return found | candidates.explained
