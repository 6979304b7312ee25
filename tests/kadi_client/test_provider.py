from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from kadi_client import provider
from kadi_client.context import call_id, current
from kadi_client.errors import FrameTooLarge, ProtocolError
from kadi_client.identity import Identity
from kadi_client.messages import ABSENT, Raw, decode_frame, encode, request
from kadi_client.params import Invocation, read_invocation
from kadi_client.provider import Provider
from kadi_client.tools import Call, Origin, Tool

PATIENCE = 10.0


class Caller(provider.Caller):
    """Keeps what it is told; too large is what encodes to more than 1000 bytes."""

    def __init__(self) -> None:
        self.outcomes: asyncio.Queue[Any] = asyncio.Queue()
        self.events: list[tuple[str, Any]] = []

    def send(self, frame: bytes) -> None:
        raise AssertionError("only answers and events are sent")

    async def drain(self) -> None:
        """Nothing is queued."""

    def respond(self, id_: Raw, result: Any) -> None:
        size = len(encode(result))
        if size > 1000:
            raise FrameTooLarge(size, 1000)
        self.outcomes.put_nowait((bytes(id_), result))

    def fail(self, id_: Raw | None, message: str, *, code: int = -32000) -> None:
        self.outcomes.put_nowait((None if id_ is None else bytes(id_), code, message))

    def send_event(self, channel: str, data: Any) -> None:
        self.events.append((channel, data))

    async def outcome(self) -> Any:
        async with asyncio.timeout(PATIENCE):
            return await self.outcomes.get()


def invocation(
    tool: str, tool_input: Any = None, *, id_: str = "1", timeout: float | None = None
) -> Invocation:
    raw = ABSENT if tool_input is None else Raw(encode(tool_input))
    return Invocation(Raw(id_.encode()), f"r{id_}", tool, raw, timeout)


def tool(name: str, handler: Any) -> Tool:
    return Tool(name, "", {}, handler)


class Gate:
    """A handler that tells when it starts and waits until it may finish."""

    def __init__(self) -> None:
        self.started: asyncio.Queue[str] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()
        self.open = asyncio.Event()
        self.running = 0
        self.most = 0

    async def handle(self, _input: dict[str, Any], call: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        self.started.put_nowait(call.request_id)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(call.request_id)
            raise
        finally:
            self.running -= 1
        return "through"


async def _fail(_input: Any, _call: Any) -> Any:
    raise LookupError("no such row")


async def _fail_silently(_input: Any, _call: Any) -> Any:
    raise RuntimeError


async def _break_protocol(_input: Any, _call: Any) -> Any:
    raise ProtocolError("inner", code=-32700)


async def _time_out(_input: Any, _call: Any) -> Any:
    raise TimeoutError("the disk is slow")


async def _cancel_itself(_input: Any, _call: Any) -> Any:
    raise asyncio.CancelledError


async def _large(_input: Any, _call: Any) -> Any:
    return "x" * 2000


async def _not_json(_input: Any, _call: Any) -> Any:
    return object()


@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (_fail, "no such row"),
        (_fail_silently, "RuntimeError"),
        (_break_protocol, "inner"),
        (_time_out, "the disk is slow"),
        (_cancel_itself, "the call of t was cancelled"),
        (_large, "the result of t is too large: message of 2002 bytes"),
        (_not_json, "t returned a value that is not JSON"),
    ],
)
async def test_a_handler_that_fails_answers_with_its_text(handler: Any, text: str) -> None:
    caller = Caller()
    Provider([tool("t", handler)]).accept(invocation("t", timeout=60), caller)
    id_, code, message = await caller.outcome()
    assert (id_, code) == (b"1", -32000)
    assert text in message


@pytest.mark.parametrize(
    ("called", "tool_input", "code", "text"),
    [
        ("u", {}, -32601, "unknown tool: u"),
        ("t", [1], -32602, "toolInput must be an object"),
        ("t", Raw(b"1e999"), -32700, "toolInput: not valid JSON"),
    ],
)
async def test_a_call_that_cannot_be_made_is_refused(
    called: str, tool_input: Any, code: int, text: str
) -> None:
    caller = Caller()
    Provider([tool("t", _fail)]).accept(invocation(called, tool_input), caller)
    assert await caller.outcome() == (b"1", code, text)


