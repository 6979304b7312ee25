"""Documents of a generation: replacement, duplicates, pages, vectors and weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.stored_records import (
    DIMENSIONS,
    HOUR,
    by_terms,
    by_vector,
    change,
    chunk,
    collection,
    create,
    filled,
    found_ids,
    put,
    replacement,
    source_record,
    towards,
)

from ability_search.collection import Collection
from ability_search.store.port import Store
from ability_search.store.records import (
    ChunkScores,
    Columns,
    Link,
    OverviewRequest,
    WeightedChunk,
)
from ability_search.store.stored_collections import read_collection


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
    link = Link("a", "b", "cites", 0.5)
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
    created = await filled(store, chunk("a"), chunk("b"), links=[Link("a", "b", "cites", 1.0)])
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
    assert await store.sources(created.type, after="", limit=5) == ["a"]
    assert await store.documents_of(created.type, ["a", "b"]) == ["a/title"]
    assert await store.documents_of(created.type, ["a/title"]) == []
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
    assert await store.count_sources(created.type) == (2, 2)
    assert await store.sources(created.type, after="", limit=5) == ["a", "b"]
    assert await store.sources(created.type, after="", limit=5, files=True) == ["list.json"]
    wanted = OverviewRequest(None, None, HOUR, None, 2)
    periods = (await store.overview(stored.collection, wanted)).value.periods
    assert [entry[1:] for entry in periods] == [(2, 2)]
    every = await store.source_records(created.type, after="", limit=5)
    assert [each.source for each in every] == ["a", "b", "list.json"]
    compared, _ = await store.compare_sources(created.type, created.type, after="", limit=5)
    assert [source for source, _ in compared] == ["a", "b", "list.json"]
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
    assert sorted(await store.documents_of(created.type, ["a", "b", "none"])) == ["a/1", "b/title"]
    assert await store.documents_of(created.type, ["a/1"]) == ["a/1/2"]
    found = await found_ids(store, stored, by_vector())
    assert found == [f"notes:{each}:0" for each in ("a/1/2", "a/1", "a", "b")]
    assert await store.sources(created.type, after="", limit=3) == ["a", "a/1", "a/1/2"]
    assert await store.sources(created.type, after="", limit=3, children=False) == ["a", "b"]
    wanted = OverviewRequest(5, None, HOUR, None, 4)
    assert [entry[1:] for entry in (await store.overview(stored, wanted)).value.periods] == [(4, 4)]
    stored = (await put(store, stored, gone=["a", "a/1", "a/1/2"])).collection
    assert await store.documents_of(created.type, ["a", "a/1"]) == []


async def test_links_are_replaced_with_their_source(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a"),
        chunk("b"),
        links=[Link("a", "b", "cites", 1.0), Link("b", "a", "cites", 0.5)],
    )
    assert stored.links == 2
    stored = (await put(store, stored, chunk("a"), links=[Link("a", "c", "cites", 0.1)])).collection
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
    assert await store.sources(stored.type, after="", limit=5) == ["a", "b"]


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
    chunks = await store.chunk_records(stored.type, ["b", "c", "d"], kinds=False, first=0, end=1)
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

NAMES = ["Z", "a", "z", "ä", "\ud7ff", "\ue000", "\uffee", "\U0001f600"]
"""In the order of their code points, in which the last two differ from UTF-16."""


async def test_sources_are_in_the_order_of_code_points(store: Store) -> None:
    stored = await filled(store, *map(chunk, reversed(NAMES)))
    generation = stored.type
    assert await store.sources(generation, after="", limit=99) == NAMES
    assert await store.sources(generation, after="a", limit=3) == NAMES[2:5]
    assert await store.sources(generation, after=NAMES[-1], limit=3) == []
    records = await store.source_records(generation, after="z", limit=2)
    assert [each.source for each in records] == NAMES[3:5]
    order = await store.source_order(generation, after="z", limit=2)
    assert [source for source, _ in order] == NAMES[3:5]
    page, origins = await store.compare_sources(generation, generation, after="z", limit=2)
    assert page == [(name, f"hash of {name}") for name in NAMES[3:5]]
    assert origins == dict.fromkeys(NAMES[3:5])


async def test_sources_of_files_are_listed_apart(store: Store) -> None:
    stored = await filled(store, chunk("b.md"), chunk("a.md"), file=True, file_hash="x")
    stored = (await put(store, stored, chunk("c"))).collection
    assert await store.sources(stored.type, after="", limit=9) == ["a.md", "b.md", "c"]
    assert await store.sources(stored.type, after="", limit=9, files=True) == ["a.md", "b.md"]
    assert await store.sources(stored.type, after="a.md", limit=9, files=True) == ["b.md"]


async def test_source_records_are_stored_whole(store: Store) -> None:
    parts = [chunk("a", tokens=3), chunk("a", 1, tokens=4)]
    record = source_record(
        "a",
        parts,
        metadata={"team": "red", "list": [1, 2.5, None]},
        format="markdown",
        language="de",
        links=[{"target": "b", "kind": "cites", "weight": 0.5}],
        file=True,
        file_hash="abc",
        tail="\n",
        origin="an earlier hash",
        indexed_at=77,
    )
    created = await filled(store)
    contents = replace(replacement(*parts), records=[record])
    assert await store.replace(created, contents) is not None
    (stored,) = await store.source_records(created.type, after="", limit=5)
    assert replace(stored, links=list(stored.links)) == record
    (named,) = await store.source_records_named(created.type, ["a", "missing"])
    assert (named.source, named.metadata, named.tail) == ("a", record.metadata, "\n")
    assert [dict(link) for link in named.links] == [dict(link) for link in record.links]
    assert await store.source_records_named(created.type, []) == []


async def test_content_hashes_are_read_with_the_record(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b"))
    read = await store.content_hashes(stored, ["b", "missing"])
    assert (read.collection, dict(read.value)) == (stored, {"b": "hash of b"})
    assert dict((await store.content_hashes(stored, [])).value) == {}


async def test_passages_of_a_source_are_in_chunk_order(store: Store) -> None:
    stored = await filled(
        store, chunk("a", 2), chunk("a", 0), chunk("a", 1), chunk("a/title", of="a", kind="title")
    )
    passages = await store.source_passages(stored.type, "a")
    assert [each.content for each in passages] == [f"Part {n} of a." for n in range(3)]
    assert await store.source_passages(stored.type, "a/title") == []
    (title,) = await store.source_passages(stored.type, "a/title", kinds=True)
    assert title.content == "Part 0 of a/title."


async def test_generations_are_compared_by_hash_and_origin(store: Store) -> None:
    old = await filled(store, chunk("a"), chunk("b"))
    old = (await put(store, old, chunk("b/t", of="b", kind="title"), generated=True)).collection
    built = await filled(store, chunk("b"), name="notes@1", origin="hash of b")
    page, origins = await store.compare_sources(old.type, built.type, after="", limit=9)
    assert page == [("a", "hash of a"), ("b", "hash of b")]
    assert origins == {"b": "hash of b"}


async def test_sources_and_their_chunks_are_counted(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("a", 1), chunk("b"))
    made = chunk("b/t", of="b", kind="title")
    stored = (await put(store, stored, made, generated=True)).collection
    assert await store.count_sources(stored.type) == (2, 4)


# Vectors


async def test_vectors_are_checked_page_by_page(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a"),
        chunk("b", embedding=[0.5] + [0.0] * 7),
        chunk("c", duplicate_of="notes:a:0"),
        chunk("d", embedding=None, terms=(), weights=(), duplicate_of="notes:a:0"),
    )
    check = store.check_vectors
    first = await check(stored.type, kinds=False, dimensions=DIMENSIONS, after="", limit=3)
    assert (first.last, first.checked, first.unfit) == ("notes:c:0", 3, 1)
    second = await check(
        stored.type, kinds=False, dimensions=DIMENSIONS, after="notes:c:0", limit=3
    )
    assert (second.last, second.checked, second.unfit) == ("notes:d:0", 1, 1)
    end = await check(stored.type, kinds=False, dimensions=DIMENSIONS, after="notes:d:0", limit=3)
    assert (end.last, end.checked, end.unfit) == (None, 0, 0)
    other = await check(stored.type, kinds=False, dimensions=4, after="", limit=9)
    assert other.unfit == 4


async def test_sampled_chunks_are_indexed_and_have_embeddings(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", duplicate_of="notes:a:0"), chunk("c"))
    chunks = await store.sample_chunks(stored.type, limit=9)
    assert {each.chunk_id for each in chunks} == {"notes:a:0", "notes:c:0"}
    assert len(await store.sample_chunks(stored.type, limit=1)) == 1
    one = chunks[0]
    assert list(one.embedding or ()) == pytest.approx(towards(0.6), abs=1e-6)
    assert (list(one.terms), list(one.weights)) == ([1, 2], [1.0, 0.5])


async def test_probed_chunks_are_the_newest_and_others_by_their_keys(store: Store) -> None:
    keys = ["5", "1", "9", "3"]
    stored = await filled(
        store,
        *(chunk(f"s{key}", vector_key=key * 32) for key in keys),
        chunk("dup", vector_key="7" * 32, duplicate_of="notes:s5:0"),
    )
    probe = store.probe_chunks
    chunks = await probe(stored.type, newest=2, others=2, after="4" * 32)
    assert [each.chunk_id for each in chunks] == [
        "notes:s3:0",
        "notes:s9:0",
        "notes:s5:0",
        "notes:s9:0",
    ]
    assert list(chunks[0].terms) == [1, 2]
    assert [
        each.chunk_id for each in await probe(stored.type, newest=0, others=9, after="f" * 32)
    ] == []


@pytest.mark.parametrize("exact", [True, False])
async def test_nearest_chunks_of_each_vector(store: Store, exact: bool) -> None:
    stored = await filled(
        store,
        chunk("a", embedding=towards(0.9), created_at=11),
        chunk("b", embedding=towards(0.1)),
        chunk("c", embedding=towards(0.9), duplicate_of="notes:a:0"),
    )
    near, far = await store.nearest(
        stored.type, [towards(1.0), towards(0.0)], limit=1, beam=10, exact=exact
    )
    (one,) = near
    assert (one.chunk_id, one.source, one.created_at) == ("notes:a:0", "a", 11)
    assert one.cosine == pytest.approx(0.9, abs=1e-6)
    assert [each.chunk_id for each in far] == ["notes:b:0"]
    assert await store.nearest(stored.type, [], limit=1, beam=10, exact=exact) == []


async def test_generations_with_vectors_of_a_model_are_found(store: Store) -> None:
    own = await filled(store, chunk("a"), chunk("a/t", of="a", kind="title"))
    under = await create(store, collection("notes@1"))
    other = await filled(store, chunk("a", of_collection="other"), name="other")
    await filled(store, name="empty")
    for created in (
        collection("another-model", model="another"),
        collection("of-other-dimensions", dimensions=4),
    ):
        await create(store, created)
        vector = [1.0, *[0.0] * (created.dimensions - 1)]
        await put(store, created, chunk("a", of_collection=created.name, embedding=vector))
    latest = await filled(store, chunk("a", of_collection="latest"), name="latest")
    await change(store, latest, updated_at=other.updated_at + HOUR)
    places = await store.vector_places("words", "notes", dimensions=DIMENSIONS, limit=9)
    assert (places.own, places.live) == ([(own.type, False), (own.type, True)], [])
    assert list(places.others) == [(latest.type, False), (other.type, False)]
    places = await store.vector_places("words", "notes@1", dimensions=DIMENSIONS, limit=1)
    assert places.own == [(under.type, False)]
    assert places.live == [(own.type, False), (own.type, True)]
    assert list(places.others) == [(latest.type, False)]
    places = await store.vector_places("words", "new", dimensions=None, limit=9)
    assert len(places.others) == 5


async def test_stored_vectors_are_found_by_key(store: Store) -> None:
    stored = await filled(
        store,
        chunk("b", vector_key="k1", embedding=towards(0.2)),
        chunk("a", vector_key="k1", embedding=towards(0.1)),
        chunk("c", vector_key="k2", embedding=towards(0.3), duplicate_of="notes:a:0"),
        chunk("d", vector_key="k3"),
        chunk("a/t", of="a", kind="title", vector_key="k4", embedding=towards(0.4)),
    )
    places = [(stored.type, False), (stored.type, True)]
    own, kinds = await store.stored_vectors(places, ["k1", "k2", "k4", "missing"])
    assert {key: round(vector[0], 6) for key, vector in own.items()} == {"k1": 0.1, "k2": 0.3}
    assert {key: round(vector[0], 6) for key, vector in kinds.items()} == {"k4": 0.4}
    assert await store.stored_vectors(places, []) == [{}, {}]


async def test_vector_graphs_are_built_for_chunks_and_kinds(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("a/t", of="a", kind="title"))
    for kinds in (False, True):
        await store.build_graph(stored.type, kinds=kinds, dimensions=DIMENSIONS)
        search = by_vector(kinds=kinds, exact=False)
        assert len(await found_ids(store, stored, search)) == 1


# Weights


async def test_outdated_weights_are_listed_by_chunk_id(store: Store) -> None:
    stored = await filled(
        store,
        chunk("b", average_length=9.5),
        chunk("a", average_length=9.5, duplicate_of="notes:b:0"),
        chunk("c"),
        chunk("a/t", of="a", kind="title", average_length=9.5),
    )
    outdated = store.outdated_weights
    found = await outdated(stored.type, kinds=False, average_length=10.0, after="", limit=9)
    assert [each.chunk_id for each in found] == ["notes:a:0", "notes:b:0"]
    assert [each.duplicate_of for each in found] == ["notes:b:0", None]
    assert [(list(each.terms), list(each.weights)) for each in found] == [([1, 2], [1.0, 0.5])] * 2
    assert [(list(e.lengths), e.average_length) for e in found] == [([2, 4], 9.5)] * 2
    assert (
        len(await outdated(stored.type, kinds=False, average_length=10.0, after="", limit=1)) == 1
    )
    kinds = await outdated(stored.type, kinds=True, average_length=10.0, after="", limit=9)
    assert [each.chunk_id for each in kinds] == ["notes:a/t:0"]
    assert await outdated(stored.type, kinds=True, average_length=9.5, after="", limit=9) == []
    behind = await outdated(
        stored.type, kinds=False, average_length=10.0, after="notes:a:0", limit=9
    )
    assert [each.chunk_id for each in behind] == ["notes:b:0"]


async def test_chunks_with_weights_of_another_average_length_are_not_written(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    await change(store, stored, average_length=20.0)
    assert await store.replace(stored, replacement(chunk("b"))) is None
    assert await store.sources(stored.type, after="", limit=9) == ["a"]
    await put(store, replace(stored, average_length=20.0), chunk("b"))
    await put(store, stored, gone=["a", "b"])


async def test_new_weights_count_in_searches(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b"), chunk("c", duplicate_of="notes:a:0"))
    changes = [
        WeightedChunk("notes:b:0", (1, 2), (3.0, 4.0)),
        WeightedChunk("notes:c:0", (1, 2), (5.0, 6.0), duplicate_of="notes:a:0"),
        WeightedChunk("notes:missing:0", (1, 2), (9.0, 9.0)),
    ]
    await store.set_weights(stored.type, kinds=False, average_length=20.0, changes=changes)
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:b:0", "notes:a:0"]
    left = await store.outdated_weights(
        stored.type, kinds=False, average_length=20.0, after="", limit=9
    )
    assert [each.chunk_id for each in left] == ["notes:a:0"]
    await put(store, stored, gone=["a"])
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:c:0", "notes:b:0"]


async def test_weights_of_a_chunk_that_became_a_duplicate_stay(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", duplicate_of="notes:a:0"))
    changes = [
        WeightedChunk("notes:a:0", (1, 2), (3.0, 4.0), duplicate_of="notes:b:0"),
        WeightedChunk("notes:b:0", (1, 2), (3.0, 4.0)),
    ]
    await store.set_weights(stored.type, kinds=False, average_length=20.0, changes=changes)
    left = await store.outdated_weights(
        stored.type, kinds=False, average_length=20.0, after="", limit=9
    )
    assert [(each.chunk_id, list(each.weights)) for each in left] == [
        ("notes:a:0", [1.0, 0.5]),
        ("notes:b:0", [1.0, 0.5]),
    ]


async def test_scores_of_an_analysis_are_stored_with_the_chunks(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b"), chunk("c"))
    scores = [ChunkScores("notes:b:0", 0.25, 1.0), ChunkScores("notes:missing:0", 1.0, 1.0)]
    await store.set_scores(stored.type, scores)
    columns = Columns(fields=("centrality", "novelty"))
    rows = (await store.search(stored, [by_terms({1: 1.0})], columns)).value["terms"]
    found = {row.chunk_id: (row.columns["centrality"], row.columns["novelty"]) for row in rows}
    assert found == {"notes:a:0": (None, None), "notes:b:0": (0.25, 1.0), "notes:c:0": (None, None)}
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0", "notes:b:0", "notes:c:0"]
    whole = await store.chunk_records(stored.type, ["b"], kinds=False, first=0, end=1)
    assert [(each.centrality, each.novelty) for each in whole] == [(0.25, 1.0)]
    await put(store, stored, chunk("b"))
    whole = await store.chunk_records(stored.type, ["b"], kinds=False, first=0, end=1)
    assert [each.centrality for each in whole] == [None]


async def test_discarding_staged_parts_leaves_what_is_stored(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    await store.discard_staged(before=HOUR * 10**6)
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]
