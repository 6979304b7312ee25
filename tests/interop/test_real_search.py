"""The search tools, called and supplied with embeddings by the real KADI client."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from tests.ability_search.flows.conftest import MODEL, Network, document, down, starting
from tests.interop.conftest import CreateReal
from tests.interop.real_client import (
    ClientError,
    RealAbility,
    RealClient,
    Stream,
    needs_real_client,
    until,
    within,
)

from ability_search.tools.table import TOOLS
from kadi_client import Call

pytestmark = [
    pytest.mark.process,
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    needs_real_client,
]

NAME = "ability-search"
CATS = [
    document("cats", "Cats purr when they are content.", metadata={"tags": ["pets", "\U0001f408"]}),
    document("dogs", "Dogs bark at strangers who pass the gate."),
    document("\u00e9t\u00e9", "In summer the garden smells of hay."),
]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the worker may read."""
    directory = tmp_path_factory.mktemp("files")
    for number in range(8):
        (directory / f"note{number}.md").write_text(f"# Note {number}\n\nWords of note {number}.")
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory, files: Path) -> AsyncIterator[Network]:
    """The worker with a database and our own embedder."""
    start = starting(tmp_path_factory.mktemp("databases"), tmp_path_factory.mktemp("home"))
    limits = {
        "SEARCH_MAX_QUERY_BYTES": "256",
        "SEARCH_MAX_CONCURRENT_CALLS": "4",  # half of them for one agent
        "SEARCH_EMBEDDING_BREAKER_FAILURES": "50",  # some tests let the model fail
        "SEARCH_MAX_WAITING_CALLS": "0",
        "SEARCH_OFFER": "",
        "SEARCH_JOB_LEASE": "1",  # a third of it until a cancelled job ends
    }
    async with start(SEARCH_ALLOWED_ROOTS=str(files), **limits) as network:
        await network.call("search-index", collection="pets", documents=CATS)
        yield network


@pytest_asyncio.fixture(loop_scope="module")
async def network(running: Network) -> AsyncIterator[Network]:
    """The same, in order again after each test."""
    yield running
    running.faults.clear()
    running.instead.clear()
    running.model.failure, running.model.gate = None, None
    running.model.models.clear()


@pytest_asyncio.fixture(loop_scope="module")
async def caller(real: CreateReal, network: Network) -> RealClient:
    return await real(url=network.url)


@pytest_asyncio.fixture(loop_scope="module")
async def ability(caller: RealClient) -> RealAbility:
    return await caller.load_broker(NAME)


async def finished(events: Stream, job: str) -> list[dict[str, Any]]:
    """Return the events of a job up to its last one, which is not progress."""
    received: list[dict[str, Any]] = []
    while not received or "stage" in received[-1]:
        event = await events.next()
        if event["jobId"] == job:
            received.append(event)
    return received


# --- the tools ---------------------------------------------------------------------------------


async def test_the_worker_is_loaded_by_its_name_with_the_eight_tools(
    ability: RealAbility, network: Network
) -> None:
    described = await ability.describe()
    assert (described["name"], described["transport"]) == (NAME, "broker")
    ours = {tool["name"]: tool for tool in await network.client.list_tools()}
    assert [tool["name"] for tool in described["tools"]] == sorted(row.name for row in TOOLS)
    assert len(described["tools"]) == 8
    for tool in described["tools"]:
        assert tool["description"] == ours[tool["name"]]["description"]
        assert tool["inputSchema"] == ours[tool["name"]]["inputSchema"]


