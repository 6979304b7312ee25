"""The option ``graph``: graph expansion over links and chunk order.

Neighbours of the first hits join the candidates. A neighbour is scored as if the retrievers had
found it, by its own cosine, and then moved slightly towards the hit it is reached from, see
:mod:`ability_search.querying.lifting`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ability_search.errors import DatabaseUnavailable
from ability_search.querying.adjusting import Context
from ability_search.querying.candidates import OWN, Pool, candidate_of
from ability_search.querying.model import Candidate, Path, Query, QueryAnswer
from ability_search.querying.stages import foreseen
from ability_search.querying.steps import Look, Reach
from ability_search.ranking.graph import ORDER, strength
from ability_search.store import arcadedb

_STARTS = 5
"""Number of first hits to start from."""
_ORDER = "order"
"""Name of a step to an adjacent chunk."""

Found = Mapping[str, Sequence[Mapping[str, Any]]]


def wanted(query: Query) -> bool:
    """Return whether the query requests graph expansion."""
    return query.options.graph is not None


async def look(pool: Pool, context: Context, reach: Reach, answer: QueryAnswer) -> None:
    """Add the neighbours of the first hits to the candidates.

    One of the first hits may itself be a neighbour of a better one that it is linked to.
    """
    choice, plan = context.query.options.graph, context.plan
    if choice is None:
        return
    if plan.vector is None or "semantic" in pool.failed:
        answer.warnings.append("graph: neighbours cannot be compared without a query vector")
        return
    starts = foreseen(pool, context)[:_STARTS]
    beside = {} if choice.kinds is not None else _beside(starts, choice.hops)
    links = pool.collection.links > 0
    if not starts or not (links or beside):
        return
    first: dict[str, Candidate] = {}
    for item in starts:
        first.setdefault(item.source, item)
    try:
        found = await reach.store.read(
            *arcadedb.walk(
                pool.collection.type,
                list(first),
                plan.shown(plan.vector),
                context.query.predicate,
                hops=choice.hops,
                kinds=choice.kinds,
                links=links,
                beside=list(beside),
                by=OWN if OWN in plan.cosines else "cosine",
                least=choice.min_similarity,
                limit=plan.depths[0],
            )
        )
    except DatabaseUnavailable as exc:
        answer.warnings.append(f"graph: neighbours were not added: {exc}")
        return
    neighbours = _neighbours(pool, first, beside, found, choice.min_similarity)
    _join(pool, neighbours, most=plan.depths[0])


def paths(starts: Mapping[str, Path], found: Found) -> dict[str, Path]:
    """Return the path to each source: the one of fewest links, then of greatest strength.

    Args:
        starts: Empty paths by start source, best first. A start is reached again only from a
            better one.
        found: ``out1`` and ``in1`` hold the links from and to the starts, with their ``source,
            target, kind, weight``; the numbers count the hops.
    """
    places = {source: place for place, source in enumerate(starts)}
    reached: dict[str, Path] = {}
    here = dict(starts)
    hop = 1
    while f"out{hop}" in found:
        new: dict[str, Path] = {}
        for start, end, link in _steps(found, hop):
            if start not in here or end in reached or end == start:
                continue
            path = here[start].on(link["kind"], link["weight"])
            better = places[path.start.source] < places.get(end, len(places))
            if better and (end not in new or strength(path.weights) > strength(new[end].weights)):
                new[end] = path
        reached |= new
        here = {source: path for source, path in new.items() if source not in starts}
        hop += 1
    return reached


def _steps(found: Found, hop: int) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for link in found[f"out{hop}"]:
        yield link["source"], link["target"], link
    for link in found[f"in{hop}"]:
        yield link["target"], link["source"], link


def _beside(starts: Sequence[Candidate], hops: int) -> dict[str, Path]:
    """Return the shortest paths along chunk order, by chunkId; a start only from a better one."""
    places = {item.chunk_id: place for place, item in enumerate(starts)}
    found: dict[str, Path] = {}
    for distance in range(1, hops + 1):
        for place, item in enumerate(starts):
            head, _, number = item.chunk_id.rpartition(":")
            for other in (int(number) - distance, int(number) + distance):
                chunk_id = f"{head}:{other}"
                if other >= 0 and place < places.get(chunk_id, len(places)):
                    steps, weights = (_ORDER,) * distance, (ORDER,) * distance
                    found.setdefault(chunk_id, Path(item, steps, weights))
    return found


def _neighbours(
    pool: Pool,
    first: Mapping[str, Candidate],
    beside: Mapping[str, Path],
    found: Found,
    least: float,
) -> list[Candidate]:
    """Return the neighbours, each with its path.

    Args:
        pool: All candidates.
        first: The best hit of each start source, best first.
        beside: Paths to chunks.
        found: Rows of the graph query.
        least: Minimum cosine of a neighbour.
    """
    linked = paths({source: Path(item) for source, item in first.items()}, found)
    known = {item.chunk_id: item for item in pool.chunks}
    for row in found["found"]:
        new = candidate_of(row, row["cosine"])
        item = known.setdefault(new.chunk_id, new)
        item.reached = beside.get(item.chunk_id) or linked.get(item.source)
    for source, item in first.items():
        if item.reached is None and item.cosine is not None and item.cosine >= least:
            item.reached = linked.get(source)
    return [item for item in known.values() if item.reached is not None]


def _join(pool: Pool, neighbours: Iterable[Candidate], *, most: int) -> None:
    """Add the nearest neighbours to the candidates, and rank them as neighbours."""
    present = {item.chunk_id for item in pool.candidates}
    ordered = sorted(neighbours, key=lambda item: (-(item.cosine or 0.0), item.chunk_id))
    for item in ordered[most:]:
        item.reached = None
    for rank, item in enumerate(ordered[:most], start=1):
        item.ranks[GRAPH.name] = rank
        if item.chunk_id not in present:
            pool.candidates.append(item)


GRAPH = Look("graph", wanted, look)
