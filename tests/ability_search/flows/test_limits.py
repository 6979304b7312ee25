"""Limits of a call, and the errors beyond them."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.ability_search.flows.conftest import Network, Start, document


async def seeded(network: Network) -> None:
    await network.call("search-index", collection="docs", documents=[document("a", "words")])


async def test_a_query_has_a_longest_text(start: Start) -> None:
    async with start(SEARCH_MAX_QUERY_BYTES="256") as network:
        await seeded(network)
        for field in ("query", "hypotheticalAnswer"):
            given = {"query": "words", field: "ä" * 129}
            answer = await network.refused("search-query", collection="docs", **given)
            assert answer["code"] == "too_large"
            assert answer["retryable"] is False
            assert field in answer["error"]
            assert "258" in answer["error"] and "256" in answer["error"]
            assert "max_query_bytes" in answer["hint"]
            assert "ä" not in json.dumps(answer, ensure_ascii=False)
        await network.call("search-query", collection="docs", query="ä" * 128)


async def test_a_call_has_a_greatest_limit(start: Start) -> None:
    async with start(SEARCH_MAX_LIMIT="20") as network:
        await seeded(network)
        for tool, further in (
            ("search-query", {"query": "w"}),
            ("search-similar", {"chunkId": "docs:a:0"}),
        ):
            answer = await network.refused(tool, collection="docs", limit=21, **further)
            assert answer["code"] == "too_large"
            assert "limit" in answer["error"]
            assert "max_limit" in answer["hint"]
            await network.call(tool, collection="docs", limit=20, **further)


async def test_a_batch_has_limits(start: Start) -> None:
    limits = {
        "SEARCH_MAX_BATCH_DOCUMENTS": "3",
        "SEARCH_MAX_BATCH_BYTES": "4096",
        "SEARCH_MAX_DOCUMENT_BYTES": "2048",
    }
    async with start(**limits) as network:
        for documents, setting in (
            ([document(f"d{n}", "words") for n in range(4)], "max_batch_documents"),
            ([document(f"d{n}", "x" * 1500) for n in range(3)], "max_batch_bytes"),
            ([document("b", "x" * 2049)], "max_document_bytes"),
        ):
            answer = await network.refused("search-index", collection="docs", documents=documents)
            assert answer["code"] == "too_large"
            assert answer["error"].startswith("documents")
            assert setting in answer["hint"]
        assert (await network.call("search-collections"))["collections"] == []
        both = [document("a", "words"), document("b", "x" * 2049)]
        answer = await network.call("search-index", collection="docs", documents=both)
        assert answer["added"] == 1
        assert [(each["source"], each["code"]) for each in answer["failed"]] == [("b", "too_large")]


async def test_only_so_many_calls_at_a_time(start: Start) -> None:
    async with start(SEARCH_MAX_CONCURRENT_CALLS="6", SEARCH_MAX_WAITING_CALLS="0") as network:
        await seeded(network)
        network.model.requests = 0
        network.model.gate = asyncio.Event()
        query = {"collection": "docs", "query": "words"}
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            running = [
                group.create_task(network.client.invoke("search-query", query)) for _ in range(3)
            ]
            while network.model.requests < 3:
                await network.client.list_tools()
            answer = await network.refused("search-query", **query)
            assert answer["code"] == "busy"
            assert answer["retryable"] is True
            assert answer["retryAfterMs"] > 0
            network.model.gate.set()
        assert [task.result()["count"] for task in running] == [1, 1, 1]
        await network.call("search-query", **query)


@pytest.mark.slow
async def test_a_burst_of_calls_is_worked_off(network: Network) -> None:
    await seeded(network)
    query = {"collection": "docs", "query": "words"}
    calls = (network.client.invoke("search-query", query) for _ in range(200))
    assert {answer["count"] for answer in await asyncio.gather(*calls)} == {1}


@pytest.mark.slow
async def test_a_query_ends_by_its_deadline(network: Network) -> None:
    await seeded(network)
    network.model.gate = asyncio.Event()
    answer = await network.client.invoke(
        "search-query",
        {"collection": "docs", "query": "words", "mode": "semantic"},
        timeout=4.0,
        check=False,
    )
    assert answer["code"] == "timeout"
    network.model.gate.set()
    # What it held is free again.
    network.model.gate = None
    await network.call("search-query", collection="docs", query="words")


@pytest.mark.parametrize("mode", ["semantic", "hybrid", "keyword"])
async def test_what_the_model_does_not_read_is_said(start: Start, mode: str) -> None:
    async with start(SEARCH_EMBEDDING_MAX_TOKENS="64") as network:
        options = {"collection": "docs", "documents": [document("a", "cats and dogs " * 200)]}
        indexed = await network.call("search-index", maxTokens=64, **options)
        assert "warnings" not in indexed
        for tool in ("search-index", "search-reindex"):
            further = options if tool == "search-index" else {"collection": "docs"}
            answer = await network.call(tool, maxTokens=65, **further)
            (warning,) = answer["warnings"]
            assert "at most 64 tokens, not 65" in warning
        query = {"collection": "docs", "mode": mode}
        for words, cut in ((30, False), (62, False), (63, True), (400, True)):
            for word in ("cat ", "🦊", "ก"):
                found = await network.call("search-query", query=word * words, **query)
                warnings = [text for text in found.get("warnings", []) if "64 tokens" in text]
                assert len(warnings) == (cut and mode != "keyword"), (word, words)
