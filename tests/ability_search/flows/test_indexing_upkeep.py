"""Maintenance in the background, progress of long work, and cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.conftest import (
    PATIENCE,
    Network,
    Start,
    document,
    down,
    word_vector,
)
from tests.ability_search.flows.stored import (
    assert_consistent,
    chunks,
    record,
    rows,
    services_of,
    settled,
)

from kadi_client import RemoteError, Subscription, ToolError

pytestmark = pytest.mark.engine


def short(count: int) -> list[dict[str, Any]]:
    return [document(f"short{n}", f"fox number{n % 7} runs") for n in range(count)]


def long(count: int) -> list[dict[str, Any]]:
    text = "the fox sleeps under a tree near house " * 40
    return [document(f"long{n}", f"{text} number{n % 5}") for n in range(count)]


async def keyword_scores(network: Network, collection: str, query: str) -> dict[str, float]:
    found = await network.call(
        "search-query", collection=collection, query=query, mode="keyword", limit=200
    )
    return {hit["source"]: hit["scores"]["keyword"] for hit in found["results"]}


@pytest.mark.process
async def test_weights_renewed_after_texts_grew_longer_equal_those_of_a_fresh_index(
    network: Network, tmp_path: Path
) -> None:
    services = services_of(network, tmp_path)
    await network.call("search-index", collection="grown", documents=short(60))
    await settled(services, "grown")
    await network.call("search-index", collection="grown", documents=long(90))
    assumed = (await record(network, "grown")).average_length
    await settled(services, "grown")
    renewed = await record(network, "grown")
    assert renewed.average_length > 1.5 * assumed
    stored = await chunks(network, "grown")
    assert {row["averageLength"] for row in stored} == {renewed.average_length}
    await network.call("search-index", collection="fresh", documents=[document("seed", "x")])
    fresh = await services.ports.registry.reload("fresh")
    assert fresh is not None
    await services.ports.registry.update(fresh, average_length=renewed.average_length)
    await network.call("search-delete", collection="fresh", source="seed")
    await network.call("search-index", collection="fresh", documents=[*short(60), *long(90)])
    await settled(services, "fresh")
    assert (await record(network, "fresh")).average_length == renewed.average_length
    for query in ("fox number3", "tree house", "sleeps"):
        grown = await keyword_scores(network, "grown", query)
        assert grown == pytest.approx(await keyword_scores(network, "fresh", query), abs=1e-3)
        assert grown
    await assert_consistent(network, "grown")


async def test_an_interrupted_renewal_is_completed(network: Network, tmp_path: Path) -> None:
    services = services_of(network, tmp_path)
    await network.call("search-index", collection="docs", documents=short(60))
    await settled(services, "docs")
    collection = await services.ports.registry.reload("docs")
    assert collection is not None
    expected = await chunks(network, "docs")
    for average in (collection.average_length * 2, collection.average_length):
        await services.ports.registry.update(collection, average_length=average)
        await settled(services, "docs")
    renewed = await chunks(network, "docs")
    for before, after in zip(expected, renewed, strict=True):
        assert after["terms"] == before["terms"]
        assert after["averageLength"] == before["averageLength"]
        np.testing.assert_allclose(after["weights"], before["weights"], atol=2e-5)


@pytest.mark.slow
async def test_weights_of_a_generation_are_all_made_with_the_settings_it_was_begun_with(
    start: Start, tmp_path: Path
) -> None:
    async with start(SEARCH_BM25_K1="2", SEARCH_BM25_B="0.5") as network:
        await network.call("search-index", collection="docs", documents=short(10))
        await settled(services_of(network, tmp_path), "docs")
        name = network.settings.database.name
        begun = await chunks(network, "docs")
    async with start(database=name, SEARCH_BM25_K1="0.4", SEARCH_BM25_B="1") as network:
        services = services_of(network, tmp_path)
        again = document("again", begun[0]["content"])
        again["title"] = begun[0]["title"]
        await network.call("search-index", collection="docs", documents=[again])
        collection = await services.ports.registry.reload("docs")
        assert collection is not None
        assert (collection.bm25_k1, collection.bm25_b) == (2, 0.5)
        for average in (collection.average_length * 3, collection.average_length):
            await services.ports.registry.update(collection, average_length=average)
            await settled(services, "docs")
        weighed = {row["source"]: row["weights"] for row in await chunks(network, "docs")}
        for row in begun:
            np.testing.assert_allclose(weighed[row["source"]], row["weights"], atol=2e-5)
        np.testing.assert_allclose(weighed["again"], begun[0]["weights"], atol=2e-5)
        await network.call("search-reindex", collection="docs")
        rebuilt = await record(network, "docs")
        assert (rebuilt.bm25_k1, rebuilt.bm25_b) == (0.4, 1)
        (first, *_) = await chunks(network, "docs")
        assert not np.allclose(first["weights"], weighed[first["source"]], atol=1e-3)


async def test_a_graph_built_behind_the_scenes_finds_what_a_scan_finds(
    start: Start, tmp_path: Path
) -> None:
    async with start(SEARCH_SCAN_BELOW="50") as network:
        services = services_of(network, tmp_path)
        texts = [f"fox{n % 13} tree{n % 7} house{n % 29} river{n}" for n in range(150)]
        await network.call(
            "search-index",
            collection="docs",
            documents=[document(f"d{n:03}", text) for n, text in enumerate(texts)],
        )
        await settled(services, "docs")
        assert (await record(network, "docs")).graph
        query = "fox5 tree3 house8"
        vector = word_vector(query)
        cosines = {
            row["source"]: float(
                np.dot(vector, row["embedding"])
                / np.linalg.norm(vector)
                / np.linalg.norm(row["embedding"])
            )
            for row in await chunks(network, "docs")
        }
        best = sorted(cosines, key=lambda source: -cosines[source])[:10]
        for _ in range(2):  # the worker hears of the graph with the first answer
            found = await network.call(
                "search-query", collection="docs", query=query, mode="semantic", explain=True
            )
        assert found["explain"]["vectorSearch"] == "graph"
        told = [hit["scores"]["semantic"] for hit in found["results"]]
        assert told == pytest.approx([cosines[source] for source in best], abs=1e-5)
        info = await network.call("search-collection-info", collection="docs")
        assert info["state"] == "ready"


async def test_maintenance_that_the_database_refuses_harms_no_call(
    network: Network,
) -> None:
    def refuse(tool: str, given: Any) -> Any:
        broken = tool == "arcade-command" and "Staging WHERE" in given["command"]
        return {"success": False, "error": "no"} if broken else None

    network.faults.append(refuse)
    answer = await network.call("search-index", collection="docs", documents=short(3))
    assert answer["added"] == 3
    await assert_consistent(network, "docs")


async def events_until(subscription: Subscription, last: str) -> list[tuple[str, Any]]:
    heard = []
    async with asyncio.timeout(PATIENCE):
        async for event in subscription:
            heard.append((event.channel, event.data))
            if event.channel == last:
                break
    return heard


async def test_long_work_tells_how_far_it_has_come_under_the_callers_own_name(
    start: Start,
) -> None:
    async with (
        start(SEARCH_DATABASE_WRITE_GROUP_CHUNKS="5", SEARCH_EMBEDDING_BATCH_TEXTS="5") as network,
        network.client.subscribe("search.index.*") as heard,
    ):
        answer = await network.call(
            "search-index", collection="docs", documents=short(20), jobId="mine"
        )
        assert answer["jobId"] == "mine"
        events = await events_until(heard, "search.index.completed")
        assert {data["jobId"] for _, data in events} == {"mine"}
        assert {data["collection"] for _, data in events} == {"docs"}
        done = [data["done"] for channel, data in events if channel == "search.index.progress"]
        assert done == sorted(done)
        assert done[-1] == 20
        assert len(set(done)) > 2


async def test_work_that_fails_says_so_in_its_last_event(start: Start) -> None:
    async with (
        start(SEARCH_EMBEDDING_ATTEMPTS="1") as network,
        network.client.subscribe("search.index.*") as heard,
    ):
        network.model.failure = down
        await network.refused("search-index", collection="docs", documents=short(2), jobId="doomed")
        events = await events_until(heard, "search.index.failed")
        assert events[-1][1]["jobId"] == "doomed"
        assert events[-1][1]["code"] == "embedding_unavailable"
        assert "search.index.completed" not in {channel for channel, _ in events}


async def test_a_caller_that_gives_up_stops_the_work_and_leaves_a_consistent_state(
    start: Start,
) -> None:
    async with start(
        SEARCH_DATABASE_WRITE_GROUP_CHUNKS="2",
        SEARCH_EMBEDDING_BATCH_TEXTS="2",
        SEARCH_EMBEDDING_CONCURRENCY="1",
    ) as network:
        embed = network.model.handle
        released = asyncio.Event()

        async def hang_after_some(given: dict[str, Any], call: Any) -> Any:
            if network.model.requests >= 4:
                await released.wait()
            return await embed(given, call)

        network.instead["create-embedding"] = hang_after_some
        with pytest.raises((ToolError, RemoteError)):
            await network.client.invoke(
                "search-index", {"collection": "docs", "documents": short(30)}, timeout=3
            )
        asked = network.hops().count("create-embedding")
        released.set()
        stored = await assert_consistent(network, "docs")
        assert 0 < stored.sources <= 8
        assert asked == 5
        assert network.hops().count("create-embedding") == 0
        completed = await network.call("search-index", collection="docs", documents=short(30))
        assert completed["unchanged"] == stored.sources
        assert (await assert_consistent(network, "docs")).sources == 30
        assert await rows(network, "SELECT FROM Staging") == []


async def test_a_lost_database_names_the_sources_that_were_being_written(network: Network) -> None:
    def lost(tool: str, given: Mapping[str, Any]) -> Any:
        if "INSERT INTO Terms" in given.get("command", ""):
            raise MemoryError("out of heap")
        return None

    network.faults.append(lost)
    with pytest.raises(ToolError, match="while writing 'a', 'b', 'c' and 1 more") as failed:
        await network.call(
            "search-index", collection="docs", documents=[document(each, "x") for each in "abcd"]
        )
    assert failed.value.code == "database_unavailable"
    assert "one by one" in failed.value.hint
