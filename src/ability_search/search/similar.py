"""Chunks that are similar to a chunk, or to a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec.structs import replace

from ability_search.collection import Collection
from ability_search.errors import NotFound
from ability_search.filters.tree import Field, Filter, Not, OneOf, combine
from ability_search.search.candidates import Answer, Candidates
from ability_search.search.limits import SCORE_FLOOR
from ability_search.search.options import QueryInput
from ability_search.search.pipeline import QueryPipeline
from ability_search.search.query import literal_query
from ability_search.search.response import SimilarResult
from ability_search.search.stage import Phase, Ports, Stage
from ability_search.search.wants import Wants
from ability_search.store.pages import read_all, read_page
from ability_search.store.records import WITH_EMBEDDING, ChunkText
from ability_search.store.values import Chunks, Columns, Page, Read

_MEAN_OF = 100
"""Maximum number of chunks of a source that stand for it."""


async def similar(
    pipeline: QueryPipeline,
    name: str,
    chunk_id: str | None,
    source: str | None = None,
    *,
    limit: int = 10,
    filter: Filter | None = None,
    min_score: float | None = None,
    shown: Callable[[str], bool],
) -> SimilarResult:
    """Return the chunks of a collection nearest to one of its chunks, or to a source.

    That chunk, or all of that source, are left out. ``shown`` tells if a source may be read.

    Raises:
        NotFound: if there is no such collection, or no such chunk or source in it.
    """
    collection, chunk = await start_chunk(pipeline.ports, name, chunk_id, source, shown=shown)
    vector: Sequence[float] = chunk.embedding or ()
    if source is not None:
        filter = combine(Not(OneOf(Field("source"), (source,))), filter)
        vector = await _mean_vector(pipeline.ports, collection, chunk)
    asked = QueryInput(collection=name, query=chunk.chunk_id, limit=limit, mode="semantic")
    query = replace(literal_query(asked, filter), as_of=pipeline.ports.now())
    query = query.with_option(OTHERS.name, chunk.chunk_id)
    if min_score is not None:
        query = query.with_option(SCORE_FLOOR.name, min_score)
    answer = Answer(query, vector)
    await pipeline.find(answer)
    return SimilarResult(
        results=answer.hits,
        count=len(answer.hits),
        source_chunk=chunk.chunk_id,
        source_content=chunk.content,
    )


async def start_chunk(
    ports: Ports,
    name: str,
    chunk_id: str | None,
    source: str | None,
    *,
    shown: Callable[[str], bool],
) -> tuple[Collection, ChunkText]:
    """Return a chunk, or the first one of a source, with its collection.

    Raises:
        NotFound: if there is no such collection or chunk, or if it may not be read.
    """
    start = f"{name}:{source}:0" if chunk_id is None else chunk_id

    async def ask(current: Collection) -> Page:
        of = Chunks(ids=[start])
        return await read_page(ports.store, Read(of, current, WITH_EMBEDDING, current=True))

    known = await ports.registry.consult(await ports.registry.get(name), ask)
    if known is None:
        raise NotFound("collection", name)
    collection, page = known
    chunk = ChunkText(**page.items[0]) if page.items else None
    if chunk is None or not shown(chunk.source):
        if source is None:
            raise NotFound("chunk", start, hint="Use the chunkId of a search-query hit.")
        raise NotFound("source", source, hint="search-collection-info lists the sources.")
    return collection, chunk


async def _mean_vector(ports: Ports, collection: Collection, first: ChunkText) -> Sequence[float]:
    """Return the mean of the vectors of a source's first chunks, of unit length."""
    head = first.chunk_id.removesuffix(":0")
    ids = [f"{head}:{n}" for n in range(1, min(first.total_chunks, _MEAN_OF))]
    vectors = [first.embedding or ()]
    if ids:
        rows = await read_all(
            ports.store, Read(Chunks(ids=ids), collection, Columns(("embedding",)))
        )
        vectors += [row["embedding"] or () for row in rows]
    mean = np.mean([each for each in vectors if len(each)], axis=0)
    unit: list[float] = (mean / (np.linalg.norm(mean) or 1.0)).tolist()
    return unit


async def _leave_out(chunk_id: str, candidates: Candidates, _ports: Ports) -> None:
    """Leave out the chunk that is compared with."""
    candidates.found = [item for item in candidates.found if item.chunk_id != chunk_id]


OTHERS = Stage(
    "others", Phase.FIND, 0, _leave_out, wants=lambda _chunk_id, _query: Wants(spare=1), step=""
)
