"""Filters and globs over sources, in both retrievers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.oracle import Oracle, Scores, best, corpus

SIZE = 400


async def graph_is_used(network: Network) -> None:
    """Wait until maintenance has built the vector graph."""
    async with asyncio.timeout(60):
        while True:
            answer = await network.call(
                "search-query", collection="docs", query="w", mode="semantic", explain=True
            )
            if answer["explain"]["vectorSearch"] == "graph":
                return


async def test_the_read_policy_applies_to_every_query_above_the_filter_of_the_caller(
    start: Start,
) -> None:
    texts = {"pub/a.md": "pump one", "pub/key.md": "pump two", "own/b.md": "pump three"}
    environ = {"SEARCH_READ_ALLOW": "pub/**,own/**", "SEARCH_READ_DENY": "**/key.md, own/*"}
    async with start(**environ) as network:
        documents = [
            document(source, text, links=[{"target": other} for other in texts if other != source])
            for source, text in texts.items()
        ]
        await network.call("search-index", collection="docs", documents=documents)
        for options in (
            {"mode": "keyword"},
            {"mode": "semantic", "graph": {"hops": 2}},
            {"sources": ["own/*", "**"]},
            {"filter": {"source": {"$in": list(texts)}}},
        ):
            answer = await network.call("search-query", collection="*", query="pump", **options)
            assert [hit["source"] for hit in answer["results"]] == ["pub/a.md"]
        hidden = await network.call(
            "search-query", collection="docs", query="pump", sources=["own/b.md"]
        )
        assert hidden["results"] == []
        (allowed,) = answer["results"]
        near = await network.call("search-similar", collection="docs", chunkId=allowed["chunkId"])
        assert near["results"] == []
        denied = allowed["chunkId"].replace("pub/a.md", "own/b.md")
        refused = await network.refused("search-similar", collection="docs", chunkId=denied)
        assert refused["code"] == "not_found"
        info = await network.call("search-collection-info", collection="docs")
        assert info["sources"] == ["pub/a.md"]
        overview = await network.call("notes-overview", collection="docs", include=["map"])
        assert {point["source"] for point in overview["map"]["points"]} <= {"pub/a.md"}
        ends = {"source": "pub/a.md", "to": "own/b.md"}
        refused = await network.refused("notes-paths", collection="docs", **ends)
        assert refused["code"] == "not_found"


@pytest.fixture(params=["scan", pytest.param("graph", marks=pytest.mark.engine)])
async def library(
    request: pytest.FixtureRequest, start: Start
) -> AsyncIterator[tuple[Network, Oracle]]:
    """A collection ``docs``, whose embeddings are scanned, or asked through the graph."""
    documents = corpus(SIZE)
    below = {"scan": SIZE + 1, "graph": 10}[request.param]
    async with start(SEARCH_SCAN_BELOW=str(below), SEARCH_CANDIDATES="200") as network:
        await network.call("search-index", collection="docs", documents=documents)
        if request.param == "graph":
            await graph_is_used(network)
        yield network, await Oracle.of(network, "docs", documents)


@pytest.mark.slow
async def test_a_filter_never_shortens_the_result(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    chance = random.Random(3)
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"metadata.half": 1}, oracle.where(lambda d: d["metadata"]["half"] == 1)),
        ({"metadata.rare": True}, oracle.where(lambda d: d["metadata"]["rare"])),
        ({"metadata.n": {"$lt": 40}}, oracle.where(lambda d: d["metadata"]["n"] < 40)),
        (
            {"$or": [{"source": "s0007"}, {"metadata.n": {"$between": [350, 355]}}]},
            oracle.where(lambda d: d["metadata"]["n"] in {7, *range(350, 356)}),
        ),
    ]
    recalled = wanted = 0
    for condition, allowed in cases:
        for _ in range(3):
            query = " ".join(chance.choice(oracle.documents)["content"].split()[:3])
            for mode in ("semantic", "keyword", "hybrid"):
                expected = best(_scores(replace(oracle, within=allowed), mode, query), 10)
                answer = await network.call(
                    "search-query",
                    collection="docs",
                    query=query,
                    mode=mode,
                    filter=condition,
                )
                found = [hit["chunkId"] for hit in answer["results"]]
                assert len(found) == len(expected)
                assert set(found) <= allowed
                recalled += len(set(found) & set(expected))
                wanted += len(expected)
    # Ties at the end of a list, and the graph, which is approximate.
    assert recalled >= 0.95 * wanted


def _scores(oracle: Oracle, mode: str, query: str) -> Scores:
    if mode == "keyword":
        return oracle.keyword(query)
    return oracle.semantic(query) if mode == "semantic" else oracle.default(query)


@pytest.mark.slow
async def test_everything_that_fits_is_found(library: tuple[Network, Oracle]) -> None:
    network, oracle = library
    rare = oracle.where(lambda d: d["metadata"]["rare"])
    assert len(rare) == SIZE // 100
    for mode in ("semantic", "hybrid"):
        answer = await network.call(
            "search-query",
            collection="docs",
            query="unheardof",
            mode=mode,
            filter={"metadata.rare": True},
        )
        assert {hit["chunkId"] for hit in answer["results"]} == rare


async def found(network: Network, **options: Any) -> list[str]:
    """Sources of the hits, whatever the mode; they must agree."""
    answers = [
        await network.call("search-query", collection="docs", query="words", mode=mode, **options)
        for mode in ("semantic", "keyword", "hybrid")
    ]
    sources = [sorted(hit["source"] for hit in answer["results"]) for answer in answers]
    assert sources[0] == sources[1] == sources[2]
    return sources[0]


async def test_sources_by_globs(network: Network) -> None:
    names = ["guide/a.md", "guide/b.txt", "guide/deep/c.md", "secret/d.md", "e[1].md"]
    await network.call(
        "search-index", collection="docs", documents=[document(name, "words") for name in names]
    )
    assert await found(network) == sorted(names)
    assert await found(network, sources=["guide/**"]) == names[:3]
    assert await found(network, sources=["guide/*.md", "secret/d.md"]) == [names[0], names[3]]
    assert await found(network, excludeSources=["secret/**"]) == sorted({*names} - {names[3]})
    assert await found(network, sources=["**/*.md"], excludeSources=["secret/*"]) == [
        "e[1].md",
        *("guide/a.md", "guide/deep/c.md"),
    ]
    assert await found(network, sources=["nowhere/*"]) == []
    assert await found(network, sources=["guide/**"], filter={"source": {"$like": "%.txt"}}) == [
        "guide/b.txt"
    ]


async def test_an_empty_list_of_sources_is_refused(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    answer = await network.refused("search-query", collection="docs", query="words", sources=[])
    assert answer["code"] == "invalid_input"
    assert "sources" in answer["error"]
    assert await found(network, excludeSources=[]) == ["a"]


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ({"metadata.a": {"$near": 1}}, "$near"),
        ({"$xor": []}, "$xor"),
        ({"metadata.a": {"$between": [1]}}, "$between"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_wrong_filter_says_what_is_wrong(
    network: Network, condition: dict[str, Any], names: str
) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])
    for tool, further in (("search-query", {"query": "w"}), ("search-similar", {"chunkId": "c"})):
        answer = await network.refused(tool, collection="docs", filter=condition, **further)
        assert answer["code"] == "invalid_input"
        assert names in answer["error"]
        assert answer["error"].startswith("filter")
        assert answer["collection"] == "docs"


async def test_a_filter_has_limits(start: Start) -> None:
    async with start(SEARCH_MAX_FILTER_DEPTH="3", SEARCH_MAX_FILTER_NODES="5") as network:
        await network.call("search-index", collection="docs", documents=[document("a", "words")])
        deep: dict[str, Any] = {"source": "a"}
        for _ in range(4):
            deep = {"$not": deep}
        wide = {"$or": [{"source": str(n)} for n in range(6)]}
        for condition in (deep, wide):
            answer = await network.refused(
                "search-query", collection="docs", query="words", filter=condition
            )
            assert answer["code"] in ("invalid_input", "too_large")
            assert answer["error"].startswith("filter")
        assert await found(network, filter={"$not": {"source": "b"}}) == ["a"]
