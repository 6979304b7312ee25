"""Duplicates among the rows of one transaction, over a store that answers as it is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from ability_search.collection import Collection, Recipe, new_collection
from ability_search.index.deduplication import Duplicates, find_duplicates
from ability_search.store.arcadedb.rows import chunk_row
from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, Row, Search, Searched
from ability_search.store.values import Columns

RECIPE = Recipe("paragraph", 32, 8, "english", "m")
EMPTY = new_collection("docs", RECIPE, dimensions=2, average_length=9.0, now=1)
FILLED = replace(EMPTY, chunks=5)
THRESHOLDS = dict.fromkeys("abc", 0.95)


class Neighbours:
    """A store in which every vector has the same neighbours, the nearest first."""

    def __init__(self, *rows: Row) -> None:
        self.rows = rows
        self.probes: list[int] = []

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        _columns: Columns,
        *,
        consistent: bool,
    ) -> Searched:
        assert not consistent
        self.probes.append(len(searches))
        return Searched(collection, {each.name: self.rows for each in searches})


def neighbour(source: str, cosine: float) -> Row:
    return Row(f"#{source}", f"docs:{source}:0", cosine, {"source": source, "created_at": 7})


def row(source: str, *degrees: float) -> list[ChunkRecord]:
    """Chunks of a source whose vectors point into these directions."""
    angles = np.radians(degrees)
    return [
        ChunkRecord(
            chunk_id=f"docs:{source}:{index}",
            collection="docs",
            source=source,
            title="",
            content="",
            kind="document",
            metadata={},
            chunk_index=index,
            total_chunks=len(degrees),
            created_at=1,
            tokens=1,
            embedding=[float(np.cos(angle)), float(np.sin(angle))],
            terms=[1],
            weights=[1.0],
        )
        for index, angle in enumerate(angles)
    ]


async def duplicates_of(
    store: Neighbours,
    collection: Collection,
    chunks: list[ChunkRecord],
    thresholds: Mapping[str, float] = THRESHOLDS,
) -> Duplicates:
    return await find_duplicates(cast(Store, store), collection, chunks, thresholds)


async def test_of_several_rows_the_first_stands_in_and_duplicates_never_do() -> None:
    # .951 is the cosine of 18 degrees; 30 is near 15, but 15 repeats 0 and stands for nothing.
    rows = [*row("a", 0, 15), *row("b", 30, 0.1, 90)]
    found = await duplicates_of(Neighbours(), EMPTY, rows)
    assert found.stand_ins == {"docs:a:1": "docs:a:0", "docs:b:1": "docs:a:0"}
    assert found.stored == {}


async def test_the_nearest_of_the_stored_neighbours_stands_in() -> None:
    store = Neighbours(neighbour("y", 0.99), neighbour("x", 0.96), neighbour("z", 0.5))
    found = await duplicates_of(store, FILLED, row("a", 0))
    assert found == Duplicates({"docs:a:0": "docs:y:0"}, {"docs:y:0": 7})


async def test_what_is_replaced_or_too_far_does_not_stand_in() -> None:
    store = Neighbours(neighbour("a", 1.0), neighbour("b", 1.0), neighbour("c", 0.94))
    found = await duplicates_of(store, FILLED, [*row("a", 0), *row("b", 90)])
    assert found == Duplicates()


async def test_equal_vectors_are_duplicates_at_a_threshold_of_one() -> None:
    exact = {"a": 1.0}
    store = Neighbours(neighbour("x", 0.9999998))
    assert (await duplicates_of(store, FILLED, row("a", 3), exact)).stored == {"docs:x:0": 7}
    found = await duplicates_of(Neighbours(), EMPTY, row("a", 33.3, 33.3, 33.4), exact)
    assert found.stand_ins == {"docs:a:1": "docs:a:0"}


async def test_probes_are_asked_in_slices_and_never_of_an_empty_collection() -> None:
    store = Neighbours()
    rows = row("a", *range(70))
    await duplicates_of(store, FILLED, rows)
    assert store.probes == [32, 32, 6]
    await duplicates_of(store, EMPTY, rows)
    await duplicates_of(store, FILLED, [])
    assert store.probes == [32, 32, 6]


def test_a_duplicate_is_stored_outside_the_indexes() -> None:
    first, second = row("a", 0, 0)
    assert "spareTerms" not in chunk_row(first)
    aside = chunk_row(replace(second, duplicate_of="docs:a:0"))
    assert aside["duplicateOf"] == "docs:a:0"
    assert (aside["embedding"], aside["terms"], aside["weights"]) == (None, None, None)
    assert (aside["spareEmbedding"], aside["spareTerms"], aside["spareWeights"]) == (
        second.embedding,
        [1],
        [1.0],
    )
