"""Whole collections: records and chunks for artifacts, and measures for overviews."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.stored_records import chunk, filled, put, towards

from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, Link, OverviewRequest

NOTHING_WANTED = OverviewRequest(None, None, None, None, 0)


async def test_sources_are_read_in_the_order_of_storage(store: Store) -> None:
    stored = await filled(store, *map(chunk, ["m", "z", "a"]))
    await put(store, stored, chunk("q"), chunk("b"))
    order = dict(await store.source_order(stored.type, after="", limit=9))
    assert list(order) == ["a", "b", "m", "q", "z"]
    assert sorted(order, key=lambda source: order[source]) == ["m", "z", "a", "q", "b"]
    page = await store.source_order(stored.type, after="m", limit=1)
    assert page == [("q", order["q"])]
    records = await store.source_records_at(stored.type, [order["a"], order["q"], 2**40])
    assert {place: each.source for place, each in records.items()} == {
        order["a"]: "a",
        order["q"]: "q",
    }
    assert await store.source_records_at(stored.type, []) == {}


async def test_order_includes_generated_kinds(store: Store) -> None:
    stored = await filled(store, chunk("a/t", of="a", kind="title"), generated=True)
    ((source, place),) = await store.source_order(stored.type, after="", limit=9)
    assert source == "a/t"
    record = (await store.source_records_at(stored.type, [place]))[place]
    assert (record.generated, record.of) == (True, "a")


async def test_links_of_sources_are_read_strongest_first(store: Store) -> None:
    links = [Link("a", "b", "cites", 0.5), Link("c", "a", "cites", 1.0), Link("b", "c", "x", 0.7)]
    stored = await filled(store, *map(chunk, "abc"), links=links)
    assert await store.links(stored.type, ["a"], limit=9) == [links[1], links[0]]
    assert await store.links(stored.type, ["a", "b"], limit=2) == [links[1], links[2]]
    assert await store.links(stored.type, ["z"], limit=2) == []


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


def rounded(record: ChunkRecord) -> ChunkRecord:
    """The record with its sequences as tuples, numbers rounded as single precision allows."""
    return replace(
        record,
        facets=tuple(record.facets),
        dates=tuple(record.dates),
        terms=tuple(record.terms),
        lengths=tuple(record.lengths),
        weights=tuple(round(weight, 4) for weight in record.weights),
        embedding=tuple(round(part, 6) for part in record.embedding or ()),
    )


async def test_chunks_are_stored_whole(store: Store) -> None:
    one = chunk(
        "a",
        metadata={"team": "red", "n": 1.5, "list": [1, 2], "inner": {"flag": True}},
        breadcrumb="A > B",
        page=2,
        start_line=3,
        end_line=4,
        start_offset=5,
        end_offset=60,
        lead="\n\n",
        overlap=7,
        section=0,
        dates=(20240101, 20241231),
        vector_key="k" * 32,
        embedding=towards(0.1234567),
        weights=(1.23456, 0.5),
    )
    duplicate = chunk("b", duplicate_of="notes:a:0")
    title = chunk("a/t", of="a", kind="title")
    stored = await filled(store, one, duplicate, title)
    found = await store.chunk_records(stored.type, ["b", "a"], kinds=False, first=0, end=9)
    by_id = {each.chunk_id: rounded(each) for each in found}
    assert by_id == {each.chunk_id: rounded(each) for each in (one, duplicate)}
    (kind,) = await store.chunk_records(stored.type, ["a/t"], kinds=True, first=0, end=9)
    assert rounded(kind) == rounded(title)


async def test_chunks_are_read_from_one_place_to_another(store: Store) -> None:
    stored = await filled(store, *(chunk(source, n) for source in "ab" for n in range(4)))
    found = await store.chunk_records(stored.type, ["a", "b"], kinds=False, first=1, end=3)
    assert sorted(each.chunk_id for each in found) == [
        "notes:a:1",
        "notes:a:2",
        "notes:b:1",
        "notes:b:2",
    ]
    assert await store.chunk_records(stored.type, ["a"], kinds=False, first=4, end=9) == []


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