async def test_the_handler_gets_its_input_without_routing_hints_and_the_call() -> None:
    seen = []

    async def look(tool_input: dict[str, Any], call: Any) -> Any:
        seen.append((tool_input, call.request_id, call.remaining))
        await call.publish("c", 1)
        return None

    caller = Caller()
    provider = Provider([tool("t", look)])
    provider.accept(invocation("t", {"a": 1, "_kadi": {"x": 1}}, timeout=5.0), caller)
    assert await caller.outcome() == (b"1", None)
    provider.accept(invocation("t"), caller)
    await caller.outcome()
    (first_input, request_id, remaining), (second_input, _, no_limit) = seen
    assert (first_input, request_id, second_input, no_limit) == ({"a": 1}, "r1", {}, None)
    assert 4.0 < remaining <= 5.0
    assert caller.events == [("c", 1), ("c", 1)]


async def test_the_deadline_stops_the_handler() -> None:
    gate, caller = Gate(), Caller()
    provider = Provider([tool("t", gate.handle)])
    provider.accept(invocation("t", timeout=0.05), caller)
    assert await caller.outcome() == (b"1", -32000, "t did not finish within 0.05 s")
    assert gate.cancelled.get_nowait() == "r1"


async def test_the_deadline_counts_while_waiting_for_a_turn() -> None:
    gate, caller = Gate(), Caller()
    provider = Provider([tool("t", gate.handle)], max_concurrent=1)
    provider.accept(invocation("t", id_="1"), caller)
    provider.accept(invocation("t", id_="2", timeout=0.05), caller)
    id_, _, message = await caller.outcome()
    assert (id_, message) == (b"2", "t did not finish within 0.05 s")
    assert gate.started.qsize() == 1
    gate.open.set()
    assert await caller.outcome() == (b"1", "through")


async def test_calls_beyond_the_limits_wait_in_order_and_are_then_refused() -> None:
    gate, caller = Gate(), Caller()
    provider = Provider([tool("t", gate.handle)], max_concurrent=4, max_queued=12)
    for number in range(7):
        provider.accept(invocation("t", id_=str(number)), caller)
    refused = [await caller.outcome() for _ in range(2)]
    assert [(id_, "busy" in text) for id_, _, text in refused] == [(b"5", True), (b"6", True)]
    assert provider.waiting == 3
    async with asyncio.timeout(PATIENCE):
        assert [await gate.started.get() for _ in range(2)] == ["r0", "r1"]
    gate.open.set()
    answered = [await caller.outcome() for _ in range(5)]
    assert [id_ for id_, _ in answered] == [b"0", b"1", b"2", b"3", b"4"]
    assert gate.most == 2


async def test_a_call_can_be_cancelled() -> None:
    gate, caller = Gate(), Caller()
    provider = Provider([tool("t", gate.handle)])
    provider.accept(invocation("t"), caller)
    async with asyncio.timeout(PATIENCE):
        await gate.started.get()
    provider.cancel("unknown")
    provider.cancel("r1")
    assert await caller.outcome() == (b"1", -32000, "the call of t was cancelled")
    await provider.drain(0)
    assert len(provider) == 0


@pytest.mark.parametrize(
    ("end", "abandoned"),
    [
        (lambda provider: provider.cancel("r1"), False),
        (lambda provider: provider.cancel("r1", abandoned=True), True),
        (lambda provider: provider.cancel_all(), True),
    ],
    ids=["given up", "caller lost", "session lost"],
)
async def test_a_handler_can_tell_a_caller_who_gave_up_from_one_who_is_lost(
    end: Callable[[Provider], None], abandoned: bool
) -> None:
    started = asyncio.Event()
    told: list[bool] = []

    async def handle(_input: Any, call: Call) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            told.append(call.abandoned)

    provider = Provider([tool("t", handle)])
    provider.accept(invocation("t"), Caller())
    async with asyncio.timeout(PATIENCE):
        await started.wait()
        end(provider)
        await provider.drain(PATIENCE)
    assert told == [abandoned]


async def test_draining_waits_then_cancels_then_leaves_behind() -> None:
    gate, caller = Gate(), Caller()
    stubborn_started, release = asyncio.Event(), asyncio.Event()

    async def stubborn(_input: Any, _call: Any) -> Any:
        stubborn_started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "at last"

    provider = Provider([tool("t", gate.handle), tool("s", stubborn)])
    provider.accept(invocation("t", id_="1"), caller)
    provider.accept(invocation("s", id_="2"), caller)
    async with asyncio.timeout(PATIENCE):
        await gate.started.get()
        await stubborn_started.wait()
        await provider.drain(0.05)
    assert await caller.outcome() == (b"1", -32000, "the call of t was cancelled")
    provider.accept(invocation("t", id_="3"), caller)
    assert await caller.outcome() == (b"3", -32000, "the provider is shutting down")
    release.set()
    assert await caller.outcome() == (b"2", "at last")


