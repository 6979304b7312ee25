"""Whole collections: records and chunks for artifacts, and measures for overviews."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.stored_records import chunk, filled, put, towards

from ability_search.store.port import Store
from ability_search.store.records import OverviewRequest

NOTHING_WANTED = OverviewRequest(None, None, None, None, 0)


async def test_vectors_of_indexed_chunks_are_read_by_chunk_id(store: Store) -> None:
    stored = await filled(
        store,
        chunk("b", breadcrumb="Guide > B"),
        chunk("a"),
        chunk("c", duplicate_of="notes:a:0"),
        chunk("a/t", of="a", kind="title"),
    )
    page = await store.chunk_vectors(stored.type, after="", limit=9)
    assert [(each.chunk_id, each.source, each.title, each.chunk_index) for each in page] == [
        ("notes:a:0", "a", "Title of a", 0),
        ("notes:b:0", "b", "Guide > B", 0),
    ]
    assert list(page[0].embedding) == pytest.approx(list(towards(0.6)))
    (rest,) = await store.chunk_vectors(stored.type, after="notes:a:0", limit=1)
    assert rest.chunk_id == "notes:b:0"


async def test_sizes_are_counted_in_bins(store: Store) -> None:
    sizes = [0, 4, 5, 9, 23]
    chunks = [chunk(f"s{n}", tokens=size) for n, size in enumerate(sizes)]
    stored = await filled(
        store,
        *chunks,
        chunk("dup", tokens=1, duplicate_of="notes:s0:0"),
        chunk("s0/t", of="s0", kind="title", tokens=3),
    )
    read = await store.overview(stored, replace(NOTHING_WANTED, bin_width=5))
    assert read.current == stored
    assert dict(read.value.sizes) == {0: 3, 5: 2, 20: 1}
    assert (list(read.value.periods), list(read.value.vectors)) == ([], [])


async def test_sizes_of_a_sample_are_those_of_the_least_keys(store: Store) -> None:
    stored = await filled(
        store,
        *(chunk(f"s{n}", tokens=n, vector_key=f"{(7 * n) % 10}" * 32) for n in range(10)),
        chunk("dup", tokens=99, vector_key="0" * 32, duplicate_of="notes:s0:0"),
    )
    request = replace(NOTHING_WANTED, bin_width=1, sample=3, indexed=10)
    read = await store.overview(stored, request)
    assert dict(read.value.sizes) == {0: 1, 3: 1, 6: 1}


async def test_periods_count_sources_and_their_chunks(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("a", 1), indexed_at=1500)
    stored = (await put(store, stored, chunk("b"), indexed_at=1999)).collection
    stored = (await put(store, stored, chunk("c"), indexed_at=3000)).collection
    made = chunk("c/t", of="c", kind="title")
    written = await put(store, stored, made, kind="title", indexed_at=9000, generated=True)
    stored = written.collection
    read = await store.overview(stored, replace(NOTHING_WANTED, period=1000))
    assert sorted(read.value.periods) == [(1000, 2, 3), (3000, 1, 1)]


async def test_map_shows_the_chunks_of_the_least_keys(store: Store) -> None:
    long = "x" * 300
    stored = await filled(
        store,
        chunk("c", vector_key="2" * 32, embedding=towards(0.1)),
        chunk("b", vector_key="1" * 32, embedding=towards(0.2), title=long, content=long),
        chunk("a", vector_key="3" * 32),
        chunk("dup", vector_key="0" * 32, duplicate_of="notes:a:0"),
    )
    axes = [towards(1.0), towards(0.0, 1.0)]
    read = await store.map_points(stored, axes, limit=2, indexed=3)
    assert read.current == stored
    first, second = read.value
    assert (first.chunk_id, first.source, second.chunk_id) == ("notes:b:0", "b", "notes:c:0")
    assert (len(first.title), len(first.excerpt)) == (120, 160)
    assert list(first.cosines) == pytest.approx([0.2, 0.0], abs=1e-6)
    vectors = (await store.overview(stored, replace(NOTHING_WANTED, vectors=2, indexed=3))).value
    assert [vector[0] for vector in vectors.vectors] == pytest.approx([0.2, 0.1], abs=1e-6)


async def test_chunks_without_keys_are_sampled_by_their_ids(store: Store) -> None:
    stored = await filled(
        store,
        chunk("c", vector_key=None),
        chunk("b", vector_key=None),
        chunk("a", vector_key="1" * 32),
    )
    read = await store.map_points(stored, [], limit=2, indexed=3)
    assert [point.chunk_id for point in read.value] == ["notes:a:0", "notes:b:0"]
