"""Sessions of agents: scratchpad, tasks, history, their search, their limits and their erasure."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network

from ability_search.extensions.sessions import sessions
from kadi_client import ToolError


async def write(network: Network, **session: Any) -> Any:
    return await network.call("memory-write", **session)


async def read(network: Network, **session: Any) -> Any:
    return await network.call("memory-read", **session)


async def erase(network: Network, **session: Any) -> Any:
    erased = await network.call("memory-delete", **session)
    return erased["scratch"], erased["tasks"], erased["history"]


def said(*texts: str, time: str | None = None) -> list[dict[str, str]]:
    when = {} if time is None else {"time": time}
    return [{"role": "user", "content": text} | when for text in texts]


async def test_a_write_of_history_is_a_job_that_reports_its_progress(network: Network) -> None:
    channels: list[str] = []
    async with network.client.subscribe("search.index.*") as heard, asyncio.timeout(20):
        written = await write(network, history=said("one", "two"), jobId="mine")
        async for event in heard:
            assert event.data["jobId"] == written["jobId"] == "mine"
            channels.append(event.channel)
            if event.channel == "search.index.completed":
                break
    assert set(channels) == {"search.index.progress", "search.index.completed"}
    assert "jobId" not in await write(network, scratch={"focus": "tapes"})


async def test_a_scratchpad_belongs_to_one_session_of_one_agent(network: Network) -> None:
    await write(network, scratch={"focus": "backup", "b": ""})
    await write(network, scratch={"focus": "the tapes of May"})
    await write(network, sessionId="two", scratch={"focus": "other"})
    found = await read(network)
    assert [(each["key"], each["value"]) for each in found["scratch"]] == [
        ("b", ""),
        ("focus", "the tapes of May"),
    ]
    assert (found["agentId"], found["sessionId"]) == ("default", "default")
    assert found["tasks"] == found["history"] == []
    one = await read(network, keys=["focus"], sessionId="two", include=["scratch"])
    assert [each["value"] for each in one["scratch"]] == ["other"]
    assert (await read(network, agentId="ada"))["scratch"] == []
    assert await erase(network, scratch=["b"]) == (1, 0, 0)
    with pytest.raises(ToolError, match="no key of the scratchpad named 'b'") as failure:
        await read(network, keys=["focus", "b"])
    assert failure.value.code == "not_found"


async def test_tasks_are_added_listed_by_status_and_changed(network: Network) -> None:
    added = await write(network, tasks=[{"content": "check tapes"}, {"content": "call Bo"}])
    assert [(t["id"], t["status"]) for t in added["tasks"]] == [("1", "open"), ("2", "open")]
    changes = [{"id": "1", "status": "done"}, {"content": "new", "status": "active"}]
    changed = await write(network, tasks=changes)
    assert [(t["id"], t["content"]) for t in changed["tasks"]] == [
        ("1", "check tapes"),
        ("3", "new"),
    ]
    listed = await read(network, status="open", include=["tasks"])
    assert [t["content"] for t in listed["tasks"]] == ["call Bo"]
    with pytest.raises(ToolError, match="no task named '9'") as failure:
        await write(network, tasks=[{"id": "2", "status": "done"}, {"id": "9", "status": "done"}])
    assert failure.value.code == "not_found"
    assert (await read(network, status="done"))["tasks"][0]["id"] == "1"
    assert await erase(network, tasks=["1", "3"]) == (0, 2, 0)
    assert [t["id"] for t in (await read(network))["tasks"]] == ["2"]


async def test_history_is_listed_newest_first_and_searched_over_sessions(network: Network) -> None:
    long = "What did the operator say about the tapes? " + "It is a long story. " * 400
    await write(network, sessionId="mon/day", history=said("backup runs at two", long))
    await write(network, sessionId="mon/day", history=said("thanks", time="2026-05-01"))
    await write(network, sessionId="two", history=said("the weather is fine"))
    listed = (await read(network, sessionId="mon/day", limit=2))["history"]
    assert [(e["turn"], e["content"]) for e in listed] == [(3, "thanks"), (2, long)]
    assert listed[0]["time"] == "2026-05-01T00:00:00.000Z"
    found = await network.call("search-query", collection="history-default", query="weather fine")
    best = found["results"][0]
    assert best["content"] == "the weather is fine"
    assert (best["metadata"]["session"], best["metadata"]["role"]) == ("two", "user")
    only = {"metadata.session": "mon/day"}
    found = await network.call(
        "search-query", collection="history-default", query="weather", filter=only
    )
    assert {hit["metadata"]["session"] for hit in found["results"]} == {"mon/day"}


async def test_concurrent_writers_lose_nothing(network: Network) -> None:
    await write(network, history=said("first"))
    writes = [
        write(network, history=said(f"entry {n}"), tasks=[{"content": f"task {n}"}])
        for n in range(8)
    ]
    await asyncio.gather(*writes)
    found = await read(network)
    assert [each["turn"] for each in found["history"]] == [9, 8, 7, 6, 5, 4, 3, 2, 1]
    assert {t["content"] for t in found["tasks"]} == {f"task {n}" for n in range(8)}
    assert [t["id"] for t in found["tasks"]] == [str(n) for n in range(1, 9)]


async def test_erasure_by_age_session_and_agent_counts_first(network: Network) -> None:
    old, new = said("old", "older", time="2020-01-01"), said("new", time="2026-05-01")
    await write(network, sessionId="one", history=[*old, *new], scratch={"a": "1"})
    await write(network, sessionId="two", history=old, tasks=[{"content": "x"}])
    await write(network, agentId="ada", history=old, scratch={"a": "1"})
    by_age = {"sessionId": "*", "before": "2021-01-01"}
    assert await erase(network, **by_age, dryRun=True) == (0, 0, 4)
    assert await erase(network, **by_age) == (0, 0, 4)
    assert await erase(network, **by_age) == (0, 0, 0)
    rest = await read(network, sessionId="one", include=["history", "sessions"])
    assert [e["content"] for e in rest["history"]] == ["new"]
    assert [each["sessionId"] for each in rest["sessions"]] == ["one", "two"]
    assert await erase(network, sessionId="two") == (0, 1, 0)
    assert await erase(network, sessionId="*", dryRun=True) == (1, 0, 1)
    assert await erase(network, sessionId="*") == (1, 0, 1)
    assert (await read(network, include=["sessions"]))["sessions"] == []
    listed = await network.call("search-collections")
    assert [each["name"] for each in listed["collections"]] == ["history-ada"]
    assert len((await read(network, agentId="ada"))["history"]) == 2


@pytest.mark.parametrize(
    ("tool", "given", "message"),
    [
        ("memory-write", {}, "one of scratch, tasks and history is required"),
        ("memory-write", {"agentId": "a/b", "scratch": {"a": "b"}}, "agentId"),
        ("memory-write", {"agentId": "", "scratch": {"a": "b"}}, "agentId.*56 letters"),
        ("memory-read", {"agentId": "a/b"}, "agentId.*56 letters"),
        ("memory-search", {"agentId": "a/b", "query": "q"}, "agentId.*56 letters"),
        ("memory-search", {"query": " "}, "query"),
        ("memory-delete", {"agentId": "a/b"}, "agentId.*56 letters"),
        ("memory-write", {"sessionId": "*", "scratch": {"a": "b"}}, "one session"),
        ("memory-write", {"tasks": [{}]}, "content is required for a new task"),
        ("memory-write", {"tasks": [{"id": "1"}]}, "content or status is required"),
        (
            "memory-write",
            {"history": [{"role": "me", "content": "x", "time": "May"}]},
            "history.0.time",
        ),
        ("memory-write", {"tasks": [{"id": "1"}], "maxTokens": 50}, "maxTokens"),
        ("memory-delete", {"before": "soon"}, "before"),
        ("memory-delete", {"sessionId": "*", "tasks": ["1"]}, "one session"),
        ("search-index", {}, "collection"),
        ("search-delete", {}, "collection"),
    ],
)
async def test_wrong_input_names_the_field(
    network: Network, tool: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ToolError, match=message) as failure:
        await network.call(tool, **given)
    assert failure.value.code == "invalid_input"


async def test_a_session_that_is_full_keeps_what_it_has(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "MOST_KEYS", 2)
    await write(network, scratch={"a": "1", "b": "2"})
    with pytest.raises(ToolError, match="at most 2 in a session") as failure:
        await write(network, scratch={"a": "x", "c": "3"})
    assert failure.value.code == "too_large"
    await write(network, scratch={"a": "x"})
    assert [each["value"] for each in (await read(network))["scratch"]] == ["x", "2"]
