"""Our abilities, loaded by the real KADI client over standard input and output."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tests.ability_search.flows.conftest import MODEL, Network, document, starting
from tests.interop.real_client import (
    ClientError,
    NodeProcess,
    RealAbility,
    RealClient,
    needs_real_client,
    running_node,
    until,
    within,
)
from tests.interop.values import VALUES, assert_same

from ability_search import __version__
from ability_search.tools.table import offered_tools

pytestmark = [
    pytest.mark.process,
    pytest.mark.engine,
    pytest.mark.asyncio(loop_scope="module"),
    needs_real_client,
]

ROOT = Path(__file__).resolve().parents[2]
ECHO = {"command": sys.executable, "args": [str(Path(__file__).with_name("echo_ability.py"))]}
WORKER = {
    "command": sys.executable,
    "args": ["-m", "ability_search", "worker", "--stdio", "--wait", "0"],
}
DOCUMENTS = [
    document("cats", "Cats purr when they are content."),
    document("dogs", "Dogs bark at strangers who pass the gate."),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Network]:
    """A broker with a database and an embedder; its worker is beside those loaded here."""
    start = starting(tmp_path_factory.mktemp("databases"), tmp_path_factory.mktemp("home"))
    async with start() as network:
        await network.call("search-index", collection="pets", documents=DOCUMENTS)
        yield network


@pytest.fixture(scope="module")
def environment(network: Network, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What a loaded worker inherits."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SEARCH_")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path_factory.mktemp("home")),
        "BROKER_URL": network.url,
        "SEARCH_DATABASE": network.settings.database.name,
        "SEARCH_EMBEDDING_MODEL": MODEL,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def node(environment: dict[str, str]) -> AsyncIterator[NodeProcess]:
    """A process whose standard error is that of the abilities, too."""
    home = Path(environment["HOME"])
    async with running_node(cwd=home, environment=environment) as node:
        yield node
    assert node.process.returncode == 0
    assert b"Traceback" not in node.stderr


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def loader(node: NodeProcess) -> AsyncIterator[RealClient]:
    """A client without brokers, which keeps what it has loaded."""
    client = await node.create("ws://127.0.0.1:9")
    yield client
    await client.disconnect()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def echo(loader: RealClient) -> RealAbility:
    return await loader.load_stdio("echo", **ECHO)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worker(loader: RealClient) -> RealAbility:
    return await loader.load_stdio("ability-search", **WORKER)


@pytest.fixture(autouse=True)
def silence(node: NodeProcess) -> Iterator[None]:
    """The client prints what it cannot parse, and events without a name."""
    node.logs.clear()
    yield
    assert node.logs == []


# --- any ability -------------------------------------------------------------------------------


async def test_an_ability_says_its_name_and_its_tools(echo: RealAbility) -> None:
    described = await echo.describe()
    assert (described["name"], described["transport"]) == ("echo", "stdio")
    names = [tool["name"] for tool in described["tools"]]
    assert names == ["value", "fail", "announce", "hold"]
    assert described["tools"][0]["inputSchema"]["required"] == ["value"]


@pytest.mark.parametrize("given", VALUES.values(), ids=VALUES)
async def test_values_pass_in_both_directions(echo: RealAbility, given: Any) -> None:
    assert_same(await echo.invoke("value", {"value": given}), given)


async def test_a_hundred_calls_in_flight_get_their_own_results(echo: RealAbility) -> None:
    numbers = range(100)
    calls = [echo.invoke("value", {"value": [number, "x" * number * 100]}) for number in numbers]
    answers = await asyncio.gather(*calls)
    assert [number for number, _ in answers] == list(numbers)


async def test_events_come_before_the_answer_and_prints_not_at_all(echo: RealAbility) -> None:
    first, second = await echo.on("news.today"), await echo.on("news.today")
    other = await echo.on("news")
    given = [{"a": 1}, "\U0001f9ed", None, False, 0, "", ["x" * 100_000]]
    assert await echo.invoke("announce", {"events": given}) == "announced"
    assert first.waiting() == given
    await first.end()
    assert await echo.invoke("announce", {"events": [1]}) == "announced"
    assert [first.waiting(), other.waiting()] == [[], []]
    assert second.waiting() == [*given, 1]


@pytest.mark.parametrize("text", ["it broke", "two\nlines", "\U0001f4a5"])
async def test_a_tool_that_fails_rejects_the_call(echo: RealAbility, text: str) -> None:
    with pytest.raises(ClientError) as raised:
        await echo.invoke("fail", {"text": text})
    assert raised.value.code == "STDIO_ERROR"
    assert raised.value.context["code"] == -32000
    assert str(raised.value) == text


async def test_an_unknown_tool_and_an_input_that_is_no_object_are_refused(
    echo: RealAbility,
) -> None:
    for tool, tool_input, code in (("absent", {}, -32601), ("value", [1], -32602)):
        with pytest.raises(ClientError) as raised:
            await echo.invoke(tool, tool_input)
        assert raised.value.code == "STDIO_ERROR"
        assert raised.value.context["code"] == code


async def test_a_call_that_takes_too_long_leaves_the_others_alone(echo: RealAbility) -> None:
    with pytest.raises(ClientError) as raised:
        await echo.invoke("hold", {}, timeout=50)
    assert raised.value.code == "TIMEOUT"
    assert await echo.invoke("value", {"value": 1}) == 1


# --- the end -----------------------------------------------------------------------------------


async def test_a_worker_that_is_left_ends_before_the_client_gives_it_up(
    loader: RealClient, node: NodeProcess
) -> None:
    """The client goes on a second after its SIGTERM; a busy machine may be later, once or twice."""
    for _ in range(3):
        ability = await loader.load_stdio("another", **WORKER)
        if await leave(ability, node):
            break
    else:
        pytest.fail("the worker takes more than a second to end")
    with pytest.raises(ClientError, match="Connection is closed"):
        await ability.invoke("search-collections", {})


async def test_a_worker_that_is_left_during_a_call_ends_by_itself(
    loader: RealClient, node: NodeProcess, network: Network
) -> None:
    ability = await loader.load_stdio("another", **WORKER)
    network.model.gate = asyncio.Event()
    before = network.model.requests
    query = {"collection": "pets", "query": "not embedded before", "mode": "semantic"}
    call = asyncio.create_task(ability.invoke("search-query", query))
    try:
        await until(lambda: network.model.requests > before)
        await leave(ability, node)
    finally:
        network.model.gate.set()
        network.model.gate = None
    with pytest.raises(ClientError) as raised:
        await call
    assert raised.value.code == "STDIO_ERROR"


async def leave(ability: RealAbility, node: NodeProcess) -> bool:
    """Disconnect: the client asks the process to shut down and sends SIGTERM.

    It has to end by itself; returns whether it has when the client no longer waits for it.
    """
    await ability.disconnect()
    in_time = not node.exits.empty()
    ended = await within(node.exits.get())
    assert (ended["code"], ended["signal"]) == (0, None)
    return in_time


async def test_a_worker_ends_when_the_client_is_killed(
    environment: dict[str, str], network: Network
) -> None:
    health = network.url.replace("ws:", "http:").replace("/kadi", "/health")

    async def sessions() -> int:
        async with httpx.AsyncClient(trust_env=False) as client:
            return int((await client.get(health)).json()["sessions"])

    before = await sessions()
    async with running_node(cwd=Path(environment["HOME"]), environment=environment) as doomed:
        client = await doomed.create("ws://127.0.0.1:9")
        await client.load_stdio("ability-search", **WORKER)
        assert await sessions() == before + 1
        doomed.process.kill()
        await within(doomed.process.wait())
    async with asyncio.timeout(20):
        while await sessions() != before:
            pass


async def test_a_worker_without_its_broker_fails_to_load(
    environment: dict[str, str],
) -> None:
    nowhere = {**environment, "BROKER_URL": "ws://127.0.0.1:9/kadi"}
    async with running_node(cwd=Path(environment["HOME"]), environment=nowhere) as node:
        client = await node.create("ws://127.0.0.1:9")
        with pytest.raises(ClientError) as raised:
            await client.load_stdio("ability-search", **WORKER)
        assert raised.value.code == "ABILITY_LOAD_FAILED"
        assert "exited with code 1" in str(raised.value)
        await until(lambda: b"ws://127.0.0.1:9/kadi" in node.stderr)


# --- the worker --------------------------------------------------------------------------------


async def test_the_worker_says_its_name_and_its_tools(
    worker: RealAbility, network: Network
) -> None:
    described = await worker.describe()
    assert described["name"] == "ability-search"
    listed = {tool["name"]: tool for tool in await network.client.list_tools()}
    card = json.loads((ROOT / "agent.json").read_text(encoding="utf-8"))
    assert [tool["name"] for tool in described["tools"]] == card["tools"]
    assert len(described["tools"]) == 8
    assert all(tool == listed[tool["name"]] for tool in described["tools"])


async def test_a_loaded_worker_offers_what_it_is_told_to(
    loader: RealClient, node: NodeProcess
) -> None:
    told = {**WORKER, "args": [*WORKER["args"], "--offer", "memory"]}
    ability = await loader.load_stdio("ability-search", **told)
    names = [tool["name"] for tool in (await ability.describe())["tools"]]
    assert names == [row.name for row in offered_tools(["memory"])]
    assert len(names) == 12
    written = {"agentId": "ada", "sessionId": "monday", "scratch": {"focus": "cats"}}
    assert "success" not in await ability.invoke("memory-write", written)
    await leave(ability, node)


async def test_a_loaded_worker_answers_as_the_one_on_the_network(
    worker: RealAbility, network: Network
) -> None:
    for tool, tool_input in (
        ("search-query", {"collection": "pets", "query": "which cats purr?", "explain": True}),
        ("search-similar", {"collection": "pets", "chunkId": "pets:cats:0"}),
        ("search-collections", {}),
        ("search-collection-info", {"collection": "pets"}),
    ):
        theirs = await worker.invoke(tool, tool_input)
        ours = await network.call(tool, **tool_input)
        for answer in (theirs, ours):
            answer.pop("timings", None)
        assert theirs == ours


async def test_a_loaded_worker_indexes_and_announces_its_progress(
    worker: RealAbility, network: Network
) -> None:
    progress, completed = (
        await worker.on("search.index.progress"),
        await worker.on("search.index.completed"),
    )
    documents = [document(f"new{number}", f"Words of {number}.") for number in range(5)]
    call = {"collection": "loaded", "documents": documents, "jobId": "the-job"}
    answer = await worker.invoke("search-index", call)
    network.check("search-index", answer)
    assert answer["added"] == 5
    events = progress.waiting()
    assert (events[-1]["done"], events[-1]["total"]) == (5, 5)
    assert {(event["jobId"], event["collection"]) for event in events} == {("the-job", "loaded")}
    assert completed.waiting() == [{"jobId": "the-job", "collection": "loaded"}]
    removed = await worker.invoke("search-delete", {"collection": "loaded"})
    assert removed["deleted"] == 5
    rebuilt = await worker.invoke("search-reindex", {"collection": "pets"})
    assert rebuilt["documents"] == 2


async def test_failures_of_a_loaded_worker_are_results(worker: RealAbility, tmp_path: Path) -> None:
    for tool, code, tool_input in (
        ("search-query", "not_found", {"collection": "pest", "query": "cats"}),
        (
            "search-query",
            "invalid_input",
            {"collection": "pets", "query": "x", "unheard": "y" * 10**6},
        ),
        ("search-index-file", "forbidden_path", {"collection": "pets", "path": str(tmp_path)}),
        ("search-query", "too_large", {"collection": "pets", "query": "x" * 10_000_000}),
    ):
        answer = await worker.invoke(tool, tool_input)
        assert (answer["success"], answer["code"]) == (False, code)


async def test_agent_json_has_a_script_that_loads_the_worker(
    loader: RealClient, node: NodeProcess, tmp_path: Path
) -> None:
    """As `kadi install` lays it out: the project has a lock file, the ability its agent.json."""
    installed = tmp_path / "abilities" / "ability-search"
    installed.mkdir(parents=True)
    agent = json.loads((ROOT / "agent.json").read_text(encoding="utf-8"))
    (installed / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    entry = {"resolved": "abilities/ability-search"}
    lock = {"abilities": {f"ability-search@{__version__}": entry}}
    (tmp_path / "agent-lock.json").write_text(json.dumps(lock), encoding="utf-8")
    ability = await loader.load_stdio("ability-search", script="stdio", projectRoot=str(tmp_path))
    assert (await ability.invoke("search-collections", {}))["collections"]
    await leave(ability, node)