async def test_all_eight_tools_answer_the_real_client(
    ability: RealAbility, caller: RealClient, network: Network, files: Path
) -> None:
    called: list[str] = []

    async def call(tool: str, **tool_input: Any) -> Any:
        """Call a tool by name and by method; both have to succeed."""
        called.append(tool)
        for answer in (
            await ability.invoke(tool, tool_input),
            await caller.invoke_remote(tool, tool_input),
        ):
            assert "success" not in answer
            network.check(tool, answer)
        return answer

    indexed = await call("search-index", collection="eight", documents=CATS)
    assert (indexed["documents"], indexed["unchanged"], indexed["failed"]) == (3, 3, [])
    read = await call("search-index-file", collection="eight", path=str(files))
    assert (read["files"], read["unchanged"]) == (8, 8)
    found = await call("search-query", collection="eight", query="which cats purr?", limit=2)
    assert found["results"][0]["source"] == "cats"
    assert found["results"][0]["metadata"]["tags"] == ["pets", "\U0001f408"]
    similar = await call(
        "search-similar", collection="eight", chunkId=found["results"][0]["chunkId"], limit=1
    )
    assert similar["sourceChunk"] == "eight:cats:0"
    listed = await call("search-collections")
    assert {"eight", "pets"} <= {each["name"] for each in listed["collections"]}
    info = await call("search-collection-info", collection="eight")
    assert info["model"] == MODEL
    rebuilt = await call("search-reindex", collection="eight", maxTokens=64)
    assert rebuilt["documents"] == 11
    assert (await call("search-delete", collection="eight", source="\u00e9t\u00e9"))["deleted"] == 0
    assert sorted(called) == sorted(row.name for row in TOOLS)


