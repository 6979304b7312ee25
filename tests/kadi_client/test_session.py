from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from kadi_client.errors import AuthenticationError, FrameTooLarge, ProtocolError, RemoteError
from kadi_client.identity import Identity, verify
from kadi_client.messages import Raw, decode
from kadi_client.params import Invocation
from kadi_client.session import Phase, Session
from kadi_client.session_events import Answered, CancelRequested, Delivered, Failed, Ready, Refused
from kadi_client.tools import Origin, Tool

IDENTITY = Identity.generate()


async def _echo(tool_input: dict[str, Any], _call: Any) -> Any:
    return tool_input


ECHO = Tool("echo", "Says it again", {"type": "object"}, _echo, {"type": "object"})


def sent(session: Session) -> list[dict[str, Any]]:
    frames = []
    while (frame := session.next_to_send()) is not None:
        frames.append(json.loads(frame))
    return frames


def give(session: Session, frame: Any, now: float = 0.0) -> Any:
    return session.receive(json.dumps(frame), now)


def answer(session: Session, key: Any, result: Any, now: float = 0.0) -> Any:
    return give(session, {"jsonrpc": "2.0", "id": key, "result": result}, now)


def outcome(session: Session, request_id: Any, now: float = 0.0, **rest: Any) -> Any:
    params = {"requestId": request_id, **rest}
    return give(session, {"method": "kadi.ability.response", "params": params}, now)


def ready(*, hello: dict[str, Any] | None = None, **options: Any) -> Session:
    session = Session(IDENTITY, **options)
    session.start()
    assert sent(session)[0]["method"] == "kadi.session.hello"
    answer(session, 1, {"nonce": "n", "heartbeatInterval": 30, **(hello or {})})
    sent(session)
    assert answer(session, 2, {"agentId": "a"}) is None
    sent(session)
    assert answer(session, 3, {"status": "registered"}) == Ready("a")
    return session


def test_an_ability_says_hello_authenticates_and_registers() -> None:
    session = Session(
        IDENTITY, role="ability", name="search", version="1", networks=["n1"], tools=[ECHO]
    )
    session.start()
    (hello,) = sent(session)
    assert hello == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "kadi.session.hello",
        "params": {"role": "ability", "networks": ["n1"], "name": "search", "version": "1"},
    }
    assert answer(session, 1, {"nonce": "bm9uY2U", "requiredSteps": []}) is None
    (authenticate,) = sent(session)
    params = authenticate["params"]
    assert authenticate["method"] == "kadi.session.authenticate"
    assert params["nonce"] == "bm9uY2U"
    verify(params["publicKey"], params["signature"], "bm9uY2U")
    assert answer(session, 2, {"agentId": "0123456789abcdef"}) is None
    (register,) = sent(session)
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
    before = session.phase
    assert answer(session, 3, {"status": "registered"}) == Ready("0123456789abcdef")
    assert (before, session.phase) == (Phase.HANDSHAKE, Phase.READY)


def test_an_agent_without_tools_registers_and_survives_a_refusal() -> None:
    session = Session(IDENTITY, networks=["n1"])
    session.start()
    answer(session, 1, {"nonce": "n"})
    assert answer(session, 2, {"agentId": "a"}) is None
    register = sent(session)[-1]
    assert register["params"] == {"tools": [], "networks": ["n1"]}
    event = give(session, {"id": 3, "error": {"code": -32602, "message": "no tools"}})
    assert event == Ready("a")


def test_a_broker_that_names_no_agent_id_is_taken_to_derive_it() -> None:
    session = Session(IDENTITY)
    session.start()
    answer(session, 1, {"nonce": "n"})
    answer(session, 2, {})
    assert answer(session, 3, {}) == Ready(IDENTITY.agent_id)


