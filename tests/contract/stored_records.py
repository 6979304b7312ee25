"""Records for the contract suite: collections, documents and chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from tests.ability_search.index.ports_of import index_ports

from ability_search.collection import Collection, new_type
from ability_search.documents import SparseVector
from ability_search.errors import GenerationGone
from ability_search.filters.facets import facets_of
from ability_search.filters.tree import Field, Filter, Not, OneOf
from ability_search.index.generations import Generations
from ability_search.store.pages import COUNTED, read_page, source_names
from ability_search.store.port import Store
from ability_search.store.records import (
    ChunkRecord,
    Replaced,
    Replacement,
    Row,
    Search,
    SourceLink,
    SourceRecord,
    WeightedChunk,
)
from ability_search.store.registry import Registry
from ability_search.store.stored_collections import put_collection
from ability_search.store.values import Chunks, Columns, Put, Read, Sources
from ability_search.text.term_statistics import TermStatistics

DIMENSIONS = 8
NOTHING = Columns()
HOUR = 3_600_000
"""Milliseconds."""
_times = count(1_700_000_000_000)


def collection(name: str = "notes", **fields: Any) -> Collection:
    """An empty collection with a generation of its own."""
    now = next(_times)
    return Collection(
        **{
            "name": name,
            "type": new_type(name.partition("@")[0], now=now),
            "generation": 1,
            "model": "words",
            "dimensions": DIMENSIONS,
            "language": "en",
            "average_length": 10.0,
            "chunk_strategy": "paragraph",
            "chunk_size": 100,
            "chunk_overlap": 0,
            "created_at": now,
            "updated_at": now,
            **fields,
        }
    )


def record_row(stored: Collection) -> dict[str, Any]:
    """The row of the record of a collection in ArcadeDB."""
    put = put_collection(stored)
    row = {"kind": put.kind, "scope": put.scope, "key": put.key[0], "fields": put.fields}
    return row | {"revision": stored.revision, "createdAt": 1, "updatedAt": 1}


def record_rows(*stored: Collection) -> dict[str, Any]:
    """The answer of ArcadeDB to a single question for these records."""
    return {"clock": [{"ms": 1}], "a0": [record_row(each) for each in stored]}


def towards(*parts: float) -> tuple[float, ...]:
    """A unit vector of these first components; the last one makes up the length."""
    left = 1.0 - sum(part * part for part in parts)
    assert left > -1e-9
    rest = [0.0] * (DIMENSIONS - 1 - len(parts))
    return (*parts, *rest, round(max(0.0, left) ** 0.5, 7))


def chunk(
    source: str, index: int = 0, *, of_collection: str = "notes", **fields: Any
) -> ChunkRecord:
    """A chunk with a vector and some terms."""
    metadata = fields.pop("metadata", {})
    return ChunkRecord(
        **{
            "chunk_id": f"{of_collection}:{source}:{index}",
            "collection": of_collection,
            "source": source,
            "title": f"Title of {source}",
            "content": f"Part {index} of {source}.",
            "kind": "document",
            "metadata": metadata,
            "chunk_index": index,
            "total_chunks": 1,
            "created_at": 1000,
            "tokens": 5,
            "facets": facets_of(metadata),
            "embedding": towards(0.6),
            "vector_key": f"{abs(index):032x}",
            "terms": (1, 2),
            "weights": (1.0, 0.5),
            "lengths": (2, 4),
            "average_length": 10.0,
            **fields,
        }
    )


def source_record(source: str, chunks: Sequence[ChunkRecord], **fields: Any) -> SourceRecord:
    """The record of a document with these chunks."""
    tokens = [each.tokens for each in chunks]
    return SourceRecord(
        **{
            "source": source,
            "title": f"Title of {source}",
            "content_hash": f"hash of {source}",
            "chunks": len(chunks),
            "tokens": sum(tokens),
            "tokens_min": min(tokens, default=None),
            "tokens_max": max(tokens, default=None),
            "indexed_at": 1000,
            "kind": "document",
            "metadata": {},
            "of": chunks[0].of if chunks else None,
            **fields,
        }
    )


def replacement(
    *chunks: ChunkRecord,
    gone: Sequence[str] = (),
    links: Sequence[SourceLink] = (),
    stand_ins: Mapping[str, int] | None = None,
    **fields: Any,
) -> Replacement:
    """The documents of these chunks, each with the chunks of its source, and deletions.

    ``fields`` are those of the source records.
    """
    by_source: dict[str, list[ChunkRecord]] = {}
    for each in chunks:
        by_source.setdefault(each.source, []).append(each)
    counted = [each for each in chunks if each.of is None]
    return Replacement(
        sources=[*by_source, *gone],
        records=[source_record(source, own, **fields) for source, own in by_source.items()],
        chunks=list(by_source.values()),
        links=links,
        term_statistics=statistics_of(counted).to_bytes() if counted else None,
        stand_ins=stand_ins or {},
    )


def statistics_of(chunks: Sequence[ChunkRecord]) -> TermStatistics:
    """The term statistics of chunks."""
    return TermStatistics.of_chunks([c.terms for c in chunks], [c.lengths for c in chunks])


async def create(store: Store, new: Collection) -> Collection:
    """Create a collection, or the record of a generation that is being built."""
    return await Registry(store).create(new)


async def change(store: Store, changed: Collection, **fields: Any) -> None:
    """Change fields of a record."""
    await Registry(store).update(changed, **fields)


async def switch(
    store: Store,
    old: Collection | None,
    built: Collection,
    *,
    grace: float = HOUR,
    ended: Put | None = None,
) -> Collection | None:
    """Switch a collection, or a new one, to another generation; nothing is dropped."""
    ports = index_ports(store, now=0)
    database = ports.settings.database.model_copy(update={"grace_period": grace})
    settings = replace(ports.settings, database=database)
    generations = Generations(replace(ports, settings=settings))
    switched = await generations.switch(old, built, ended=ended)
    await generations.close()
    return switched


async def filled(
    store: Store, *chunks: ChunkRecord, name: str = "notes", **fields: Any
) -> Collection:
    """A new collection with these chunks; ``fields`` are those of the replacement."""
    created = await create(store, collection(name))
    return (await put(store, created, *chunks, **fields)).collection if chunks else created


async def put(store: Store, into: Collection, *chunks: ChunkRecord, **fields: Any) -> Replaced:
    """Replace documents; it must succeed."""
    replaced = await store.replace(into, replacement(*chunks, **fields))
    assert replaced is not None
    return replaced


def by_vector(vector: Sequence[float] | None = None, name: str = "vector", **fields: Any) -> Search:
    """A search by a vector."""
    return Search(name, vector or towards(0.6), **{"limit": 10, **fields})


def by_terms(weights: Mapping[int, float], name: str = "terms", **fields: Any) -> Search:
    """A search by terms."""
    return Search(name, sparse(weights), **{"limit": 10, **fields})


def sparse(weights: Mapping[int, float]) -> SparseVector:
    """Weighted terms, ascending."""
    return SparseVector(sorted(weights), [weights[term] for term in sorted(weights)])


async def found(
    store: Store, within: Collection, search: Search, columns: Columns = NOTHING
) -> list[Row]:
    """The rows of a single search."""
    read = await store.search(within, [search], columns)
    return list(read.rows[search.name])


async def found_ids(store: Store, within: Collection, search: Search) -> list[str]:
    """The chunkIds of a single search, best first."""
    return [row.chunk_id for row in await found(store, within, search)]


async def sources(store: Store, within: Collection, filter: Filter | None = COUNTED) -> list[str]:
    """The names of sources, in order; by default of those that count."""
    return await source_names(store, within, Sources(filter=filter))


def of(*parents: str) -> Filter:
    """Filter on the documents of others."""
    return OneOf(Field("of"), parents)


async def outdated(
    store: Store, within: Collection, average: float, layer: str = "", limit: int = 99
) -> list[WeightedChunk]:
    """The chunks whose weights assume another average length, by chunkId."""
    of = Chunks(layer, filter=Not(OneOf(Field("average_length"), (average,))))
    columns = Columns(("chunk_id", "terms", "weights", "lengths", "average_length", "duplicate_of"))
    page = await read_page(store, Read(of, within, columns, limit))
    return [WeightedChunk(**row) for row in page.items]


async def handles(store: Store, within: Collection) -> dict[str, str]:
    """The handles of all indexed chunks, by chunkId."""
    rows = await found(store, within, by_vector(limit=1000))
    return {row.chunk_id: row.handle for row in rows}


@contextmanager
def gone(generation: str) -> Iterator[None]:
    """Expect that a generation is gone."""
    with pytest.raises(GenerationGone) as failure:
        yield
    assert failure.value.generation == generation
