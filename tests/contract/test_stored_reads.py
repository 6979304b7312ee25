"""Reads and counts: selections, columns, order, pages, and the record as it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conftest import arcadedb
from tests.contract.stored_records import (
    DIMENSIONS,
    chunk,
    collection,
    filled,
    gone,
    put,
    replacement,
    source_record,
    sparse,
    towards,
)

from ability_search.collection import Collection
from ability_search.errors import TooLarge
from ability_search.filters.tree import And, Compare, Exists, Field, Filter, Not, OneOf
from ability_search.store.arcadedb.client import BrokerScripts
from ability_search.store.pages import chunk_pages, count, read_all, read_page
from ability_search.store.port import Store
from ability_search.store.records import VALUE_LENGTH, ChunkRecord, SourceLink, metadata_column
from ability_search.store.values import (
    KINDS_LAYER,
    Chunks,
    Columns,
    Count,
    Links,
    Page,
    Read,
    Sources,
)

FIRST = towards(1.0)
ID = Columns(("chunk_id",))
NAME = Columns(("source",))


async def ids(store: Store, of: Chunks, within: Collection, **fields: Any) -> list[str]:
    """The chunkIds that are selected, in order."""
    items = await read_all(store, Read(of, within, ID, **fields))
    return [item["chunk_id"] for item in items]


async def names(store: Store, of: Sources, within: Collection, **fields: Any) -> list[str]:
    """The sources that are selected, in order."""
    return [item["source"] for item in await read_all(store, Read(of, within, NAME, **fields))]


async def handles(store: Store, within: Collection) -> dict[str, str]:
    """The handles of all chunks of documents, by chunkId."""
    items = await read_all(store, Read(Chunks(), within, Columns(("chunk_id", "handle"))))
    return {item["chunk_id"]: item["handle"] for item in items}


def one_of(field: str, *values: Any) -> Filter:
    return OneOf(Field(field), values)


# What is selected


async def test_chunks_are_selected_by_each_of_their_fields(store: Store) -> None:
    stored = await filled(
        store,
        *(chunk(source, n, vector_key=f"{source}{n}") for source in "ab" for n in range(3)),
        chunk("c", duplicate_of="notes:a:0", kind="code", vector_key="a0"),
    )
    known = await handles(store, stored)
    for of, expected in (
        (Chunks(), sorted(known)),
        (Chunks(handles=[known["notes:b:1"], known["notes:a:2"]]), ["notes:a:2", "notes:b:1"]),
        (Chunks(ids=["notes:b:1", "notes:gone:0", "notes:a:0"]), ["notes:a:0", "notes:b:1"]),
        (Chunks(sources=["b", "missing"]), ["notes:b:0", "notes:b:1", "notes:b:2"]),
        (Chunks(sources=["a", "b"], first=1, end=2), ["notes:a:1", "notes:b:1"]),
        (Chunks(vector_keys=["a0", "b2", "x"]), ["notes:a:0", "notes:b:2"]),
        (Chunks(indexed=False), ["notes:c:0"]),
        (Chunks(indexed=True, first=2), ["notes:a:2", "notes:b:2"]),
        (Chunks(filter=one_of("kind", "code")), ["notes:c:0"]),
        (Chunks(ids=["notes:a:0", "notes:c:0"], filter=one_of("kind", "code")), ["notes:c:0"]),
        (Chunks(filter=Compare(Field("chunk_index"), ">", 1)), ["notes:a:2", "notes:b:2"]),
        (Chunks(filter=one_of("duplicate_of", "notes:a:0")), ["notes:c:0"]),
        (Chunks(handles=[]), []),
        (Chunks(ids=[]), []),
        (Chunks(sources=[]), []),
    ):
        assert await ids(store, of, stored) == expected, of


async def test_layers_are_read_apart(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("a/t", of="a", kind="title"))
    assert await ids(store, Chunks(), stored) == ["notes:a:0"]
    assert await ids(store, Chunks(KINDS_LAYER), stored) == ["notes:a/t:0"]
    without = await filled(store, name="empty")
    assert await ids(store, Chunks(KINDS_LAYER), without) == []


async def test_sources_are_selected_by_name_and_by_filters(store: Store) -> None:
    stored = await filled(store, chunk("b.md"), chunk("a.md"), file=True, file_hash="x")
    stored = (await put(store, stored, chunk("c"), of="a.md")).collection
    made = chunk("c/t", of="c", kind="title")
    stored = (await put(store, stored, made, kind="title", generated=True)).collection
    holder = replace(replacement(gone=["d"]), records=[source_record("d", [], file=True)])
    assert await store.replace(stored, holder)
    counted = And((Not(one_of("generated", True)), Compare(Field("chunks"), ">", 0)))
    for of, expected in (
        (Sources(), ["a.md", "b.md", "c", "c/t", "d"]),
        (Sources(["c", "a.md", "missing"]), ["a.md", "c"]),
        (Sources([]), []),
        (Sources(filter=counted), ["a.md", "b.md", "c"]),
        (Sources(filter=Not(one_of("generated", True))), ["a.md", "b.md", "c", "d"]),
        (Sources(filter=one_of("file", True)), ["a.md", "b.md", "d"]),
        (Sources(filter=one_of("of", "a.md", "c")), ["c", "c/t"]),
        (Sources(["c", "d"], Not(Exists(Field("of")))), ["d"]),
    ):
        assert await names(store, of, stored) == expected, of


async def test_links_are_read_strongest_first(store: Store) -> None:
    links = [
        SourceLink("a", "b", "cites", 0.5),
        SourceLink("c", "a", "cites", 1.0),
        SourceLink("b", "c", "x", 0.7),
    ]
    stored = await filled(store, *map(chunk, "abc"), links=links)

    async def read(sources: Sequence[str], limit: int | None = None) -> list[SourceLink]:
        return await read_all(store, Read(Links(sources), stored, limit=limit))

    assert await read(["a"]) == [links[1], links[0]]
    assert await read(["a", "b"], 2) == [links[1], links[2]]
    assert await read(["z"]) == []
    without = await filled(store, chunk("a"), name="other")
    assert await read_all(store, Read(Links(["a"]), without)) == []


# Values and columns


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
    found = await read_all(store, Read(Chunks(), stored))
    assert list(map(rounded, found)) == list(map(rounded, [one, duplicate]))
    (kind,) = await read_all(store, Read(Chunks(KINDS_LAYER), stored))
    assert rounded(kind) == rounded(title)


async def test_sources_are_stored_whole(store: Store) -> None:
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
    (stored,) = await read_all(store, Read(Sources(), created))
    assert replace(stored, links=[dict(link) for link in stored.links]) == record
    columns = Columns(("content_hash", metadata_column("team"), "generated", "tail[:1]"))
    (row,) = await read_all(store, Read(Sources(["a"]), created, columns))
    assert row == {
        "content_hash": record.content_hash,
        metadata_column("team"): "red",
        "generated": False,
        "tail[:1]": "\n",
    }


async def test_columns_are_fields_their_beginnings_and_keys_of_metadata(store: Store) -> None:
    long = "x" * 300
    metadata = {"a.b`' é": [1, "x"], "long": "x" * (VALUE_LENGTH + 1), "other": 1}
    stored = await filled(store, chunk("a", 2, title=long, page=3, metadata=metadata))
    keys = [metadata_column(key) for key in ("a.b`' é", "long", "missing")]
    fields = ("chunk_id", "title[:120]", "content[:6]", "chunk_index", "page", "section", *keys)
    (row,) = await read_all(store, Read(Chunks(), stored, Columns((*fields, "breadcrumb"))))
    assert row == {
        "chunk_id": "notes:a:2",
        "title[:120]": "x" * 120,
        "content[:6]": "Part 2",
        "chunk_index": 2,
        "page": 3,
        "section": None,
        **dict(zip(keys, ([1, "x"], None, None), strict=True)),
        "breadcrumb": "",
    }


async def test_chunks_are_compared_with_vectors_and_terms(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a", embedding=FIRST),
        chunk("b", embedding=towards(0.6), duplicate_of="notes:a:0"),
        chunk("c", embedding=None, terms=(), weights=(), duplicate_of="notes:a:0"),
    )
    columns = Columns(("embedding", "terms"), {"near": FIRST}, {"heavy": sparse({2: 4.0})})
    a, b, c = await read_all(store, Read(Chunks(), stored, columns))
    for row, near in ((a, 1.0), (b, 0.6)):
        assert row["near"] == pytest.approx(near, abs=1e-6)
        assert row["heavy"] == pytest.approx(2.0, abs=1e-6)
        assert list(row["terms"]) == [1, 2]
    assert list(b["embedding"]) == pytest.approx(towards(0.6), abs=1e-6)
    assert (c["embedding"], c["near"]) == (None, None)


async def test_a_chunk_that_is_replaced_gets_another_handle(store: Store) -> None:
    stored = await filled(store, chunk("a"), chunk("b"))
    before = await handles(store, stored)
    await put(store, stored, chunk("a"))
    after = await handles(store, stored)
    assert before["notes:b:0"] == after["notes:b:0"]
    assert before["notes:a:0"] != after["notes:a:0"]
    assert await ids(store, Chunks(handles=[*before.values()]), stored) == ["notes:b:0"]


async def test_what_is_returned_can_be_changed_without_harm(store: Store) -> None:
    metadata = {"tags": ["x"]}
    stored = await filled(store, chunk("a", metadata=metadata), metadata=metadata)
    metadata["tags"].append("changed before")
    asks = [
        Read(Chunks(), stored),
        Read(Sources(), stored),
        Read(Chunks(), stored, Columns(("metadata",))),
        Read(Sources(), stored, Columns(("metadata",))),
    ]
    for ask in (*asks, *asks):
        (item,) = await read_all(store, ask)
        found = item["metadata"] if isinstance(item, dict) else item.metadata
        assert found == {"tags": ["x"]}
        found["tags"].append("changed after")


# Order and pages

NAMES = ["Z", "a", "z", "ä", "\ud7ff", "\ue000", "\uffee", "\U0001f600"]
"""In the order of their code points, in which the last two differ from UTF-16."""


async def test_sources_are_in_the_order_of_code_points(store: Store) -> None:
    stored = await filled(store, *map(chunk, reversed(NAMES)))
    assert await names(store, Sources(), stored) == NAMES
    assert await names(store, Sources(), stored, limit=3) == NAMES
    page = await read_page(store, Read(Sources(), stored, NAME, limit=3, after="a"))
    assert [item["source"] for item in page.items] == NAMES[2:5]
    assert page.next == NAMES[4]
    last = await read_page(store, Read(Sources(), stored, NAME, limit=3, after=NAMES[-1]))
    assert (list(last.items), last.next) == ([], None)
    down = await read_all(store, Read(Sources(), stored, NAME, limit=3, descending=True))
    assert [item["source"] for item in down] == NAMES[::-1]


async def test_sources_are_in_the_order_in_which_they_were_stored(store: Store) -> None:
    stored = await filled(store, *map(chunk, "mzak"))
    for at, source in ((3000, "z"), (2000, "m")):
        written = await store.replace(stored, replacement(chunk(source), indexed_at=at))
        assert written is not None
        stored = written.collection
    newest = {"order": "stored", "descending": True}
    assert await names(store, Sources(), stored, limit=2, **newest) == ["z", "m"]
    assert (await names(store, Sources(), stored, **newest))[:2] == ["z", "m"]


async def test_chunks_are_in_the_order_of_their_ids_or_keys(store: Store) -> None:
    keys = {"m": "5", "z": "1", "a": "9", "k": "3"}
    stored = await filled(
        store,
        *(chunk(source, vector_key=key) for source, key in keys.items()),
        chunk("none", vector_key=None),
        chunk("copy", vector_key="7", duplicate_of="notes:m:0"),
    )

    async def sources(**fields: Any) -> list[str]:
        found = await ids(store, Chunks(indexed=True), stored, **fields)
        return [each.split(":")[1] for each in found]

    assert await sources() == ["a", "k", "m", "none", "z"]
    assert await sources(limit=2) == ["a", "k", "m", "none", "z"]
    assert await sources(order="vector_key", limit=2) == ["z", "k", "m", "a"]
    assert await sources(order="vector_key", after="4") == ["m", "a"]


@pytest.mark.slow
async def test_chunks_of_sources_are_read_page_by_page(store: Store) -> None:
    parts = [chunk("b", n) for n in range(300)]
    stored = await filled(store, *parts, chunk("a"), chunk("a/t", of="a", kind="title"))
    records = {each.source: each for each in await read_all(store, Read(Sources(), stored))}
    records["a/t"] = replace(records["a/t"], kind="title")
    pages = [
        [each.chunk_id for each in page]
        async for page in chunk_pages(store, stored, [records[name] for name in ("b", "a", "a/t")])
    ]
    assert [name for page in pages for name in page] == [
        *(f"notes:b:{n}" for n in range(300)),
        "notes:a:0",
        "notes:a/t:0",
    ]
    assert len(pages) > 3


class SmallMessages(BrokerScripts):
    """Answers of more than 60 items do not fit."""

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def read(self, script: str, params: Any) -> Any:
        answer = await super().read(script, params)
        rows = answer.values() if isinstance(answer, dict) else [answer]
        if sum(map(len, rows)) > 60:
            raise TooLarge("too large")
        return answer


@pytest.mark.engine
async def test_what_does_not_fit_into_a_message_is_read_in_smaller_pages(tmp_path: Path) -> None:
    async with arcadedb(tmp_path, SmallMessages) as store:
        stored = await filled(store, *(chunk(f"s{n:03}") for n in range(100)))
        expected = [f"notes:s{n:03}:0" for n in range(100)]
        assert await ids(store, Chunks(), stored) == expected
        assert await ids(store, Chunks(ids=expected[::-1]), stored) == expected
        both = await store.read([Read(Sources(), stored), Count(Sources(), stored)])
        assert isinstance(both[0], Page)
        assert 0 < len(both[0].items) < 60
        assert both[0].next is not None


# Counts


async def counted(store: Store, ask: Count) -> dict[int | None, tuple[int, ...]]:
    (answer,) = await count(store, ask)
    return dict(answer.groups)


async def test_chunks_and_sources_are_counted_and_summed_up(store: Store) -> None:
    stored = await filled(store, chunk("a", tokens=3), chunk("a", 1, tokens=4), chunk("b"))
    made = chunk("b/t", of="b", kind="title")
    stored = (await put(store, stored, made, generated=True)).collection
    own = Sources(filter=Not(one_of("generated", True)))
    answers = await count(
        store,
        Count(own, stored),
        Count(Sources(), stored, sums=["chunks"]),
        Count(Chunks(), stored, sums=["tokens"]),
        Count(Chunks(KINDS_LAYER), stored),
        Count(Chunks(ids=[]), stored, sums=["tokens"]),
    )
    assert [dict(each.groups) for each in answers] == [
        {None: (2,)},
        {None: (3, 4)},
        {None: (3, 12)},
        {None: (1,)},
        {None: (0, 0)},
    ]


async def test_groups_have_a_width(store: Store) -> None:
    sizes = [0, 4, 5, 9, 23]
    stored = await filled(
        store,
        *(chunk(f"s{n}", tokens=size, total_chunks=n) for n, size in enumerate(sizes)),
        chunk("s0/t", of="s0", kind="title", tokens=3),
    )
    groups = await counted(store, Count(Chunks(), stored, by="tokens", width=5))
    assert groups == {0: (2,), 5: (2,), 20: (1,)}
    ask = Count(Chunks(), stored, by="tokens", width=10, sums=["total_chunks"])
    assert await counted(store, ask) == {0: (4, 6), 20: (1, 4)}
    assert await counted(store, replace(ask, of=Chunks(ids=[]))) == {}


async def test_a_sample_has_the_least_keys(store: Store) -> None:
    stored = await filled(
        store,
        *(chunk(f"s{n}", tokens=n, vector_key=f"{(7 * n) % 10}" * 32) for n in range(10)),
        chunk("copy", tokens=99, vector_key="0" * 32, duplicate_of="notes:s0:0"),
    )
    ask = Count(Chunks(indexed=True), stored, by="tokens", sample=3)
    assert await counted(store, ask) == {0: (1,), 3: (1,), 6: (1,)}


async def test_unusable_vectors_have_no_dimensions(store: Store) -> None:
    stored = await filled(
        store,
        chunk("a"),
        chunk("b", embedding=[0.5] + [0.0] * 7),
        chunk("c", duplicate_of="notes:a:0"),
        chunk("d", embedding=None, terms=(), weights=(), duplicate_of="notes:a:0"),
        chunk("a/t", of="a", kind="title"),
    )
    for layer, expected in (("", [DIMENSIONS, 0, DIMENSIONS, 0]), (KINDS_LAYER, [DIMENSIONS])):
        ask = Read(Chunks(layer), stored, Columns(("dimensions",)))
        assert [row["dimensions"] for row in await read_all(store, ask)] == expected


# Records and generations


async def test_answers_have_the_record_as_it_is_now_if_it_is_asked_for(store: Store) -> None:
    old = await filled(store, chunk("a"))
    new = (await put(store, old, chunk("b"))).collection
    other = await filled(store, chunk("a", of_collection="other"), name="other")
    first, second, third, fourth = await store.read(
        [
            Read(Sources(), old, current=True),
            Count(Chunks(), old, current=True),
            Read(Chunks(), other, ID, current=True),
            Count(Chunks(), old),
        ]
    )
    assert (first.current, second.current, third.current) == (new, new, other)
    assert fourth.current is None
    generation = collection("unrecorded")
    await store.create_generation(generation)
    assert (await read_page(store, Read(Sources(), generation, current=True))).current is None


async def test_reads_of_a_generation_that_is_gone_say_so(store: Store) -> None:
    stored, other = await filled(store, chunk("a")), await filled(store, name="other")
    await store.drop_generation(stored.type)
    for of in (Chunks(), Sources(), Links(["a"]), Chunks(KINDS_LAYER)):
        with gone(stored.type):
            await store.read([Read(of, stored)])
    with gone(stored.type):
        await store.read([Count(Chunks(), stored)])
    with gone(stored.type):
        await store.read([Read(Sources(), other), Read(Sources(), stored)])


async def test_no_asks_have_no_answers(store: Store) -> None:
    assert await store.read([]) == []
