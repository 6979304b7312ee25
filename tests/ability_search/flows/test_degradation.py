"""Search while a component is down, and its recovery."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.conftest import Network, Start, document, down
from tests.foreign_models import ForeignModels

from kadi_client import Call, ToolError

pytestmark = pytest.mark.engine

Answer = dict[str, Any]


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Two documents in ``docs``; failed requests are not tried again, nor given up for good."""
    async with start(
        SEARCH_EMBEDDING_ATTEMPTS="1",
        SEARCH_EMBEDDING_BREAKER_FAILURES="100",
        SEARCH_EMBEDDING_QUERY_TIMEOUT="0.3",
    ) as network:
        documents = [document("a", "cats and dogs"), document("b", "trees and flowers")]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


async def search(network: Network, mode: str, **options: Any) -> Answer:
    answer: Answer = await network.call(
        "search-query", collection="docs", query="cats", mode=mode, **options
    )
    return answer


async def assert_degraded_to_keyword(network: Network, code: str) -> Answer:
    """Hybrid answers by keyword and says so, semantic fails, keyword is as ever."""
    hybrid, keyword = await search(network, "hybrid"), await search(network, "keyword")
    assert hybrid["degraded"]["code"] == code
    assert hybrid["degraded"]["mode"] == "keyword"
    assert hybrid["degraded"]["reason"]
    assert hybrid["mode"] == "hybrid"
    assert hybrid["results"] == keyword["results"]
    assert [hit["source"] for hit in hybrid["results"]] == ["a"]
    assert "degraded" not in keyword
    refused: Answer = await network.refused(
        "search-query", collection="docs", query="cats", mode="semantic"
    )
    assert refused["code"] == code
    return refused


def without_data(answer: Answer) -> Any:
    return {"model": answer["model"]}


def too_few(answer: Answer) -> Any:
    return {**answer, "data": []}


def doubled(answer: Answer) -> Any:
    return {**answer, "data": answer["data"] * 2}


def out_of_order(answer: Answer) -> Any:
    return {**answer, "data": [{**row, "index": row["index"] + 7} for row in answer["data"]]}


def undecodable(answer: Answer) -> Any:
    return {**answer, "data": [{**row, "embedding": "*"} for row in answer["data"]]}


def no_object(_answer: Answer) -> Any:
    return "sorry"


def returned_error(_answer: Answer) -> Any:
    return {"error": {"message": "the GPU caught fire", "type": "server_error"}}


def every(value: float) -> Callable[[Answer], Any]:
    vector = np.full(64, value, dtype="<f4")

    def rewrite(answer: Answer) -> Any:
        row = base64.b64encode(vector.tobytes()).decode()
        return {**answer, "data": [{**each, "embedding": row} for each in answer["data"]]}

    return rewrite


@pytest.mark.slow
@pytest.mark.parametrize(
    "rewrite",
    [
        *(without_data, too_few, doubled, out_of_order, undecodable, no_object, returned_error),
        *(every(float("nan")), every(float("inf")), every(0.0)),
    ],
)
async def test_an_embedder_that_answers_nonsense(
    library: Network, rewrite: Callable[[Answer], Any]
) -> None:
    library.model.rewrite = rewrite
    await assert_degraded_to_keyword(library, "embedding_unavailable")
    library.model.rewrite = None
    assert "degraded" not in await search(library, "hybrid")


async def test_an_embedder_that_fails(library: Network) -> None:
    library.model.failure = down
    refused = await assert_degraded_to_keyword(library, "embedding_unavailable")
    assert refused["retryable"] is True
    assert "mode=keyword" in refused["hint"]
    assert "out of order" in refused["error"], "the words of the model manager"


async def test_a_hybrid_query_does_not_wait_as_long_as_a_semantic_one(start: Start) -> None:
    async with start(
        SEARCH_EMBEDDING_QUERY_TIMEOUT="60", SEARCH_EMBEDDING_FALLBACK_AFTER="0.1"
    ) as network:
        documents = [document("a", "cats and dogs")]
        await network.call("search-index", collection="docs", documents=documents)
        network.model.gate = asyncio.Event()
        async with asyncio.timeout(10):
            hybrid = await search(network, "hybrid")
        assert hybrid["degraded"]["code"] == "embedding_unavailable"
        network.model.gate.set()
        assert (await search(network, "semantic"))["count"] == 1


async def test_an_embedder_that_hangs(library: Network) -> None:
    library.model.gate = asyncio.Event()
    await assert_degraded_to_keyword(library, "embedding_unavailable")
    library.model.gate.set()


async def test_an_embedder_that_is_missing(library: Network) -> None:
    await library.parts.serve([tool for tool in library.tools if tool.name != "create-embedding"])
    await assert_degraded_to_keyword(library, "embedding_unavailable")
    await library.parts.serve(library.tools)
    assert "degraded" not in await search(library, "hybrid")


