"""Retrievers: the candidates of a query, from the store in one round trip."""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import NotFound, StatementRefused
from ability_search.search.candidates import OWN, Candidate, Candidates, Plan, PlannedSearch
from ability_search.search.stage import Ports
from ability_search.store.records import Read, Row, Search, SparseVector, TermSearch, VectorSearch
from ability_search.text.bm25 import QueryTerms

log = logging.getLogger(__name__)

Lists = Mapping[str, Sequence[Row]]
"""Rows found by each retriever, by its name."""


async def retrieve(candidates: Candidates, plan: Plan, ports: Ports) -> None:
    """Replace the candidates by those of a plan; the failure of one search leaves the others.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if all searches failed.
    """
    collection = candidates.collection
    failed: dict[str, str] = {}
    try:
        current, lists = await _search(collection, plan, plan.searches, ports)
    except StatementRefused as exc:
        if len(plan.searches) < 2:
            raise
        log.warning("combined search failed, searching each retriever: %s", exc.detail[:500])
        current, lists, failed = await _search_each(collection, plan, ports)
    compared = {each.name for each in plan.searches if each.by is plan.vector}
    candidates.plan = plan
    candidates.searched = current
    candidates.found = pooled(lists, current, compared=compared)
    candidates.failed = failed
    candidates.exhausted = _exhausted(lists, plan)


async def _search_each(
    collection: Collection, plan: Plan, ports: Ports
) -> tuple[Collection, Lists, dict[str, str]]:
    """Run each search by itself; return the rows, and the reasons of the failures."""
    lists: dict[str, Sequence[Row]] = {}
    failed: dict[str, str] = {}
    for each in plan.searches:
        try:
            current, found = await _search(collection, plan, [each], ports)
        except StatementRefused as exc:
            failed[each.name] = str(exc)
            last = exc
        else:
            lists |= found
    if not lists:
        raise last
    return current, lists, failed


async def _search(
    collection: Collection, plan: Plan, searches: Sequence[PlannedSearch], ports: Ports
) -> tuple[Collection, Lists]:
    # Without the semantic retriever, compare nothing with its vector: that may be what failed.
    compared = plan.vector if any(each.name == "semantic" for each in searches) else None
    columns = plan.columns(compared)

    async def ask(current: Collection) -> Read[Lists]:
        wanted = [_stored(each, plan, current) for each in searches]
        return await ports.store.search(current, wanted, columns, first=plan.first)

    found = await ports.registry.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.name)
    return found


def _stored(search: PlannedSearch, plan: Plan, collection: Collection) -> Search:
    """Return the search as the store takes it."""
    by = search.by
    if isinstance(by, QueryTerms):
        words = plan.words if by is plan.terms else {}
        return TermSearch(
            search.name,
            SparseVector(by.ids, by.weights),
            search.limit,
            search.filter,
            search.kinds,
            products={name: SparseVector(each.ids, each.weights) for name, each in words.items()},
        )
    exact = (
        collection.kinds_scanned(below=plan.scan_below) if search.kinds else plan.exact(collection)
    )
    return VectorSearch(
        search.name, by, search.limit, plan.beam, exact, search.filter, search.kinds
    )


def _exhausted(lists: Lists, plan: Plan) -> bool:
    growing = [each for each in plan.searches if each.limit == plan.depths[-1]]
    return all(len(lists.get(each.name, ())) < each.limit for each in growing)


def pooled(
    lists: Lists, collection: Collection, *, compared: Container[str] = ("semantic",)
) -> list[Candidate]:
    """Merge the rows of all retrievers, each chunk once.

    Args:
        lists: Rows by retriever name, in the order of the searches; if a chunk was replaced in
            between, the last search wins.
        collection: Their collection.
        compared: The retrievers whose scores are cosines to the query vector.
    """
    pool: dict[str, Candidate] = {}
    for name, rows in lists.items():
        ordered = sorted(rows, key=lambda row: (-row.score, row.chunk_id))
        for rank, row in enumerate(ordered, start=1):
            candidate = pool.get(row.chunk_id)
            if candidate is None or candidate.rid != row.rid:
                cosine = row.score if name in compared else row.columns.get("cosine")
                candidate = pool[row.chunk_id] = candidate_of(row, cosine, collection)
            elif name not in compared:
                candidate.columns = {**row.columns, **candidate.columns}
            candidate.ranks[name] = rank
            candidate.values[name] = row.score
    return list(pool.values())


def candidate_of(row: Row, cosine: float | None, collection: Collection) -> Candidate:
    """Return the candidate of a row, with its cosine to the vector that was searched by."""
    candidate = Candidate(row.rid, row.chunk_id, cosine, columns=row.columns, collection=collection)
    if OWN in row.columns:
        candidate.cosine, candidate.moved = row.columns[OWN], cosine
    return candidate


def explained(candidates: Candidates) -> dict[str, Any]:
    """Return how the candidates were found, for ``explain``."""
    query, plan, terms = candidates.query, candidates.plan, candidates.plan.terms
    floor = query.asked.min_score
    found = {
        "arms": [search.name for search in plan.searches],
        "candidates": len(candidates.found),
        "candidatesPerArm": plan.depths[-1],
        "vectorSearch": None
        if plan.vector is None
        else "scan"
        if plan.exact(candidates.collection)
        else "graph",
        "terms": None if terms is None else len(terms.ids),
        "generation": candidates.collection.generation,
        "revision": candidates.collection.revision,
        "filtered": query.filter is not None,
    }
    further = {
        "expandQuery": list(query.expansion) or None,
        "prf": plan.learned,
        "minScore": None if floor is None else {"floor": floor, "leftOut": candidates.below},
    }
    return found | {name: value for name, value in further.items() if value is not None}
