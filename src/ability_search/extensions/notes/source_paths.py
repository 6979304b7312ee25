"""Paths between two sources over links, and the neighbours that they have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from ability_search.collection import Collection
from ability_search.extensions.notes.graph_stages import strength
from ability_search.extensions.notes.note_tools import SourceConnection, SourcePath
from ability_search.search.similar import start_chunk
from ability_search.search.stage import Ports
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.records import SourceLink
from ability_search.store.values import Links, Read

_LINKS = 1000
"""Links to read at once, the strongest first."""


async def connection(
    ports: Ports,
    name: str,
    start: str,
    end: str,
    *,
    hops: int,
    limit: int,
    shown: Callable[[str], bool],
) -> SourceConnection:
    """Return how two sources of a collection are connected; links are followed in both directions.

    One read for each source and each hop.

    Args:
        ports: Ports of a query.
        name: Their collection.
        start: Source where the paths begin.
        end: Source where they end, another one.
        hops: Maximum number of links of a path, 1 to 3.
        limit: Maximum number of paths, and of common neighbours.
        shown: Whether a source may be returned.

    Raises:
        NotFound: if there is no such collection, or no such source in it.
    """
    collection, _chunk = await start_chunk(ports, name, None, start, shown=shown)
    await start_chunk(ports, name, None, end, shown=shown)
    links: list[SourceLink] = []
    if collection.links:
        links = await _read(ports.store, collection, [start], shown)
        if hops > 1:
            links += await _read(ports.store, collection, [end], shown)
        if hops > 2:
            near = {link.target for link in links} | {link.source for link in links}
            links += await _read(ports.store, collection, sorted(near - {start, end}), shown)
    steps = _strongest(links)
    common = [source for source in steps[start] if source in steps[end]]
    common.sort(key=lambda each: (-steps[start][each].weight * steps[end][each].weight, each))
    found = sorted(
        _paths(steps, [start], end, hops),
        key=lambda path: (len(path.sources), -path.strength, path.sources),
    )
    return SourceConnection(paths=found[:limit], common=common[:limit] if hops > 1 else [])


async def _read(
    store: Store, collection: Collection, sources: Sequence[str], shown: Callable[[str], bool]
) -> list[SourceLink]:
    if not sources:
        return []
    found = await read_all(store, Read(Links(sources), collection, limit=_LINKS))
    return [link for link in found if shown(link.source) and shown(link.target)]


Steps = Mapping[str, Mapping[str, SourceLink]]


def _strongest(links: Iterable[SourceLink]) -> Steps:
    """Return the strongest link between two sources, by one and then by the other."""
    steps: defaultdict[str, dict[str, SourceLink]] = defaultdict(dict)
    for link in links:
        for one, other in ((link.source, link.target), (link.target, link.source)):
            known = steps[one].get(other)
            if known is None or (-link.weight, link.kind) < (-known.weight, known.kind):
                steps[one][other] = link
    return steps


def _paths(steps: Steps, begun: Sequence[str], end: str, hops: int) -> Iterable[SourcePath]:
    """Return all paths that continue ``begun``, and pass no source twice."""
    for source in steps.get(begun[-1], ()):
        path = [*begun, source]
        if source == end:
            taken = [steps[one][other] for one, other in zip(path, path[1:], strict=False)]
            yield SourcePath(
                sources=path,
                via=[link.kind for link in taken],
                strength=round(strength([link.weight for link in taken]), 6),
            )
        elif hops > 1 and source not in begun:
            yield from _paths(steps, path, end, hops - 1)