async def test_replacing_the_tools_leaves_running_calls_alone() -> None:
    gate, caller = Gate(), Caller()
    provider = Provider([tool("t", gate.handle)])
    provider.accept(invocation("t"), caller)
    async with asyncio.timeout(PATIENCE):
        await gate.started.get()
    with pytest.raises(ValueError, match="share a name"):
        provider.replace([tool("u", _fail), tool("u", _fail)])
    provider.replace([])
    gate.open.set()
    assert await caller.outcome() == (b"1", "through")
    provider.accept(invocation("t"), caller)
    assert (await caller.outcome())[1] == -32601


async def test_the_handler_works_under_the_id_that_came_or_under_that_of_the_request() -> None:
    async def look(_input: Any, _call: Any) -> Any:
        return call_id()

    caller, provider = Caller(), Provider([tool("t", look)])
    for hints in ({"callId": "a"}, {"callId": "a\nb"}, {}):
        provider.accept(invocation("t", {"_kadi": hints}, id_="long-enough"), caller)
    told = [(await caller.outcome())[1] for _ in range(3)]
    assert told == ["a", "rlong-enough", "rlong-enough"]


class _Unusual(Exception):
    """Says what was searched for."""


async def test_each_call_is_observed_when_it_has_ended() -> None:
    seen: asyncio.Queue[tuple[str, str, float]] = asyncio.Queue()
    gate = Gate()

    async def answer(tool_input: dict[str, Any], _call: Any) -> Any:
        if tool_input.get("raise"):
            raise _Unusual("bread")
        return tool_input.get("answer")

    provider = Provider(
        [tool("t", answer), tool("slow", gate.handle)],
        observe=lambda *ended: seen.put_nowait(ended),
    )
    for name, tool_input, outcome in (
        ("t", {}, "ok"),
        ("t", {"answer": {"success": True, "code": "x"}}, "ok"),
        ("t", {"answer": {"success": False, "code": "busy"}}, "busy"),
        ("t", {"answer": {"success": False, "code": "Bread and\nbutter"}}, "failed"),
        ("t", {"answer": {"success": False, "code": 7}}, "failed"),
        ("t", {"answer": "x" * 1001}, "failed"),
        ("t", {"raise": True}, "failed"),
        ("t", [1], "failed"),
        ("bread\n", {}, "failed"),
    ):
        provider.accept(invocation(name, tool_input), Caller())
        async with asyncio.timeout(PATIENCE):
            observed, what, seconds = await seen.get()
        assert (observed, what) == (name if name == "t" else "unknown tool", outcome), tool_input
        assert seconds >= 0
    provider.accept(invocation("slow"), Caller())
    await gate.started.get()
    provider.cancel("r1")
    async with asyncio.timeout(PATIENCE):
        assert (await seen.get())[:2] == ("slow", "cancelled")


async def test_a_line_for_each_call_tells_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="kadi_client.provider")
    caller = Caller()
    provider = Provider([tool("t", _fail)])
    provider.accept(invocation("t", {"q": "bread"}), caller)
    await caller.outcome()
    await provider.drain(PATIENCE)
    assert "t: failed in" in caplog.text
    assert "bread" not in caplog.text


MCP = Origin("mcp")


@pytest.mark.parametrize(
    ("result", "text", "failed"),
    [
        ({"a": 1}, '{"a":1}', False),
        (Raw(b'{"a":1.50}'), '{"a":1.50}', False),
        ({"success": False, "error": "no"}, '{"success":false,"error":"no"}', True),
        (None, "null", False),
        ("text", '"text"', False),
    ],
)
async def test_an_mcp_caller_gets_a_call_result(result: Any, text: str, failed: bool) -> None:
    async def answer(_input: Any, _call: Call) -> Any:
        return result

    caller = Caller()
    Provider([tool("t", answer)]).accept(structs.replace(invocation("t", {}), origin=MCP), caller)
    _, shaped = await caller.outcome()
    assert shaped == {"content": [{"type": "text", "text": text}], "isError": failed}


