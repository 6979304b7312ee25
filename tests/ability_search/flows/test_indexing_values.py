"""Values of every kind: stored as they came, or refused by name, never half stored."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document
from tests.ability_search.flows.stored import assert_consistent, chunks, record

from ability_search.extensions.notes.note_links import read_sources
from ability_search.index.preparation import restored_document
from ability_search.store.pages import source_texts

SOURCES = [
    "plain.md",
    "docs:with:colons:0",
    "O'Brien",
    'double "quotes"',
    "back\\slash",
    "ends with a backslash\\",
    "line\nbreak\r\n\ttab",
    "emoji 🦊 and 👩‍👩‍👧‍👦",
    "中文/日本語/한국어",
    "ﬀ ligature \uffee",
    "\U0001f98a",
    "\U0010ffff",
    " leading and trailing ",
    "percent % under _ star * ? [a-z]",
    "`backtick` ${x} :param $x @rid #12:0",
    "null\0inside",
    "rtl \u202eabc",
    "é composed",
    "e\u0301 decomposed",
    "UPPER",
    "upper",
    "x" * 1024,
]


async def test_sources_of_every_kind_are_kept_apart_and_listed_once(network: Network) -> None:
    documents = [document(source, f"text of number {n}") for n, source in enumerate(SOURCES)]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert answer["failed"] == []
    assert answer["added"] == len(SOURCES)
    stored = {row["source"]: row["content"] for row in await chunks(network, "docs")}
    assert stored == {source: f"text of number {n}" for n, source in enumerate(SOURCES)}
    await assert_consistent(network, "docs")
    again = await network.call("search-index", collection="docs", documents=documents)
    assert again["unchanged"] == len(SOURCES)
    listed: list[str] = []
    cursor: dict[str, str] = {}
    for _ in SOURCES:
        page = await network.call("search-collection-info", collection="docs", limit=3, **cursor)
        listed += page["sources"]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert sorted(listed) == sorted(SOURCES)
    for source in SOURCES:
        gone = await network.call("search-delete", collection="docs", source=source)
        assert gone["deleted"] == 1, source
    assert (await assert_consistent(network, "docs")).chunks == 0


METADATA: list[dict[str, Any]] = [
    {},
    {"nested": {"a": {"b": [1, 2, {"c": None}]}}},
    {"": "empty key", "with.dot": 1, "with space": 2, "with'quote\"": 3, "\\": 4},
    {"nul": "a\0b", "key\0nul": 1},
    {"float": 0.1, "small": 5e-324, "large": 1.7976931348623157e308, "minus": -0.5},
    {"int": 2**63 - 1, "negative": -(2**63), "zero": 0, "true": True, "false": False},
    {"list": [], "mixed": [1, "a", None, True], "lists": [[1], [2, 3]], "null": None},
    {"unicode": "🦊 中文 \u2028", "long": "x" * 5000},
    {"@rid": "#1:1", "@class": "Chunk", "$x": 1, "chunkId": "no", "embedding": [0.5] * 64},
]


@pytest.mark.parametrize("metadata", METADATA, ids=lambda value: ",".join(value)[:20] or "none")
async def test_metadata_comes_back_as_it_was_given(
    network: Network, metadata: dict[str, Any]
) -> None:
    documents = [document("a", "words") | {"metadata": metadata}]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert answer["failed"] == []
    found = await network.call("search-query", collection="docs", query="words", mode="keyword")
    (hit,) = found["results"]
    assert hit["metadata"] == metadata
    again = await network.call("search-index", collection="docs", documents=documents)
    assert again["unchanged"] == 1


@pytest.mark.parametrize(
    "metadata",
    [{"big": 2**63}, {"list": [-(2**70)]}, {"@type": "Chunk"}, {"deep": [[[[[[1]]]]] * 3]}],
    ids=["big", "list", "type", "deep"],
)
async def test_metadata_that_cannot_be_stored_fails_its_document_alone(
    network: Network, metadata: dict[str, Any]
) -> None:
    if "deep" in metadata:
        for _ in range(20):
            metadata = {"deep": metadata}
    documents = [document("bad", "words") | {"metadata": metadata}, document("good", "words")]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert [(item["source"], item["code"]) for item in answer["failed"]] == [
        ("bad", "invalid_input")
    ]
    assert "metadata" in answer["failed"][0]["error"]
    assert answer["added"] == 1
    assert (await assert_consistent(network, "docs")).sources == 1


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize(
    "content",
    [
        "nul \0 in the middle\0",
        "control \x01\x02\x1b[0m\x7f\x85",
        "\ufeffbyte order mark",
        "astral 🦊" * 100,
        "combining e\u0301\u0301\u0301",
        "\u2028 separators \u2029",
        "```\nunclosed fence\n" + "x = 1\n" * 50,
        "word " * 500,
        "0123456789" * 500,
        "漢字" * 800,
        "# A\n\n## B\n\ntext\n\n   \n\t\n## C\r\n\r\nmore\r\rtext\n\n\n",
    ],
    ids=lambda text: repr(text[:12]),
)
async def test_texts_of_every_kind_are_stored_to_the_last_character(
    network: Network, content: str
) -> None:
    answer = await network.call(
        "search-index", collection="docs", documents=[document("a", content)], maxTokens=32
    )
    assert answer["failed"] == []
    collection = await assert_consistent(network, "docs")
    (stored,) = await read_sources(network.store, collection)
    texts = await source_texts(network.store, collection, [stored])
    assert restored_document(stored, texts["a"]).content == content


@pytest.mark.parametrize("place", ["content", "title", "source", "metadata"])
async def test_a_lone_surrogate_is_refused_before_it_is_sent(network: Network, place: str) -> None:
    given = {**document("a", "words"), "metadata": {}}
    given[place] = {"key": "\ud800"} if place == "metadata" else "half \ud800"
    with pytest.raises((TypeError, UnicodeEncodeError)):
        await network.client.invoke("search-index", {"collection": "docs", "documents": [given]})
    healthy = await network.call(
        "search-index", collection="docs", documents=[document("b", "words")]
    )
    assert healthy["added"] == 1


async def test_metadata_too_large_for_one_message_is_spread_over_several(
    network: Network,
) -> None:
    documents = [
        document(f"d{n}", "words") | {"metadata": {"blob": f"{n}" + "x" * 200_000}}
        for n in range(48)
    ]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert (answer["added"], answer["failed"]) == (48, [])
    assert (await assert_consistent(network, "docs")).sources == 48


@pytest.mark.process
async def test_a_document_of_ten_megabytes_is_stored(network: Network) -> None:
    paragraph = "The quick brown fox jumps over the lazy dog and runs away again. " * 40
    content = "\n\n".join(
        f"{n} {paragraph}" for n in range(10 * 1024 * 1024 // (len(paragraph) + 9))
    )
    documents = [document("big", content)]
    answer = await network.call(
        "search-index", collection="docs", documents=documents, maxTokens=4096
    )
    assert answer["failed"] == []
    stored = await record(network, "docs")
    assert stored.sources == 1
    assert stored.chunks == answer["chunks"] > 500
    again = await network.call(
        "search-index", collection="docs", documents=documents, maxTokens=4096
    )
    assert again["unchanged"] == 1


TITLES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a.md": ("# Setting up\n\nwords", {}, "Setting up"),
    "b": ("---\ntitle: Own\n---\n# Other\n\nwords", {}, "Own"),
    "c.txt": ("only words", {}, "c.txt"),
    "d.py": ("# a comment\nx = 1\n", {}, "d.py"),
    "e": ("# a comment\nx = 1\n", {"format": "code"}, "e"),
    "f": ("# Heading\n\nwords", {"title": "given"}, "given"),
    "g": ("# Heading\n\nwords", {"title": ""}, ""),
    "h": ("# Heading\n\nwords", {"title": None, "metadata": None}, "Heading"),
}


async def test_a_document_without_title_has_that_of_its_text_or_its_source(
    network: Network,
) -> None:
    documents = [
        {"source": source, "content": content, **fields}
        for source, (content, fields, _) in TITLES.items()
    ]
    answer = await network.call("search-index", collection="docs", documents=documents)
    assert (answer["added"], answer["failed"]) == (len(TITLES), [])
    found = await network.call("search-query", collection="docs", query="words x heading", limit=99)
    titles = {hit["source"]: hit["title"] for hit in found["results"]}
    assert titles == {source: title for source, (_, _, title) in TITLES.items()}
    again = await network.call("search-index", collection="docs", documents=documents)
    assert again["unchanged"] == len(TITLES)


BAD: list[Any] = [
    {"source": "x" * 1100, "title": "t", "content": "words"},
    {"source": "", "title": "t", "content": "words"},
    {"source": 7, "title": "t", "content": "words"},
    {"title": "t", "content": "words"},
    {"source": "no content"},
    {"source": "number", "content": 7},
    {"source": "text", "content": "words", "metadata": "none"},
    {"source": "unknown", "content": "words", "colour": "red"},
    {"source": "link", "content": "words", "links": [{"target": " "}]},
    {"source": "chat", "content": "words", "format": "conversation"},
    "words",
    None,
]


async def test_documents_that_are_not_valid_fail_one_by_one(network: Network) -> None:
    good = [document("first", "words"), document("last", "words")]
    answer = await network.call(
        "search-index", collection="docs", documents=[good[0], *BAD, good[1]]
    )
    assert (answer["documents"], answer["added"]) == (len(BAD) + 2, 2)
    named = {each["error"].split(".")[1]: each["source"] for each in answer["failed"]}
    assert sorted(map(int, named)) == list(range(1, len(BAD) + 1))
    sources = [each.get("source") if isinstance(each, dict) else None for each in BAD]
    assert [named[str(n)] for n in range(1, len(BAD) + 1)] == [
        each if isinstance(each, str) and each else f"documents.{n}"
        for n, each in enumerate(sources, 1)
    ]
    for each in BAD:
        refused = await network.refused("search-index", collection="docs", documents=[each])
        assert refused["code"] == "invalid_input"
        assert refused["error"].startswith("documents.0")
