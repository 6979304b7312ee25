"""A worker's metrics, compared with the calls to it and to the components behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.ability_search.flows.conftest import Network, Start, document, down
from tests.ability_search.metric_readings import Reading, parse

from ability_search.extensions.cli.prometheus_meter import PrometheusMeter, serve_metrics
from ability_search.ops.metrics import metric_table

pytestmark = pytest.mark.engine


class Scraper:
    """Reads a worker's numbers over HTTP, as Prometheus does."""

    def __init__(self, client: httpx.AsyncClient, url: str, network: Network) -> None:
        self._client = client
        self._url = url
        self.network = network

    async def read(self) -> Reading:
        answer = await self._client.get(self._url)
        return parse(answer.raise_for_status().text)

    async def agree(self, tool: str) -> None:
        """Wait until as many calls are counted as arrived; upkeep may be at work for a moment."""
        async with asyncio.timeout(20):
            while True:
                counts = (await self.read()).by(metric_table.RPC_CALLS, "tool")
                if counts[tool] == [name for name, _ in self.network.calls].count(tool):
                    return


@pytest.fixture
async def scraper(start: Start) -> AsyncIterator[Scraper]:
    meter = PrometheusMeter("worker", "1")
    async with (
        start(
            meter=meter,
            SEARCH_EMBEDDING_ATTEMPTS="2",
            SEARCH_EMBEDDING_BREAKER_FAILURES="2",
            SEARCH_EMBEDDING_BREAKER_RESET="600",
        ) as network,
        serve_metrics(meter.text, "127.0.0.1", 0, token=None) as url,
        httpx.AsyncClient(trust_env=False, timeout=20) as client,
    ):
        documents = [document("a", "cats and dogs"), document("b", "trees and flowers")]
        await network.call("search-index", collection="docs", documents=documents)
        yield Scraper(client, url, network)


async def test_numbers_are_what_was_done(scraper: Scraper) -> None:
    network = scraper.network
    before = await scraper.read()
    requests = network.model.requests
    for mode in ("hybrid", "hybrid", "keyword"):
        await network.call("search-query", collection="docs", query="cats", mode=mode)
    await network.refused("search-query", collection="dogs", query="cats")
    again = [document("a", "cats and dogs"), document("d", "birds")]
    added = await network.call("search-index", collection="more", documents=again)
    deleted = await network.call("search-delete", collection="docs")
    done = (await scraper.read()).since(before)

    assert done.by(metric_table.TOOL_CALLS, "tool") == {
        "search-delete": 1,
        "search-index": 1,
        "search-query": 4,
    }
    assert done.total(metric_table.TOOL_CALLS, tool="search-query", code="not_found") == 1
    assert done.total(metric_table.TOOL_CALLS, tool="search-query", code="ok") == 3
    assert done.total(metric_table.TOOL_CALL_SECONDS, tool="search-query") == 4
    assert done.total(metric_table.QUERY_STAGE_SECONDS, stage="total") == 3
    assert done.total(metric_table.QUERY_STAGE_SECONDS, stage="embed") == 2
    spent = f"{metric_table.QUERY_STAGE_SECONDS.name}_sum", frozenset({("stage", "total")})
    assert done.values[spent] > 0

    assert done.total(metric_table.CHUNKS_INDEXED) == added["chunks"] == 2
    assert done.total(metric_table.CHUNKS_DELETED) == deleted["deleted"] == 2
    assert added["reused"] == 1
    assert done.total(metric_table.EMBEDDING_TEXTS, origin="reused") == 1
    asked = network.model.requests - requests
    assert done.total(metric_table.EMBEDDING_BATCHES) == asked > 0
    assert done.total(metric_table.RPC_CALLS, tool="create-embedding", outcome="ok") == asked
    assert done.total(metric_table.RPC_SECONDS, tool="create-embedding") == asked
    await scraper.agree("arcade-command")
    assert done.total(metric_table.DEGRADED_ANSWERS) == 0
    assert done.by(metric_table.BREAKER_OPEN, "target") == {"chat": 0, "embedder": 0, "reranker": 0}
    assert (done.total(metric_table.CALLS_IN_FLIGHT), done.total(metric_table.JOBS_RUNNING)) == (
        0,
        0,
    )
    assert done.total(metric_table.COLLECTIONS_KNOWN) == 1


async def test_a_model_that_fails_is_counted_at_every_place(scraper: Scraper) -> None:
    network = scraper.network
    network.model.failure = down
    before = await scraper.read()
    for _ in range(2):
        answer = await network.call("search-query", collection="docs", query="cats")
        assert answer["degraded"]["code"] == "embedding_unavailable"
    refused = await network.refused(
        "search-query", collection="docs", query="cats", mode="semantic"
    )
    done = (await scraper.read()).since(before)
    assert done.total(metric_table.DEGRADED_ANSWERS) == 2
    assert done.total(metric_table.DEGRADED_ANSWERS, reason="embedding_unavailable") == 2
    assert done.total(metric_table.TOOL_CALLS, code=refused["code"]) == 1
    # The first query tried twice, which opened the breaker; nobody was asked after that.
    assert done.total(metric_table.RPC_CALLS, tool="create-embedding", outcome="failed") == 2
    assert done.by(metric_table.RETRIES, "target") == {"database": 0, "embedder": 1}
    assert done.total(metric_table.BREAKER_OPEN, target="embedder") == 1
    assert done.total(metric_table.EMBEDDING_BATCHES) == 0


async def test_calls_being_worked_on_are_seen(scraper: Scraper) -> None:
    network = scraper.network
    network.model.gate = asyncio.Event()
    asked = network.model.requests
    query = asyncio.create_task(network.call("search-query", collection="docs", query="cats"))
    async with asyncio.timeout(20):
        while network.model.requests == asked:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.01)
    assert (await scraper.read()).total(metric_table.CALLS_IN_FLIGHT) == 1
    network.model.gate.set()
    await query
    assert (await scraper.read()).total(metric_table.CALLS_IN_FLIGHT) == 0
