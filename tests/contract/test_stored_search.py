"""Retrieval: order, ties, filters, columns, graph expansion and term statistics."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.stored_records import (
    NOTHING,
    by_terms,
    by_vector,
    chunk,
    collection,
    filled,
    found,
    found_ids,
    put,
    sparse,
    statistics_of,
    towards,
)

from ability_search.collection import Collection
from ability_search.filters.tree import And, Compare, Field, Not, OneOf
from ability_search.store import statistics_cache
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.records import (
    HIT,
    VALUE_LENGTH,
    Ahead,
    ChunkText,
    Linked,
    Row,
    Search,
    Share,
    SourceLink,
    metadata_column,
)
from ability_search.store.statistics_cache import EMPTY, StatisticsCache, advanced, term_log
from ability_search.store.values import Chunks, Columns, Read
from ability_search.text.term_statistics import TermStatistics

FIRST = towards(1.0)


def ids(rows: list[Row]) -> list[str]:
    return [row.chunk_id for row in rows]


def kind_is(*kinds: str) -> OneOf:
    return OneOf(Field("kind"), kinds)


async def test_chunks_nearest_to_a_vector_come_first(store: Store) -> None:
    stored = await filled(
        store,
        chunk("far", embedding=towards(0.1)),
        chunk("near", embedding=towards(0.9)),
        chunk("middle", embedding=towards(0.5)),
        chunk("opposite", embedding=towards(-0.5)),
    )
    rows = await found(store, stored, by_vector(FIRST))
    assert ids(rows) == ["notes:near:0", "notes:middle:0", "notes:far:0", "notes:opposite:0"]
    assert [row.score for row in rows] == pytest.approx([0.9, 0.5, 0.1, -0.5], abs=1e-6)
    assert ids(await found(store, stored, by_vector(FIRST, limit=2))) == ids(rows)[:2]


async def test_score_is_the_cosine_of_vectors_of_any_length(store: Store) -> None:
    stored = await filled(store, chunk("a", embedding=towards(0.6)))
    (row,) = await found(store, stored, by_vector([3.0 * part for part in towards(0.6)]))
    assert row.score == pytest.approx(1.0, abs=1e-6)


async def test_graph_search_finds_what_an_exact_search_finds(store: Store) -> None:
    parts = [chunk(f"s{n}", embedding=towards(n / 20)) for n in range(20)]
    stored = await filled(store, *parts)
    exact = await found_ids(store, stored, by_vector(FIRST, limit=5))
    settled = await store.settle(stored)
    assert await found_ids(store, settled, by_vector(FIRST, limit=5)) == exact


async def test_chunks_of_the_greatest_dot_product_come_first(store: Store) -> None:
    stored = await filled(
        store,
        chunk("light", terms=(1, 3), weights=(0.5, 9.0)),
        chunk("heavy", terms=(1, 2), weights=(1.5, 2.0)),
        chunk("other", terms=(3,), weights=(9.0,)),
    )
    rows = await found(store, stored, by_terms({1: 2.0, 2: 0.5}))
    assert ids(rows) == ["notes:heavy:0", "notes:light:0"]
    assert [row.score for row in rows] == pytest.approx([4.0, 1.0], abs=1e-6)
    assert ids(await found(store, stored, by_terms({1: 2.0}, limit=1))) == ["notes:heavy:0"]


async def test_no_terms_find_nothing(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    assert await found(store, stored, by_terms({})) == []
    assert await found(store, stored, by_terms({99: 1.0})) == []


async def test_equal_scores_are_in_the_order_of_their_ids(store: Store) -> None:
    names = ["m", "c", "z", "a", "q"]
    stored = await filled(store, *map(chunk, names))
    expected = [f"notes:{name}:0" for name in sorted(names)]
    assert await found_ids(store, stored, by_vector()) == expected
    assert await found_ids(store, stored, by_vector(limit=3)) == expected[:3]
    assert await found_ids(store, stored, by_terms({1: 1.0})) == expected
    first = await found_ids(store, stored, by_terms({1: 1.0}, limit=3))
    assert len(first) == 3
    assert first == sorted(first)


@pytest.mark.parametrize("kinds", [("document",), ("document", "code")])
@pytest.mark.parametrize("by", ["scan", "graph", "terms"])
async def test_a_longer_list_begins_with_the_shorter_ones(
    store: Store, by: str, kinds: Sequence[str]
) -> None:
    drawn = random.Random(by)
    chunks = [
        chunk(
            f"s{drawn.randrange(10**6)}-{n}",
            embedding=towards(drawn.randrange(12) / 12),
            terms=(1, 2, 3),
            weights=tuple(drawn.choice([0.3, 0.7, 1.1]) for _ in range(3)),
            kind=drawn.choice(["document", "code"]),
        )
        for n in range(300)
    ]
    stored = await filled(store, *chunks)
    stored = await store.settle(stored) if by == "graph" else stored
    limits = [4, 8, 16, 40, 200]

    async def beginning(steps: Sequence[int]) -> list[str]:
        *heads, limit = steps
        options: dict[str, Any] = {"limit": limit, "heads": heads}
        options["filter"] = kind_is(*kinds) if len(kinds) == 1 else None
        if by == "terms":
            return await found_ids(store, stored, by_terms({1: 0.1, 2: 0.7, 3: 1.3}, **options))
        return await found_ids(store, stored, by_vector(towards(0.4), **options))

    whole = await beginning(limits)
    assert len(set(whole)) == len(whole) >= 100
    for count in range(1, len(limits)):
        shorter = await beginning(limits[:count])
        assert len(shorter) >= limits[count - 1]
        assert whole[: len(shorter)] == shorter


async def test_searches_are_answered_by_name_with_the_record(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", terms=(7,), weights=(1.0,)))
    read = await store.search(stored, [by_vector(), by_terms({7: 1.0})], NOTHING)
    assert read.current == stored
    assert {name: [row.chunk_id for row in rows] for name, rows in read.rows.items()} == {
        "vector": ["notes:a:0", "notes:b:0"],
        "terms": ["notes:b:0"],
    }


async def test_empty_collection_has_no_rows(store: Store) -> None:
    stored = await filled(store)
    read = await store.search(stored, [by_vector(), by_terms({1: 1.0})], NOTHING)
    assert read.current == stored
    assert {name: list(rows) for name, rows in read.rows.items()} == {"vector": [], "terms": []}


async def test_search_of_a_deleted_record_says_so(store: Store) -> None:
    generation = collection()
    await store.create_generation(generation)
    read = await store.search(generation, [by_vector()], NOTHING)
    assert read.current is None


@pytest.mark.parametrize("graph", [True, False])
async def test_filter_leaves_out_chunks_before_the_limit(store: Store, graph: bool) -> None:
    chunks = [
        chunk(f"s{n:02}", embedding=towards(1 - n / 20), kind="code" if n % 4 == 3 else "document")
        for n in range(12)
    ]
    stored = await filled(store, *chunks)
    stored = await store.settle(stored) if graph else stored
    wanted = kind_is("code")
    expected = ["notes:s03:0", "notes:s07:0"]
    search = by_vector(FIRST, limit=2, filter=wanted)
    assert await found_ids(store, stored, search) == expected
    assert await found_ids(store, stored, by_terms({1: 1.0}, limit=2, filter=wanted)) == expected


async def test_filters_see_source_title_kind_time_and_metadata(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a", title="One", kind="code", created_at=5, metadata={"team": "red", "n": 3}),
        chunk("b", title="Two", created_at=9, metadata={"team": "blue"}),
    )
    for condition in (
        OneOf(Field("source"), ("a",)),
        OneOf(Field("title"), ("One", "Three")),
        kind_is("code"),
        Compare(Field("createdAt"), "<", 9),
        OneOf(Field("metadata", ("team",)), ("red",)),
        Compare(Field("metadata", ("n",)), ">=", 3),
        Not(OneOf(Field("metadata", ("team",)), ("blue",))),
        And((kind_is("code"), Compare(Field("createdAt"), "<=", 5))),
    ):
        assert await found_ids(store, stored, by_vector(filter=condition)) == ["notes:a:0"]
        assert await found_ids(store, stored, by_terms({1: 1.0}, filter=condition)) == ["notes:a:0"]
    nothing = kind_is("nothing")
    assert await found_ids(store, stored, by_vector(filter=nothing)) == []


async def test_each_search_has_its_own_filter(store: Store) -> None:
    names = [f"s{number}" for number in range(9)]
    stored = await filled(store, *map(chunk, names))
    searches = [by_vector(name=n, filter=OneOf(Field("source"), (n,))) for n in names]
    read = await store.search(stored, searches, NOTHING)
    assert {name: ids(list(rows)) for name, rows in read.rows.items()} == {
        name: [f"notes:{name}:0"] for name in names
    }


async def test_kinds_are_searched_apart(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("a/title", of="a", kind="title"))
    assert stored.kind_chunks == 1
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:a:0"]
    assert await found_ids(store, stored, by_vector(kinds=True)) == ["notes:a/title:0"]
    assert await found_ids(store, stored, by_terms({1: 1.0}, kinds=True)) == ["notes:a/title:0"]


async def test_search_of_kinds_finds_nothing_where_there_are_none(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    assert await found_ids(store, stored, by_vector(kinds=True)) == []
    assert await found_ids(store, stored, by_terms({1: 1.0}, kinds=True)) == []


async def test_duplicates_are_not_found(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", duplicate_of="notes:a:0"))
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]
    assert await found_ids(store, stored, by_terms({1: 1.0})) == ["notes:a:0"]


async def test_duplicates_are_found_if_the_filter_excludes_their_stand_in(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a", metadata={"team": "red"}),
        chunk("b", metadata={"team": "red"}, duplicate_of="notes:a:0"),
        *(
            chunk(
                source,
                metadata={"team": "blue"},
                embedding=towards(0.8),
                weights=(3.0, 2.0),
                duplicate_of="notes:a:0",
            )
            for source in "dc"
        ),
        chunk("e", metadata={"team": "blue"}, embedding=towards(0.1), terms=(7,), weights=(1.0,)),
    )
    graph = await store.settle(stored)
    columns = Columns(("source", "terms"), {"own": FIRST}, {"heavy": sparse({2: 4.0})})
    for team, expected in (("red", ["notes:a:0"]), ("blue", ["notes:c:0", "notes:e:0"])):
        filter = OneOf(Field("metadata", ("team",)), (team,))
        by_meaning = by_vector(FIRST, filter=filter)
        by_word = by_terms({1: 1.0}, filter=filter)
        assert await found_ids(store, stored, by_meaning) == expected
        assert await found_ids(store, graph, by_meaning) == expected
        assert await found_ids(store, stored, by_word) == expected[:1]
        assert await found_ids(store, stored, replace(by_meaning, limit=1)) == expected[:1]
    near, _ = await found(store, stored, by_meaning, columns)
    assert near.score == pytest.approx(0.8, abs=1e-6)
    (heavy,) = await found(store, stored, by_word, columns)
    assert heavy.score == pytest.approx(3.0, abs=1e-6)
    assert (heavy.columns["source"], list(heavy.columns["terms"])) == ("c", [1, 2])
    numbers = [heavy.columns[name] for name in ("own", "heavy")]
    assert numbers == pytest.approx([0.8, 8.0], abs=1e-6)


async def test_rows_have_the_requested_columns(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a", 3, embedding=towards(0.8), dates=(20240101,), section=2, tokens=7),
    )
    vector, other, terms = towards(0.6), FIRST, sparse({1: 1.0})
    columns = Columns(
        ("source", "chunk_index", "created_at", "dates", "section", "tokens", "title"),
        {"cosine": vector, "own": other},
        {"heavy": sparse({2: 4.0}), "none": sparse({9: 1.0}), "ownTerms": terms},
    )
    search = replace(by_terms({1: 1.0}), by=terms)
    (row,) = await found(store, stored, search, columns)
    assert dict(row.columns) == {
        "source": "a",
        "chunk_index": 3,
        "created_at": 1000,
        "dates": row.columns["dates"],
        "section": 2,
        "tokens": 7,
        "title": "Title of a",
        "cosine": pytest.approx(0.8 * 0.6 + 0.6 * 0.8, abs=1e-6),
        "own": pytest.approx(0.8, abs=1e-6),
        "heavy": pytest.approx(2.0, abs=1e-6),
        "none": pytest.approx(0.0, abs=1e-6),
        "ownTerms": row.score,
    }
    assert list(row.columns["dates"]) == [20240101]
    (row,) = await found(store, stored, by_vector(vector), columns)
    assert row.score == pytest.approx(0.96, abs=1e-6)
    assert row.columns["cosine"] == row.score
    assert row.columns["ownTerms"] == pytest.approx(1.0, abs=1e-6)
    assert row.columns["own"] == pytest.approx(0.8, abs=1e-6)


async def test_texts_that_are_read_ahead_are_those_of_the_best_by_all_scores(
    store: Store, request: pytest.FixtureRequest
) -> None:
    stored = await filled(
        store,
        chunk("a", embedding=towards(0.9), terms=(1,), weights=(0.1,)),
        chunk("b", embedding=towards(0.5), terms=(1,), weights=(2.0,)),
        chunk("c", embedding=towards(0.1), terms=(1,), weights=(0.5,)),
        chunk("d", embedding=towards(0.9), terms=(1,), weights=(0.1,)),
    )
    heavy = sparse({1: 1.0})
    searches = [by_vector(FIRST, "near"), Search("heavy", heavy, 10)]
    columns = Columns((), {"cosine": FIRST}, {"bm25": heavy})
    graph, ahead = (
        await store.settle(stored),
        Ahead(1, [{"near": Share(1.0)}, {"near": Share(1.0), "heavy": Share(1.0, 1.0)}]),
    )
    rows = (await store.search(graph, searches, columns, ahead=ahead)).rows
    read = {row.chunk_id: row.text for name in rows for row in rows[name] if row.text is not None}
    if request.node.callspec.params["store"] != "memory":
        assert sorted(read) == ["notes:a:0", "notes:b:0"], "of equal ones the first"
    for text in read.values():
        asked = Read(Chunks(handles=[text.handle]), stored, HIT)
        (row,) = await read_all(store, asked)
        assert text == ChunkText(**row)


async def test_candidates_have_the_keys_of_their_metadata_that_are_requested(store: Store) -> None:
    metadata = {
        "team": "red",
        "a.b`' é": [1, "x"],
        "inner": {"n": 1.5, "none": None},
        "long": "x" * (VALUE_LENGTH + 1),
        "other": 1,
    }
    stored = await filled(store, chunk("a", metadata=metadata), chunk("b", metadata={}))
    wanted = ["team", "a.b`' é", "inner", "long", "missing"]
    fields = ["source", *map(metadata_column, wanted)]
    for search in (by_vector(), by_terms({1: 1.0})):
        rows = await found(store, stored, search, Columns(fields))
        columns = {row.columns["source"]: row.columns["metadata"] for row in rows}
        assert columns == {
            "a": {**{key: metadata.get(key) for key in wanted}, "long": None},
            "b": dict.fromkeys(wanted),
        }


async def test_best_chunk_of_each_source_is_found(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a", 0, embedding=towards(0.5), terms=(1,), weights=(3.0,)),
        chunk("a", 1, embedding=towards(0.9), terms=(1,), weights=(1.0,)),
        chunk("b", 1, embedding=towards(0.7), terms=(2,), weights=(1.0,)),
        chunk("b", 0, embedding=towards(0.7), terms=(2,), weights=(1.0,)),
        chunk("c", embedding=FIRST),
        chunk("d", duplicate_of="notes:c:0"),
    )
    columns = Columns(("source",), {"cosine": towards(0.6)})
    every = Chunks(sources=["a", "b", "d", "missing"])
    rows = await found(store, stored, by_vector(FIRST, within=every), columns)
    assert ids(rows) == ["notes:a:1", "notes:b:0"]
    assert rows[0].score == pytest.approx(0.9, abs=1e-6)
    assert rows[0].columns["source"] == "a"
    rows = await found(store, stored, by_terms({1: 1.0}, within=every), columns)
    assert [(row.chunk_id, row.score) for row in rows] == [("notes:a:0", 3.0), ("notes:b:0", 0.0)]
    first = Not(OneOf(Field("title"), ("Title of b",)))
    best = by_vector(FIRST, "best", within=Chunks(sources=["a", "b"]), filter=first)
    named = ["notes:a:0", "notes:b:0", "notes:d:0", "notes:gone:0"]
    given = by_vector(FIRST, "given", within=Chunks(ids=named), filter=first)
    answer = await store.search(stored, [best, given], columns)
    assert ids(list(answer.rows["best"])) == ["notes:a:1"]
    assert ids(list(answer.rows["given"])) == ["notes:a:0"]
    assert answer.rows["given"][0].score == pytest.approx(0.5, abs=1e-6)


# Graph expansion


async def _linked(store: Store) -> Collection:
    """A chain a -> b -> c, d -> a, and e, which nothing links to."""
    return await filled(
        store,
        *(
            chunk(source, embedding=towards(part))
            for source, part in {"a": 0.95, "b": 0.5, "c": 0.4, "d": 0.3, "e": 0.9}.items()
        ),
        chunk("b", 1, embedding=towards(0.7)),
        links=[
            SourceLink("a", "b", "cites", 0.5),
            SourceLink("b", "c", "cites", 1.0),
            SourceLink("d", "a", "mentions", 0.8),
            SourceLink("a", "missing", "cites", 0.2),
        ],
    )


def linked(hops: int = 1, kinds: Sequence[str] | None = None, **fields: Any) -> Search:
    """A search of what links of ``a`` lead to."""
    return by_vector(FIRST, within=Linked(["a"], hops, kinds), least=0.0, **fields)


async def linked_ids(store: Store, stored: Collection, search: Search) -> set[str]:
    return set(await found_ids(store, stored, search))


async def test_best_chunks_of_linked_sources_are_found_in_both_directions(store: Store) -> None:
    stored = await _linked(store)
    answer = await store.search(stored, [linked()], Columns(("source",), {"cosine": FIRST}))
    rows = answer.rows["vector"]
    assert ids(list(rows)) == ["notes:b:1", "notes:d:0"]
    assert [row.score for row in rows] == pytest.approx([0.7, 0.3], abs=1e-6)
    assert [row.columns["source"] for row in rows] == ["b", "d"]
    ((out, into),) = answer.hops["vector"]
    assert list(out) == [
        SourceLink("a", "b", "cites", 0.5),
        SourceLink("a", "missing", "cites", 0.2),
    ]
    assert list(into) == [SourceLink("d", "a", "mentions", 0.8)]


async def test_second_hop_starts_from_what_the_first_reached(store: Store) -> None:
    stored = await _linked(store)
    answer = await store.search(stored, [linked(2)], NOTHING)
    assert set(ids(list(answer.rows["vector"]))) == {"notes:b:1", "notes:c:0", "notes:d:0"}
    out, into = answer.hops["vector"][1]
    assert list(out) == [SourceLink("b", "c", "cites", 1.0), SourceLink("d", "a", "mentions", 0.8)]
    assert list(into) == [SourceLink("a", "b", "cites", 0.5)]


async def test_links_of_other_kinds_are_not_followed(store: Store) -> None:
    stored = await _linked(store)
    answer = await store.search(stored, [linked(kinds=["mentions"])], NOTHING)
    assert ids(list(answer.rows["vector"])) == ["notes:d:0"]
    assert [(list(out), len(into)) for out, into in answer.hops["vector"]] == [([], 1)]


async def test_what_links_lead_to_is_filtered_and_limited(store: Store) -> None:
    stored = await _linked(store)
    not_b = Not(OneOf(Field("source"), ("b",)))
    assert await linked_ids(store, stored, linked(2, filter=not_b)) == {"notes:d:0"}
    near = replace(linked(), least=0.5)
    assert await linked_ids(store, stored, near) == {"notes:b:1"}
    assert await linked_ids(store, stored, linked(2, limit=2)) == {"notes:b:1", "notes:c:0"}
    assert await linked_ids(store, stored, replace(linked(2), by=sparse({1: 1.0}))) == {
        "notes:b:0",
        "notes:c:0",
        "notes:d:0",
    }


async def test_nothing_is_linked_without_links(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b", embedding=towards(0.7)))
    named = Chunks(ids=["notes:b:0", "notes:missing:0"])
    searches = [linked(), by_vector(FIRST, "beside", within=named)]
    answer = await store.search(stored, searches, NOTHING)
    assert ids(list(answer.rows["beside"])) == ["notes:b:0"]
    assert list(answer.rows["vector"]) == []
    assert list(answer.hops["vector"]) == []


# Term statistics


async def test_changes_of_term_statistics_are_logged_in_order(store: Store) -> None:
    created = await filled(store)
    old = chunk("a", terms=(1, 5), weights=(1.0, 1.0), lengths=(1, 7))
    new = chunk("a", terms=(2,), weights=(1.0,), lengths=(1, 3))
    first = await put(store, created, old)
    second = await put(store, first.collection, new, chunk("a/title", of="a", kind="title"))
    third = await put(store, second.collection, gone=["a"])
    log = await term_log(store, created.type)
    assert [each.revision for each in log] == [
        each.collection.revision for each in (first, second, third)
    ]
    assert [each.base for each in log] == [False, False, False]
    assert [[list(terms) for terms in each.removed] for each in log] == [[], [[1, 5]], [[2]]]
    assert [[list(each) for each in e.removed_lengths] for e in log] == [[], [[1, 7]], [[1, 3]]]
    added = [TermStatistics.from_bytes(each.added) for each in log[:2] if each.added]
    assert added == [statistics_of([old]), statistics_of([new])]
    assert log[2].added is None
    later = await term_log(store, created.type, after=log[0].revision)
    assert [each.revision for each in later] == [each.revision for each in log[1:]]


async def test_term_statistics_are_complete_whenever_they_are_read_during_a_fold(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_cache, "_FOLD_AFTER", 2)
    cache = StatisticsCache(store)
    stored = await filled(store, chunk("a"))
    before = await term_log(store, stored.type)
    assert not await cache.fold(stored)
    stored = (await put(store, stored, chunk("b"))).collection
    plain = await term_log(store, stored.type)
    assert await cache.fold(stored)
    assert not await cache.fold(stored)
    log = await term_log(store, stored.type)
    assert [(each.revision, each.base) for each in log] == [(1, False), (2, True)]
    everything = statistics_of([chunk("a"), chunk("b")])
    for seen in (plain, log, log[1:]):
        assert advanced(EMPTY, seen, 2).statistics == everything
    assert advanced(advanced(EMPTY, before, 1), log[1:], 2).statistics == everything
    for source in "cd":
        stored = (await put(store, stored, chunk(source))).collection
    assert await cache.fold(stored)
    log = await term_log(store, stored.type)
    assert [(each.revision, each.base) for each in log] == [(2, True), (3, False), (4, True)]
    assert advanced(EMPTY, log, 4).statistics == statistics_of([chunk(each) for each in "abcd"])


async def test_one_of_two_workers_folds_a_log(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics_cache, "_FOLD_AFTER", 2)
    stored = await filled(store, chunk("a"))
    stored = (await put(store, stored, chunk("b"))).collection
    folds = await asyncio.gather(*(StatisticsCache(store).fold(stored) for _ in range(3)))
    assert folds.count(True) == 1
    assert [each.base for each in await term_log(store, stored.type)] == [False, True]