@pytest.mark.parametrize("dropped", [["dark"], [], None, "dark", 5])
def test_networks_that_the_broker_drops_are_named_in_the_log(
    dropped: Any, caplog: pytest.LogCaptureFixture
) -> None:
    session = Session(IDENTITY, tools=[ECHO])
    session.start()
    answer(session, 1, {"nonce": "n"})
    answer(session, 2, {"agentId": "a"})
    registered = {"status": "registered", "droppedNetworks": dropped}
    assert answer(session, 3, registered) == Ready("a")
    key = session.register([ECHO])
    assert isinstance(answer(session, key, registered), Answered)
    assert caplog.text.count("join dark") == (2 if dropped == ["dark"] else 0)


def test_a_tool_names_the_networks_it_is_offered_on() -> None:
    session = ready()
    session.register([Tool("t", "", {}, _echo, networks=("n1",)), ECHO])
    (register,) = sent(session)
    assert [tool.get("networks") for tool in register["params"]["tools"]] == [["n1"], None]


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
def test_a_failed_handshake_is_refused_with_its_reason(
    replies: list[dict[str, Any]], kind: type[Exception], text: str
) -> None:
    session = Session(IDENTITY, tools=[ECHO])
    session.start()
    for key, reply in enumerate(replies[:-1], start=1):
        assert give(session, {"id": key, **reply}) is None
    event = give(session, {"id": len(replies), **replies[-1]})
    assert isinstance(event, Refused)
    assert type(event.error) is kind
    assert text in str(event.error)
    assert session.phase is Phase.REFUSED


def test_tools_too_large_to_register_refuse_the_handshake() -> None:
    tools = [Tool("t", "x" * 5000, {}, _echo)]
    session = Session(IDENTITY, tools=tools, max_message_bytes=2000)
    session.start()
    answer(session, 1, {"nonce": "n"})
    event = answer(session, 2, {})
    assert isinstance(event, Refused)
    assert isinstance(event.error, FrameTooLarge)


def test_a_call_is_acknowledged_then_answered() -> None:
    session = ready()
    key = session.invoke("t", {"x": 1}, timeout=2.5, context={"callId": "c"})
    (frame,) = sent(session)
    chosen = frame["params"]["requestId"]
    assert frame["params"] == {
        "toolName": "t",
        "toolInput": {"x": 1},
        "requestId": str(uuid.UUID(chosen)),
        "timeout": 2500,
    }
    assert answer(session, key, {"status": "pending", "requestId": chosen}) is None
    event = outcome(session, chosen, result={"ok": True})
    assert isinstance(event, Answered)
    assert (event.key, decode(event.result)) == (key, {"ok": True})
    assert outcome(session, chosen, result=1) is None


def test_an_answer_under_our_own_id_may_overtake_its_acknowledgement() -> None:
    session = ready()
    key = session.invoke("t", {})
    (frame,) = sent(session)
    chosen = frame["params"]["requestId"]
    event = outcome(session, chosen, result=1)
    assert isinstance(event, Answered)
    assert event.key == key
    assert answer(session, key, {"status": "pending", "requestId": chosen}) is None
    assert outcome(session, chosen, result=2) is None
    assert not session._pending


def test_a_broker_may_acknowledge_a_call_under_an_id_of_its_own() -> None:
    session = ready()
    key = session.invoke("t", {})
    (frame,) = sent(session)
    assert answer(session, key, {"status": "pending", "requestId": "r"}) is None
    assert outcome(session, frame["params"]["requestId"], result=1) is None
    event = outcome(session, "r", result=2)
    assert isinstance(event, Answered)
    assert event.key == key


@pytest.mark.parametrize(
    "tool_input",
    [{"x": 1}, Raw(b'{"x":1}'), {"x": 1, "_kadi": {"callId": "c"}}, {"_kadi": 5, "x": 1}],
)
def test_a_call_names_the_agent_that_must_serve_it(tool_input: Any) -> None:
    session = ready()
    session.invoke("t", tool_input, target_agent="b")
    (frame,) = sent(session)
    assert frame["params"]["toolInput"].pop("_kadi")["requireAgent"] == "b"
    assert frame["params"]["toolInput"] == {"x": 1}


