"""search-query over the wire, against scores calculated from the formulas."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.oracle import Oracle, assert_ranked, corpus
from tests.ability_search.flows.stored import services_of, settled

QUERIES = 5


@pytest.fixture
async def library(start: Start, tmp_path: Path) -> AsyncIterator[tuple[Network, Oracle]]:
    """A collection ``docs`` of a hundred chunks, all of them candidates, with its oracle."""
    documents = corpus(100)
    async with start(SEARCH_CANDIDATES="200") as network:
        await network.call("search-index", collection="docs", documents=documents)
        # The weights of terms are not renewed any more after this.
        await settled(services_of(network, tmp_path), "docs")
        yield network, await Oracle.of(network, "docs", documents)


def queries(oracle: Oracle) -> list[str]:
    """Some words of a document each, one of them twice."""
    texts = []
    for n in range(QUERIES):
        words = oracle.documents[n * 17]["content"].split()
        texts.append(" ".join([*words[:3], words[0]]))
    return texts


async def search(network: Network, query: str, **options: Any) -> list[dict[str, Any]]:
    answer = await network.call("search-query", collection="docs", query=query, **options)
    assert answer["count"] == len(answer["results"])
    assert all(0 <= hit["score"] <= 1 for hit in answer["results"])
    return list(answer["results"])


def places(hits: list[dict[str, Any]]) -> list[tuple[str, float]]:
    return [(hit["chunkId"], hit["score"]) for hit in hits]


async def test_semantic_is_the_exact_cosine_order(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    for query in queries(oracle):
        hits = await search(network, query, mode="semantic", limit=25)
        assert_ranked(hits, oracle.semantic(query), count=25)
        cosines = oracle.cosines(query)
        for hit in hits:
            assert hit["scores"] == {"semantic": pytest.approx(cosines[hit["chunkId"]], abs=1e-4)}
            assert hit["matchedVia"] == ["semantic"]


async def test_keyword_is_exact_bm25(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    for query in queries(oracle):
        raw = oracle.bm25(query)
        hits = await search(network, query, mode="keyword", limit=25)
        assert_ranked(hits, oracle.keyword(query), count=25)
        for hit in hits:
            assert hit["scores"] == {"keyword": pytest.approx(raw[hit["chunkId"]], abs=1e-3)}
            assert hit["matchedVia"] == ["keyword"]


async def test_hybrid_is_what_is_documented(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    for query in queries(oracle):
        hits = await search(network, query, limit=25)
        assert_ranked(hits, oracle.default(query), count=25)
        cosines, raw = oracle.cosines(query), oracle.bm25(query)
        for hit in hits:
            assert hit["scores"]["semantic"] == pytest.approx(cosines[hit["chunkId"]], abs=1e-4)
            assert hit["scores"].get("keyword", 0) == pytest.approx(
                raw.get(hit["chunkId"], 0), abs=1e-3
            )


@pytest.mark.parametrize(
    ("fusion", "weights"),
    [
        ({"method": "convex", "weights": {"semantic": 1, "keyword": 3}}, (1.0, 3.0)),
        ({"method": "convex", "weights": {"semantic": 0.4}}, (0.4, 1.0)),
        ({"method": "convex"}, (1.0, 1.0)),
    ],
)
async def test_fusion_by_given_weights(
    library: tuple[Network, Oracle], fusion: dict[str, Any], weights: tuple[float, float]
) -> None:
    network, oracle = library
    query = queries(oracle)[1]
    hits = await search(network, query, limit=30, fusion=fusion)
    semantic, keyword = weights
    assert_ranked(hits, oracle.hybrid(query, semantic=semantic, keyword=keyword), count=30)


async def test_a_weight_of_zero_leaves_an_arm_out(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    query = queries(oracle)[2]
    fusion = {"method": "convex", "weights": {"semantic": 0}}
    hits = await search(network, query, limit=100, fusion=fusion)
    expected = oracle.keyword(query)
    assert_ranked(hits, expected, count=len(expected))


@pytest.mark.parametrize("k", [None, 0, 15.5])
async def test_fusion_by_reciprocal_ranks(library: tuple[Network, Oracle], k: float | None) -> None:
    network, oracle = library
    query = queries(oracle)[3]
    fusion = {"method": "rrf", **({} if k is None else {"k": k})}
    hits = await search(network, query, limit=40, fusion=fusion)
    assert_ranked(hits, oracle.reciprocal(query, k=60 if k is None else k), count=40)


async def test_weights_that_are_all_zero_are_refused(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    fusion = {"method": "convex", "weights": {"semantic": 0, "keyword": 0}}
    answer = await network.refused("search-query", collection="docs", query="w", fusion=fusion)
    assert answer["code"] == "invalid_input"
    assert "fusion.weights" in answer["error"]


async def test_weights_do_not_matter_to_a_single_arm(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    fusion = {"method": "convex", "weights": {"keyword": 0}}
    (hit,) = await search(network, "words", mode="keyword", fusion=fusion)
    assert hit["score"] > 0


async def test_equal_scores_are_ordered_by_chunk_id(network: Network) -> None:
    documents = [document(f"s{n}", "the same words", title="same") for n in (5, 3, 9, 1, 7)]
    for item in documents:
        item["title"] = "same"
    await network.call("search-index", collection="docs", documents=documents)
    for mode in ("semantic", "keyword", "hybrid"):
        hits = await search(network, "same words", mode=mode)
        assert [hit["source"] for hit in hits] == ["s1", "s3", "s5", "s7", "s9"]
        assert len({hit["score"] for hit in hits}) == 1


async def test_the_same_call_gives_the_same_list(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    query = queries(oracle)[0]
    for mode in ("semantic", "keyword", "hybrid"):
        first, second = [await search(network, query, mode=mode, limit=50) for _ in range(2)]
        assert first == second


@pytest.mark.parametrize("candidates", [10, 50, 200])
async def test_pages_cover_everything_once(start: Start, candidates: int) -> None:
    documents = corpus(100)
    async with start(SEARCH_CANDIDATES=str(candidates)) as network:
        await network.call("search-index", collection="docs", documents=documents)
        oracle = await Oracle.of(network, "docs", documents)
        query = queries(oracle)[4]
        for mode in ("semantic", "keyword", "hybrid"):
            expected = oracle.keyword(query) if mode == "keyword" else oracle.semantic(query)
            pages = [
                await search(network, query, mode=mode, limit=7, offset=offset)
                for offset in range(0, 112, 7)
            ]
            hits = [hit for page in pages for hit in page]
            assert [len(page) for page in pages[:-1]] == [
                min(7, max(0, len(expected) - 7 * n)) for n in range(15)
            ]
            assert sorted(hit["chunkId"] for hit in hits) == sorted(expected)
            assert hits == sorted(hits, key=lambda hit: (-hit["score"], hit["chunkId"]))
            whole = await search(network, query, mode=mode, limit=112)
            assert places(hits) == places(whole)


async def test_more_results_than_there_are(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    assert len(await search(network, "anything", mode="semantic", limit=1000)) == 100
    assert await search(network, "anything", mode="semantic", offset=100) == []
    assert await search(network, "unheardof", mode="keyword", limit=1000) == []
    assert len(await search(network, "unheardof", limit=1000)) == 100


async def test_min_score_is_a_floor_on_the_cosine(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    query = queries(oracle)[0]
    cosines = oracle.cosines(query)
    floor = (sorted(cosines.values())[60] + sorted(cosines.values())[61]) / 2
    expected = {id_ for id_, cosine in cosines.items() if cosine >= floor}
    for mode in ("semantic", "hybrid"):
        answer = await network.call(
            "search-query",
            collection="docs",
            query=query,
            mode=mode,
            limit=100,
            minScore=floor,
            explain=True,
        )
        assert {hit["chunkId"] for hit in answer["results"]} == expected
        left_out = answer["explain"]["candidates"] - len(expected)
        assert answer["explain"]["minScore"] == {"floor": floor, "leftOut": left_out}


async def test_min_score_is_a_floor_on_the_keyword_score(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    query = queries(oracle)[0]
    scores = oracle.keyword(query)
    levels = sorted(set(scores.values()))
    floor = (levels[len(levels) // 2] + levels[len(levels) // 2 - 1]) / 2
    hits = await search(network, query, mode="keyword", limit=100, minScore=floor)
    assert {hit["chunkId"] for hit in hits} == {
        id_ for id_, score in scores.items() if score >= floor
    }
    assert await search(network, query, mode="keyword", minScore=1) == []


async def test_an_imagined_answer_is_embedded_instead(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    query, imagined = queries(oracle)[0], queries(oracle)[1]
    network.model.texts.clear()
    answer = await network.call(
        "search-query", collection="docs", query=query, hypotheticalAnswer=imagined, limit=20
    )
    assert network.model.texts == [imagined]
    assert answer["hyde"] is True
    assert answer["query"] == query
    assert_ranked(answer["results"], oracle.default(query, meant=imagined), count=20)


async def test_an_imagined_answer_is_nothing_to_keyword_search(
    library: tuple[Network, Oracle],
) -> None:
    network, oracle = library
    query = queries(oracle)[0]
    network.model.texts.clear()
    answer = await network.call(
        "search-query",
        collection="docs",
        query=query,
        hypotheticalAnswer="something else",
        mode="keyword",
    )
    assert "hyde" not in answer
    assert network.model.texts == []
    assert_ranked(answer["results"], oracle.keyword(query), count=10)


async def test_explain_adds_up(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    answer = await network.call(
        "search-query", collection="docs", query=queries(oracle)[0], explain=True, limit=100
    )
    assert answer["explain"]["arms"] == ["semantic", "keyword"]
    assert answer["relevance"] == pytest.approx(answer["results"][0]["score"], abs=1e-3)
    weights = answer["explain"]["weights"]
    assert sum(weights.values()) == pytest.approx(1.0)
    assert answer["explain"]["calibration"].keys() == {"chance", "near", "agreement"}
    assert answer["explain"]["vectorSearch"] == "scan"
    for hit in answer["results"]:
        fusion = hit["explain"]["fusion"]
        shares = sum(arm["share"] for arm in fusion["arms"].values())
        assert math.isclose(shares, fusion["score"], abs_tol=1e-9)
        assert fusion["score"] == hit["score"]
        for name, arm in fusion["arms"].items():
            assert arm["share"] == pytest.approx(weights[name] * arm["normalized"])
    plain = await search(network, queries(oracle)[0])
    assert all("explain" not in hit for hit in plain)


async def test_highlights_are_offsets_into_the_content(network: Network) -> None:
    content = "Ærø — the Quick brown foxes; quick-brown 狐狸 FOX."
    await network.call("search-index", collection="docs", documents=[document("a", content)])
    (hit,) = await search(network, "the quick fox", highlights=True)
    assert [mark["text"] for mark in hit["highlights"]] == ["Quick", "foxes", "quick", "FOX"]
    for mark in hit["highlights"]:
        assert hit["content"][mark["start"] : mark["end"]] == mark["text"]
    (plain,) = await search(network, "the quick fox")
    assert "highlights" not in plain


async def test_hits_bring_what_was_indexed(network: Network) -> None:
    metadata = {"lang": "en", "nested": {"deep": [1, None, "x"]}, "none": None}
    await network.call(
        "search-index",
        collection="docs",
        documents=[document("guide/a.md", "# Top\n\n## Sub\n\nwords here", metadata=metadata)],
    )
    (hit,) = await search(network, "words")
    assert hit["chunkId"] == "docs:guide/a.md:0"
    assert hit["metadata"] == metadata
    assert hit["source"] == hit["title"] == "guide/a.md"
    assert (hit["chunkIndex"], hit["totalChunks"]) == (0, 1)
    assert "collection" not in hit
    assert "properties" not in hit
    assert hit["createdAt"].endswith("Z")


async def test_kinds_can_be_told_apart(network: Network) -> None:
    documents = [
        document("a", "words of a document"),
        document("b", "words of a summary", kind="summary"),
    ]
    await network.call("search-index", collection="docs", documents=documents)
    hits = await search(network, "words", filter={"kind": "summary"})
    assert [(hit["source"], hit["kind"]) for hit in hits] == [("b", "summary")]