async def test_a_tool_that_the_worker_does_not_offer_is_an_error(
    ability: RealAbility, caller: RealClient
) -> None:
    for invoke in (ability.invoke, caller.invoke_remote):
        with pytest.raises(ClientError, match="for tool 'memory-read' on the networks searched"):
            await invoke("memory-read", {"agentId": "ada"})


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def offering(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    """A worker that offers the memory of agents, too."""
    start = starting(tmp_path_factory.mktemp("databases"), tmp_path_factory.mktemp("home"))
    async with start(SEARCH_OFFER="memory") as network:
        yield network


async def test_a_real_agent_keeps_a_memory(real: CreateReal, offering: Network) -> None:
    caller = await real(url=offering.url)
    ability = await caller.load_broker(NAME)
    assert len((await ability.describe())["tools"]) == 12
    scope = {"agentId": "ada", "sessionId": "monday"}
    said = [{"role": "user", "content": "The cats purr on the roof."}]
    written = await ability.invoke(
        "memory-write", {**scope, "scratch": {"focus": "cats"}, "history": said}
    )
    assert (written["chunks"], written["failed"]) == (1, [])
    for read in (
        await ability.invoke("memory-read", scope),
        await caller.invoke_remote("memory-read", scope),
    ):
        assert [each["value"] for each in read["scratch"]] == ["cats"]
        assert [each["content"] for each in read["history"]] == ["The cats purr on the roof."]
    found = await caller.invoke_remote("memory-search", {"agentId": "ada", "query": "cats"})
    assert found["results"][0]["metadata"]["session"] == "monday"
    erased = await ability.invoke("memory-delete", scope)
    assert (erased["scratch"], erased["history"]) == (1, 1)


async def test_both_clients_get_the_same_answer(ability: RealAbility, network: Network) -> None:
    query = {"collection": "pets", "query": "cats at the gate", "explain": True, "highlights": True}
    theirs = await ability.invoke("search-query", query)
    ours = await network.call("search-query", **query)
    assert theirs.pop("timings").keys() == ours.pop("timings").keys()
    assert theirs == ours
    assert len(theirs["results"]) == 3


# --- their failures ----------------------------------------------------------------------------


async def failed(ability: RealAbility, tool: str, code: str, **tool_input: Any) -> dict[str, Any]:
    """Call a tool that must fail: a failure is a result."""
    answer: dict[str, Any] = await ability.invoke(tool, tool_input)
    assert (answer["success"], answer["code"], answer["tool"]) == (False, code, tool)
    assert isinstance(answer["error"], str)
    assert isinstance(answer["hint"], str)
    assert isinstance(answer["retryable"], bool)
    return answer


async def test_wrong_inputs_are_invalid(ability: RealAbility) -> None:
    for wrong in ({"limit": 0}, {"query": 5}, {"limits": 3}, {"query": ""}):
        query = {"collection": "pets", "query": "cats", **wrong}
        answer = await failed(ability, "search-query", "invalid_input", **query)
        assert next(iter(wrong)) in answer["error"]


async def test_unknown_collections_and_chunks_are_not_found(ability: RealAbility) -> None:
    answer = await failed(ability, "search-query", "not_found", collection="pest", query="cats")
    assert answer["hint"] == "Did you mean pets?"
    await failed(ability, "search-similar", "not_found", collection="pets", chunkId="pets:no:0")


async def test_another_model_is_a_mismatch(ability: RealAbility, network: Network) -> None:
    network.model.models["other"] = 32
    wanted = {"collection": "pets", "model": "other"}
    await failed(ability, "search-index", "model_mismatch", documents=CATS, **wanted)
    await failed(ability, "search-query", "model_mismatch", query="cats", **wanted)


async def test_a_model_that_changed_is_a_mismatch_of_dimensions(
    ability: RealAbility, network: Network
) -> None:
    network.model.models[MODEL] = 32
    await failed(
        ability,
        "search-query",
        "dimension_mismatch",
        collection="pets",
        query="never embedded before",
        mode="semantic",
    )


async def test_without_an_embedder_embedding_is_unavailable(
    ability: RealAbility, network: Network
) -> None:
    network.model.failure = down
    query = {"collection": "pets", "query": "purring cats, not embedded before"}
    answer = await failed(
        ability, "search-query", "embedding_unavailable", mode="semantic", **query
    )
    assert answer["retryable"] is True
    degraded = await ability.invoke("search-query", query)
    assert degraded["degraded"]["code"] == "embedding_unavailable"
    assert degraded["results"][0]["source"] == "cats"


async def test_a_database_that_refuses_is_unavailable(
    ability: RealAbility, network: Network
) -> None:
    def refuse(tool: str, _tool_input: Mapping[str, Any]) -> Any:
        error = "out of order: SELECT FROM Secret WHERE a = 'b'"
        return {"success": False, "error": error} if tool == "arcade-query" else None

    network.faults.append(refuse)
    answer = await failed(ability, "search-collections", "database_unavailable")
    assert "refused a statement: 'out of order: ...'" in answer["error"]
    assert "Secret" not in str(answer)


async def test_a_query_over_the_limit_is_too_large(ability: RealAbility) -> None:
    query = {"collection": "pets", "query": "x" * 257}
    answer = await failed(ability, "search-query", "too_large", **query)
    assert "max_query_bytes" in answer["hint"]


async def test_a_path_outside_the_roots_is_forbidden(ability: RealAbility, files: Path) -> None:
    outside = {"collection": "pets", "path": str(files.parent)}
    answer = await failed(ability, "search-index-file", "forbidden_path", **outside)
    assert str(files.parent) not in answer["error"]


async def test_a_call_too_many_is_busy(ability: RealAbility, network: Network) -> None:
    network.model.gate = asyncio.Event()
    before = network.model.requests
    query = {"collection": "pets", "mode": "semantic"}
    running = [
        asyncio.create_task(ability.invoke("search-query", {"query": f"busy {n}", **query}))
        for n in range(2)
    ]
    await until(lambda: network.model.requests == before + 2)
    answer = await failed(ability, "search-query", "busy", query="one more", **query)
    assert answer["retryAfterMs"] > 0
    network.model.gate.set()
    assert [answer["count"] for answer in await asyncio.gather(*running)] == [3, 3]


async def test_a_call_that_runs_out_of_time_says_so(caller: RealClient, network: Network) -> None:
    network.model.gate = asyncio.Event()
    query = {"collection": "pets", "query": "not embedded before, late", "mode": "semantic"}
    answer = await caller.invoke_remote("search-query", query, timeout=4000)
    assert (answer["success"], answer["code"], answer["retryable"]) == (False, "timeout", True)
    network.model.gate.set()


async def test_a_job_ended_by_another_call_is_cancelled(
    ability: RealAbility, network: Network
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def hold(tool_input: dict[str, Any], call: Call) -> Any:
        if "Cats" in str(tool_input["input"]):  # the job is recorded by then
            begun.set()
            await go.wait()
        return await network.model.handle(tool_input, call)

    await ability.invoke("search-index", {"collection": "cancelled", "documents": CATS})
    network.model.models["other"] = 32
    network.instead["create-embedding"] = hold
    waiting = asyncio.create_task(
        ability.invoke("search-reindex", {"collection": "cancelled", "model": "other"})
    )
    await within(begun.wait())
    ended = await ability.invoke("search-reindex", {"collection": "cancelled", "cancel": True})
    assert ended["state"] == "cancelled"
    answer = await waiting
    assert (answer["success"], answer["code"]) == (False, "cancelled")
    go.set()


async def test_an_unexpected_failure_is_internal_and_leaks_nothing(
    ability: RealAbility, network: Network
) -> None:
    def nonsense(tool: str, _tool_input: Mapping[str, Any]) -> Any:
        return {"success": True, "result": [{"secret": 1}]} if tool == "arcade-query" else None

    network.faults.append(nonsense)
    answer = await failed(ability, "search-collections", "internal")
    assert "secret" not in str(answer)


# --- events ------------------------------------------------------------------------------------


async def test_indexing_a_directory_announces_its_progress(
    ability: RealAbility, caller: RealClient, files: Path
) -> None:
    by_name, by_pattern = await ability.on("search.index.*"), await caller.subscribe("search.#")
    call = {"collection": "events", "path": str(files), "jobId": "the-job"}
    answer = await ability.invoke("search-index-file", call)
    assert answer["jobId"] == "the-job"
    *progress, last = await finished(by_name, "the-job")
    assert last == {"jobId": "the-job", "collection": "events"}
    assert {event["total"] for event in progress if event["stage"] == progress[-1]["stage"]} == {8}
    assert progress[-1]["done"] == 8
    assert all(event["collection"] == "events" for event in progress)
    seen = [event["channel"] for event in by_pattern.waiting()]
    assert seen[-1] == "search.index.completed"
    assert set(seen[:-1]) == {"search.index.progress"}
    await by_name.end()
    await by_pattern.end()


async def test_a_failed_job_is_announced_with_its_code(
    ability: RealAbility, network: Network
) -> None:
    events = await ability.on("search.index.failed")
    network.model.failure = down
    wanted = {"collection": "failing", "documents": [document("new", "Never seen before.")]}
    await failed(ability, "search-index", "embedding_unavailable", **wanted, jobId="the-failed-job")
    event = await events.next()
    assert (event["jobId"], event["code"]) == ("the-failed-job", "embedding_unavailable")
    await events.end()


# --- embeddings from JavaScript ----------------------------------------------------------------


async def test_the_worker_indexes_and_searches_with_an_embedder_in_javascript(
    real: CreateReal, network: Network
) -> None:
    database = [tool for tool in network.tools if tool.name != "create-embedding"]
    await network.parts.serve(database)
    collection = f"javascript-{secrets.token_hex(4)}"
    embedder = await real(url=network.url, connected=False)
    await embedder.register_tool("create-embedding", "embed", model="string")
    await embedder.connect()
    caller = await real(url=network.url)
    try:
        indexed = await caller.invoke_remote(
            "search-index", {"collection": collection, "documents": CATS, "model": "words-16"}
        )
        assert (indexed["added"], indexed["dimensions"]) == (3, 16)
        for query, expected in (("content cats purr", "cats"), ("summer garden", "\u00e9t\u00e9")):
            call = {"collection": collection, "query": query, "mode": "semantic"}
            found = await caller.invoke_remote("search-query", call)
            assert found["results"][0]["source"] == expected
            assert found["model"] == "words-16"
        await embedder.disconnect()
        call = {"collection": collection, "query": "cats that bark"}
        found = await caller.invoke_remote("search-query", call)
        assert found["degraded"]["code"] == "embedding_unavailable"
        assert found["degraded"]["mode"] == "keyword"
        assert found["results"][0]["source"] == "cats"
    finally:
        await network.parts.serve(network.tools)


async def test_an_embedder_in_javascript_that_fails_is_unavailable(
    real: CreateReal, network: Network
) -> None:
    async def fail(_input: Any, _context: dict[str, Any]) -> None:
        raise RuntimeError("CUDA out of memory")

    database = [tool for tool in network.tools if tool.name != "create-embedding"]
    await network.parts.serve(database)
    embedder = await real(url=network.url, connected=False)
    await embedder.register_tool("create-embedding", fail)
    await embedder.connect()
    try:
        ability = await embedder.load_broker(NAME)
        wanted = {"collection": "pets", "query": "not embedded before, failing"}
        await failed(ability, "search-query", "embedding_unavailable", mode="semantic", **wanted)
    finally:
        await network.parts.serve(network.tools)


# --- in place of the earlier ability -----------------------------------------------------------


async def test_a_caller_of_the_earlier_ability_meets_what_it_expects(
    ability: RealAbility, files: Path
) -> None:
    """The calls of such a caller, one after the other, with the fields that it reads."""
    name = {"collection": "moved"}

    async def call(tool: str, **tool_input: Any) -> Any:
        answer = await ability.invoke(tool, tool_input)
        assert answer.get("success") is not False, answer
        return answer

    async def stored() -> list[tuple[str, int]]:
        listed = (await call("search-collections"))["collections"]
        return [(each["name"], each["chunks"]) for each in listed if each["name"] == "moved"]

    untitled = [{"source": "a.md", "content": "# Cats\n\nCats purr when they are content."}]
    titled = [{"source": "b.md", "title": "Dogs", "content": "Dogs bark at strangers."}]
    indexed = await call("search-index", **name, documents=untitled + titled)
    assert (indexed["indexed"], indexed["collection"]) == (True, "moved")
    assert (indexed["documents"], indexed["chunks"], indexed["failed"]) == (2, 2, [])
    assert await stored() == [("moved", 2)]
    info = await call("search-collection-info", **name)
    assert (info["chunks"], info["sources"]) == (2, ["a.md", "b.md"])
    for mode in ("semantic", "keyword", "hybrid", None):
        given = {} if mode is None else {"mode": mode}
        found = await call("search-query", **name, query="which cats purr?", limit=1, **given)
        (hit,) = found["results"]
        assert (hit["source"], hit["title"], found["count"]) == ("a.md", "Cats", 1)
        assert found["mode"] == (mode or "hybrid")
    similar = await call("search-similar", **name, chunkId=hit["chunkId"], limit=5)
    assert similar["sourceChunk"] == hit["chunkId"]
    assert [each["source"] for each in similar["results"]] == ["b.md"]
    assert (await call("search-delete", **name, source="b.md"))["deleted"] == 1
    assert await stored() == [("moved", 1)]
    (files / "list.json").write_text(
        json.dumps([{"source": f"j{n}", "title": f"J{n}", "content": f"Jay {n}."} for n in (1, 2)])
    )
    read = await call("search-index-file", **name, path=str(files / "list.json"))
    again = await call("search-index-file", **name, path=str(files / "list.json"))
    (files / "list.json").unlink()
    assert (read["documents"], read["chunks"], read["failed"]) == (2, 2, [])
    assert (again["documents"], again["chunks"], again["failed"]) == (2, 0, [])
    info = await call("search-collection-info", **name)
    assert (info["chunks"], info["sources"]) == (3, ["a.md", "j1", "j2"])
    (jay,) = (await call("search-query", **name, query="J2 jay", mode="keyword", limit=1))[
        "results"
    ]
    assert (jay["source"], jay["title"], jay["content"]) == ("j2", "J2", "Jay 2.")
    cleared = await call("search-reindex", **name, clear=True)
    assert (cleared["collection"], cleared["deleted"]) == ("moved", 3)
    assert isinstance(cleared["message"], str)
    assert await stored() == [("moved", 0)]
    assert (await call("search-query", **name, query="cats"))["results"] == []
    assert (await call("search-index", **name, documents=titled))["added"] == 1
    assert (await call("search-delete", **name))["deleted"] == 1
    assert await stored() == []
    await failed(ability, "search-query", "not_found", **name, query="cats")
