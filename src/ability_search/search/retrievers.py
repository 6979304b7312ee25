"""Retrievers: the candidates of a query, from the store in one round trip."""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Container, Mapping, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import NotFound, StatementRefused
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.plan import OWN, Plan
from ability_search.search.stage import Ports
from ability_search.store.records import Row, Searched

log = logging.getLogger(__name__)

Lists = Mapping[str, Sequence[Row]]
"""Rows found by each retriever, by its name."""


async def retrieve(candidates: Candidates, plan: Plan, ports: Ports) -> None:
    """Replace the candidates by those of a plan; the failure of one search leaves the others.

    A search that was too slow, or conflicted, is not repeated.

    Raises:
        NotFound: if the collection is gone.
        DatabaseUnavailable: if all searches failed.
    """
    names = [each.name for each in plan.searches(candidates.collection)]
    failed: dict[str, str] = {}
    try:
        current, lists = await _search(candidates.collection, plan, names, ports)
    except StatementRefused as exc:
        if len(names) < 2 or exc.reason != "other":
            raise
        log.warning("combined search failed, searching each retriever: %s", exc.detail[:500])
        current = candidates.collection
        lists = {}
        for name in names:
            try:
                current, found = await _search(current, plan, [name], ports)
            except StatementRefused as refused:
                failed[name], last = str(refused), refused
            else:
                lists = {**lists, **found}
        if not lists:
            raise last from exc
    candidates.plan = plan
    candidates.collection = current
    candidates.found = await ports.turns.run(
        lambda: pooled(lists, current, plan.depths, compared=plan.names("semantic")),
        work=sum(map(len, lists.values())),
    )
    candidates.failed = failed
    candidates.unfinished = [
        each.name
        for each in plan.searches(current)
        if each.limit == plan.depths[-1] and len(lists.get(each.name, ())) >= each.limit
    ]


async def _search(
    collection: Collection, plan: Plan, names: Sequence[str], ports: Ports
) -> tuple[Collection, Lists]:
    """Run the searches of these names; return the collection as it is now, and their rows."""
    # Without the semantic retriever, compare nothing with its vector: that may be what failed.
    columns = plan.columns(plan.vector if "semantic" in names else None)

    async def ask(current: Collection) -> Searched[Lists]:
        wanted = [each for each in plan.searches(current) if each.name in names]
        return await ports.store.search(current, wanted, columns, first=plan.first)

    found = await ports.registry.consult(collection, ask)
    if found is None:
        raise NotFound("collection", collection.name)
    return found[0], found[1].value


def pooled(
    lists: Lists,
    collection: Collection,
    depths: Sequence[int],
    *,
    compared: Container[str] = ("semantic",),
) -> list[Candidate]:
    """Merge the rows of all retrievers, each chunk once.

    Args:
        lists: Rows by retriever name, best first, in the order of the searches; if a chunk was
            replaced in between, the last search wins.
        collection: Their collection.
        depths: Depths of the plan.
        compared: The retrievers whose scores are cosines to the query vector.
    """
    pool: dict[str, Candidate] = {}
    for name, rows in lists.items():
        for rank, row in enumerate(rows, start=1):
            cosine = row.score if name in compared else row.columns.get("cosine")
            depth = depths[min(bisect_left(depths, rank), len(depths) - 1)]
            found = candidate_of(row, cosine, collection, depth=depth)
            candidate = pool.get(row.chunk_id)
            if candidate is None or candidate.handle != row.handle:
                candidate = pool[row.chunk_id] = found
            else:
                candidate.reach(found)
            candidate.ranks[name] = rank
            candidate.values[name] = row.score
    return list(pool.values())


def candidate_of(
    row: Row, cosine: float | None, collection: Collection, *, depth: int
) -> Candidate:
    """Return the candidate of a row, with its cosine to the vector that was searched by."""
    candidate = Candidate(
        row.handle, row.chunk_id, cosine, depth=depth, columns=row.columns, collection=collection
    )
    if OWN in row.columns:
        candidate.cosine, candidate.moved = row.columns[OWN], cosine
    return candidate


def explained_retrieval(candidates: Candidates) -> dict[str, Any]:
    """Return how the candidates were found, for ``explain``."""
    query, plan, terms = candidates.query, candidates.plan, candidates.plan.terms
    floor = query.asked.min_score
    found = {
        "arms": [search.name for search in plan.searches(candidates.collection)],
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
        "calibration": None
        if plan.vector is None
        else {
            "chance": candidates.collection.chance,
            "near": candidates.collection.near,
            "agreement": candidates.collection.agreement,
        },
        "weights": dict(candidates.weights) if len(candidates.weights) > 1 else None,
        "prf": plan.learned,
        "minScore": None if floor is None else {"floor": floor, "leftOut": candidates.below},
    }
    return found | {name: value for name, value in further.items() if value is not None}
