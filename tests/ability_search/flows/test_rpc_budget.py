"""The number of RPCs of each call."""

from __future__ import annotations

import asyncio

import pytest
from tests.ability_search.flows.conftest import Network, document

from ability_search.store.stored_collections import change_collection, read_collection

pytestmark = pytest.mark.engine

_QUIET = 5
"""Calls in a row between which nothing else was asked."""


@pytest.fixture
async def warm(network: Network) -> Network:
    """A collection that the worker knows, with its statistics."""
    await network.call(
        "search-index",
        collection="docs",
        documents=[document(f"d{n}", f"some words and number {n}") for n in range(20)],
    )
    await network.call("search-query", collection="docs", query="words")
    await maintained(network)
    return network


async def maintained(network: Network) -> None:
    """Wait until maintenance has read the term statistics and then says nothing any more."""
    async with asyncio.timeout(30):
        while not any("FROM Terms" in call.get("query", "") for _, call in network.calls):
            await network.call("search-collections")
        quiet = 0
        while quiet < _QUIET:
            before = len(network.calls)
            await network.call("search-collections")
            quiet = quiet + 1 if len(network.calls) == before + 1 else 0
    network.calls.clear()


@pytest.mark.parametrize(
    ("mode", "hops"),
    [
        ("keyword", ["arcade-index-search"]),
        ("semantic", ["create-embedding", "arcade-query"]),
        ("hybrid", ["create-embedding", "arcade-query"]),
    ],
)
async def test_a_query(warm: Network, mode: str, hops: list[str]) -> None:
    for options in ({}, {"filter": {"source": "d1"}, "explain": True, "highlights": True}):
        await warm.call("search-query", collection="docs", query="words", mode=mode, **options)
        assert warm.hops() == hops
    await warm.call(
        "search-query", collection="docs", query="words", mode=mode, exclude=["number 3"]
    )
    assert warm.hops()[: len(hops)] == hops, "texts of other hits than expected are read afterwards"


async def test_a_query_without_results_asks_for_no_rows(warm: Network) -> None:
    await warm.call("search-query", collection="docs", query="unheardof", mode="keyword")
    assert warm.hops() == ["arcade-index-search"]


async def test_a_query_reads_the_record_only_if_it_has_changed(warm: Network) -> None:
    read = await read_collection(warm.store, "docs")
    assert read is not None
    await warm.store.commit([change_collection(read, {"chance": 0.1})])
    for known in (False, True):
        await warm.call("search-query", collection="docs", query="words", mode="keyword")
        asked = warm.calls[-1][1]
        found = (await warm.call("arcade-index-search", **asked))["result"]
        assert (found["before"][0] is None) == (found["after"][0] is None) == known


async def test_the_first_query_after_a_change_reads_what_changed(warm: Network) -> None:
    await warm.call("search-index", collection="docs", documents=[document("new", "more words")])
    await maintained(warm)
    await warm.call("search-query", collection="docs", query="words", mode="keyword")
    assert len(warm.hops()) <= 3
    await warm.call("search-query", collection="docs", query="words", mode="keyword")
    assert warm.hops() == ["arcade-index-search"]


async def test_neighbours(warm: Network) -> None:
    await warm.call("search-similar", collection="docs", chunkId="docs:d1:0")
    assert warm.hops() == ["arcade-query"] * 2


async def test_indexing_what_is_unchanged(warm: Network) -> None:
    documents = [document("d0", "some words and number 0")]
    answer = await warm.call("search-index", collection="docs", documents=documents)
    assert answer["unchanged"] == 1
    assert warm.calls[0][0] == "arcade-query"
    assert "create-embedding" not in [name for name, _ in warm.calls]


async def test_several_collections_share_the_embedding(warm: Network) -> None:
    await warm.call("search-index", collection="other", documents=[document("a", "words")])
    await warm.call("search-query", collection=["docs", "other"], query="words")
    await maintained(warm)
    await warm.call("search-query", collection=["docs", "other"], query="words")
    hops = warm.hops()
    assert hops[0] == "create-embedding"
    assert hops[1:] == ["arcade-query"] * 4


async def test_the_lists(warm: Network) -> None:
    await warm.call("search-collections")
    assert warm.hops() == ["arcade-query"]
    await warm.call("search-collection-info", collection="docs")
    assert warm.hops() == ["arcade-query"] * 3
    await warm.call("notes-overview", collection="docs", include=["tokens", "growth"])
    assert len(warm.hops()) <= 2
    await warm.call("notes-overview", collection="docs", include=["tokens", "map"])
    assert len(warm.hops()) <= 3