def test_only_an_object_can_name_the_agent_that_must_serve_it() -> None:
    session = ready()
    with pytest.raises(TypeError, match="must be an object"):
        session.invoke("t", [1], target_agent="b")
    assert not session.has_output


def test_an_answer_that_overtakes_its_acknowledgement_is_kept() -> None:
    session = ready()
    key = session.invoke("t", {})
    assert outcome(session, 77, error="too bad") is None
    event = answer(session, key, {"status": "pending", "requestId": 77})
    assert isinstance(event, Failed)
    assert (event.key, str(event.error), event.error.code) == (key, "too bad", -32000)


def test_an_early_answer_expires() -> None:
    session = ready()
    key = session.invoke("t", {})
    outcome(session, "r", now=1.0, result=1)
    assert answer(session, key, {"status": "pending", "requestId": "r"}, now=100.0) is None
    assert outcome(session, "r", now=101.0, result=2) is not None


def test_answers_nobody_can_claim_are_not_kept() -> None:
    session = ready()
    outcome(session, "r", result=1)
    key = session.invoke("t", {})
    assert answer(session, key, {"status": "pending", "requestId": "r"}) is None


def test_an_abandoned_call_hears_nothing_more() -> None:
    session = ready()
    early, late = session.invoke("t", {}), session.invoke("t", {})
    answer(session, late, {"status": "pending", "requestId": "r"})
    session.abandon(early)
    session.abandon(late)
    assert answer(session, early, 1) is None
    assert outcome(session, "r", result=1) is None
    session.abandon(99)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("acknowledged", ["r", None])
def test_abandoning_a_call_cancels_it(direct: bool, acknowledged: str | None) -> None:
    session = ready(hello={"directReplies": direct})
    key, other = session.invoke("t", {}), session.request("kadi.event.publish", {})
    (call, _) = sent(session)
    expected = call["params"]["requestId"]
    if acknowledged is not None and not direct:
        answer(session, key, {"status": "pending", "requestId": acknowledged})
        expected = acknowledged
    for each in (key, key, other):
        session.abandon(each)
    (told,) = sent(session)
    assert (told["method"], told["params"]) == ("kadi.ability.cancel", {"requestId": expected})
    assert answer(session, key, 1) is None


LOOKALIKE = {"status": "pending", "requestId": "r"}


@pytest.mark.parametrize("result", [LOOKALIKE, {"requestId": 1}, None, "done"])
def test_a_direct_call_is_answered_once_whatever_the_answer_looks_like(result: Any) -> None:
    session = ready(hello={"directReplies": True})
    key = session.invoke("t", {"x": 1}, context={"callId": "c"})
    (frame,) = sent(session)
    assert frame["params"].pop("requestId")
    assert frame["params"] == {
        "toolName": "t",
        "toolInput": {"x": 1},
        "directReply": True,
        "_meta": {"callId": "c"},
    }
    assert outcome(session, "r", result="not asked for") is None
    event = answer(session, key, result)
    assert isinstance(event, Answered)
    assert (event.key, decode(event.result)) == (key, result)
    session.abandon(key)
    assert not session.has_output


def test_a_direct_call_fails_with_the_error_of_its_answer() -> None:
    session = ready(hello={"directReplies": True})
    key = session.invoke("t", {})
    event = give(session, {"id": key, "error": {"code": -32000, "message": "no such row"}})
    assert isinstance(event, Failed)
    assert (event.key, str(event.error)) == (key, "no such row")


