"""The options ``graph`` and ``boost``: links and the graph of a collection change the order.

``graph``: neighbours of the first hits, over links and chunk order, join the candidates. A
neighbour is scored as if the retrievers had found it, by its own cosine, and then moved slightly
towards the hit it is reached from.

``boost``: central or novel chunks score higher, by the values that the last analysis of the
collection stored with its chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

from ability_search.errors import DatabaseUnavailable
from ability_search.extensions.notes import Graph, GraphOptions
from ability_search.search.candidates import Candidate, Candidates, Path, adjust, scale
from ability_search.search.retrievers import candidate_of
from ability_search.search.stage import Phase, Ports, Stage, scorer
from ability_search.search.wants import OWN, Wants
from ability_search.store.records import Hops, Linked, Row, Search
from ability_search.store.values import Chunks

GRAPH, BOOST = "graph", "boost"
"""Names of the stages."""
SHARE = 0.2
"""Greatest share of the difference to the hit's score that a neighbour gains."""
HOP = 0.5
"""Factor on a path's strength for each further hop."""
ORDER = 0.5
"""Strength of the step between adjacent chunks of a text; that of a link is its weight."""
_STARTS = 5
"""Number of first hits to start from."""
_ORDER = "order"
"""Name of a step to an adjacent chunk."""


def strength(weights: Sequence[float]) -> float:
    """Return the strength of a path, 0 to 1.

    The product of its weights, halved for each hop after the first.

    Args:
        weights: Weights of the steps, at least one, each in [0, 1].
    """
    return float(prod(weights) * HOP ** (len(weights) - 1))


def lifted(score: float, start: float, strength: float) -> float:
    """Return the score of a neighbour, moved towards that of the hit it is reached from.

    It never exceeds that hit's score, and a higher score is unchanged. With cosines of .5 and .6
    and the strongest link the gain is .02: it decides between near ties.

    Args:
        score: Score of the neighbour, in [0, 1].
        start: Score of the hit.
        strength: Strength of the path between them, in [0, 1].
    """
    return score + SHARE * strength * max(0.0, start - score)


async def add_neighbours(option: Graph, candidates: Candidates, ports: Ports) -> None:
    """Add the neighbours of the first hits to the candidates.

    One of the first hits may itself be a neighbour of a better one that it is linked to.
    """
    request = candidates.request
    if request.vector is None or "semantic" in candidates.failed:
        candidates.warnings.append("graph: neighbours cannot be compared without a query vector")
        return
    starts = (await candidates.first_hits())[:_STARTS]
    adjacent = {} if option.kinds is not None else _adjacent(starts, option.hops)
    links = candidates.collection.links > 0
    if not starts or not (links or adjacent):
        return
    first: dict[str, Candidate] = {}
    for item in starts:
        first.setdefault(item.source, item)
    by = request.cosines.get(OWN, request.vector)
    limit = request.depths[0] - len(first)
    wanted: dict[str, Chunks | Linked] = {"beside": Chunks(ids=list(adjacent))}
    if links:
        wanted["linked"] = Linked(list(first), option.hops, option.kinds)
    searches = [
        Search(name, by, limit, candidates.query.filter, within=within, least=option.min_similarity)
        for name, within in wanted.items()
    ]
    try:
        answer = await ports.store.search(
            candidates.collection, searches, request.columns(request.vector)
        )
    except DatabaseUnavailable as exc:
        candidates.warnings.append(f"graph: neighbours were not added: {exc}")
        return
    rows = {row.chunk_id: row for name in wanted for row in answer.rows[name]}
    nearest = sorted(rows.values(), key=lambda row: (-row.score, row.handle))[:limit]
    linked = paths(
        {source: Path(item) for source, item in first.items()}, answer.hops.get("linked", ())
    )
    _join(candidates, first, adjacent, linked, nearest, option)