async def test_a_model_that_is_not_served(library: Network) -> None:
    library.model.rewrite = lambda _answer: {"error": "model 'words-64' is not served here"}
    refused = await assert_degraded_to_keyword(library, "embedding_unavailable")
    assert refused["retryable"] is False
    assert "words-64" in refused["error"]


async def test_an_embedder_that_changed_its_dimensions(library: Network) -> None:
    library.model.dimensions = 32
    await assert_degraded_to_keyword(library, "dimension_mismatch")


async def test_answers_out_of_order_are_put_in_order(start: Start) -> None:
    async with start() as network:
        network.model.rewrite = lambda answer: {**answer, "data": answer["data"][::-1]}
        documents = [document(f"s{n}", f"word{n} word{n} word{n}") for n in range(6)]
        await network.call("search-index", collection="docs", documents=documents)
        for n in range(6):
            answer = await network.call(
                "search-query", collection="docs", query=f"s{n} word{n}", mode="semantic", limit=1
            )
            assert answer["results"][0]["source"] == f"s{n}"


async def test_degraded_search_still_weighs_by_keyword_alone(library: Network) -> None:
    """Neither weights nor a floor on the cosine may get in the way of the only arm left."""
    library.model.failure = down
    fusion = {"method": "convex", "weights": {"keyword": 0}}
    answer = await search(library, "hybrid", fusion=fusion, hypotheticalAnswer="dogs")
    assert [hit["source"] for hit in answer["results"]] == ["a"]
    assert answer["results"][0]["score"] > 0
    assert "hyde" not in answer
    floored = await search(library, "hybrid", minScore=0.01)
    assert [hit["source"] for hit in floored["results"]] == ["a"]


def rejecting(part: str) -> Callable[[str, Mapping[str, Any]], Any]:
    compared = {"sparseNeighbors": "ids", "vectorNeighbors": "vector"}.get(part)

    def fault(_tool: str, tool_input: Mapping[str, Any]) -> Any:
        searches = tool_input.get("searches", {}).values()
        by_index = any(compared in tool_input["compared"][each["by"]] for each in searches)
        if part not in tool_input.get("query", "") and not by_index:
            return None
        return {"success": False, "error": f"IllegalStateException: {part} is out of order"}

    return fault


@pytest.mark.parametrize(
    ("part", "lost", "kept"),
    [
        ("ORDER BY score DESC", "semantic", "keyword"),
        ("sparseNeighbors", "keyword", "semantic"),
    ],
)
async def test_an_arm_that_fails_does_not_fail_the_other(
    library: Network, part: str, lost: str, kept: str
) -> None:
    library.faults.append(rejecting(part))
    hybrid, alone = await search(library, "hybrid"), await search(library, kept)
    reason = hybrid["degraded"].pop("reason")
    assert hybrid["degraded"] == {"code": "database_unavailable", "mode": kept}
    assert "'parts' (agent " in reason
    assert "refused a statement: 'IllegalStateException: " in reason
    assert lost in hybrid["warnings"][0]
    assert hybrid["results"] == alone["results"]
    assert hybrid["results"]
    assert "degraded" not in alone
    floored = await search(library, "hybrid", minScore=0.01)
    assert floored["results"]
    refused = await library.refused("search-query", collection="docs", query="cats", mode=lost)
    assert refused["code"] == "database_unavailable"
    library.faults.clear()
    assert "degraded" not in await search(library, "hybrid")


async def test_a_graph_that_fails_does_not_fail_keyword_search(start: Start) -> None:
    async with start(SEARCH_SCAN_BELOW="5") as network:
        documents = [document(f"s{n}", f"cats {n}") for n in range(10)]
        await network.call("search-index", collection="docs", documents=documents)
        async with asyncio.timeout(60):
            while (await search(network, "hybrid", explain=True))["explain"][
                "vectorSearch"
            ] != "graph":
                pass
        network.faults.append(rejecting("vectorNeighbors"))
        answer = await search(network, "hybrid")
        assert answer["degraded"]["mode"] == "keyword"
        assert answer["count"] == 10


async def test_if_both_arms_fail_so_does_the_query(library: Network) -> None:
    library.faults += [rejecting("vectorCosineSimilarity"), rejecting("sparseNeighbors")]
    refused = await library.refused("search-query", collection="docs", query="cats")
    assert refused["code"] == "database_unavailable"
    assert refused["retryable"] is True


