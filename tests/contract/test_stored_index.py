"""Documents of a generation: replacement, duplicates, pages, vectors and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.contract.stored_records import (
    by_terms,
    by_vector,
    change,
    chunk,
    collection,
    filled,
    found,
    found_ids,
    of,
    outdated,
    put,
    replacement,
    source_record,
    sources,
    towards,
)

from ability_search.collection import Collection
from ability_search.filters.tree import Not
from ability_search.store.pages import GENERATED, read_all
from ability_search.store.port import Store
from ability_search.store.records import SourceLink
from ability_search.store.stored_collections import read_collection
from ability_search.store.values import KINDS_LAYER, Chunks, Columns, Patch, Read


async def counts(store: Store, within: Collection) -> tuple[int, int, int, int, int]:
    """Sources, chunks, tokens, chunks of kinds and duplicates of the record."""
    record = await read_collection(store, within.name)
    assert record is not None
    return record.sources, record.chunks, record.tokens, record.kind_chunks, record.duplicates


async def test_replacement_reports_what_it_did(store: Store) -> None:
    created = await filled(store)
    first = await put(store, created, chunk("a"), chunk("a", 1), chunk("b", tokens=2))
    assert (first.deleted, first.inserted, first.replaced) == (0, 3, 0)
    assert first.collection == await read_collection(store, "notes")
    assert first.collection.revision == created.revision + 1
    assert first.collection.updated_at > created.updated_at
    assert (first.collection.tokens_min, first.collection.tokens_max) == (2, 5)
    second = await put(store, first.collection, chunk("a", tokens=9), gone=["b", "never there"])
    assert (second.deleted, second.inserted, second.replaced) == (3, 1, 2)
    assert await counts(store, created) == (1, 1, 9, 0, 0)
    assert (second.collection.tokens_min, second.collection.tokens_max) == (9, 9)
    assert await found_ids(store, created, by_vector()) == ["notes:a:0"]


async def test_repeated_replacement_leaves_the_same_state(store: Store) -> None:
    link = SourceLink("a", "b", "cites", 0.5)
    contents = replacement(chunk("a"), chunk("a/title", of="a", kind="title"), links=[link])
    created = await filled(store)
    first = await store.replace(created, contents)
    second = await store.replace(created, contents)
    assert first is not None
    assert second is not None
    assert (second.deleted, second.inserted, second.replaced) == (2, 2, 2)
    assert second.collection == replace(
        first.collection, revision=2, updated_at=second.collection.updated_at
    )
    assert await found_ids(store, second.collection, by_vector()) == ["notes:a:0"]
    kinds = by_vector(kinds=True)
    assert await found_ids(store, second.collection, kinds) == ["notes:a/title:0"]


async def test_deleting_everything_leaves_an_empty_collection(store: Store) -> None:
    created = await filled(
        store, chunk("a"), chunk("b"), links=[SourceLink("a", "b", "cites", 1.0)]
    )
    emptied = (await put(store, created, gone=["a", "b"])).collection
    assert await counts(store, created) == (0, 0, 0, 0, 0)
    assert (emptied.tokens_min, emptied.tokens_max, emptied.links) == (None, None, 0)
    assert await found_ids(store, created, by_vector()) == []


async def test_least_and_greatest_size_follow_what_is_stored(store: Store) -> None:
    stored = await filled(store, chunk("a", tokens=1), chunk("b", tokens=5), chunk("c", tokens=9))
    stored = (await put(store, stored, gone=["a"])).collection
    assert (stored.tokens_min, stored.tokens_max) == (5, 9)
    stored = (await put(store, stored, chunk("c", tokens=6))).collection
    assert (stored.tokens_min, stored.tokens_max) == (5, 6)
    stored = (await put(store, stored, chunk("d", tokens=2))).collection
    assert (stored.tokens_min, stored.tokens_max) == (2, 6)


async def test_generated_kinds_are_no_sources(store: Store) -> None:
    created = await filled(store, chunk("a"))
    made = chunk("a/title", of="a", kind="title", tokens=2)
    replaced = await put(store, created, made, generated=True)
    assert replaced.replaced == 0
    assert await counts(store, created) == (1, 2, 7, 1, 0)
    assert await sources(store, created) == ["a"]
    assert await sources(store, created, of("a", "b")) == ["a/title"]
    assert await sources(store, created, of("a/title")) == []
    again = await put(store, replaced.collection, made, generated=True)
    assert (again.deleted, again.inserted, again.replaced) == (1, 1, 0)


async def test_files_that_only_hold_documents_are_no_sources(store: Store) -> None:
    created = await filled(store, chunk("a"))
    holder = source_record("list.json", (), file=True)
    contents = replace(replacement(chunk("b", of=None)), sources=["b", "list.json"])
    contents = replace(contents, records=[*contents.records, holder], chunks=[*contents.chunks, ()])
    stored = await store.replace(created, contents)
    assert stored is not None
    assert stored.replaced == 0
    assert await counts(store, created) == (2, 2, 10, 0, 0)
    assert await sources(store, created) == ["a", "b"]
    assert await sources(store, created, Not(GENERATED)) == ["a", "b", "list.json"]
    emptied = await put(store, stored.collection, gone=["list.json"])
    assert (emptied.replaced, emptied.collection.sources) == (0, 2)


async def test_documents_of_others_are_ordinary_sources(store: Store) -> None:
    created = await filled(store, chunk("a"), chunk("b"))
    title = chunk("b/title", of="b", kind="title")
    stored = (await put(store, created, title, kind="title", generated=True)).collection
    assert not stored.nested
    stored = (await put(store, stored, chunk("a/1", kind="note"), kind="note", of="a")).collection
    stored = (await put(store, stored, chunk("a/1/2"), of="a/1")).collection
    assert stored.nested
    assert await counts(store, created) == (4, 5, 25, 1, 0)
    assert await sources(store, created, of("a", "b", "none")) == ["a/1", "b/title"]
    assert await sources(store, created, of("a/1")) == ["a/1/2"]
    found = await found_ids(store, stored, by_vector())
    assert found == [f"notes:{each}:0" for each in ("a/1/2", "a/1", "a", "b")]
    assert await sources(store, created) == ["a", "a/1", "a/1/2", "b"]
    stored = (await put(store, stored, gone=["a", "a/1", "a/1/2"])).collection
    assert await sources(store, created, of("a", "a/1")) == []


async def test_links_are_replaced_with_their_source(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a"),
        chunk("b"),
        links=[SourceLink("a", "b", "cites", 1.0), SourceLink("b", "a", "cites", 0.5)],
    )
    assert stored.links == 2
    stored = (
        await put(store, stored, chunk("a"), links=[SourceLink("a", "c", "cites", 0.1)])
    ).collection
    assert stored.links == 2
    stored = (await put(store, stored, gone=["b"])).collection
    assert stored.links == 1


async def test_unknown_record_is_not_written_to(store: Store) -> None:
    await filled(store, chunk("a"))
    assert await store.replace(collection(), replacement(chunk("b"))) is None
    assert await store.replace(collection("other"), replacement(chunk("b"))) is None
    stored = await read_collection(store, "notes")
    assert stored is not None
    assert (stored.revision, stored.chunks) == (1, 1)


# Duplicates


async def test_first_duplicate_stands_in_for_others_when_their_stand_in_goes(
    store: Store,
) -> None:
    stored = await filled(store, chunk("a"), chunk("b"))
    stored = (
        await put(
            store,
            stored,
            chunk("c", duplicate_of="notes:a:0"),
            chunk("d", duplicate_of="notes:a:0"),
            stand_ins={"notes:a:0": 1000},
        )
    ).collection
    assert stored.duplicates == 2
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0", "notes:b:0"]
    stored = (await put(store, stored, gone=["a"])).collection
    assert stored.duplicates == 1
    expected = ["notes:b:0", "notes:c:0"]
    assert sorted(await found_ids(store, stored, by_vector())) == expected
    assert sorted(await found_ids(store, stored, by_terms({1: 1.0}))) == expected


async def test_duplicates_that_go_are_no_longer_counted(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", duplicate_of="notes:a:0"))
    assert stored.duplicates == 1
    stored = (await put(store, stored, gone=["b"])).collection
    assert stored.duplicates == 0
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]


async def test_duplicates_replaced_with_their_stand_in_stay_duplicates(store: Store) -> None:
    pair = [chunk("a"), chunk("b", duplicate_of="notes:a:0")]
    stored = await filled(store, *pair)
    stored = (await put(store, stored, *pair)).collection
    assert stored.duplicates == 1
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]


@pytest.mark.parametrize(
    "stand_ins",
    [{"notes:a:0": 999}, {"notes:missing:0": 1000}, {"notes:a:0": 1000, "notes:b:0": 1000}],
    ids=["replaced meanwhile", "gone", "itself a duplicate"],
)
async def test_nothing_is_written_if_a_stand_in_has_changed(
    store: Store, stand_ins: dict[str, int]
) -> None:
    stored = await filled(store, chunk("a"), chunk("b", duplicate_of="notes:a:0"))
    late = chunk("c", duplicate_of="notes:a:0")
    assert await store.replace(stored, replacement(late, gone=["a"], stand_ins=stand_ins)) is None
    assert await read_collection(store, "notes") == stored
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]
    assert await sources(store, stored) == ["a", "b"]


async def test_no_duplicate_is_left_without_a_stand_in_by_a_writer_that_knows_of_none(
    store: Store,
) -> None:
    before = await filled(store, chunk("a"))
    stored = (await put(store, before, chunk("b", duplicate_of="notes:a:0"))).collection
    if await store.replace(before, replacement(gone=["a"])) is None:
        assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]
        await put(store, stored, gone=["a"])
    assert await found_ids(store, stored, by_vector()) == ["notes:b:0"]


async def test_duplicates_follow_the_text_of_their_stand_in_or_what_is_near(store: Store) -> None:
    first = chunk("a", 0, vector_key="k0", embedding=towards(0.9), total_chunks=2)
    second = chunk("a", 1, vector_key="k1", embedding=towards(0.1), total_chunks=2)
    stored = (await put(store, await filled(store), first, second)).collection
    copies = [
        chunk(
            name,
            vector_key=part.vector_key,
            embedding=part.embedding,
            duplicate_of=part.chunk_id,
        )
        for name, part in (("b", first), ("c", first), ("d", second))
    ]
    stored = (await put(store, stored, *copies, dedup_threshold=0.95)).collection
    swapped = [
        chunk("a", 0, vector_key="k1", embedding=towards(0.1), total_chunks=2),
        chunk("a", 1, vector_key="k2", embedding=towards(0.89), total_chunks=2),
    ]
    stored = (await put(store, stored, *swapped)).collection
    assert stored.duplicates == 3
    assert sorted(await found_ids(store, stored, by_vector())) == ["notes:a:0", "notes:a:1"]
    chunks = await read_all(store, Read(Chunks(sources=["b", "c", "d"]), stored))
    assert {each.source: each.duplicate_of for each in chunks} == {
        "b": "notes:a:1",
        "c": "notes:a:1",
        "d": "notes:a:0",
    }
    other = chunk("a", vector_key="k9", embedding=towards(-0.9))
    stored = (await put(store, stored, other)).collection
    assert stored.duplicates == 1
    assert sorted(await found_ids(store, stored, by_vector())) == [
        "notes:a:0",
        "notes:b:0",
        "notes:d:0",
    ]


# Pages of sources


# Vectors


@pytest.mark.parametrize("graph", [True, False])
async def test_nearest_chunks_of_each_vector(store: Store, graph: bool) -> None:
    stored = await filled(
        store,
        chunk("a", embedding=towards(0.9), created_at=11),
        chunk("b", embedding=towards(0.1)),
        chunk("c", embedding=towards(0.9), duplicate_of="notes:a:0"),
    )
    stored = await store.settle(stored) if graph else stored
    searches = [by_vector(towards(part), f"n{part:.0f}", limit=1) for part in (1.0, 0.0)]
    answer = await store.search(stored, searches, Columns(("source", "created_at")))
    (near,), (far,) = answer.rows["n1"], answer.rows["n0"]
    assert near.chunk_id == "notes:a:0"
    assert near.columns == {"source": "a", "created_at": 11}
    assert near.score == pytest.approx(0.9, abs=1e-6)
    assert far.chunk_id == "notes:b:0"


async def test_vector_graphs_are_built_for_chunks_and_kinds(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("a/t", of="a", kind="title"))
    settled = await store.settle(stored)
    assert settled == replace(stored, graph=True, kind_graph=True)
    assert await read_collection(store, "notes") == settled
    for kinds in (False, True):
        assert len(await found_ids(store, settled, by_vector(kinds=kinds))) == 1
    assert await store.settle(settled) == settled


# Weights


async def test_outdated_weights_are_listed_by_chunk_id(store: Store) -> None:
    stored = await filled(
        store,
        chunk("b", average_length=9.5),
        chunk("a", average_length=9.5, duplicate_of="notes:b:0"),
        chunk("c"),
        chunk("a/t", of="a", kind="title", average_length=9.5),
    )
    found = await outdated(store, stored, 10.0)
    assert [each.chunk_id for each in found] == ["notes:a:0", "notes:b:0"]
    assert [each.duplicate_of for each in found] == ["notes:b:0", None]
    assert [(list(each.terms), list(each.weights)) for each in found] == [([1, 2], [1.0, 0.5])] * 2
    assert [(list(e.lengths), e.average_length) for e in found] == [([2, 4], 9.5)] * 2
    kinds = await outdated(store, stored, 10.0, KINDS_LAYER)
    assert [each.chunk_id for each in kinds] == ["notes:a/t:0"]
    assert await outdated(store, stored, 9.5, KINDS_LAYER) == []


async def test_chunks_with_weights_of_another_average_length_are_not_written(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    await change(store, stored, average_length=20.0)
    assert await store.replace(stored, replacement(chunk("b"))) is None
    assert await sources(store, stored) == ["a"]
    await put(store, replace(stored, average_length=20.0), chunk("b"))
    await put(store, stored, gone=["a", "b"])


def weighted(source: str, *weights: float, layer: str = "", **where: Any) -> Patch:
    """New weights of a chunk, which assume an average length of 20."""
    fields = {"weights": list(weights), "average_length": 20.0}
    return Patch(f"notes:{source}:0", fields, layer, where)


async def test_new_weights_count_in_searches(store: Store) -> None:
    made = chunk("a/t", of="a", kind="title")
    stored = await filled(store, chunk("a"), chunk("b"), chunk("c", duplicate_of="notes:a:0"), made)
    patches = [
        weighted("b", 3.0, 4.0, duplicate_of=None, average_length=10.0),
        weighted("c", 5.0, 6.0, duplicate_of="notes:a:0"),
        weighted("a/t", 7.0, 8.0, layer=KINDS_LAYER),
        weighted("missing", 9.0, 9.0),
    ]
    await store.patch(stored, patches)
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:b:0", "notes:a:0"]
    (title,) = await found(store, stored, by_terms({1: 1.0}, kinds=True))
    assert title.score == pytest.approx(7.0)
    assert [each.chunk_id for each in await outdated(store, stored, 20.0)] == ["notes:a:0"]
    await put(store, stored, gone=["a"])
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:c:0", "notes:b:0"]
    await store.patch(stored, [])


async def test_chunks_that_have_changed_are_not_patched(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", duplicate_of="notes:a:0"))
    patches = [
        weighted("a", 3.0, 4.0, duplicate_of="notes:b:0"),
        weighted("a", 3.0, 4.0, average_length=9.0),
        weighted("b", 3.0, 4.0, duplicate_of=None),
        weighted("b", 3.0, 4.0, duplicate_of="notes:c:0"),
    ]
    await store.patch(stored, patches)
    left = await outdated(store, stored, 20.0)
    assert [(each.chunk_id, list(each.weights)) for each in left] == [
        ("notes:a:0", [1.0, 0.5]),
        ("notes:b:0", [1.0, 0.5]),
    ]
    await store.patch(stored, [weighted("a", 3.0, 4.0), weighted("b", 3.0, 4.0)])
    assert await outdated(store, stored, 20.0) == []
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:a:0"]


async def test_scores_of_an_analysis_are_stored_with_the_chunks(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b"), chunk("c"))
    scores = {"centrality": 0.25, "novelty": 1.0}
    await store.patch(stored, [Patch(f"notes:{each}:0", scores) for each in ("b", "missing")])
    columns = Columns(fields=("centrality", "novelty"))
    rows = (await store.search(stored, [by_terms({1: 1.0})], columns)).rows["terms"]
    found = {row.chunk_id: (row.columns["centrality"], row.columns["novelty"]) for row in rows}
    assert found == {"notes:a:0": (None, None), "notes:b:0": (0.25, 1.0), "notes:c:0": (None, None)}
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0", "notes:b:0", "notes:c:0"]
    whole = await read_all(store, Read(Chunks(sources=["b"]), stored))
    assert [(each.centrality, each.novelty) for each in whole] == [(0.25, 1.0)]
    await put(store, stored, chunk("b"))
    whole = await read_all(store, Read(Chunks(sources=["b"]), stored))
    assert [each.centrality for each in whole] == [None]
