"""Strings of every kind, wherever a caller may put one: never an exception, never an injection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document

from kadi_client import RemoteError

STRINGS = {
    "quotes": 'O\'Brien said "hi" `there`',
    "doubled": "it''s",
    "backslashes": r"C:\new\table\x41",
    "trailing backslash": "ends with \\",
    "quote after backslash": "\\' OR 1=1 --",
    "operators": "+a -b !c && d || e (f) {g} [h] ^2 ~0.8 field:value a?c d* /re/",
    "and": "AND",
    "or not": "OR NOT",
    "star": "*",
    "question": "?",
    "c++": "C++",
    "foo bar": "foo:bar",
    "unbalanced": '"unbalanced',
    "parenthesis": "foo_bar(",
    "url": "https://user@example.org:8080/a/b?c=d&e=%20#f",
    "mail": "someone@example.org",
    "identifier": "ERR_4012 snake_case camelCase kebab-case v1.2.3",
    "sql": "'); DROP TYPE Chunk UNSAFE; --",
    "sqlscript": "}; LET x = DELETE FROM Collection; RETURN $x; //",
    "parameter": ":name $c #12:0 @rid ${x} {{y}}",
    "chinese": "向量数据库的全文检索",
    "japanese": "全文検索とベクトル検索のハイブリッド",
    "korean": "벡터 데이터베이스 검색",
    "thai": "ค้นหาข้อความภาษาไทย",
    "arabic": "البحث في النصوص",
    "hebrew": "\u202eחיפוש\u202c טקסט",
    "hindi": "खोज इंजन",
    "emoji": "🚀🔥 👍🏽",
    "zwj": "👩\u200d👩\u200d👧\u200d👦 क\u094d\u200dष",
    "combining": "e\u0301 Z\u0351\u036b\u0343 ﬁ Ⅷ ½ ﷺ",
    "nul": "a\0b",
    "controls": "".join(map(chr, range(1, 32))) + "x\x7f\x85\u2028\u2029\ufeff\ufffe\uffff",
    "astral": "\U0010ffff𝔘𝔫𝔦",
    "newlines": "a\r\nb\nc\td",
    "stop words": "the of and to in is",
    "punctuation": "... !!! ??? --- ///",
    "zero width": "\u200b\u200c\u200d\u2060",
    "number": "1e309 -0 0x1F ٣٤ 1,000.00 NaN",
    "json": '{"$where": "1", "a": [null]}',
    "html": "<script>alert(1)</script>&amp;",
    "template": "%s %(a)s {0} {a!r} $(ls) `ls` ../../etc/passwd",
    "long": "word " * 20_000,
    "long without spaces": "x" * 100_000,
    "long chinese": "検索" * 16_000,
}


@pytest.fixture
async def library(network: Network) -> AsyncIterator[Network]:
    """A collection ``docs``, which must still be the same afterwards."""
    documents = [document("a", "some words"), document("b", "C++ 全文检索 ERR_4012 foo:bar")]
    await network.call("search-index", collection="docs", documents=documents)
    yield network
    info = await network.call("search-collection-info", collection="docs")
    assert (info["chunks"], info["sources"]) == (2, ["a", "b"])


@pytest.mark.slow
async def test_as_a_query(library: Network) -> None:
    for name, text in STRINGS.items():
        for mode in ("semantic", "keyword", "hybrid"):
            answer = await library.call(
                "search-query", collection="docs", query=text, mode=mode, highlights=True
            )
            assert answer["query"] == text, name
            assert "degraded" not in answer, name
            assert mode == "keyword" or answer["count"] == 2, name


@pytest.mark.parametrize("text", ["C++", "foo:bar", "ERR_4012", "err_4012", "检索", "全文"])
async def test_words_of_every_kind_are_found(library: Network, text: str) -> None:
    answer = await library.call("search-query", collection="docs", query=text, mode="keyword")
    assert [hit["source"] for hit in answer["results"]] == ["b"]


async def test_as_the_name_of_a_collection(library: Network) -> None:
    for name, text in STRINGS.items():
        if text == "*":
            continue
        for tool, further in (
            ("search-query", {"query": "words"}),
            ("search-index", {"documents": []}),
            ("search-delete", {}),
            ("search-collection-info", {}),
        ):
            answer = await library.refused(tool, collection=text, **further)
            valid = name in ("and", "chinese", "japanese", "thai") and tool != "search-index"
            expected = "not_found" if valid else "invalid_input"
            assert answer["code"] == expected, name


async def test_as_a_chunk_or_a_source(library: Network) -> None:
    for name, text in STRINGS.items():
        answer = await library.refused("search-similar", collection="docs", chunkId=text)
        assert answer["code"] in ("not_found", "invalid_input"), name
        answer = await library.client.invoke(
            "search-delete", {"collection": "docs", "source": text}, timeout=30, check=False
        )
        refused = answer.get("code") in ("not_found", "invalid_input")
        assert refused or answer["deleted"] == 0, name


@pytest.mark.slow
async def test_as_a_value_and_a_key_of_a_filter(library: Network) -> None:
    for name, text in STRINGS.items():
        for condition in (
            {"source": text},
            {"title": {"$contains": text}},
            {"metadata.key": {"$in": [text]}},
            {"metadata.key": {"$gt": text}},
            {"source": {"$like": text}},
            {f"metadata.{text}": {"$exists": True}},
            {"metadata." + text.replace("\\", "\\\\").replace(".", "\\."): "x"},
            {text: "x"},
        ):
            await assert_nothing_or_refused(library, name, filter=condition)


async def test_as_a_glob(library: Network) -> None:
    for name, text in STRINGS.items():
        if text in ("*", "?"):
            continue
        await assert_nothing_or_refused(library, name, sources=[text])
        answer = await library.client.invoke(
            "search-query",
            {"collection": "docs", "query": "words", "mode": "semantic", "excludeSources": [text]},
            timeout=30,
            check=False,
        )
        assert answer.get("count") == 2 or answer["code"] == "invalid_input", name


async def assert_nothing_or_refused(network: Network, name: str, **options: Any) -> None:
    answer = await network.client.invoke(
        "search-query", {"collection": "docs", "query": "words", **options}, timeout=30, check=False
    )
    assert answer.get("count") == 0 or answer.get("code") == "invalid_input", name


@pytest.mark.slow
async def test_as_a_source_with_metadata(network: Network) -> None:
    """What may be stored comes back as it was."""
    stored = []
    for name, text in STRINGS.items():
        item = document(text, "some words", metadata={"text": text, text[:200]: "key"})
        answer = await network.client.invoke(
            "search-index", {"collection": "docs", "documents": [item]}, timeout=30, check=False
        )
        if answer.get("success") is False:
            assert answer["code"] == "invalid_input", name
        elif answer["failed"]:
            assert answer["failed"][0]["code"] == "invalid_input", name
        else:
            stored.append(item)
            await assert_comes_back(network, item)
    assert len(stored) > len(STRINGS) / 2
    found = await network.call("search-query", collection="docs", query="words", limit=100)
    assert {hit["source"] for hit in found["results"]} == {item["source"] for item in stored}
    for item in stored:
        answer = await network.call("search-delete", collection="docs", source=item["source"])
        assert answer["deleted"] == 1
    assert (await network.call("search-collection-info", collection="docs"))["chunks"] == 0


async def assert_comes_back(network: Network, item: dict[str, Any]) -> None:
    by_metadata = {"metadata.text": item["source"]}
    for condition in (by_metadata, {"source": item["source"]}):
        answer = await network.call(
            "search-query", collection="docs", query="words", filter=condition
        )
        (hit,) = answer["results"]
        assert hit["source"] == item["source"]
        assert hit["metadata"] == item["metadata"]
        assert hit["chunkId"] == f"docs:{item['source']}:0"
    similar = await network.call("search-similar", collection="docs", chunkId=hit["chunkId"])
    assert similar["sourceChunk"] == hit["chunkId"]


async def test_half_a_surrogate_pair_is_no_json(library: Network) -> None:
    with pytest.raises((UnicodeEncodeError, TypeError, RemoteError)):
        await library.client.invoke("search-query", {"collection": "docs", "query": "a\ud800"})
