"""What hostile sessions can make the broker keep, list, queue and refuse: bytes and entries."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.kadi_localnet.test_broker_router import Desk, read

from kadi_client.identity import Identity, agent_id
from kadi_localnet.broker.access import Access
from kadi_localnet.broker.outbox import Memory, Outbox
from kadi_localnet.broker.session import Session

KIB, MIB = 1024, 1024 * 1024
_SESSIONS = 5
_BASE = 6 * KIB
"""Bytes of a session for which nothing is kept, and of what measuring it takes."""

texts = st.sampled_from(["a", "é", "名", "\U0001f600", "a\U0001f600"])


def send(
    desk: Desk, session: Session, method: str, params: Any, *, plain: bool, **more: Any
) -> None:
    frame = {"id": 1, "method": method, "params": params, **more}
    desk.router.receive(session, json.dumps(frame, ensure_ascii=plain).encode(), desk.now)


def registrations(text: str, size: int, number: int) -> Iterator[tuple[str, Any]]:
    """Requests that make the broker keep something, each in another member."""
    names = [f"{n}{text * 200}"[:256] for n in range(40)]
    many = [text] * size
    schema = {"properties": {f"p{n}": {"type": "string"} for n in range(size // 50)}}
    tool: dict[str, Any] = {"name": f"t{number}"}
    yield "kadi.session.hello", {"networks": names[:10], "name": names[0]}
    yield "kadi.agent.register", {"networks": names, "displayName": names[1]}
    yield "kadi.agent.register", {"tools": [tool | {"tags": many}]}
    yield "kadi.agent.register", {"tools": [tool | {"description": "a" * size + text}]}
    yield "kadi.agent.register", {"tools": [tool | {"inputSchema": schema}]}
    yield "kadi.agent.register", {"tools": [tool | {"networks": names}], "networks": names}
    yield "kadi.agent.register", {"tools": [{"name": f"{number}.{n}"} for n in range(150)]}
    yield "kadi.event.subscribe", {"channels": [".".join([n, *text * 14])[:256] for n in names]}
    yield "kadi.event.subscribe", {"channels": [f"{n}{text * 250}"[:256] for n in range(40)]}


@pytest.mark.slow
@pytest.mark.parametrize("index", range(9))
@settings(max_examples=3, deadline=None)
@given(texts, st.integers(1000, 10_000), st.booleans())
def test_what_is_kept_for_sessions_is_counted(
    index: int, text: str, size: int, plain: bool
) -> None:
    requests = [list(registrations(text, size, number))[index] for number in range(_SESSIONS)]
    desk = Desk()
    hello = requests[0][0] == "kadi.session.hello"
    sessions = [desk.connect() if hello else desk.join() for _ in requests]
    gc.collect()
    tracemalloc.start()
    try:
        before = desk.router.memory.used
        for session, (method, params) in zip(sessions, requests, strict=True):
            # Other members of the frame must not be kept with what is.
            send(desk, session, method, params, plain=plain, result="x" * 20_000)
            read(session)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    counted = desk.router.memory.used - before
    assert counted > 0
    assert kept <= counted + _BASE * _SESSIONS
    for session in sessions:
        desk.router.disconnect(session)
    desk.advance(10)
    desk.advance(10)
    assert desk.router.memory.used == 0


@pytest.mark.slow
@settings(max_examples=3, deadline=None)
@given(texts, st.integers(1, 250))
def test_calls_in_flight_are_counted(text: str, length: int) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    gc.collect()
    tracemalloc.start()
    try:
        before = desk.router.memory.used
        for number in range(100):
            params = {"toolName": "echo", "requestId": f"{number}{text * length}"[:256]}
            send(desk, caller, "kadi.ability.request", params, plain=False)
            read(caller)
            read(provider)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert desk.stat("outstanding_calls") == 100
    assert kept <= desk.router.memory.used - before + _BASE
    desk.router.disconnect(caller)
    desk.router.disconnect(provider)
    desk.advance(10)
    desk.advance(10)
    assert desk.router.memory.used == 0


def test_registrations_share_a_bounded_memory_and_the_largest_gives_way() -> None:
    part = Identity.generate()
    rules = Access(providers={"part": {agent_id(part.public_key)}})
    desk = Desk(memory_bytes=8 * MIB, max_message_bytes=2 * MIB, access=rules)
    large = {"inputSchema": {"text": "x" * 300 * KIB}}
    component, honest = desk.join(part), desk.join(tools=["echo"])
    tool = [{"name": "part", **large}]
    assert desk.send(component, "kadi.agent.register", {"tools": tool})["status"] == "registered"
    hostile = []
    for number in range(30):
        session = desk.join()
        tool = [{"name": f"t{number}", "inputSchema": {"text": "x" * (10 + number) * 10 * KIB}}]
        desk.send(session, "kadi.agent.register", {"tools": tool})
        hostile.append(session)
        alive = [each for each in (component, honest, *hostile) if each.closing is None]
        assert sum(each.standing for each in alive) <= MIB
    assert component.closing is None
    assert honest.closing is None
    assert component.tools == ("part",)


@settings(max_examples=examples(10), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3000)), max_size=12))
def test_a_list_is_bounded_and_names_the_tools_of_small_agents(
    hostile: list[tuple[int, int]],
) -> None:
    desk = Desk(max_message_bytes=64 * KIB)
    for number, (tools, size) in enumerate(hostile):
        schema = {"text": "x" * size}
        offered = [{"name": f"a{number}.{n}", "inputSchema": schema} for n in range(tools)]
        desk.send(desk.join(), "kadi.agent.register", {"tools": offered})
    desk.join(tools=["zebra"])
    answer = desk.send(desk.join(), "kadi.ability.list", {"includeProviders": True})
    assert len(json.dumps(answer["tools"])) <= 2 * 16 * KIB
    names = [tool["name"] for tool in answer["tools"]]
    assert names == sorted(names)
    everything = {"zebra"} | {
        f"a{i}.{n}" for i, (tools, _) in enumerate(hostile) for n in range(tools)
    }
    assert (set(names) == everything) is not answer.get("truncated", False)
    assert "zebra" in names or any(tools == 1 and size > 1000 for tools, size in hostile)


@pytest.mark.parametrize("listed", [True, False])
def test_a_list_has_a_bounded_number_of_entries(listed: bool) -> None:
    desk = Desk(tools=3000)
    for number in range(2):
        offered = [{"name": f"a{number}.{n}"} for n in range(2500)]
        desk.send(desk.join(), "kadi.agent.register", {"tools": offered})
    desk.join(tools=["zebra"])
    params = {"tool": "zebra"} if listed else {}
    answer = desk.send(desk.join(), "kadi.ability.list", params)
    assert len(answer["tools"]) == (1 if listed else 4096)
    assert answer["tools"][-1]["name"] == "zebra"


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(1, 5000), st.booleans()), min_size=1, max_size=300
    )
)
def test_a_few_owners_cannot_fill_an_outbox(steps: list[tuple[int, int, bool]]) -> None:
    memory = Memory()
    outbox = Outbox(memory, max_frames=100, max_bytes=10_000)
    for owner, size, pop in steps:
        if outbox.has_room(size, owner):
            assert outbox.put_reply(b"x" * size, owner)
        if pop:
            outbox.pop()
        assert len(outbox) <= 100
        assert outbox.size <= 10_000
        assert outbox.has_room(50, "a newcomer")
    while outbox.pop() is not None:
        pass
    assert memory.used == 0


def test_callers_cannot_close_a_provider_that_does_not_read_for_a_moment() -> None:
    desk = Desk(outbox_frames=400, outstanding=100)
    provider = desk.join(tools=["echo"])
    hostile = [desk.join() for _ in range(6)]
    for session in hostile:
        for _ in range(110):
            desk.send(session, "kadi.ability.request", {"toolName": "echo", "toolInput": {"a": 1}})
    newcomer = desk.join()
    assert "status" in desk.send(newcomer, "kadi.ability.request", {"toolName": "echo"})
    for session in hostile[:3]:
        for request in list(session.calling):
            desk.send(session, "kadi.ability.cancel", {"requestId": request})
    for session in hostile:
        desk.router.disconnect(session)
    assert provider.closing is None
    cancelled = [each for each in read(provider) if each["method"] == "kadi.ability.cancel"]
    assert len(cancelled) == desk.stat("calls_cancelled")
    assert desk.stat("outstanding_calls") == 1


def test_large_calls_leave_room_for_small_ones() -> None:
    desk = Desk(max_message_bytes=MIB, outbox_bytes=2 * MIB)
    provider = desk.join(tools=["echo"])
    refused = 0
    for number in range(40):
        size = MIB // (1 + number) // 2
        params = {"toolName": "echo", "toolInput": {"text": "x" * size}}
        refused += "message" in desk.send(desk.join(), "kadi.ability.request", params)
    assert refused
    assert "status" in desk.send(desk.join(), "kadi.ability.request", {"toolName": "echo"})
    assert provider.closing is None


@pytest.mark.parametrize("tools", [["a"], ["a", "b", "c"]])
def test_callers_that_wait_for_providers_leave_room_to_others(tools: list[str]) -> None:
    desk = Desk(waiting=100)
    for _ in range(5):
        desk.router.disconnect(desk.join(tools=tools))
    hostile = [desk.join() for _ in range(3)]
    for session in hostile:
        for number in range(60):
            desk.send(session, "kadi.ability.request", {"toolName": tools[number % len(tools)]})
    assert desk.stat("outstanding_calls") <= 100  # of all five places together
    newcomer = desk.join()
    call = desk.call(newcomer, "a")
    provider = desk.join(tools=["a"])
    assert newcomer.calling[call].provider is provider