@pytest.mark.parametrize("announced", [None, False, "true", 1, {}])
def test_direct_replies_that_are_not_announced_are_not_asked_for(announced: Any) -> None:
    session = ready(hello={"directReplies": announced})
    key = session.invoke("t", {})
    (frame,) = sent(session)
    assert "directReply" not in frame["params"]
    assert answer(session, key, LOOKALIKE) is None
    assert isinstance(outcome(session, "r", result=1), Answered)


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
def test_a_result_that_is_not_an_acknowledgement_is_final(result: Any) -> None:
    session = ready()
    key = session.invoke("t", {})
    event = answer(session, key, result)
    assert isinstance(event, Answered)
    assert decode(event.result) == result


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        ("plain", -32000, "plain"),
        ({"code": -32601, "message": "gone"}, -32601, "gone"),
        ({"reason": 1}, -32000, '{"reason":1}'),
        (["x"], -32000, '["x"]'),
    ],
)
def test_errors_are_read_from_either_path_in_any_shape(error: Any, code: int, text: str) -> None:
    session = ready()
    direct, told = session.invoke("t", {}), session.invoke("t", {})
    answer(session, told, {"status": "pending", "requestId": "r"})
    for event in (
        give(session, {"id": direct, "error": error}),
        outcome(session, "r", error=error),
    ):
        assert isinstance(event, Failed)
        assert (event.error.code, str(event.error)) == (code, text)


def test_an_error_that_cannot_be_read_is_still_an_error() -> None:
    session = ready()
    key = session.request("m", {})
    event = session.receive(b'{"id":%d,"error":1e999}' % key, 0.0)
    assert isinstance(event, Failed)
    assert "is not valid JSON" in str(event.error)


def test_a_null_error_beside_a_result_is_no_error() -> None:
    session = ready()
    key = session.request("m", {})
    assert isinstance(give(session, {"id": key, "result": 1, "error": None}), Answered)


def test_an_id_that_comes_back_as_a_string_is_recognised() -> None:
    session = ready()
    key = session.request("m", {})
    assert isinstance(answer(session, str(key), 1), Answered)


@pytest.mark.parametrize("key", [99, "x", None, 1.5, {"a": 1}])
def test_answers_to_nothing_are_ignored(key: Any) -> None:
    session = ready()
    assert answer(session, key, 1) is None
    assert give(session, {"id": key, "error": "e"}) is None
    assert sent(session) == []


def test_an_invocation_is_handed_on_and_its_id_echoed_verbatim() -> None:
    session = ready()
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


def test_an_invocation_tells_where_it_comes_from() -> None:
    session = ready()
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
def test_an_origin_of_another_form_is_ignored(meta: Any) -> None:
    session = ready()
    params = {"toolName": "t", "_meta": meta}
    event = give(session, {"id": 1, "method": "kadi.ability.request", "params": params})
    assert event.origin == Origin()


def test_a_key_that_is_none_gives_no_agent_id() -> None:
    assert Origin(public_key="not a key").agent_id is None


def test_aliases_and_omissions_in_an_invocation_are_understood() -> None:
    session = ready()
    params = {"name": "t", "arguments": {"a": 1}, "timeout": "soon"}
    event = give(session, {"id": 7, "method": "kadi.ability.request", "params": params})
    assert isinstance(event, Invocation)
    assert (event.tool, decode(event.input), event.request_id) == ("t", {"a": 1}, "7")
    assert event.timeout is None


@pytest.mark.parametrize("params", [{}, {"toolName": 5}, [], "x", {"toolName": ""}])
def test_an_unreadable_invocation_is_answered_with_invalid_params(params: Any) -> None:
    session = ready()
    frame = {"id": "q", "method": "kadi.ability.request", "params": params}
    assert give(session, frame) is None
    (reply,) = sent(session)
    assert (reply["id"], reply["error"]["code"]) == ("q", -32602)


