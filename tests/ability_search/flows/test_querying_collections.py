"""Several collections at once, neighbours of a chunk, and what collections say of themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.ability_search.flows.conftest import (
    DIMENSIONS,
    MODEL,
    Network,
    Start,
    document,
    down,
    word_vector,
)
from tests.ability_search.flows.oracle import Oracle, assert_ranked, corpus

from kadi_client import Call

Documents = list[dict[str, Any]]


async def index(network: Network, name: str, documents: Documents, **options: Any) -> None:
    await network.call("search-index", collection=name, documents=documents, **options)


async def test_hits_of_several_collections_are_merged_by_score(network: Network) -> None:
    documents = corpus(60)
    await index(network, "odd", documents[1::2])
    await index(network, "even", documents[::2])
    query = "anything " + documents[4]["content"][:20]
    scores: dict[str, float] = {}
    for name, part in (("odd", documents[1::2]), ("even", documents[::2])):
        oracle = await Oracle.of(network, name, part)
        scores |= oracle.default(query)
    for asked in (["odd", "even"], ["even", "odd", "even"], "*"):
        answer = await network.call("search-query", collection=asked, query=query, limit=20)
        assert answer["collection"] == asked
        assert_ranked(answer["results"], scores, count=20)
        assert {hit["collection"] for hit in answer["results"]} == {"odd", "even"}
        for hit in answer["results"]:
            assert hit["chunkId"].startswith(hit["collection"] + ":")
    pages = [
        await network.call("search-query", collection="*", query=query, limit=7, offset=offset)
        for offset in range(0, 60, 7)
    ]
    ids = [hit["chunkId"] for page in pages for hit in page["results"]]
    assert sorted(ids) == sorted(scores)


async def test_a_query_is_embedded_once_a_model(network: Network) -> None:
    network.model.models["other-32"] = 32
    for n in range(4):
        await index(network, f"c{n}", [document("a", "some words")])
    await index(network, "other", [document("a", "some words")], model="other-32")
    network.model.texts.clear()
    answer = await network.call("search-query", collection="*", query="words", mode="semantic")
    assert network.model.texts == ["words", "words"]
    assert {hit["collection"] for hit in answer["results"]} == {"c0", "c1", "c2", "c3", "other"}


async def test_a_model_of_high_cosines_does_not_fill_the_page(network: Network) -> None:
    def narrow(tool_input: dict[str, Any]) -> None:
        network.model.offset = 3.0 if tool_input["model"] == "narrow" else 0.0

    network.model.models["narrow"] = DIMENSIONS
    network.model.failure = narrow
    texts = {"a": "cats sleep", "b": "dogs bark", "c": "fish swim", "d": "cows graze"}
    documents = [document(source, text, title="") for source, text in texts.items()]
    await index(network, "wide", documents)
    await index(network, "narrow", documents, model="narrow")
    for name in ("wide", "narrow"):
        await Oracle.of(network, name, documents)
    for mode in ("semantic", "hybrid"):
        asked = {"query": "cats sleep", "mode": mode, "explain": True, "limit": 8, "prf": False}
        answer = await network.call("search-query", collection=["wide", "narrow"], **asked)
        hits = answer["results"]
        assert "warnings" not in answer
        assert {hit["source"] for hit in hits[:2]} == {"a"}
        cosines = {hit["chunkId"]: hit["scores"]["semantic"] for hit in hits}
        assert cosines["narrow:b:0"] > 0.8, "a raw cosine that looks like a good one"
        measured = {name: each["calibration"] for name, each in answer["explain"].items()}
        assert measured["narrow"]["chance"] > 0.5 > measured["wide"]["chance"]


async def test_a_model_that_is_away_degrades_its_own_collection_only(network: Network) -> None:
    def away(tool_input: dict[str, Any]) -> None:
        if tool_input["model"] == "other-32":
            down(tool_input)

    network.model.models["other-32"] = 32
    for name in ("docs", "more"):
        await index(network, name, [document("a", "some words"), document("b", "words here")])
    await index(network, "other", [document("a", "some words")], model="other-32")
    network.model.failure = away
    for _ in range(6):  # also while no more requests are sent to that model
        answer = await network.call("search-query", collection="*", query="words")
        assert answer["degraded"]["collections"] == ["other"]
        by_vector = {hit["chunkId"] for hit in answer["results"] if "semantic" in hit["scores"]}
        assert by_vector == {"docs:a:0", "docs:b:0", "more:a:0", "more:b:0"}
    alone = await network.call("search-query", collection="other", query="words")
    assert "collections" not in alone["degraded"]


@pytest.mark.parametrize("hanging", [1, 12])
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_models_that_hang_leave_the_other_collections_their_vectors(
    start: Start, hanging: int, mode: str
) -> None:
    """And the query waits for all of them at the same time."""
    hung = [f"away{n}" for n in range(hanging)]
    times = {"SEARCH_EMBEDDING_FALLBACK_AFTER": "0.5", "SEARCH_EMBEDDING_QUERY_TIMEOUT": "0.5"}
    waiting: set[str] = set()
    most = 0
    async with start(**times) as network:
        for name in (*hung, "docs"):
            model = MODEL if name == "docs" else f"{name}-64"
            await index(network, name, [document("a", "some words")], model=model)

        async def hang(tool_input: dict[str, Any], call: Call) -> Any:
            nonlocal most
            if tool_input["model"] != MODEL:
                waiting.add(tool_input["model"])
                most = max(most, len(waiting))
                try:
                    await asyncio.Event().wait()
                finally:
                    waiting.discard(tool_input["model"])
            return await network.model.handle(tool_input, call)

        network.instead["create-embedding"] = hang
        for _ in range(3):
            most = 0
            options = {"collection": "*", "mode": mode, "limit": 20}
            answer = await network.call("search-query", query="words", **options)
            assert most == hanging
            scores = {hit["collection"]: hit["scores"] for hit in answer["results"]}
            assert "semantic" in scores["docs"]
            if mode == "hybrid":
                assert sorted(answer["degraded"]["collections"]) == sorted(hung)
            else:
                assert set(scores) == {"docs"}
                assert len(answer["warnings"]) == hanging


async def test_one_that_fails_is_named(network: Network) -> None:
    await index(network, "docs", [document("a", "some words")])
    answer = await network.call("search-query", collection=["docs", "missing"], query="words")
    assert [hit["collection"] for hit in answer["results"]] == ["docs"]
    assert len(answer["warnings"]) == 1
    assert "missing" in answer["warnings"][0]


async def test_if_all_fail_the_query_does(network: Network) -> None:
    answer = await network.refused("search-query", collection=["one", "two"], query="words")
    assert answer["code"] == "not_found"
    assert "collection" not in answer


async def test_models_that_differ_from_the_one_asked_for(network: Network) -> None:
    network.model.models["other-32"] = 32
    await index(network, "docs", [document("a", "some words")])
    await index(network, "other", [document("a", "some words")], model="other-32")
    answer = await network.call("search-query", collection="*", query="words", model="other-32")
    assert [hit["collection"] for hit in answer["results"]] == ["other"]
    assert MODEL in answer["warnings"][0]
    refused = await network.refused(
        "search-query", collection="docs", query="words", model="other-32"
    )
    assert refused["code"] == "model_mismatch"
    assert MODEL in refused["error"]
    assert refused["retryable"] is False


@pytest.mark.parametrize("asked", [[], ["docs", "*"], ["docs", "a b"], ""])
async def test_names_that_are_none(network: Network, asked: Any) -> None:
    answer = await network.refused("search-query", collection=asked, query="words")
    assert answer["code"] == "invalid_input"
    assert "collection" in answer["error"]


async def test_all_of_no_collections_is_an_empty_answer(network: Network) -> None:
    answer = await network.call("search-query", collection="*", query="words")
    assert answer["results"] == []


async def test_an_unknown_collection_names_the_nearest(network: Network) -> None:
    await index(network, "handbook", [document("a", "some words")])
    for tool, further in (
        ("search-query", {"query": "w"}),
        ("search-similar", {"chunkId": "handbok:a:0"}),
        ("search-collection-info", {}),
    ):
        answer = await network.refused(tool, collection="handbok", **further)
        assert (answer["code"], answer["collection"]) == ("not_found", "handbok")
        assert "handbook" in answer["hint"]


async def test_neighbours_are_the_nearest_others(network: Network) -> None:
    documents = corpus(60)
    await index(network, "docs", documents)
    await index(network, "elsewhere", documents)
    oracle = await Oracle.of(network, "docs", documents)
    chosen = documents[11]
    scores = oracle.cosines(f"{chosen['title']} {chosen['content']}")
    own = oracle.id(chosen)
    assert scores.pop(own) == pytest.approx(1.0)
    answer = await network.call("search-similar", collection="docs", chunkId=own, limit=20)
    assert answer["sourceChunk"] == own
    assert_ranked(answer["results"], oracle.nearness(scores), count=20)
    everything = await network.call("search-similar", collection="docs", chunkId=own, limit=1000)
    assert everything["count"] == 59


async def test_sources_near_a_source(network: Network) -> None:
    documents = [
        document("long", "# A\n\ncats sleep\n\n# B\n\ndogs bark", title=""),
        document("cats", "cats sleep", title=""),
        document("both", "cats sleep dogs bark", title=""),
        document("fish", "fish swim", title=""),
    ]
    await index(network, "docs", documents, chunkStrategy="markdown-headers")
    answer = await network.call("search-similar", collection="docs", source="long")
    assert answer["sourceChunk"] == "docs:long:0"
    assert [hit["source"] for hit in answer["results"]] == ["both", "cats", "fish"]
    chunk = await network.call("search-similar", collection="docs", chunkId="docs:long:0", limit=1)
    assert [hit["source"] for hit in chunk["results"]] == ["cats"]
    missing = await network.refused("search-similar", collection="docs", source="nothing")
    assert missing["code"] == "not_found"
    assert "source" in missing["error"]
    for both in ({}, {"source": "long", "chunkId": "docs:long:0"}):
        refused = await network.refused("search-similar", collection="docs", **both)
        assert "exactly one of chunkId and source" in refused["error"]


async def test_neighbours_within_a_filter_and_above_a_floor(network: Network) -> None:
    documents = corpus(60)
    await index(network, "docs", documents)
    oracle = await Oracle.of(network, "docs", documents)
    own = oracle.id(documents[11])
    scores = oracle.cosines(f"{documents[11]['title']} {documents[11]['content']}")
    even = oracle.where(lambda item: item["metadata"]["half"] == 0)
    answer = await network.call(
        "search-similar",
        collection="docs",
        chunkId=own,
        limit=60,
        filter={"metadata.half": 0},
        minScore=0.5,
    )
    assert {hit["chunkId"] for hit in answer["results"]} == {
        id_ for id_ in even if scores[id_] >= 0.5
    }


async def test_neighbours_of_chunks_that_are_not_there(network: Network) -> None:
    await index(network, "docs", [document("a", "some words")])
    await index(network, "other", [document("b", "some words")])
    for chunk in ("docs:nothing:0", "other:b:0"):
        answer = await network.refused("search-similar", collection="docs", chunkId=chunk)
        assert answer["code"] == "not_found"
        assert chunk in answer["error"]
    alone = await network.call("search-similar", collection="docs", chunkId="docs:a:0")
    assert alone["results"] == []


async def test_no_collections_before_anything_is_indexed(network: Network) -> None:
    assert await network.call("search-collections") == {"collections": []}
    await index(network, "docs", [document("a", "some words")])
    await network.call("search-delete", collection="docs")
    assert await network.call("search-collections") == {"collections": []}


async def test_what_is_known_of_collections(network: Network) -> None:
    await index(network, "b", [document("x", "some words"), document("y", "many more words here")])
    await index(network, "a", [document("z", "words")])
    first, second = (await network.call("search-collections"))["collections"]
    assert (first["name"], second["name"]) == ("a", "b")
    assert (second["chunks"], second["sources"]) == (2, 2)
    assert second["minTokens"] <= second["avgTokens"] <= second["maxTokens"]
    assert second["model"] == MODEL
    assert second["dimensions"] == len(word_vector("x"))
    info = await network.call("search-collection-info", collection="b")
    assert info["sources"] == ["x", "y"]
    assert info["similarity"] == "cosine"
    assert info["state"] == "ready"
    assert "nextCursor" not in info
    assert {key: info[key] for key in second if key != "name" and key != "sources"} == {
        key: value for key, value in second.items() if key != "name" and key != "sources"
    }


async def test_sources_page_by_page(network: Network) -> None:
    names = [f"ordner/ä {n:02}" for n in range(25)]
    await index(network, "docs", [document(name, "words") for name in names])
    listed: list[str] = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        page = await network.call("search-collection-info", collection="docs", limit=7, **cursor)
        assert page["sourceCount"] == 25
        listed += page["sources"]
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert listed == names


@pytest.mark.parametrize("cursor", ["nonsense!", "ä", "/w==", "'; DROP TYPE Chunk"])
async def test_a_cursor_of_somebody_else(network: Network, cursor: str) -> None:
    await index(network, "docs", [document("a", "words")])
    answer = await network.refused("search-collection-info", collection="docs", cursor=cursor)
    assert answer["code"] == "invalid_input"
    assert "cursor" in answer["error"]
