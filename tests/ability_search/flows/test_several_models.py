"""Several agents that offer models of their own under one tool name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, WordModel, document
from tests.ability_search.model_servers import embedder
from tests.interop.relay import relaying

from ability_search.errors import EmbeddingUnavailable
from ability_search.providers.embedder import EMBEDDINGS
from ability_search.providers.transports import OverBroker
from kadi_client import Connection, Tool
from kadi_localnet.broker import serve_broker

Refusal = Callable[[str], Any]


def raised(model: str) -> Any:
    raise RuntimeError(f"model {model!r} not found, try pulling it first")


def in_openai_shape(model: str) -> Any:
    return {"error": {"message": f"The model `{model}` does not exist", "type": "x"}}


def as_a_failure(model: str) -> Any:
    return {"success": False, "error": f"model: {model!r} is not served here; served: none"}


REFUSALS = [raised, in_openai_shape, as_a_failure]


class OneModel(WordModel):
    """A model manager with one model; it refuses all others."""

    def __init__(self, name: str, refusal: Refusal = raised) -> None:
        super().__init__()
        self.name = name
        self.refusal = refusal
        self.asked = 0

    async def handle(self, tool_input: dict[str, Any], call: Any) -> Any:
        self.asked += 1
        if tool_input["model"] != self.name:
            return self.refusal(tool_input["model"])
        return await super().handle(tool_input, call)


@asynccontextmanager
async def two_managers(
    start: Start, refusal: Refusal = raised
) -> AsyncIterator[tuple[Network, OneModel, OneModel]]:
    """A network whose model manager is replaced by two agents with a model each."""
    first, second = OneModel(MODEL, refusal), OneModel("others-64", refusal)
    async with start(SEARCH_EMBEDDING_CONCURRENCY="4", SEARCH_EMBEDDING_BATCH_TEXTS="4") as network:
        await network.parts.serve([t for t in network.tools if t.name != "create-embedding"])
        async with (
            Connection(network.url, name="first", role="ability", tools=[first.tool]),
            Connection(network.url, name="second", role="ability", tools=[second.tool]),
        ):
            yield network, first, second


@pytest.mark.slow
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_calls_go_to_the_agent_that_has_the_model(start: Start, refusal: Refusal) -> None:
    texts = [document(f"d{n}", f"cats and dogs, number {n}") for n in range(60)]
    async with two_managers(start, refusal) as (network, *managers):
        for manager in managers:
            options = {"collection": manager.name, "documents": texts, "model": manager.name}
            answer = await network.call("search-index", **options)
            assert (answer["added"], answer["failed"]) == (60, [])
        for manager in managers:
            manager.asked = manager.requests = 0
        queries = [
            network.call("search-query", collection=manager.name, query=f"cats {n}", mode=mode)
            for n in range(10)
            for manager in managers
            for mode in ("hybrid", "semantic")
        ]
        for found in await asyncio.gather(*queries):
            assert found["count"] > 0
            assert "degraded" not in found
        assert [m.asked for m in managers] == [m.requests for m in managers], "it is remembered"


async def test_a_model_that_moves_to_another_agent_is_asked_for_there(start: Start) -> None:
    async with two_managers(start) as (network, first, second):
        documents = [document("a", "cats and dogs")]
        await network.call("search-index", collection="docs", documents=documents)
        for moved in range(3):
            first.name, second.name = second.name, first.name
            query = {"collection": "docs", "query": f"cats {moved}", "mode": "semantic"}
            assert (await network.call("search-query", **query))["count"] == 1


async def test_a_model_whose_agent_is_away_is_not_refused_for_good(start: Start) -> None:
    """The other agent does not have it, but the agent that had it may return."""
    async with two_managers(start) as (network, first, _second):
        documents = [document("a", "cats and dogs")]
        await network.call("search-index", collection="docs", documents=documents)
        query = {"collection": "docs", "mode": "semantic"}
        first.name = "none"
        third = OneModel(MODEL)
        async with Connection(network.url, name="third", role="ability", tools=[third.tool]):
            found = await network.call("search-query", query="cats", **query)
            assert found["count"] == 1
        refused = await network.refused("search-query", query="dogs", **query)
        assert refused["retryable"] is True
        first.name = MODEL
        assert (await network.call("search-query", query="dogs", **query))["count"] == 1


async def test_a_model_that_no_agent_has_is_refused_at_once(start: Start) -> None:
    async with two_managers(start) as (network, first, second):
        options = {"collection": "docs", "documents": [document("a", "cats")], "model": "unknown"}
        refused = await network.refused("search-index", **options)
        assert refused["retryable"] is False
        assert "'unknown' is not served" in refused["error"]
        assert first.asked + second.asked <= 3


async def test_where_agents_are_not_listed_the_broker_chooses_again() -> None:
    first, second = OneModel("one"), OneModel("two")
    tools: list[Tool] = [first.tool, second.tool]
    async with (
        serve_broker("127.0.0.1", 0) as broker,
        Connection(broker.url, tools=tools[:1]),
        Connection(broker.url, tools=tools[1:]),
        Connection(broker.url) as caller,
    ):
        client = embedder(OverBroker(EMBEDDINGS, caller.invoke, api_key=None))
        for n in range(8):
            for model in ("one", "one", "two", "two", "two"):
                assert (await client.embed(model, [f"text {n}"], timeout=10)).shape[0] == 1
        asked = first.asked + second.asked
        with pytest.raises(EmbeddingUnavailable, match="not served"):
            await client.embed("three", ["text"], timeout=10)
        assert first.asked + second.asked - asked <= 4


@pytest.mark.slow
async def test_a_provider_that_dies_while_it_embeds_is_waited_for_or_replaced(start: Start) -> None:
    """Beside an agent with another model and one with none; the model comes back elsewhere."""
    texts = [document(f"d{n}", f"cats and dogs, number {n}") for n in range(40)]
    async with two_managers(start) as (network, _first, _second):
        none = OneModel("none")
        async with (
            Connection(network.url, role="ability", tools=[none.tool]),
            relaying(network.url) as relay,
        ):
            dying = OneModel("mortal")
            deaths = iter(range(2))

            async def handle(tool_input: dict[str, Any], call: Any) -> Any:
                if dying.requests == 4 and next(deaths, None) is not None:
                    relay.cut()
                return await OneModel.handle(dying, tool_input, call)

            tool = Tool("create-embedding", "", {"type": "object"}, handle)
            async with Connection(relay.url, role="ability", tools=[tool]):
                options = {"collection": "mortal", "documents": texts, "model": "mortal"}
                answer = await network.call("search-index", **options)
                assert (answer["added"], answer["failed"]) == (40, [])


async def test_two_models_that_are_away_leave_the_vectors_of_the_others(start: Start) -> None:
    managers = [OneModel(f"model-{n}") for n in range(4)]
    async with start() as network:
        await network.parts.serve([t for t in network.tools if t.name != "create-embedding"])
        async with AsyncExitStack() as stack:
            agents = [
                await stack.enter_async_context(
                    Connection(network.url, role="ability", tools=[manager.tool], grace=0.0)
                )
                for manager in managers
            ]
            for n, manager in enumerate(managers):
                documents = [document(f"s{n}", f"cats and dogs at the gate of house {n}")]
                options = {"collection": f"c{n}", "documents": documents, "model": manager.name}
                await network.call("search-index", **options)
            for agent in agents[:2]:
                await agent.close()
            names = [f"c{n}" for n in range(4)]
            for attempt in range(3):
                found = await network.call(
                    "search-query", collection=names, query=f"dogs {attempt}", limit=8, explain=True
                )
                assert {hit["collection"] for hit in found["results"]} == set(names)
                for hit in found["results"]:
                    assert ("semantic" in hit["scores"]) == (hit["collection"] in ("c2", "c3"))
                assert "c0" in str(found["degraded"])
                assert "c1" in str(found["degraded"])
                assert "c2" not in str(found["degraded"])
