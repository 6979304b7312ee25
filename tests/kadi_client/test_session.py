from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from kadi_client.errors import (
    AuthenticationError,
    FrameTooLarge,
    KadiError,
    ProtocolError,
    RemoteError,
)
from kadi_client.identity import Identity, verify
from kadi_client.messages import Raw, decode
from kadi_client.params import CALLER_LOST, CancelParams, Invocation
from kadi_client.session import Session
from kadi_client.sockets import ClientSocket
from kadi_client.subscriptions import Event
from kadi_client.tools import Origin, Tool

IDENTITY = Identity.generate()
NOW = 0.0
PENDING = "pending"


async def _echo(tool_input: dict[str, Any], _call: Any) -> Any:
    return tool_input


ECHO = Tool("echo", "Says it again", {"type": "object"}, _echo, {"type": "object"})


class Socket:
    """Keeps the frames that are sent."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []

    def send_at_once(self, next_frame: Callable[[], bytes | None]) -> None:
        while (frame := next_frame()) is not None:
            self.frames.append(frame)


def new(**options: Any) -> Session:
    return Session(cast(ClientSocket, Socket()), IDENTITY, **options)


def sent(session: Session) -> list[dict[str, Any]]:
    socket = cast(Socket, session.socket)
    frames, socket.frames = socket.frames, []
    return [json.loads(frame) for frame in frames]


def give(session: Session, frame: Any, now: float = NOW) -> Any:
    return session.receive(json.dumps(frame), now)


def answer(session: Session, key: Any, result: Any, now: float = NOW) -> None:
    assert give(session, {"jsonrpc": "2.0", "id": key, "result": result}, now) is None


def outcome(session: Session, request_id: Any, now: float = NOW, **rest: Any) -> None:
    params = {"requestId": request_id, **rest}
    assert give(session, {"method": "kadi.ability.response", "params": params}, now) is None


async def result_of(session: Session, key: int) -> Any:
    """The answer to a request, or ``PENDING``."""
    waiting = asyncio.create_task(session.answer_to(key))
    await asyncio.sleep(0)
    if waiting.done():
        return decode(waiting.result())
    await abandon(waiting)
    return PENDING


async def abandon(waiting: asyncio.Task[Any]) -> None:
    waiting.cancel()
    await asyncio.wait([waiting])


async def error_of(session: Session, key: int) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await result_of(session, key)
    return caught.value


async def shake(session: Session, *replies: Any, tools: Any = (), now: float = NOW) -> list[Any]:
    """Answer the requests of a handshake one after the other, and return them."""
    handshake = asyncio.create_task(session.shake_hands(tools))
    requests = []
    for key, reply in enumerate(replies, start=1):
        await asyncio.sleep(0)
        requests += sent(session)
        give(session, {"id": key, **reply}, now)
    await handshake
    return requests


HELLO = {"result": {"nonce": "n"}}
KNOWN = {"result": {"agentId": "a"}}
REGISTERED = {"result": {"status": "registered"}}


async def ready(*, hello: dict[str, Any] | None = None, **options: Any) -> Session:
    session = new(**options)
    interval = {"nonce": "n", "heartbeatInterval": 30, **(hello or {})}
    await shake(session, {"result": interval}, KNOWN, REGISTERED)
    assert session.ready
    assert session.agent_id == "a"
    return session


async def test_an_ability_says_hello_authenticates_and_registers() -> None:
    session = new(role="ability", name="search", version="1", networks=["n1"])
    hello, authenticate, register = await shake(
        session,
        {"result": {"nonce": "bm9uY2U", "requiredSteps": []}},
        {"result": {"agentId": "0123456789abcdef"}},
        REGISTERED,
        tools=[ECHO],
    )
    assert hello == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "kadi.session.hello",
        "params": {"role": "ability", "networks": ["n1"], "name": "search", "version": "1"},
    }
    params = authenticate["params"]
    assert authenticate["method"] == "kadi.session.authenticate"
    assert params["nonce"] == "bm9uY2U"
    verify(params["publicKey"], params["signature"], "bm9uY2U")
    assert register["method"] == "kadi.agent.register"
    assert register["params"] == {
        "tools": [
            {
                "name": "echo",
                "description": "Says it again",
                "inputSchema": {"type": "object"},
                "outputSchema": {"type": "object"},
            }
        ],
        "networks": ["n1"],
        "displayName": "search",
    }
    assert session.ready
    assert session.agent_id == "0123456789abcdef"


async def test_an_agent_without_tools_registers_and_survives_a_refusal() -> None:
    session = new(networks=["n1"])
    error = {"error": {"code": -32602, "message": "no tools"}}
    *_, register = await shake(session, HELLO, KNOWN, error)
    assert register["params"] == {"tools": [], "networks": ["n1"]}
    assert session.ready


async def test_a_broker_that_names_no_agent_id_is_taken_to_derive_it() -> None:
    session = new()
    await shake(session, HELLO, {"result": {}}, {"result": {}})
    assert session.agent_id == IDENTITY.agent_id


@pytest.mark.parametrize("dropped", [["dark"], [], None, "dark", 5])
async def test_networks_that_the_broker_drops_are_named_in_the_log(
    dropped: Any, caplog: pytest.LogCaptureFixture
) -> None:
    registered = {"status": "registered", "droppedNetworks": dropped}
    await shake(new(), HELLO, KNOWN, {"result": registered}, tools=[ECHO])
    assert caplog.text.count("join dark") == (1 if dropped == ["dark"] else 0)


def test_a_tool_names_the_networks_it_is_offered_on() -> None:
    registration = new().registration([Tool("t", "", {}, _echo, networks=("n1",)), ECHO])
    assert [tool.get("networks") for tool in registration["tools"]] == [["n1"], None]


@pytest.mark.parametrize(
    ("replies", "kind", "text"),
    [
        ([{"error": "closed for today"}], RemoteError, "closed for today"),
        ([{"result": {"heartbeatInterval": 3}}], ProtocolError, "nonce"),
        ([{"result": "hi"}], ProtocolError, "invalid params"),
        ([{"result": {"nonce": "n"}}, {"error": {"message": "who?"}}], AuthenticationError, "who"),
        ([{"result": {"nonce": "n"}}, {"result": {"agentId": 5}}], ProtocolError, "agentId"),
        (
            [{"result": {"nonce": "n"}}, {"result": {}}, {"error": "tool taken"}],
            RemoteError,
            "tool taken",
        ),
    ],
)
async def test_a_failed_handshake_is_refused_with_its_reason(
    replies: list[dict[str, Any]], kind: type[Exception], text: str
) -> None:
    session = new()
    with pytest.raises(KadiError, match=text) as caught:
        await shake(session, *replies, tools=[ECHO])
    assert type(caught.value) is kind
    assert not session.ready


async def test_tools_too_large_to_register_refuse_the_handshake() -> None:
    with pytest.raises(FrameTooLarge):
        await shake(
            new(max_message_bytes=2000), HELLO, KNOWN, tools=[Tool("t", "x" * 5000, {}, _echo)]
        )


async def test_a_call_is_acknowledged_then_answered() -> None:
    session = await ready()
    key = session.invoke("t", {"x": 1}, timeout=2.5, context={"callId": "c"})
    (frame,) = sent(session)
    chosen = frame["params"]["requestId"]
    assert frame["params"] == {
        "toolName": "t",
        "toolInput": {"x": 1},
        "requestId": str(uuid.UUID(chosen)),
        "timeout": 2500,
    }
    answer(session, key, {"status": "pending", "requestId": chosen})
    outcome(session, chosen, result={"ok": True})
    assert await result_of(session, key) == {"ok": True}
    outcome(session, chosen, result=1)


async def test_an_answer_under_our_own_id_may_overtake_its_acknowledgement() -> None:
    session = await ready()
    key = session.invoke("t", {})
    (frame,) = sent(session)
    chosen = frame["params"]["requestId"]
    outcome(session, chosen, result=1)
    answer(session, key, {"status": "pending", "requestId": chosen})
    outcome(session, chosen, result=2)
    assert await result_of(session, key) == 1


async def test_a_broker_may_acknowledge_a_call_under_an_id_of_its_own() -> None:
    session = await ready()
    key = session.invoke("t", {})
    (frame,) = sent(session)
    answer(session, key, {"status": "pending", "requestId": "r"})
    outcome(session, frame["params"]["requestId"], result=1)
    outcome(session, "r", result=2)
    assert await result_of(session, key) == 2


@pytest.mark.parametrize(
    "tool_input",
    [{"x": 1}, Raw(b'{"x":1}'), {"x": 1, "_kadi": {"callId": "c"}}, {"_kadi": 5, "x": 1}],
)
async def test_a_call_names_the_agent_that_must_serve_it(tool_input: Any) -> None:
    session = await ready()
    session.invoke("t", tool_input, target_agent="b")
    (frame,) = sent(session)
    assert frame["params"]["toolInput"].pop("_kadi")["requireAgent"] == "b"
    assert frame["params"]["toolInput"] == {"x": 1}


async def test_only_an_object_can_name_the_agent_that_must_serve_it() -> None:
    session = await ready()
    with pytest.raises(TypeError, match="must be an object"):
        session.invoke("t", [1], target_agent="b")
    assert not sent(session)


async def test_an_answer_that_overtakes_its_acknowledgement_is_kept() -> None:
    session = await ready()
    key = session.invoke("t", {})
    outcome(session, 77, error="too bad")
    answer(session, key, {"status": "pending", "requestId": 77})
    error = await error_of(session, key)
    assert (str(error), error.code) == ("too bad", -32000)


async def test_answers_nobody_can_claim_are_not_kept() -> None:
    session = await ready()
    outcome(session, "r", result=1)
    key = session.invoke("t", {})
    answer(session, key, {"status": "pending", "requestId": "r"})
    assert await result_of(session, key) == PENDING


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("acknowledged", ["r", None])
async def test_abandoning_a_call_cancels_it(direct: bool, acknowledged: str | None) -> None:
    session = await ready(hello={"directReplies": direct})
    key, other = session.invoke("t", {}), session.request("kadi.event.publish", {})
    (call, _) = sent(session)
    expected = call["params"]["requestId"]
    if acknowledged is not None and not direct:
        answer(session, key, {"status": "pending", "requestId": acknowledged})
        expected = acknowledged
    for each in (key, other):
        assert await result_of(session, each) == PENDING
    (told,) = sent(session)
    assert (told["method"], told["params"]) == ("kadi.ability.cancel", {"requestId": expected})
    answer(session, key, 1)
    outcome(session, expected, result=1)


LOOKALIKE = {"status": "pending", "requestId": "r"}


@pytest.mark.parametrize("result", [LOOKALIKE, {"requestId": 1}, None, "done"])
async def test_a_direct_call_is_answered_once_whatever_the_answer_looks_like(result: Any) -> None:
    session = await ready(hello={"directReplies": True})
    key = session.invoke("t", {"x": 1}, context={"callId": "c"})
    (frame,) = sent(session)
    assert frame["params"].pop("requestId")
    assert frame["params"] == {
        "toolName": "t",
        "toolInput": {"x": 1},
        "directReply": True,
        "_meta": {"callId": "c"},
    }
    outcome(session, "r", result="not asked for")
    answer(session, key, result)
    assert await result_of(session, key) == result
    assert not sent(session)


async def test_a_direct_call_fails_with_the_error_of_its_answer() -> None:
    session = await ready(hello={"directReplies": True})
    key = session.invoke("t", {})
    give(session, {"id": key, "error": {"code": -32000, "message": "no such row"}})
    assert str(await error_of(session, key)) == "no such row"


@pytest.mark.parametrize("announced", [None, False, "true", 1, {}])
async def test_direct_replies_that_are_not_announced_are_not_asked_for(announced: Any) -> None:
    session = await ready(hello={"directReplies": announced})
    key = session.invoke("t", {})
    (frame,) = sent(session)
    assert "directReply" not in frame["params"]
    answer(session, key, LOOKALIKE)
    outcome(session, "r", result=1)
    assert await result_of(session, key) == 1


@pytest.mark.parametrize(
    "result",
    [
        {"success": True},
        {"requestId": "x", "status": "completed"},
        {"requestId": {}},
        [1],
        "done",
        None,
    ],
)
async def test_a_result_that_is_not_an_acknowledgement_is_final(result: Any) -> None:
    session = await ready()
    key = session.invoke("t", {})
    answer(session, key, result)
    assert await result_of(session, key) == result


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ("plain", -32000, "plain"),
        ({"code": -32601, "message": "gone"}, -32601, "gone"),
        ({"reason": 1}, -32000, '{"reason":1}'),
        (["x"], -32000, '["x"]'),
    ],
)
async def test_errors_are_read_from_either_path(error: Any, code: int, text: str) -> None:
    session = await ready()
    direct, told = session.invoke("t", {}), session.invoke("t", {})
    answer(session, told, {"status": "pending", "requestId": "r"})
    give(session, {"id": direct, "error": error})
    outcome(session, "r", error=error)
    for key in (direct, told):
        failure = await error_of(session, key)
        assert (failure.code, str(failure)) == (code, text)


async def test_an_error_that_cannot_be_read_is_still_an_error() -> None:
    session = await ready()
    key = session.request("m", {})
    session.receive(b'{"id":%d,"error":1e999}' % key, 0.0)
    assert "is not valid JSON" in str(await error_of(session, key))


async def test_a_null_error_beside_a_result_is_no_error() -> None:
    session = await ready()
    key = session.request("m", {})
    give(session, {"id": key, "result": 1, "error": None})
    assert await result_of(session, key) == 1


async def test_an_id_that_comes_back_as_a_string_is_recognised() -> None:
    session = await ready()
    key = session.request("m", {})
    answer(session, str(key), 1)
    assert await result_of(session, key) == 1


@pytest.mark.parametrize("key", [99, "x", None, 1.5, {"a": 1}])
async def test_answers_to_nothing_are_ignored(key: Any) -> None:
    session = await ready()
    answer(session, key, 1)
    assert give(session, {"id": key, "error": "e"}) is None
    assert sent(session) == []


async def test_an_invocation_is_handed_on_and_its_id_echoed_verbatim() -> None:
    session = await ready()
    params = {"toolName": "t", "toolInput": {"a": [1]}, "requestId": "r", "timeout": 1500}
    event = give(session, {"id": "abc", "method": "kadi.ability.request", "params": params})
    assert isinstance(event, Invocation)
    assert (event.tool, decode(event.input), event.request_id) == ("t", {"a": [1]}, "r")
    assert event.timeout == 1.5
    assert (event.origin, event.origin.agent_id, event.context) == (Origin(), None, {})
    session.respond(event.id, {"x": 1})
    session.fail(event.id, "no")
    assert sent(session) == [
        {"jsonrpc": "2.0", "id": "abc", "result": {"x": 1}},
        {"jsonrpc": "2.0", "id": "abc", "error": {"code": -32000, "message": "no"}},
    ]


async def test_an_invocation_tells_where_it_comes_from() -> None:
    session = await ready()
    meta = {
        "callerProtocol": "mcp",
        "kadi_caller": {"sessionId": "s", "publicKey": IDENTITY.public_key},
        "network": "n",
        "callId": "c",
    }
    params = {"toolName": "t", "_meta": meta}
    event = give(session, {"id": 1, "method": "kadi.ability.request", "params": params})
    assert event.origin == Origin("mcp", "s", IDENTITY.public_key, "n")
    assert event.origin.agent_id == IDENTITY.agent_id
    assert event.context["callId"] == "c"


@pytest.mark.parametrize(
    "meta", [None, 5, [], {"kadi_caller": 5}, {"callerProtocol": 1, "network": ["n"]}]
)
async def test_an_origin_of_another_form_is_ignored(meta: Any) -> None:
    session = await ready()
    params = {"toolName": "t", "_meta": meta}
    event = give(session, {"id": 1, "method": "kadi.ability.request", "params": params})
    assert event.origin == Origin()


def test_a_key_that_is_none_gives_no_agent_id() -> None:
    assert Origin(public_key="not a key").agent_id is None


async def test_aliases_and_omissions_in_an_invocation_are_understood() -> None:
    session = await ready()
    params = {"name": "t", "arguments": {"a": 1}, "timeout": "soon"}
    event = give(session, {"id": 7, "method": "kadi.ability.request", "params": params})
    assert isinstance(event, Invocation)
    assert (event.tool, decode(event.input), event.request_id) == ("t", {"a": 1}, "7")
    assert event.timeout is None


@pytest.mark.parametrize("params", [{}, {"toolName": 5}, [], "x", {"toolName": ""}])
async def test_an_unreadable_invocation_is_answered_with_invalid_params(params: Any) -> None:
    session = await ready()
    frame = {"id": "q", "method": "kadi.ability.request", "params": params}
    assert give(session, frame) is None
    (reply,) = sent(session)
    assert (reply["id"], reply["error"]["code"]) == ("q", -32602)


async def test_pings_unknown_methods_and_garbage_are_answered() -> None:
    session = await ready()
    for method in ("kadi.session.ping", "kadi.session.heartbeat", "kadi.moon.phase"):
        assert give(session, {"id": 5, "method": method}) is None
    assert give(session, {"method": "kadi.moon.phase"}) is None
    assert session.receive(b"\xff{", 0.0) is None
    assert session.receive("[1]", 0.0) is None
    replies = sent(session)
    assert [reply.get("result") for reply in replies[:2]] == ["pong", "pong"]
    assert [reply["error"]["code"] for reply in replies[2:]] == [-32601, -32700, -32600]
    assert [reply["id"] for reply in replies[2:]] == [5, None, None]


async def test_deliveries_and_cancellations_are_handed_on() -> None:
    session = await ready()
    params = {"channel": "a.b", "data": {"x": 1}, "networkId": "n", "timestamp": 1, "source": "s"}
    event = give(session, {"method": "kadi.event.delivery", "params": params})
    assert isinstance(event, Event)
    assert (event.channel, event.data, event.network) == ("a.b", {"x": 1}, "n")
    assert (event.timestamp, event.source) == (1, "s")
    cancel = {"method": "kadi.ability.cancel", "params": {"requestId": 4}}
    assert give(session, cancel) == CancelParams(4)
    lost = {"method": cancel["method"], "params": {"requestId": "4", "reason": "caller_lost"}}
    assert give(session, lost) == CancelParams("4", CALLER_LOST)
    assert give(session, {"method": "kadi.event.delivery", "params": {}}) is None


async def test_a_frame_over_the_limit_is_refused_and_forgotten() -> None:
    session = await ready(max_message_bytes=2000)
    with pytest.raises(FrameTooLarge) as caught:
        session.invoke("t", "x" * 3000)
    assert caught.value.limit == 2000
    assert not sent(session)
    key = session.invoke("t", "x" * 100)
    answer(session, key, 1)
    assert await result_of(session, key) == 1


async def test_an_error_that_cannot_be_sent_is_dropped() -> None:
    session = await ready(max_message_bytes=2000)
    session.receive(b'{"id":"%s","method":"m"}' % (b"x" * 3000), 0.0)
    assert not sent(session)


async def test_an_error_text_of_any_size_and_content_can_be_sent() -> None:
    session = await ready()
    session.fail(None, "\ud800" + "x" * 100_000)
    (reply,) = sent(session)
    assert reply["error"]["message"].startswith("?xxx")
    assert len(reply["error"]["message"]) < 10_000


@pytest.mark.parametrize(
    ("interval", "seconds"), [(30, 30), (5000, 5), (0.5, 0.5), (0, 30), (None, 30), ("9", 30)]
)
async def test_heartbeats_come_as_often_as_the_broker_asks(interval: Any, seconds: float) -> None:
    session = new(wall_clock=lambda: 1_700_000_000.25)
    hello = {"result": {"nonce": "n", "heartbeatInterval": interval}}
    await shake(session, hello, KNOWN, REGISTERED, now=10.0)
    assert session.next_beat == pytest.approx(10 + seconds)
    assert session.tick(10 + seconds * 0.9)
    assert sent(session) == []
    assert session.tick(10 + seconds)
    (beat,) = sent(session)
    assert beat["method"] == "kadi.session.heartbeat"
    assert beat["params"] == {"timestamp": 1_700_000_000_250}
    assert session.next_beat == pytest.approx(10 + 2 * seconds)
    assert not session.tick(10 + seconds * 3.1)


async def test_hearing_anything_keeps_the_session_alive() -> None:
    session = await ready()
    give(session, {"method": "whatever"}, now=80.0)
    assert session.tick(100.0)
    assert not session.tick(171.0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
METHODS = st.sampled_from(
    [
        "kadi.ability.request",
        "kadi.ability.response",
        "kadi.ability.cancel",
        "kadi.event.delivery",
        "kadi.session.ping",
        "other",
    ]
)
FIELDS = [
    *("requestId", "result", "error", "toolName", "toolInput", "timeout"),
    *("channel", "data", "networkId", "nonce", "agentId", "directReplies"),
]
PARAMS = JSON | st.fixed_dictionaries({}, optional=dict.fromkeys(FIELDS, JSON))
FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(0, 6) | JSON,
        "method": METHODS | JSON,
        "params": PARAMS,
        "result": JSON
        | st.fixed_dictionaries(
            {"requestId": st.integers(0, 3), "nonce": JSON | st.text()},
            optional={"directReplies": st.booleans()},
        ),
        "error": JSON,
        "jsonrpc": JSON,
    },
)


@settings(max_examples=examples(300))
@given(st.lists(FRAMES.map(json.dumps) | st.text() | st.binary() | JSON.map(json.dumps)))
def test_no_frame_whatever_makes_the_session_raise(frames: list[str | bytes]) -> None:
    asyncio.run(receive_all(frames))


async def receive_all(frames: list[str | bytes]) -> None:
    session = new()
    handshake = asyncio.create_task(session.shake_hands([ECHO]))
    for number, text in enumerate(frames):
        await asyncio.sleep(0)
        session.receive(text, float(number))
        if session.ready:
            assert await result_of(session, session.invoke("t", {})) == PENDING
            session.invoke("t", {})
    await abandon(handshake)
    if not handshake.cancelled():
        assert handshake.exception() is None or isinstance(handshake.exception(), KadiError)
    assert all(frame["jsonrpc"] == "2.0" for frame in sent(session))