async def test_without_a_database_ability_it_is_unavailable(library: Network) -> None:
    arcade = [tool for tool in library.tools if tool.name.startswith("arcade-")]
    await library.parts.serve([tool for tool in library.tools if tool not in arcade])
    for tool, given in (
        ("search-query", {"collection": "docs", "query": "cats"}),
        ("search-query", {"collection": "unheard-of", "query": "cats"}),
        ("search-similar", {"collection": "docs", "chunkId": "docs:a:0"}),
        ("search-collections", {}),
        ("search-collection-info", {"collection": "docs"}),
        ("search-delete", {"collection": "docs"}),
        ("search-index", {"collection": "docs", "documents": [document("c", "words")]}),
    ):
        refused = await library.refused(tool, **given)
        assert refused["code"] == "database_unavailable"
        assert refused["retryable"] is True
        assert "database ability" in refused["hint"]
    await library.parts.serve(library.tools)
    assert (await search(library, "hybrid"))["count"] == 2


async def test_a_broker_that_restarts_is_found_again(library: Network) -> None:
    await library.restart_broker()
    async with asyncio.timeout(60):
        while True:
            # Until all three parties are back, there is no tool, or it lacks the others.
            answers = await asyncio.gather(
                library.client.invoke(
                    "search-query", {"collection": "docs", "query": "cats"}, timeout=20
                ),
                return_exceptions=True,
            )
            if isinstance(answers[0], dict) and answers[0].get("count") == 2:
                break
    if "degraded" in answers[0]:
        assert answers[0]["degraded"]["code"] == "embedding_unavailable"
    added = [document("c", "birds")]
    await library.call("search-index", collection="docs", documents=added)
    assert (await search(library, "hybrid"))["count"] == 3


def words_fail(request: dict[str, Any]) -> None:
    if any("cursed" in text for text in request["input"]):
        raise RuntimeError("unsupported value: NaN")
    if len(request["input"]) > 8:
        raise RuntimeError("batch size is larger than the maximum allowed batch size 8")


@pytest.mark.slow
async def test_the_document_of_a_refused_text_fails_alone_and_again_at_once(start: Start) -> None:
    """The rest of a call is indexed, and a long document needs no larger requests."""
    long = "\n\n".join(f"Paragraph {n} {'word ' * 30}" for n in range(40))
    documents = [document(f"d{n}", f"plain text {n}") for n in range(30)]
    documents += [document("bad", "a cursed text"), document("long", long)]
    async with start() as network:
        network.model.failure = words_fail
        options = {"collection": "docs", "documents": documents, "maxTokens": 40, "overlap": 0}
        for added in (31, 0):
            requests = network.model.requests
            answer = await network.call("search-index", **options)
            assert answer["added"] == added
            (failed,) = answer["failed"]
            assert failed["source"] == "bad"
            assert "unsupported value: NaN" in failed["error"]
        assert network.model.requests - requests <= 6, "the repetition is short"
        found = await network.call("search-query", collection="docs", query="plain text 3")
        assert "degraded" not in found


async def test_an_absent_trusted_agent_holds_up_no_hybrid_query(start: Start) -> None:
    """A semantic query may wait until the agent is back, a hybrid one has its keywords."""
    models = ForeignModels(networks=["models"], key="sk-for-one", tools=["create-embedding"])
    async with start(
        BROKER_NETWORKS="global,models",
        SEARCH_API_KEY="sk-for-one",
        SEARCH_EMBEDDING_AGENT="model-manager@models",
        SEARCH_EMBEDDING_FALLBACK_AFTER="0.4",
        SEARCH_EMBEDDING_QUERY_TIMEOUT="60",
    ) as network:
        async with models.running(network.url):
            documents = [document("a", "cats and dogs"), document("b", "trees and flowers")]
            await network.call("search-index", collection="docs", documents=documents)
        async with asyncio.timeout(10):
            hybrid = await search(network, "hybrid")
        assert [hit["source"] for hit in hybrid["results"]] == ["a"]
        assert hybrid["degraded"]["code"] == "embedding_unavailable"
        reason = hybrid["degraded"]["reason"]
        assert "'model-manager' on network 'models' (SEARCH_EMBEDDING_AGENT)" in reason
        assert network.parts.agent_id in reason, "who offers embeddings instead"
        async with models.running(network.url):
            assert (await search(network, "semantic"))["results"][0]["source"] == "a"


@pytest.mark.parametrize(
    ("tool", "mode", "waiting"),
    [
        ("arcade-index-search", "keyword", "has not answered arcade-index-search"),
        ("create-embedding", "semantic", "has not answered create-embedding"),
    ],
)
async def test_a_call_that_ends_too_late_says_what_it_was_waiting_for(
    library: Network, tool: str, mode: str, waiting: str
) -> None:
    async def hang(_given: dict[str, Any], _call: Call) -> Any:
        await asyncio.Event().wait()

    library.instead[tool] = hang
    query = {"collection": "docs", "query": "cats", "mode": mode}
    with pytest.raises(ToolError) as late:
        await library.client.invoke("search-query", query, timeout=0.3)
    answer = late.value.answer
    assert answer["code"] == "timeout"
    assert waiting in answer["error"]
    assert "doctor" in answer["hint"]