def paths(starts: Mapping[str, Path], hops: Hops) -> dict[str, Path]:
    """Return the path to each source: the one of fewest links, then of greatest strength.

    Args:
        starts: Empty paths by start source, best first. A start is reached again only from a
            better one.
        hops: For each hop the links from and to its starts.
    """
    places = {source: place for place, source in enumerate(starts)}
    reached: dict[str, Path] = {}
    here = dict(starts)
    for links in hops:
        new: dict[str, Path] = {}
        out, into = links
        steps = [(each.source, each.target, each) for each in out]
        steps += [(each.target, each.source, each) for each in into]
        for start, end, link in steps:
            if start not in here or end in reached or end == start:
                continue
            path = here[start].on(link.kind, link.weight)
            better = places[path.start.source] < places.get(end, len(places))
            if better and (end not in new or strength(path.weights) > strength(new[end].weights)):
                new[end] = path
        reached |= new
        here = {source: path for source, path in new.items() if source not in starts}
    return reached


def _adjacent(starts: Sequence[Candidate], hops: int) -> dict[str, Path]:
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


def _join(
    candidates: Candidates,
    first: Mapping[str, Candidate],
    adjacent: Mapping[str, Path],
    linked: Mapping[str, Path],
    rows: Iterable[Row],
    option: Graph,
) -> None:
    """Add the neighbours to the candidates, with their paths, and rank them, the nearest first."""
    known = {item.chunk_id: item for item in candidates.chunks}
    for row in rows:
        new = candidate_of(row, candidates.collection, depth=candidates.request.depths[0])
        item = known.setdefault(new.chunk_id, new)
        item.reach(new)
        item.reached = adjacent.get(item.chunk_id) or linked.get(item.source)
    for source, item in first.items():
        near = item.cosine is not None and item.cosine >= option.min_similarity
        if item.reached is None and near:
            item.reached = linked.get(source)
    present = {item.chunk_id for item in candidates.found}
    neighbours = [item for item in known.values() if item.reached is not None]
    neighbours.sort(key=lambda item: (-(item.cosine or 0.0), item.chunk_id))
    for rank, item in enumerate(neighbours, start=1):
        if rank <= item.depth:  # deeper ranks do not count
            item.ranks[GRAPH] = rank
        if item.chunk_id not in present:
            candidates.found.append(item)


def score_neighbours(_option: Graph, items: Sequence[Candidate], _candidates: Candidates) -> None:
    """Move the scores of neighbours towards those of the hits they are reached from."""
    scores = {item.chunk_id: item.score for item in items}
    for item in items:
        path = item.reached
        if path is not None and path.start.chunk_id in scores:
            strong = strength(path.weights)
            score = lifted(item.score, scores[path.start.chunk_id], strong)
            steps = {"from": path.start.chunk_id, "via": list(path.steps), "hops": len(path.steps)}
            adjust(item, GRAPH, score, strength=strong, **steps)


def score_boost(
    weights: Mapping[str, float], items: Sequence[Candidate], candidates: Candidates
) -> None:
    """Multiply scores by ``(1 + sum(w v)) / (1 + sum(w))``, which lies in [0, 1].

    A chunk without a value has the mean of the others. If no candidate has a value, nothing is
    changed, and a warning says so.

    Args:
        weights: Weight of each value, > 0.
        items: The candidates to score.
        candidates: All candidates of the collection; the mean is that of the first block.
    """
    means: dict[str, float] = {}
    for name in weights:
        stored = [item.columns.get(name) for item in candidates.blocks[0]]
        known = [value for value in stored if value is not None]
        if known:
            means[name] = sum(known) / len(known)
    if items and len(means) < len(weights):
        name = candidates.collection.public_name
        warning = f"boost: {name} was not analysed; call notes-analyze"
        if warning not in candidates.warnings:
            candidates.warnings.append(warning)
        return
    for item in items:
        own = {name: item.columns.get(name) for name in weights}
        values = {name: means[name] if at is None else at for name, at in own.items()}
        gained = sum(weight * values[name] for name, weight in weights.items())
        scale(item, BOOST, (1 + gained) / (1 + sum(weights.values())), **values)


def _weights(asked: GraphOptions) -> Mapping[str, float] | None:
    option = asked.boost
    given = {} if option is None else option.model_dump()
    return {name: weight for name, weight in given.items() if weight} or None


GRAPH_BOOST = scorer(
    BOOST, 80, score_boost, option=_weights, wants=lambda weights, _: Wants(fields=tuple(weights))
)
GRAPH_EXPANSION = Stage(GRAPH, Phase.FIND, 30, add_neighbours, option=lambda asked: asked.graph)
GRAPH_SCORES = scorer(GRAPH, 10, score_neighbours, option=lambda asked: asked.graph)