@pytest.mark.parametrize(
    "result",
    [
        {"content": [{"type": "text", "text": "done"}]},
        {"content": [{"type": "image", "data": "", "mimeType": "image/png"}], "isError": False},
        {"content": [{"type": "resource", "resource": {}}, {"type": "resource_link", "uri": "u"}]},
        {"structuredContent": {}, "content": []},
    ],
)
async def test_a_call_result_goes_to_an_mcp_caller_as_it_is(result: Any) -> None:
    async def answer(_input: Any, _call: Call) -> Any:
        return result

    caller = Caller()
    Provider([tool("t", answer)]).accept(structs.replace(invocation("t", {}), origin=MCP), caller)
    assert (await caller.outcome())[1] == result


@pytest.mark.parametrize(
    "content", ["text", [], [5], [{"type": "text"}], [{"type": ["text"], "text": ""}], [{}]]
)
async def test_other_content_is_wrapped_for_an_mcp_caller(content: Any) -> None:
    async def answer(_input: Any, _call: Call) -> Any:
        return {"content": content}

    caller = Caller()
    Provider([tool("t", answer)]).accept(structs.replace(invocation("t", {}), origin=MCP), caller)
    (block,) = (await caller.outcome())[1]["content"]
    assert block["text"] == encode({"content": content}).decode()


@pytest.mark.parametrize(("failing", "structured"), [(False, {"a": 1}), (True, None)])
async def test_a_tool_with_an_output_schema_answers_structured_content(
    failing: bool, structured: Any
) -> None:
    async def answer(_input: Any, _call: Call) -> Any:
        return {"success": False} if failing else {"a": 1}

    caller = Caller()
    offered = Tool("t", "", {}, answer, {"type": "object"})
    Provider([offered]).accept(structs.replace(invocation("t", {}), origin=MCP), caller)
    assert (await caller.outcome())[1].get("structuredContent") == structured


@pytest.mark.parametrize(
    ("handler", "text"), [(_fail, "no such row"), (_large, "too large"), (_not_json, "not JSON")]
)
async def test_an_mcp_caller_gets_a_failure_as_a_call_result(handler: Any, text: str) -> None:
    caller = Caller()
    Provider([tool("t", handler)]).accept(structs.replace(invocation("t", {}), origin=MCP), caller)
    _, shaped = await caller.outcome()
    assert shaped["isError"] is True
    assert text in shaped["content"][0]["text"]


async def test_a_failure_too_large_for_a_call_result_is_an_error() -> None:
    async def fail(_input: Any, _call: Call) -> Any:
        raise ValueError("x" * 5000)

    caller = Caller()
    Provider([tool("t", fail)]).accept(structs.replace(invocation("t", {}), origin=MCP), caller)
    assert (await caller.outcome())[1] == -32000


async def test_an_input_of_too_many_values_is_refused_unread() -> None:
    async def echo(tool_input: dict[str, Any], call: Call) -> Any:
        return len(tool_input["a"])

    provider = Provider([replace(tool("echo", echo), max_values=10)])
    caller = Caller()
    provider.accept(invocation("echo", {"a": [{}] * 8}), caller)
    assert await caller.outcome() == (b"1", 8)
    provider.accept(invocation("echo", {"a": [{}] * 10}), caller)
    assert "more than 10 objects" in (await caller.outcome())[2]


async def test_further_calls_are_made_on_behalf_of_the_agent_that_the_broker_names() -> None:
    key = Identity.generate()
    passed_on: list[tuple[str | None, dict[str, str]]] = []

    async def handle(_input: Any, call: Call) -> None:
        passed_on.append((call.origin.on_behalf_of, current()))

    caller = Caller()
    provider = Provider([tool("t", handle)])
    claimed = {"onBehalfOf": "another", "callId": "call-1"}
    params = {"toolName": "t", "toolInput": {}, "requestId": "r1"}
    for meta in (claimed, {**claimed, "kadi_caller": {"publicKey": key.public_key}}):
        frame = decode_frame(request(1, "kadi.ability.request", {**params, "_meta": meta}))
        provider.accept(read_invocation(frame), caller)
        await caller.outcome()
    assert passed_on == [
        ("another", {"callId": "call-1"}),
        ("another", {"callId": "call-1", "onBehalfOf": key.agent_id}),
    ]