def test_pings_unknown_methods_and_garbage_are_answered() -> None:
    session = ready()
    for method in ("kadi.session.ping", "kadi.session.heartbeat", "kadi.moon.phase"):
        assert give(session, {"id": 5, "method": method}) is None
    assert give(session, {"method": "kadi.moon.phase"}) is None
    assert session.receive(b"\xff{", 0.0) is None
    assert session.receive("[1]", 0.0) is None
    replies = sent(session)
    assert [reply.get("result") for reply in replies[:2]] == ["pong", "pong"]
    assert [reply["error"]["code"] for reply in replies[2:]] == [-32601, -32700, -32600]
    assert [reply["id"] for reply in replies[2:]] == [5, None, None]


def test_deliveries_and_cancellations_are_handed_on() -> None:
    session = ready()
    params = {"channel": "a.b", "data": {"x": 1}, "networkId": "n", "timestamp": 1, "source": "s"}
    event = give(session, {"method": "kadi.event.delivery", "params": params})
    assert isinstance(event, Delivered)
    assert (event.channel, decode(event.data), event.network) == ("a.b", {"x": 1}, "n")
    assert (event.timestamp, event.source) == (1, "s")
    cancel = {"method": "kadi.ability.cancel", "params": {"requestId": 4}}
    assert give(session, cancel) == CancelRequested("4")
    lost = {"method": cancel["method"], "params": {"requestId": "4", "reason": "caller_lost"}}
    assert give(session, lost) == CancelRequested("4", caller_lost=True)
    assert give(session, {"method": "kadi.event.delivery", "params": {}}) is None


def test_a_frame_over_the_limit_is_refused_and_forgotten() -> None:
    session = ready(max_message_bytes=2000)
    with pytest.raises(FrameTooLarge) as caught:
        session.invoke("t", "x" * 3000)
    assert caught.value.limit == 2000
    assert not session.has_output
    key = session.invoke("t", "x" * 100)
    assert isinstance(answer(session, key, 1), Answered)


def test_an_error_that_cannot_be_sent_is_dropped() -> None:
    session = ready(max_message_bytes=2000)
    session.receive(b'{"id":"%s","method":"m"}' % (b"x" * 3000), 0.0)
    assert not session.has_output


def test_an_error_text_of_any_size_and_content_can_be_sent() -> None:
    session = ready()
    session.fail(None, "\ud800" + "x" * 100_000)
    (reply,) = sent(session)
    assert reply["error"]["message"].startswith("?xxx")
    assert len(reply["error"]["message"]) < 10_000


@pytest.mark.parametrize(
    ("interval", "seconds"), [(30, 30), (5000, 5), (0.5, 0.5), (0, 30), (None, 30), ("9", 30)]
)
def test_heartbeats_are_sent_as_often_as_the_broker_asks(interval: Any, seconds: float) -> None:
    session = Session(IDENTITY, wall_clock=lambda: 1_700_000_000.25)
    session.start()
    answer(session, 1, {"nonce": "n", "heartbeatInterval": interval}, now=10.0)
    answer(session, 2, {"agentId": "a"}, now=10.0)
    answer(session, 3, {"status": "registered"}, now=10.0)
    sent(session)
    assert session.next_beat == pytest.approx(10 + seconds)
    assert session.tick(10 + seconds * 0.9)
    assert sent(session) == []
    assert session.tick(10 + seconds)
    (beat,) = sent(session)
    assert beat["method"] == "kadi.session.heartbeat"
    assert beat["params"] == {"timestamp": 1_700_000_000_250}
    assert session.next_beat == pytest.approx(10 + 2 * seconds)
    assert not session.tick(10 + seconds * 3.1)


def test_hearing_anything_keeps_the_session_alive() -> None:
    session = ready()
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
    session = Session(IDENTITY, tools=[ECHO])
    session.start()
    for number, text in enumerate(frames):
        session.receive(text, float(number))
        if session.phase is Phase.READY:
            session.abandon(session.invoke("t", {}))
            session.invoke("t", {})
    assert all(frame["jsonrpc"] == "2.0" for frame in sent(session))
