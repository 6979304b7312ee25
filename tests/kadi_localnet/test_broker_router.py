"""The routing core under a clock of the test's own; no socket, no waiting."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from kadi_client.context import LOG_FIELD
from kadi_client.identity import Identity, agent_id
from kadi_client.messages import Raw
from kadi_localnet.broker.access import Access
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.params import Hints, take_hints
from kadi_localnet.broker.router import Router
from kadi_localnet.broker.session import Refused, Session

WALL = 1_700_000_000.25


class Desk:
    """A router, its clock, and what each session was sent."""

    def __init__(self, *, access: Access | None = None, **limits: Any) -> None:
        self.router = Router(Limits(**limits), wall_clock=lambda: WALL, access=access)
        self.now = 1000.0
        self.serial = 0

    def connect(self) -> Session:
        return self.router.connect(self.now)

    def send(self, session: Session, method: str, params: Any = None, **members: Any) -> Any:
        """A request; its answer, taken out of the outbox."""
        self.serial += 1
        frame = {"id": self.serial, "method": method, "params": params, **members}
        self.router.receive(session, json.dumps(frame), self.now)
        answers = [answer for answer in read(session) if answer.get("id") == frame["id"]]
        return answers[0].get("result", answers[0].get("error")) if answers else None

    def join(self, identity: Identity | None = None, **register: Any) -> Session:
        session = self.connect()
        identity = identity or Identity.generate()
        nonce = self.send(session, "kadi.session.hello", {"role": "agent"})["nonce"]
        answer = self.send(
            session,
            "kadi.session.authenticate",
            {"publicKey": identity.public_key, "signature": identity.sign(nonce), "nonce": nonce},
        )
        assert answer == {"agentId": agent_id(identity.public_key)}
        if register:
            register["tools"] = [{"name": name} for name in register.get("tools", ())]
            assert self.send(session, "kadi.agent.register", register)["status"] == "registered"
        return session

    def call(self, session: Session, tool: str = "echo", **params: Any) -> str:
        answer = self.send(session, "kadi.ability.request", {"toolName": tool, **params})
        assert answer["status"] == "pending", answer
        request_id: str = answer["requestId"]
        return request_id

    def call_directly(self, session: Session, tool: str = "echo", **params: Any) -> str:
        """As :meth:`call`, to be answered under the id ``d``."""
        params = {"toolName": tool, "directReply": True, **params}
        assert self.send(session, "kadi.ability.request", params, id="d") is None
        request_id = next(reversed(session.calling))
        assert isinstance(request_id, str)
        return request_id

    def answer(self, provider: Session, id_: str, **members: Any) -> None:
        self.router.receive(provider, json.dumps({"id": id_, **members}), self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.router.tick(self.now)

    def stat(self, name: str) -> int:
        return self.router.stats()[name]


def read(session: Session) -> list[dict[str, Any]]:
    frames = []
    while (frame := session.outbox.pop()) is not None:
        frames.append(json.loads(frame))
    return frames


def only(session: Session) -> dict[str, Any]:
    (frame,) = read(session)
    return frame


def ending(request_id: str, **members: Any) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "kadi.ability.response",
        "params": {"requestId": request_id, **members},
    }


def cancellation(request_id: str, **why: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "method": "kadi.ability.cancel",
        "params": {"requestId": request_id, **why},
    }


# --- handshake ---------------------------------------------------------------------------------


def test_hello_tells_the_heartbeat_in_seconds() -> None:
    desk = Desk(heartbeat=20.0)
    answer = desk.send(desk.connect(), "kadi.session.hello", {})
    assert answer["heartbeatInterval"] == 20
    assert answer["requiredSteps"] == ["kadi.session.authenticate"]


@pytest.mark.parametrize(("age", "accepted"), [(59.0, True), (60.0, False)])
def test_a_nonce_expires(age: float, accepted: bool) -> None:
    desk = Desk()
    session, identity = desk.connect(), Identity.generate()
    nonce = desk.send(session, "kadi.session.hello")["nonce"]
    desk.now += age
    answer = desk.send(
        session,
        "kadi.session.authenticate",
        {"publicKey": identity.public_key, "signature": identity.sign(nonce)},
    )
    assert ("agentId" in answer) is accepted
    assert (session.closing is None) is accepted


def test_a_second_hello_voids_the_first_nonce() -> None:
    desk = Desk()
    session, identity = desk.connect(), Identity.generate()
    first = desk.send(session, "kadi.session.hello")["nonce"]
    assert desk.send(session, "kadi.session.hello")["nonce"] != first
    answer = desk.send(
        session,
        "kadi.session.authenticate",
        {"publicKey": identity.public_key, "signature": identity.sign(first), "nonce": first},
    )
    assert "nonce" in answer["message"]
    assert session.closing is not None


def test_an_identity_cannot_be_changed_on_the_way() -> None:
    desk = Desk()
    session = desk.join()
    before = session.agent_id
    assert "already authenticated" in desk.send(session, "kadi.session.hello")["message"]
    assert (session.agent_id, session.closing) == (before, None)


@pytest.mark.parametrize("method", ["kadi.agent.register", "kadi.ability.request", "no.such"])
def test_nothing_is_served_before_authentication(method: str) -> None:
    desk = Desk()
    session = desk.connect()
    assert "not authenticated" in desk.send(session, method, {})["message"]
    assert desk.send(session, "kadi.session.ping") == "pong"


def test_networks_named_at_hello_hold_without_registration() -> None:
    desk = Desk()
    provider = desk.join(tools=["echo"], networks=["private"])
    session, identity = desk.connect(), Identity.generate()
    nonce = desk.send(session, "kadi.session.hello", {"networks": ["private"]})["nonce"]
    desk.send(
        session,
        "kadi.session.authenticate",
        {"publicKey": identity.public_key, "signature": identity.sign(nonce)},
    )
    desk.call(session)
    assert only(provider)["params"]["toolName"] == "echo"


# --- liveness ----------------------------------------------------------------------------------


def test_a_silent_session_is_dropped_and_a_pinging_one_kept() -> None:
    desk = Desk()
    silent, alive = desk.join(tools=["echo"]), desk.join()
    desk.now += 60
    desk.send(alive, "kadi.session.ping")
    assert desk.router.next_tick() is not None
    desk.advance(30)
    assert silent.closing is not None
    assert "silent" in silent.closing.reason
    assert alive.closing is None
    assert (desk.stat("sessions"), desk.stat("tools"), desk.stat("silent")) == (1, 0, 1)
    desk.advance(60)
    assert alive.closing is not None


def test_a_connection_must_authenticate_in_time_even_if_it_pings() -> None:
    desk = Desk()
    session = desk.connect()
    desk.now += 59
    desk.send(session, "kadi.session.ping")
    desk.advance(1)
    assert session.closing is not None
    assert "authenticated" in session.closing.reason


def test_a_long_message_before_authentication_ends_the_session() -> None:
    desk = Desk(unauthenticated_size=1000)
    session = desk.connect()
    assert "nonce" in desk.send(session, "kadi.session.hello", {"name": "x" * 100})
    assert desk.send(session, "kadi.session.hello", {"name": "x" * 1000}) is None
    assert session.closing is not None
    assert "1000" in session.closing.reason
    long = desk.send(desk.join(), "kadi.agent.register", {"tools": [], "ignored": "x" * 1000})
    assert long["status"] == "registered"


def test_the_name_of_an_agent_has_a_limit() -> None:
    desk = Desk()
    refused = desk.send(desk.connect(), "kadi.session.hello", {"name": "x" * 257})
    assert "name has 257" in refused["message"]
    answer = desk.send(desk.join(), "kadi.agent.register", {"displayName": "x" * 257})
    assert "displayName has 257" in answer["message"]


def test_ticks_are_asked_for_when_they_are_needed() -> None:
    desk = Desk()
    assert desk.router.next_tick() is None
    desk.join(tools=["echo"])
    caller = desk.join()
    desk.call(caller, timeout=250)
    assert desk.router.next_tick() == pytest.approx(desk.now + 0.25)


def test_goodbye_is_answered_and_ends_the_session() -> None:
    desk = Desk()
    session = desk.join(tools=["echo"])
    assert desk.send(session, "kadi.session.goodbye") == {"status": "goodbye"}
    assert session.closing is not None
    assert session.closing.code == 1000
    assert desk.stat("tools") == 0


# --- calls -------------------------------------------------------------------------------------


def test_a_call_goes_to_the_provider_and_its_answer_back_untouched() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    frame = (
        '{"method":"kadi.ability.request","id":"x","params":{"toolName":"echo",'
        '"toolInput":{"big": 12345678901234567890123, "e":1.50e+2, "u":"\\u00e9"},'
        '"timeout":1500.9}}'
    )
    assert list(desk.router.receive(caller, frame, desk.now)) == [provider, caller]
    pending = only(caller)
    assert pending["id"] == "x"
    request_id = pending["result"]["requestId"]
    sent = provider.outbox.pop()
    assert sent is not None
    assert b'{"big": 12345678901234567890123, "e":1.50e+2, "u":"\\u00e9"}' in sent
    asked = json.loads(sent)
    assert isinstance(asked["id"], str)
    assert asked["params"]["requestId"] == request_id
    assert asked["params"]["timeout"] == 1500
    desk.router.receive(
        provider, f'{{"id":"{asked["id"]}","result":[1.0, {{"z":1e400}}]}}', desk.now
    )
    answer = caller.outbox.pop()
    assert answer is not None
    assert b'"result":[1.0, {"z":1e400}]' in answer
    assert (desk.stat("calls_completed"), desk.stat("outstanding_calls")) == (1, 0)
    (counts,) = desk.router.calls_by_tool().values()
    assert (counts.started, counts.completed, counts.failed) == (1, 1, 0)


@pytest.mark.parametrize("id_", ["7", '"d"', "1.50"])
@pytest.mark.parametrize(
    "answer", ['"result":{"status":"pending","requestId":"x"}', '"result":null', '"result":[1.0]']
)
def test_a_direct_call_is_answered_under_the_id_of_its_request(id_: str, answer: str) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    frame = (
        f'{{"method":"kadi.ability.request","id":{id_},'
        '"params":{"toolName":"echo","toolInput":{"a":1},"directReply":true}}'
    )
    assert desk.router.receive(caller, frame, desk.now) == {provider}
    (request_id,) = caller.calling
    asked = only(provider)
    assert asked["id"] == request_id
    assert asked["params"].keys() == {"toolName", "toolInput", "requestId", "timeout", "_meta"}
    ready = desk.router.receive(provider, f'{{"id":"{request_id}",{answer}}}', desk.now)
    assert ready == {caller}
    assert caller.outbox.pop() == f'{{"jsonrpc":"2.0","id":{id_},{answer}}}'.encode()
    assert read(caller) == []
    assert (desk.stat("calls_completed"), desk.stat("outstanding_calls")) == (1, 0)


ENDS = {
    "failed": lambda desk, provider, id_: desk.answer(provider, id_, error={"message": "broken"}),
    "timed out": lambda desk, provider, id_: desk.advance(600),
    "provider lost": lambda desk, provider, id_: desk.router.disconnect(provider),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_direct_call_fails_as_any_other(end: Any) -> None:
    def ended(start: Any) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, int]]:
        desk = Desk(silence=1000)
        provider, caller = desk.join(tools=["echo"]), desk.join()
        request_id = start(desk, caller)
        read(provider)
        end(desk, provider, request_id)
        told = only(caller)
        desk.answer(provider, request_id, result="late")
        assert read(caller) == []
        return told, [frame["method"] for frame in read(provider)], desk.router.stats()

    pending, *rest = ended(Desk.call)
    direct, *direct_rest = ended(Desk.call_directly)
    error = {"code": -32000, "message": pending["params"]["error"]}
    assert direct == {"jsonrpc": "2.0", "id": "d", "error": error}
    assert direct_rest == rest


def test_an_answer_is_direct_only_if_that_was_asked_for_and_can_be_given() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    others: list[Any] = [False, None, 1, "true", {}]
    for value in others:
        request_id = desk.call(caller, directReply=value)
        desk.answer(provider, request_id, result=value)
        assert only(caller) == ending(request_id, result=value)
    params = {"toolName": "echo", "directReply": True}
    frame = {"method": "kadi.ability.request", "params": params}
    desk.router.receive(caller, json.dumps(frame), desk.now)
    (minted,) = caller.calling
    assert isinstance(minted, str)
    desk.answer(provider, minted, result=1)
    assert only(caller) == ending(minted, result=1)
    error = desk.send(caller, "kadi.ability.request", params, id="x" * 300)
    assert (error["code"], "id has more than 256" in error["message"]) == (-32602, True)
    listed = desk.send(caller, "kadi.ability.request", {**params, "toolName": "kadi.ability.list"})
    assert [tool["name"] for tool in listed["tools"]] == ["echo"]


def test_calls_are_counted_by_tool_up_to_a_bound_of_tools() -> None:
    names = [f"tool-{number}" for number in range(600)]
    desk = Desk(tools=len(names))
    provider, caller = desk.join(tools=names), desk.join()
    for name in [*names, names[0], names[-1]]:
        desk.answer(provider, desk.call(caller, name), result=1)
        read(provider), read(caller)
    counted = desk.router.calls_by_tool()
    assert len(counted) < len(names)
    assert counted[names[0]].completed == 2
    assert counted["other"].completed == len(names) + 2 - sum(
        each.completed for name, each in counted.items() if name != "other"
    )
    assert counted["other"].completed > 2
    assert desk.stat("calls_completed") == len(names) + 2


def test_an_oversight_of_the_provider_is_an_answer_too() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    answers: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"result": None}, {"result": None}),
        ({"error": None}, {"result": None}),
        ({"result": 1, "error": None}, {"result": 1}),
        ({"error": "plain"}, {"error": "plain"}),
        ({"error": {"code": -32000, "message": "structured"}}, {"error": "structured"}),
        ({"error": {"reason": 1}}, {"error": '{"reason":1}'}),
    ]
    for members, expected in answers:
        request_id = desk.call(caller)
        desk.answer(provider, request_id, **members)
        assert only(caller) == ending(request_id, **expected)


@pytest.mark.parametrize("error", ["1e400", '{"reason":1e400}', "[123456789012345678901234567890]"])
def test_an_error_that_python_cannot_hold_still_ends_the_call(error: str) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    request_id = desk.call(caller)
    desk.router.receive(provider, f'{{"id":"{request_id}","error":{error}}}', desk.now)
    ended = only(caller)["params"]
    assert ended["requestId"] == request_id
    assert isinstance(ended["error"], str)
    desk.router.receive(provider, '{"id":1e400,"result":1}', desk.now)
    assert desk.stat("calls_discarded") == 1


def test_only_the_provider_asked_can_answer() -> None:
    desk = Desk()
    desk.join(tools=["echo"])
    caller, stranger = desk.join(), desk.join()
    request_id = desk.call(caller)
    desk.answer(stranger, request_id, result="forged")
    assert read(caller) == []
    assert (desk.stat("calls_discarded"), desk.stat("outstanding_calls")) == (1, 1)


def test_a_call_times_out_and_the_late_answer_is_discarded() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["slow"]), desk.join()
    request_id = desk.call(caller, "slow", timeout=2000)
    read(provider)
    desk.advance(1.9)
    assert read(caller) == []
    desk.advance(0.1)
    assert only(caller) == ending(request_id, error="no answer from 'slow' within 2 s")
    assert only(provider) == cancellation(request_id)
    desk.answer(provider, request_id, result="late")
    assert read(caller) == []
    assert (desk.stat("calls_timed_out"), desk.stat("calls_discarded")) == (1, 1)


@pytest.mark.parametrize(
    ("asked", "granted"), [(None, 7000), (9_000, 9_000), (1e300, 20_000), (0.5, 1)]
)
def test_the_provider_is_told_how_long_it_has(asked: float | None, granted: int) -> None:
    desk = Desk(default_timeout=7.0, max_timeout=20.0)
    provider, caller = desk.join(tools=["echo"]), desk.join()
    desk.call(caller, timeout=asked)
    assert only(provider)["params"]["timeout"] == granted


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({}, "toolName"),
        ({"toolName": ""}, "toolName"),
        ({"toolName": 7}, "toolName"),
        ({"toolName": "echo", "toolInput": [1]}, "toolInput"),
        ({"toolName": "echo", "toolInput": "text"}, "toolInput"),
        ({"toolName": "echo", "timeout": 0}, "timeout"),
        ({"toolName": "echo", "timeout": -5}, "timeout"),
        ({"toolName": "echo", "timeout": "soon"}, "timeout"),
        ({"toolName": "echo", "toolInput": {"_kadi": {"requireProvider": 3}}}, "requireProvider"),
        ({"toolName": "echo", "toolInput": {"_kadi": {"requireAgent": []}}}, "requireAgent"),
        ({"toolName": "echo", "requestId": {}}, "requestId"),
        ({"toolName": "echo", "requestId": "x" * 300}, "requestId"),
        ([1, 2], "object"),
    ],
)
def test_a_malformed_call_is_refused_by_name(params: Any, named: str) -> None:
    desk = Desk()
    desk.join(tools=["echo"])
    error = desk.send(desk.join(), "kadi.ability.request", params)
    assert error["code"] == -32602
    assert named in error["message"]
    assert desk.stat("calls_started") == 0


@pytest.mark.parametrize("hint", ["requireAgent", "requireProvider"])
@pytest.mark.parametrize("agent", ["", "*", "0" * 16])
def test_a_call_for_an_agent_that_nobody_is_reaches_nobody(hint: str, agent: str) -> None:
    desk = Desk()
    provider = desk.join(tools=["echo"])
    params = {"toolName": "echo", "toolInput": {"_kadi": {hint: agent}}}
    refused = desk.send(desk.join(), "kadi.ability.request", params)
    assert f"no provider of agent {agent!r} for tool 'echo'" in refused["message"]
    assert read(provider) == []


def test_hints_that_are_not_hints_are_passed_over() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    others: list[Any] = ["text", None, [], {}, {"requireProvider": None}]
    for value in others:
        desk.call(caller, toolInput={"_kadi": value, "q": 1})
        assert only(provider)["params"]["toolInput"] == {"q": 1}
    desk.call(caller, toolInput={"nested": {"_kadi": {"requireProvider": "nobody"}}})
    assert only(provider)["method"] == "kadi.ability.request"


@pytest.mark.parametrize("id_", ["x" * 65, "two\nlines", "", "\ud800", 7, None, [], {"a": 1}, True])
def test_an_id_that_is_none_harms_no_call(id_: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="kadi_localnet.broker")
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    for sent, written in (("call-1", "call-1"), (id_, None)):
        for tool_input in (
            {"_kadi": {"callId": sent}, "q": 1},
            {"q": 1, "_kadi": {"callId": sent}},
        ):
            request_id = desk.call(caller, toolInput=tool_input)
            desk.answer(provider, request_id, result=1)
            assert getattr(caplog.records[-1], LOG_FIELD) == (written or request_id)


strings = st.text(st.sampled_from('ab{}"\\,:é'), max_size=6)


@given(
    st.dictionaries(st.sampled_from(["requireProvider", "callId", "x", "{"]), strings),
    st.dictionaries(strings, strings | st.none()),
    st.booleans(),
)
def test_hints_are_read_wherever_they_stand(
    hints: dict[str, str], further: dict[str, Any], spaced: bool
) -> None:
    separators = (" , ", " : ") if spaced else (",", ":")
    for each in ({"_kadi": hints, **further}, {**further, "_kadi": hints}):
        raw = Raw(json.dumps(each, separators=separators).encode())
        stripped, found = take_hints(raw)
        assert json.loads(bytes(stripped)) == further
        assert found.require_provider == hints.get("requireProvider")


@pytest.mark.parametrize(
    "tool_input", [b'{"a":1.50}', b'{"a":{"_kadi":{}}}', b'{"a":"\\"_kadi\\""}']
)
def test_an_input_without_hints_is_passed_on_as_it_is(tool_input: bytes) -> None:
    raw = Raw(tool_input)
    assert take_hints(raw) == (raw, Hints())


def test_values_beside_hints_keep_their_spelling() -> None:
    stripped, _ = take_hints(Raw(b'{"a":1.50,"_kadi":{},"b":"\\u00e9"}'))
    assert bytes(stripped) == b'{"a":1.50,"b":"\\u00e9"}'


_MANY = {f"k{number}": number for number in range(10_000)}


@pytest.mark.parametrize("spaced", [False, True])
@pytest.mark.parametrize(
    "members",
    [
        [("_kadi", {"requireAgent": "a"}), *_MANY.items()],
        [*_MANY.items(), ("_kadi", {"requireAgent": "a"})],
        [("x", {"_kadi": {"requireAgent": "b"}}), *_MANY.items(), ("_kadi", {"requireAgent": "a"})],
        [("_kadi", {"requireAgent": "a"}), *_MANY.items(), ("x", {"_kadi": {}})],
    ],
)
def test_hints_of_a_large_input_are_read_first_or_last(
    members: list[tuple[str, Any]], spaced: bool
) -> None:
    separators = (" , ", " : ") if spaced else (",", ":")
    raw = Raw(json.dumps(dict(members), separators=separators).encode())
    stripped, found = take_hints(raw)
    assert json.loads(bytes(stripped)) == {k: v for k, v in members if k != "_kadi"}
    assert found.require_agent == "a"


@pytest.mark.parametrize(
    "tool_input",
    [
        {"x": 1, "_kadi": {}, **_MANY},
        {"_kadi": {}, **_MANY, "_kadi ": {}},
    ],
)
def test_hints_in_the_midst_of_a_large_input_are_refused(tool_input: dict[str, Any]) -> None:
    text = json.dumps(tool_input).replace("_kadi ", "_kadi")
    with pytest.raises(Refused, match="toolInput._kadi must be the first or the last"):
        take_hints(Raw(text.encode()))


def test_a_large_input_that_mentions_hints_is_passed_on_as_it_is() -> None:
    raw = Raw(json.dumps({"x": {"_kadi": {}}, **_MANY}).encode())
    assert take_hints(raw) == (raw, Hints())


# --- the request id of the caller ---------------------------------------------------------------


@pytest.mark.parametrize("request_id", ["3f1c", 0, 7, "é\u0000"])
@pytest.mark.parametrize("direct", [False, True])
def test_a_call_is_known_to_its_caller_under_the_id_it_chose(request_id: Any, direct: bool) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    params = {"requestId": request_id, "directReply": direct}
    pending = desk.send(caller, "kadi.ability.request", {"toolName": "echo", **params})
    assert pending == (None if direct else {"status": "pending", "requestId": request_id})
    inner = only(provider)["id"]
    assert inner != request_id
    desk.answer(provider, inner, result=1)
    if direct:
        assert only(caller)["result"] == 1
    else:
        assert only(caller) == ending(request_id, result=1)


@pytest.mark.parametrize("none", [None, ""])
def test_a_call_without_an_id_gets_one(none: Any) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    request_id = desk.call(caller, requestId=none)
    assert request_id
    assert only(provider)["id"] == request_id


def test_an_id_may_be_used_again_once_its_call_has_ended_and_by_others_at_once() -> None:
    desk = Desk()
    provider, caller, other = desk.join(tools=["echo"]), desk.join(), desk.join()
    for expected in ("first", "second"):
        desk.call(caller, requestId="r")
        error = desk.send(caller, "kadi.ability.request", {"toolName": "echo", "requestId": "r"})
        assert (error["code"], "in flight" in error["message"]) == (-32602, True)
        desk.answer(provider, only(provider)["id"], result=expected)
        assert only(caller) == ending("r", result=expected)
    desk.call(caller, requestId="r")
    desk.call(other, requestId="r")
    mine, theirs = read(provider)
    desk.answer(provider, theirs["id"], result="theirs")
    desk.answer(provider, mine["id"], result="mine")
    assert only(caller) == ending("r", result="mine")
    assert only(other) == ending("r", result="theirs")


def test_an_id_that_foresees_the_brokers_own_costs_only_its_caller() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    prefix, _, serial = desk.call(caller).rpartition("-")
    foreseen = f"{prefix}-{int(serial) + 2}"
    assert desk.call(caller, requestId=foreseen) == foreseen
    error = desk.send(caller, "kadi.ability.request", {"toolName": "echo"})
    assert "in flight" in error["message"]
    assert desk.call(caller)
    assert len(read(provider)) == 3


@pytest.mark.parametrize("direct", [False, True])
def test_a_call_is_cancelled_by_the_id_its_caller_chose(direct: bool) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    params = {"toolName": "echo", "requestId": "r", "directReply": direct}
    desk.send(caller, "kadi.ability.request", params)
    inner = only(provider)["id"]
    cancelled = {"status": "cancelled", "requestId": "r"}
    assert desk.send(caller, "kadi.ability.cancel", {"requestId": "r"}) == cancelled
    assert only(provider) == cancellation(inner)


@pytest.mark.parametrize("tool", ["kadi.ability.list", "kadi.discover"])
def test_discovery_that_is_called_with_an_id_is_answered_like_any_call(tool: str) -> None:
    desk = Desk()
    desk.join(tools=["echo"])
    caller = desk.join()
    params = {"toolName": tool, "toolInput": {"tool": "echo"}, "requestId": "r"}
    frame = {"id": 0, "method": "kadi.ability.request", "params": params}
    desk.router.receive(caller, json.dumps(frame), desk.now)
    pending, listed = read(caller)
    assert (pending["id"], pending["result"]) == (0, {"status": "pending", "requestId": "r"})
    echo = {"name": "echo", "description": "", "inputSchema": {"type": "object"}}
    assert listed == ending("r", result={"tools": [echo]})
    del params["requestId"]
    assert desk.send(caller, "kadi.ability.request", params) == {"tools": [echo]}


# --- what the provider is told of the caller ----------------------------------------------------


def test_the_provider_learns_who_calls_through_which_network() -> None:
    desk = Desk()
    identity = Identity.generate()
    provider = desk.join(tools=["echo"], networks=["x", "y", "z"])
    caller = desk.join(identity, tools=[], networks=["a", "z", "y"])
    desk.call(caller, _meta={"callerProtocol": "mcp", "network": "x", "kadi_caller": {}})
    assert only(provider)["params"]["_meta"] == {
        "callerProtocol": "kadi",
        "kadi_caller": {"sessionId": caller.id, "publicKey": identity.public_key},
        "network": "z",
    }


CONTEXT = {"callId": "call-1", "traceparent": "00-a", "tracestate": "v=1"}


@pytest.mark.parametrize(
    "params",
    [
        {"_meta": CONTEXT},
        {"toolInput": {"_kadi": CONTEXT}},
        {"_meta": CONTEXT, "toolInput": {"_kadi": {"callId": "another"}}},
        {"_meta": {"callId": "call-1"}, "toolInput": {"_kadi": CONTEXT}},
    ],
)
def test_the_context_of_a_call_reaches_its_provider(params: Any) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    desk.call(caller, **params)
    assert only(provider)["params"]["_meta"].items() >= CONTEXT.items()


def test_on_whose_behalf_a_call_is_made_reaches_its_provider() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    desk.call(caller, _meta={"onBehalfOf": "agent-1"})
    assert only(provider)["params"]["_meta"]["onBehalfOf"] == "agent-1"


@pytest.mark.parametrize("meta", [None, 5, [], "text", {"callId": None}, {"onBehalfOf": None}])
def test_a_context_of_another_form_is_ignored(meta: Any) -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    desk.call(caller, _meta=meta)
    told = only(provider)["params"]["_meta"]
    assert told.keys() == {"callerProtocol", "kadi_caller", "network"}


# --- networks -----------------------------------------------------------------------------------


def test_a_tool_is_visible_on_the_networks_it_names_only() -> None:
    desk = Desk()
    provider = desk.join(networks=["x", "y"])
    tools = [
        {"name": "narrow", "networks": ["y"]},
        {"name": "wide"},
        {"name": "all", "networks": []},
    ]
    registered = desk.send(provider, "kadi.agent.register", {"tools": tools})
    assert "droppedNetworks" not in registered
    on_x, on_y = desk.join(networks=["x"]), desk.join(networks=["y"])

    def seen(session: Session) -> list[str]:
        return [tool["name"] for tool in desk.send(session, "kadi.ability.list")["tools"]]

    assert (seen(on_x), seen(on_y)) == (["all", "wide"], ["all", "narrow", "wide"])
    assert (
        "no provider" in desk.send(on_x, "kadi.ability.request", {"toolName": "narrow"})["message"]
    )
    assert desk.call(on_y, "narrow")


def test_networks_of_a_tool_that_its_session_has_not_joined_are_dropped_by_name() -> None:
    desk = Desk()
    provider = desk.join(networks=["x"])
    tools = [{"name": "t", "networks": ["x", "far"]}, {"name": "u", "networks": ["far", "further"]}]
    registered = desk.send(provider, "kadi.agent.register", {"tools": tools})
    assert registered["droppedNetworks"] == ["far", "further"]
    caller = desk.join(networks=["x", "far"])
    listed = desk.send(caller, "kadi.ability.list", {"includeProviders": True})["tools"]
    assert [(tool["name"], tool["providers"][0]["networks"]) for tool in listed] == [("t", ["x"])]


def test_a_network_without_members_is_dropped() -> None:
    desk = Desk(access=Access(members={"dark": ()}))
    provider = desk.connect()
    identity = Identity.generate()
    nonce = desk.send(provider, "kadi.session.hello", {"networks": ["y", "dark"]})["nonce"]
    params = {"publicKey": identity.public_key, "signature": identity.sign(nonce)}
    desk.send(provider, "kadi.session.authenticate", params)
    assert provider.networks == ("y",)
    registered = desk.send(
        provider, "kadi.agent.register", {"tools": [{"name": "t"}], "networks": ["dark", "x"]}
    )
    assert (registered["networks"], registered["droppedNetworks"]) == (["x"], ["dark"])
    outsider = desk.join(networks=["dark"])
    assert outsider.networks == ()
    assert desk.send(outsider, "kadi.ability.list") == {"tools": []}
    assert desk.call(desk.join(networks=["x"]), "t")


def test_the_default_network_is_dropped_where_an_agent_is_no_member() -> None:
    desk = Desk(access=Access(members={"global": ()}))
    session = desk.join()
    registered = desk.send(session, "kadi.agent.register", {"tools": [], "networks": []})
    assert (registered["networks"], registered["droppedNetworks"]) == ([], ["global"])


# --- providers ----------------------------------------------------------------------------------


def test_the_least_busy_provider_is_asked_and_ties_go_round() -> None:
    desk = Desk()
    providers = [desk.join(tools=["echo"]) for _ in range(3)]
    caller = desk.join()
    for _ in range(6):
        desk.call(caller)
    assert [len(provider.serving) for provider in providers] == [2, 2, 2]
    for request_id in list(providers[1].serving):
        desk.answer(providers[1], request_id, result=1)
    desk.call(caller)
    desk.call(caller)
    assert [len(provider.serving) for provider in providers] == [2, 2, 2]


def test_sequential_calls_are_spread_evenly() -> None:
    desk = Desk()
    providers = [desk.join(tools=["echo"]) for _ in range(3)]
    caller = desk.join()
    served = dict.fromkeys(providers, 0)
    for _ in range(9):
        request_id = desk.call(caller)
        (provider,) = [provider for provider in providers if provider.serving]
        served[provider] += 1
        desk.answer(provider, request_id, result=1)
    assert list(served.values()) == [3, 3, 3]


def test_a_provider_may_be_named_by_agent_or_by_session() -> None:
    desk = Desk()
    desk.join(tools=["echo"])
    wanted, caller = desk.join(tools=["echo"]), desk.join()
    for name in (wanted.agent_id, wanted.id):
        desk.call(caller, targetAgent=name)
        desk.call(caller, toolInput={"_kadi": {"requireProvider": name}})
    assert len(wanted.serving) == 4
    error = desk.send(
        caller,
        "kadi.ability.request",
        {
            "toolName": "echo",
            "targetAgent": wanted.agent_id,
            "toolInput": {"_kadi": {"requireProvider": "another"}},
        },
    )
    assert "'echo'" in error["message"]
    assert "'another'" in error["message"]


def test_a_call_of_ones_own_tool_works() -> None:
    desk = Desk()
    session = desk.join(tools=["echo"])
    request_id = desk.call(session)
    desk.answer(session, request_id, result="mine")
    assert only(session) == ending(request_id, result="mine")
    desk.call(session)
    desk.router.disconnect(session)
    assert desk.stat("outstanding_calls") == 0


def test_too_many_outstanding_calls_are_refused_until_one_ends() -> None:
    desk = Desk(outstanding=2)
    provider, caller = desk.join(tools=["echo"]), desk.join()
    first = desk.call(caller)
    desk.call(caller)
    error = desk.send(caller, "kadi.ability.request", {"toolName": "echo"})
    assert "too many outstanding calls: 2" in error["message"]
    desk.answer(provider, first, result=1)
    desk.call(caller)


def test_a_provider_that_is_behind_is_spared_and_then_refused() -> None:
    desk = Desk(outbox_frames=2, outstanding=100)
    behind, other = desk.join(tools=["echo"]), desk.join(tools=["echo"])
    caller = desk.join()
    for _ in range(2):
        desk.call(caller, targetAgent=behind.agent_id)
    for _ in range(4):
        desk.call(caller)
        read(other)
    assert (len(behind.serving), len(other.serving)) == (2, 4)
    error = desk.send(
        caller, "kadi.ability.request", {"toolName": "echo", "targetAgent": behind.agent_id}
    )
    assert "are overloaded" in error["message"]
    assert behind.closing is None


def test_the_caller_may_cancel() -> None:
    desk = Desk()
    provider, caller, stranger = desk.join(tools=["echo"]), desk.join(), desk.join()
    request_id = desk.call(caller)
    read(provider)
    params = {"requestId": request_id}
    assert desk.send(stranger, "kadi.ability.cancel", params)["status"] == "unknown"
    assert desk.send(caller, "kadi.ability.cancel", params)["status"] == "cancelled"
    assert only(provider) == cancellation(request_id)
    assert desk.send(caller, "kadi.ability.cancel", params)["status"] == "unknown"
    assert desk.stat("calls_cancelled") == 1


def test_a_direct_call_is_cancelled_by_the_id_of_its_request() -> None:
    desk = Desk()
    provider, caller, stranger = desk.join(tools=["echo"]), desk.join(), desk.join()
    kept, request_id = desk.call(caller), desk.call_directly(caller)
    read(provider)
    method = "kadi.ability.cancel"
    assert desk.send(stranger, method, {"id": "d"}) == {"status": "unknown", "id": "d"}
    assert desk.send(caller, method, {"id": 1}) == {"status": "unknown", "id": 1}
    assert desk.send(caller, method, {"requestId": "no", "id": "d"})["status"] == "unknown"
    assert desk.send(caller, method, {"id": "d"}) == {"status": "cancelled", "id": "d"}
    assert only(provider) == cancellation(request_id)
    desk.answer(provider, request_id, result="late")
    assert read(caller) == []
    assert desk.send(caller, method, {"id": "d"})["status"] == "unknown"
    assert list(caller.calling) == [kept]
    assert desk.stat("calls_cancelled") == 1
    for params in ({}, {"id": None}, {"requestId": None}):
        assert "requestId" in desk.send(caller, method, params)["message"]


def test_a_frame_that_outgrows_the_limit_on_the_way_is_not_sent() -> None:
    desk = Desk(max_message_bytes=2000)
    provider, caller = desk.join(tools=["echo"]), desk.join()
    error = desk.send(
        caller, "kadi.ability.request", {"toolName": "echo", "toolInput": {"x": "y" * 1900}}
    )
    assert "2000 allowed" in error["message"]
    assert read(provider) == []
    request_id = desk.call(caller)
    desk.answer(provider, request_id, result="y" * 1930)
    error = only(caller)["params"]["error"]
    assert "'echo'" in error
    assert "2000 allowed" in error
    desk.answer(provider, desk.call_directly(caller), result="y" * 1990)
    answer = only(caller)
    assert (answer["id"], "2000 allowed" in answer["error"]["message"]) == ("d", True)
    error = desk.send(provider, "kadi.event.publish", {"channel": "c", "data": "y" * 1900})
    assert "2000 allowed" in error["message"]


# --- messages that are large without a payload --------------------------------------------------


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("kadi.agent.register", {"tools": [], "further": "x" * 3000}),
        ("kadi.event.subscribe", {"channels": [""] * 1000}),
        ("kadi.event.unsubscribe", {"channels": [""] * 1000}),
        ("kadi.discover", {"networks": [""] * 1000}),
        ("kadi.ability.request", {"toolName": "echo", "directReply": [{}] * 1000}),
        ("kadi.ability.request", {"toolName": "echo", "_meta": {"callId": [{}] * 1000}}),
        ("kadi.ability.request", {"toolName": "kadi.discover", "toolInput": {"x": "y" * 3000}}),
        ("kadi.event.publish", {"channel": "c", "further": "x" * 3000}),
    ],
)
def test_only_a_payload_may_be_large(method: str, params: Any) -> None:
    desk = Desk(control_bytes=2000)
    desk.join(tools=["echo"])
    error = desk.send(desk.join(), method, params)
    assert "2000 allowed" in error["message"]


@pytest.mark.parametrize("members", [{"id": ["x" * 3000]}, {"id": 1, "further": [{}] * 1000}])
def test_a_large_message_around_its_payload_is_refused(members: Any) -> None:
    desk = Desk(control_bytes=2000)
    session = desk.join()
    frame = {"method": "kadi.session.ping", **members}
    desk.router.receive(session, json.dumps(frame), desk.now)
    assert "2000 allowed" in only(session)["error"]["message"]


def test_payloads_may_be_large() -> None:
    desk = Desk(control_bytes=2000)
    provider, caller = desk.join(tools=["echo"], networks=["global"]), desk.join()
    request_id = desk.call(caller, toolInput={"x": "y" * 3000})
    assert only(provider)["params"]["toolInput"] == {"x": "y" * 3000}
    desk.answer(provider, request_id, result="z" * 3000)
    assert only(caller)["params"]["result"] == "z" * 3000
    published = {"channel": "c", "data": "y" * 3000}
    assert desk.send(caller, "kadi.event.publish", published) == {"status": "published"}


def test_a_large_error_ends_the_call_with_its_size() -> None:
    desk = Desk(control_bytes=2000)
    provider, caller = desk.join(tools=["echo"]), desk.join()
    desk.answer(provider, desk.call(caller), error={"message": "x" * 3000})
    assert "30" in only(caller)["params"]["error"]


# --- providers that left and come back ---------------------------------------------------------


def left(desk: Desk, *tools: str, **register: Any) -> str:
    """The agent id of a provider that has just left."""
    session = desk.join(tools=tools, **register)
    desk.router.disconnect(session)
    desk.advance(0)
    assert session.agent_id is not None
    return session.agent_id


@pytest.mark.parametrize("directly", [True, False])
def test_a_call_waits_for_its_tool_to_come_back(directly: bool) -> None:
    desk = Desk()
    left(desk, "echo", "other")
    caller = desk.join()
    call = desk.call_directly if directly else desk.call
    request_id = call(caller, toolInput={"x": 1})
    assert (read(caller), desk.stat("outstanding_calls"), desk.stat("tools")) == ([], 1, 0)
    assert desk.send(caller, "kadi.ability.list") == {"tools": []}
    other = desk.join(tools=["other"])
    assert read(other) == []
    provider = desk.join()
    answer = desk.send(provider, "kadi.agent.register", {"tools": [{"name": "echo"}]})
    assert answer["status"] == "registered"
    desk.now += 1
    assert desk.send(provider, "kadi.session.ping") == "pong"
    (call_,) = provider.serving.values()
    assert call_.id == request_id
    desk.answer(provider, request_id, result="served")
    answer = only(caller)
    assert answer.get("result", answer.get("params", {}).get("result")) == "served"
    assert desk.stat("calls_completed") == desk.stat("calls_started") == 1


def test_a_tool_that_stays_away_is_one_that_nobody_offers() -> None:
    desk = Desk()
    left(desk, "echo")
    caller = desk.join()
    desk.advance(29.9)
    request_id = desk.call(caller)
    overdue = desk.call(caller, timeout=50)
    at = desk.router.next_tick()
    assert at is not None
    desk.advance(at - desk.now)
    assert "within 0.05 s" in only(caller)["params"]["error"]
    desk.advance(0.1)
    error = "no provider for tool 'echo' on the networks searched: global"
    assert only(caller) == ending(request_id, error=error)
    refused = desk.send(caller, "kadi.ability.request", {"toolName": "echo"})
    assert refused["message"] == error
    assert (desk.stat("calls_provider_lost"), desk.stat("calls_timed_out")) == (1, 1)
    assert overdue not in caller.calling


def test_a_tool_that_its_provider_took_back_is_not_awaited() -> None:
    desk = Desk()
    session, caller = desk.join(tools=["echo"]), desk.join()
    desk.send(session, "kadi.agent.register", {"tools": []})
    refused = desk.send(caller, "kadi.ability.request", {"toolName": "echo"})
    assert "no provider" in refused["message"]


def test_a_call_waits_for_the_agent_that_it_names_unless_others_offer_the_tool() -> None:
    desk = Desk()
    agent, caller = left(desk, "echo"), desk.join()
    waiting = desk.call(caller, targetAgent=agent)
    elsewhere = desk.join(tools=["echo"], networks=["elsewhere"])
    assert (read(elsewhere), read(caller)) == ([], [])
    other = desk.join(tools=["echo"])
    assert read(other) == []
    error = f"no provider of agent {agent!r} for tool 'echo' on the networks searched: global"
    assert only(caller) == ending(waiting, error=error)
    assert (desk.stat("calls_provider_lost"), desk.stat("outstanding_calls")) == (1, 0)
    desk.call(caller)
    assert len(read(other)) == 1
    for named in (agent, "0" * 16):
        refused = desk.send(
            caller, "kadi.ability.request", {"toolName": "echo", "targetAgent": named}
        )
        assert "no provider of agent" in refused["message"]


def test_a_call_waits_in_the_networks_of_its_caller_only() -> None:
    desk = Desk()
    left(desk, "echo", networks=["x"])
    refused = desk.send(desk.join(), "kadi.ability.request", {"toolName": "echo"})
    assert "no provider" in refused["message"]
    caller = desk.join(tools=[], networks=["x", "y"])
    desk.call(caller)
    elsewhere = desk.join(tools=["echo"], networks=["y"])
    assert elsewhere.serving == {}
    assert len(desk.join(tools=["echo"], networks=["x"]).serving) == 1


def test_few_calls_wait_and_few_places_are_kept() -> None:
    desk = Desk(waiting=2, places=2)
    for tool in ("a", "b", "c"):
        left(desk, tool)
    caller = desk.join()
    desk.call(caller, "b")
    desk.call(caller, "b")
    overloaded = desk.send(caller, "kadi.ability.request", {"toolName": "b"})
    assert "try again" in overloaded["message"]
    unknown = desk.send(caller, "kadi.ability.request", {"toolName": "c"})
    assert "no provider" in unknown["message"]


class Crowd:
    """Callers and providers that come and go; each method is a step."""

    def __init__(self) -> None:
        self.desk = Desk()
        left(self.desk, "echo")
        self.providers: list[Session] = []
        self.callers = [self.desk.join() for _ in range(4)]
        self.started: set[str] = set()
        self.given_up: set[str] = set()
        self.asked: list[str] = []
        self.ended: list[str] = []

    def come(self, _number: int) -> None:
        self.providers.append(self.desk.join(tools=["echo"]))
        self.asked += self.providers[-1].serving  # read with the answer to its registration

    def leave(self, number: int) -> None:
        if self.providers:
            self.desk.router.disconnect(self.providers.pop(number % len(self.providers)))

    def answer(self, number: int) -> None:
        if self.providers:
            provider = self.providers[number % len(self.providers)]
            for request_id in list(provider.serving)[:1]:
                self.desk.answer(provider, request_id, result=1)

    def call(self, number: int) -> None:
        params = {"toolName": "echo", "timeout": 5000}
        answer = self.desk.send(self.callers[number % 4], "kadi.ability.request", params)
        if "requestId" in answer:
            self.started.add(answer["requestId"])

    def cancel(self, number: int) -> None:
        caller = self.callers[number % 4]
        for request_id in list(caller.calling)[:1]:
            self.given_up.add(str(request_id))
            self.desk.send(caller, "kadi.ability.cancel", {"requestId": request_id})

    def hang_up(self, number: int) -> None:
        caller = self.callers[number % 4]
        self.given_up |= set(map(str, caller.calling))
        self.desk.router.disconnect(caller)
        self.callers[number % 4] = self.desk.join()

    def wait(self, number: int) -> None:
        self.desk.advance(number)

    def look(self) -> None:
        """Read what all were sent."""
        for session in (*self.providers, *self.callers):
            for frame in read(session):
                if frame.get("method") == "kadi.ability.request":
                    self.asked.append(frame["id"])
                elif frame.get("method") == "kadi.ability.response":
                    self.ended.append(frame["params"]["requestId"])


@settings(max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["come", "leave", "answer", "call", "call", "cancel", "hang_up", "wait"]
            ),
            st.integers(0, 6),
        ),
        max_size=40,
    )
)
def test_a_call_is_asked_once_and_ends_once_whoever_comes_and_goes(
    steps: list[tuple[str, int]],
) -> None:
    crowd = Crowd()
    for step, number in [*steps, ("wait", 10), ("wait", 10)]:
        getattr(crowd, step)(number)
        crowd.look()
    assert len(crowd.asked) == len(set(crowd.asked))
    assert sorted(crowd.ended) == sorted(crowd.started - crowd.given_up)
    assert crowd.desk.stat("outstanding_calls") == 0
    for session in (*crowd.providers, *crowd.callers):
        crowd.desk.router.disconnect(session)
    assert crowd.desk.router.memory.used == 0


# --- memory -------------------------------------------------------------------------------------


def test_the_session_with_the_most_bytes_is_closed_when_memory_is_full() -> None:
    desk = Desk(max_message_bytes=10_000, outbox_bytes=30_000, memory_bytes=40_000)
    provider = desk.join(tools=["echo"])
    calm, greedy = desk.join(), desk.join()
    calls = [desk.call(greedy) for _ in range(3)]
    for request_id in calls:
        desk.answer(provider, request_id, result="x" * 8000)
    assert greedy.closing is None
    assert greedy.held > 24_000
    calm.buffer(19_000)
    desk.router.settle()
    assert (calm.closing, provider.closing) == (None, None)
    assert greedy.closing is not None
    assert greedy.closing.code == 1013
    assert desk.router.stats()["memory_bytes"] == sum(
        each.held for each in (calm, provider, greedy)
    )


@pytest.mark.parametrize("listed", [True, False])
def test_listed_providers_are_not_held_up_and_closed_last(listed: bool) -> None:
    part = Identity.generate()
    rules = Access(providers={"echo": {agent_id(part.public_key)}} if listed else {})
    desk = Desk(max_message_bytes=1000, outbox_bytes=3000, memory_bytes=4000, access=rules)
    provider, large, small = desk.join(part), desk.join(), desk.join()
    provider.buffer(2200)
    large.buffer(1700)
    small.buffer(200)
    assert [desk.router.may_begin(each) for each in (provider, large, small)] == [
        listed,
        False,
        True,
    ]
    desk.router.settle()
    assert (provider.closing is None, large.closing is None) == (listed, not listed)
    assert small.closing is None


@given(
    sizes=st.lists(st.integers(500, 3000), min_size=1, max_size=30),
    readers=st.lists(st.booleans(), min_size=2, max_size=6),
)
def test_memory_is_taken_from_the_events_of_those_that_do_not_read(
    sizes: list[int], readers: list[bool]
) -> None:
    desk = Desk(max_message_bytes=4000, outbox_bytes=200_000, memory_bytes=200_000)
    publisher, provider = desk.join(), desk.join(tools=["echo"])
    subscribers = [desk.join() for _ in readers]
    for each in subscribers:
        desk.send(each, "kadi.event.subscribe", {"channels": ["#"]})
        desk.call(each)
    for request in read(provider):
        desk.answer(provider, request["id"], result="kept")
    published = 0
    while desk.stat("events_dropped") == 0 and published < 150:
        size = sizes[published % len(sizes)]
        published += 1
        desk.send(publisher, "kadi.event.publish", {"channel": "c", "data": "x" * size})
        assert desk.router.memory.used <= 100_000
        for each, reads in zip(subscribers, readers, strict=True):
            if reads:
                assert len(read(each)) == (1 if published > 1 else 2)
    assert all(readers) == (desk.stat("events_dropped") == 0)
    for each, reads in zip(subscribers, readers, strict=True):
        assert each.closing is None
        assert reads or read(each)[0]["params"]["result"] == "kept"


def test_an_event_has_a_size_of_its_own() -> None:
    desk = Desk(event_bytes=1000)
    publisher, provider = desk.join(), desk.join(tools=["echo"])
    error = desk.send(publisher, "kadi.event.publish", {"channel": "c", "data": "x" * 1000})
    assert "more than the 1000 allowed for an event" in error["message"]
    desk.call(publisher, toolInput={"x": "y" * 1000})
    assert only(provider)["method"] == "kadi.ability.request"


def test_nothing_is_held_for_sessions_that_have_ended() -> None:
    desk = Desk()
    provider, caller = desk.join(tools=["echo"]), desk.join()
    desk.send(caller, "kadi.event.subscribe", {"channels": ["#"]})
    desk.call(caller, toolInput={"x": "y" * 100})
    desk.send(provider, "kadi.event.publish", {"channel": "c", "data": "y" * 100})
    caller.buffer(500)
    assert desk.router.memory.used > 500
    for each in (caller, provider):
        desk.router.disconnect(each)
    assert desk.router.memory.used == 0


# --- registration and discovery ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "named"),
    [
        ({"tools": [{"name": "a"}, {"name": "a"}]}, "tools.1.name"),
        ({"tools": [{"name": ""}]}, "tools.0.name"),
        ({"tools": [{"name": "kadi.ability.list"}]}, "reserved"),
        ({"tools": [{"description": "nameless"}]}, "name"),
        ({"tools": [{"name": "x" * 300}]}, "300 characters"),
        ({"tools": [{"name": str(n)} for n in range(4)]}, "more than the 3"),
        ({"tools": [], "networks": ["a", ""]}, "networks.1"),
        ({"tools": [], "networks": ["a", "b", "c"]}, "more than the 2"),
        ({"tools": {"name": "a"}}, "tools"),
    ],
)
def test_a_bad_registration_is_refused_and_changes_nothing(params: Any, named: str) -> None:
    desk = Desk(tools=3, networks=2)
    session = desk.join(tools=["before"], networks=["n"])
    error = desk.send(session, "kadi.agent.register", params)
    assert named in error["message"]
    assert (list(session.tools), session.networks) == (["before"], ("n",))


def test_registering_again_replaces_the_tools() -> None:
    desk = Desk()
    session = desk.join(tools=["a", "b"], networks=["n"])
    request_id = desk.call(session, "a")
    desk.send(session, "kadi.agent.register", {"tools": [{"name": "b"}, {"name": "c"}]})
    listed = desk.send(session, "kadi.ability.list")["tools"]
    assert [tool["name"] for tool in listed] == ["b", "c"]
    assert session.networks == ("n",)
    desk.answer(session, request_id, result="still awaited")
    assert only(session) == ending(request_id, result="still awaited")


def test_a_listing_has_every_member_and_shows_what_is_shared_only() -> None:
    desk = Desk()
    rich = {
        "name": "rich",
        "description": "all of it",
        "inputSchema": {"type": "object", "x": [1]},
        "outputSchema": {"type": "array"},
        "tags": ["t"],
    }
    provider = desk.join(tools=[], networks=["a", "b"])
    desk.send(
        provider, "kadi.agent.register", {"tools": [rich, {"name": "bare"}], "displayName": "P"}
    )
    desk.join(tools=["hidden"], networks=["c"])
    caller = desk.join(tools=[], networks=["b", "d"])
    bare = {"name": "bare", "description": "", "inputSchema": {"type": "object"}}
    assert desk.send(caller, "kadi.ability.list") == {"tools": [bare, rich]}
    providers = [
        {
            "sessionId": provider.id,
            "source": "kadi-agent",
            "displayName": "P",
            "agentId": provider.agent_id,
            "networks": ["b"],
        }
    ]
    found = desk.send(caller, "kadi.discover", {"tool": "bare", "includeProviders": True})
    assert found == {"tools": [{**bare, "providers": providers}]}
    assert desk.send(caller, "kadi.discover", {"tool": "hidden"}) == {"tools": []}
    assert desk.send(caller, "kadi.ability.list", {"networks": ["c", "a"]}) == {"tools": []}
    assert desk.send(caller, "kadi.ability.list", {"networks": ["b"]}) == {"tools": [bare, rich]}


# --- events ------------------------------------------------------------------------------------


def test_one_pattern_is_subscribed_and_unsubscribed() -> None:
    desk = Desk()
    publisher, receiver = desk.join(), desk.join()
    subscribed = desk.send(receiver, "kadi.event.subscribe", {"pattern": "a.*"})
    assert subscribed["status"] == "subscribed"
    desk.send(publisher, "kadi.event.publish", {"channel": "a.b", "networkId": ""})
    assert only(receiver)["params"]["channel"] == "a.b"
    desk.send(receiver, "kadi.event.unsubscribe", {"pattern": "a.*"})
    desk.send(publisher, "kadi.event.publish", {"channel": "a.b"})
    assert read(receiver) == []


def test_an_event_reaches_each_subscriber_once_with_all_its_members() -> None:
    desk = Desk()
    publisher = desk.join(tools=[], networks=["x", "y", "z"])
    receiver = desk.join(tools=[], networks=["z", "y"])
    desk.send(receiver, "kadi.event.subscribe", {"channels": ["a.*", "a.#", "a.b"]})
    desk.send(receiver, "kadi.event.subscribe", {"channels": ["#"], "networkId": "z"})
    desk.send(publisher, "kadi.event.publish", {"channel": "a.b", "data": {"n": 1}})
    assert only(receiver) == {
        "jsonrpc": "2.0",
        "method": "kadi.event.delivery",
        "params": {
            "channel": "a.b",
            "data": {"n": 1},
            "networkId": "y",
            "timestamp": round(WALL * 1000),
            "source": publisher.agent_id,
        },
    }
    desk.send(publisher, "kadi.event.publish", {"channel": "other", "networkId": "z"})
    params = only(receiver)["params"]
    assert (params["networkId"], params["data"]) == ("z", None)
    desk.send(publisher, "kadi.event.publish", {"channel": "other", "networkId": "y"})
    desk.send(publisher, "kadi.event.publish", {"channel": "a.b", "networkId": "x"})
    assert read(receiver) == []


def test_unsubscribing_names_the_pattern_and_maybe_the_network() -> None:
    desk = Desk()
    session = desk.join(tools=[], networks=["x", "y"])
    for network in ("x", "y", None):
        desk.send(session, "kadi.event.subscribe", {"channels": ["c", "d"], "networkId": network})
    assert desk.stat("subscriptions") == 6
    desk.send(session, "kadi.event.unsubscribe", {"channels": ["c"], "networkId": "x"})
    assert desk.stat("subscriptions") == 5
    desk.send(session, "kadi.event.unsubscribe", {"channels": ["c", "never"]})
    assert session.subscriptions == {("d", "x"), ("d", "y"), ("d", None)}
    desk.send(session, "kadi.event.publish", {"channel": "c"})
    assert read(session) == []


def test_a_network_that_was_left_delivers_no_more() -> None:
    desk = Desk()
    publisher, receiver = desk.join(tools=[], networks=["x"]), desk.join(tools=[], networks=["x"])
    desk.send(receiver, "kadi.event.subscribe", {"channels": ["#"], "networkId": "x"})
    desk.send(receiver, "kadi.agent.register", {"networks": ["y"]})
    desk.send(publisher, "kadi.event.publish", {"channel": "c"})
    assert read(receiver) == []


@pytest.mark.parametrize(
    ("method", "params", "named"),
    [
        ("subscribe", {"channels": ["a", ""]}, "channels.1"),
        ("subscribe", {"channels": "a"}, "channels"),
        ("subscribe", {}, "channels"),
        ("subscribe", {"pattern": ""}, "pattern"),
        ("subscribe", {"pattern": ["a"]}, "pattern"),
        ("subscribe", {"channels": ["a"], "networkId": "foreign"}, "networkId"),
        ("subscribe", {"channels": [str(n) for n in range(4)]}, "too many subscriptions: 3"),
        ("publish", {"channel": ""}, "channel"),
        ("publish", {"channel": "x" * 300}, "channel"),
        ("publish", {"channel": "c", "networkId": "foreign"}, "networkId"),
    ],
)
def test_bad_event_requests_are_refused_by_name(method: str, params: Any, named: str) -> None:
    desk = Desk(subscriptions=3)
    session = desk.join()
    assert named in desk.send(session, f"kadi.event.{method}", params)["message"]
    assert desk.stat("subscriptions") == 0


@pytest.mark.parametrize(
    ("name", "named"),
    [("a.b.c.d", "4 words"), ("...", "4 words"), ("*.#.a", "2 wildcards"), ("#.#", "2 wildcards")],
)
def test_patterns_that_cost_too_much_are_refused_by_name(name: str, named: str) -> None:
    desk = Desk(channel_words=3, wildcards=1)
    session = desk.join()
    error = desk.send(session, "kadi.event.subscribe", {"channels": ["a", name]})
    assert "channels.1" in error["message"]
    assert named in error["message"]
    published = desk.send(session, "kadi.event.publish", {"channel": name})
    assert ("message" in published) is ("words" in named)
    assert desk.stat("subscriptions") == 0


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["subscribe", "unsubscribe", "leave"]),
            st.lists(st.text("ab.*", min_size=1, max_size=5), min_size=1, max_size=4),
        ),
        max_size=25,
    )
)
def test_subscriptions_stay_within_their_memory_and_all_of_it_is_returned(
    steps: list[tuple[int, str, list[str]]],
) -> None:
    most = 30_000
    desk = Desk(memory_bytes=8 * most, max_message_bytes=1000)
    identities = [Identity.generate(), Identity.generate()]
    sessions = [desk.join(identities[number % 2]) for number in range(4)]
    for number, method, channels in steps:
        session = sessions[number]
        if method == "leave" or session.closing is not None:
            desk.router.disconnect(session)
            sessions[number] = desk.join(identities[number % 2])
        else:
            desk.send(session, f"kadi.event.{method}", {"channels": channels})
        assert sum(each.kept("subscriptions") for each in sessions) <= most
        assert desk.router.memory.used == sum(each.held for each in sessions)
    for session in sessions:
        desk.router.disconnect(session)
    assert desk.router.memory.used == 0


def test_the_session_with_most_subscriptions_gives_way_to_small_ones() -> None:
    desk = Desk(memory_bytes=8 * 20_000, max_message_bytes=1000)
    greedy, modest = desk.join(), desk.join()
    many = {"channels": [f"a.{number}" for number in range(11)]}
    assert desk.send(greedy, "kadi.event.subscribe", many)["status"] == "subscribed"
    more = {"channels": [f"b.{number}" for number in range(14)]}
    assert "memory for subscriptions" in desk.send(modest, "kadi.event.subscribe", more)["message"]
    few = {"channels": [f"b.{number}" for number in range(4)]}
    assert desk.send(modest, "kadi.event.subscribe", few)["status"] == "subscribed"
    assert greedy.closing is not None
    assert (greedy.closing.code, modest.closing) == (1013, None)


def test_a_subscriber_that_does_not_read_loses_its_oldest_events_only() -> None:
    desk = Desk(outbox_frames=3)
    publisher, slow = desk.join(), desk.join()
    desk.send(slow, "kadi.event.subscribe", {"channels": ["#"]})
    for number in range(5):
        desk.send(publisher, "kadi.event.publish", {"channel": "c", "data": number})
    assert desk.stat("events_dropped") == 2
    assert [frame["params"]["data"] for frame in read(slow)] == [2, 3, 4]
    assert slow.closing is None
    desk.router.disconnect(slow)
    assert desk.stat("events_dropped") == 2


def test_a_caller_that_does_not_read_its_replies_is_closed_with_1013() -> None:
    desk = Desk(outbox_frames=2)
    provider, caller = desk.join(tools=["echo"]), desk.join()
    request_id = desk.call(caller)
    read(provider)
    for id_ in range(3):
        frame = json.dumps({"id": id_, "method": "kadi.session.ping"})
        ready = desk.router.receive(caller, frame, desk.now)
    assert caller in ready
    assert caller.closing is not None
    assert caller.closing.code == 1013
    assert provider in ready
    assert only(provider) == cancellation(request_id, reason="caller_lost")
    assert (desk.stat("overflows"), desk.stat("sessions")) == (1, 1)
    assert desk.router.receive(caller, '{"id":9,"method":"kadi.session.ping"}', desk.now) == set()
    assert desk.router.disconnect(caller) == set()


def test_a_session_that_overflows_on_calls_of_its_own_leaves_none() -> None:
    desk = Desk(outbox_frames=1)
    session = desk.join(tools=["echo"])
    frame = '{"id":1,"method":"kadi.ability.request","params":{"toolName":"echo"}}'
    assert desk.router.receive(session, frame, desk.now) == {session}
    assert session.closing is not None
    assert session.closing.code == 1013
    assert read(session) == []
    assert (desk.stat("outstanding_calls"), desk.stat("sessions")) == (0, 0)


def test_the_first_reason_to_close_is_the_one_given() -> None:
    desk = Desk(outbox_frames=1)
    session = desk.connect()
    desk.router.receive(session, '{"id":1,"method":"kadi.session.ping"}', desk.now)
    frame = '{"id":2,"method":"kadi.session.authenticate","params":{"publicKey":"","signature":""}}'
    desk.router.receive(session, frame, desk.now)
    assert session.closing is not None
    assert session.closing.code == 1013


# --- frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("{", -32700),
        ("", -32700),
        ('{"method": "x", "params": ' + "[" * 100_000, -32700),
        (b"\xff\xfe", -32700),
        ("[]", -32600),
        ("42", -32600),
        ("{}", -32600),
        ('{"method": 5, "id": 1}', -32600),
    ],
)
def test_garbage_is_answered_and_survived(data: str | bytes, code: int) -> None:
    desk = Desk()
    session = desk.join()
    desk.router.receive(session, data, desk.now)
    answer = only(session)
    assert (answer["id"], answer["error"]["code"]) == (None, code)
    assert desk.send(session, "kadi.session.heartbeat") == "pong"


@pytest.mark.parametrize("id_", ['"abc"', "7", "0", '""', "1.50", "123456789012345678901234567890"])
def test_ids_are_echoed_byte_for_byte(id_: str) -> None:
    desk = Desk()
    session = desk.join()
    for method in ("kadi.session.ping", "no.such.method"):
        desk.router.receive(session, f'{{"id": {id_}, "method": "{method}"}}', desk.now)
        answer = session.outbox.pop()
        assert answer is not None
        assert f'"id":{id_},'.encode() in answer


def test_unknown_methods_and_notifications() -> None:
    desk = Desk()
    session = desk.join()
    error = desk.send(session, "kadi.no.such")
    assert error["code"] == -32601
    for frame in (
        '{"method": "kadi.no.such"}',
        '{"method": "kadi.session.ping", "id": null}',
        '{"method": "kadi.event.publish", "params": {"channel": ""}}',
        '{"id": null, "error": {"code": -32700, "message": "yours was garbage"}}',
        '{"id": {"not": "ours"}, "result": 1}',
    ):
        desk.router.receive(session, frame, desk.now)
    assert read(session) == []


# --- whatever comes ----------------------------------------------------------------------------

METHODS = [
    "kadi.session.hello",
    "kadi.session.authenticate",
    "kadi.session.ping",
    "kadi.agent.register",
    "kadi.ability.request",
    "kadi.ability.cancel",
    "kadi.ability.list",
    "kadi.discover",
    "kadi.event.subscribe",
    "kadi.event.unsubscribe",
    "kadi.event.publish",
    "kadi.ability.response",
    "nonsense",
]
MEMBERS = [
    "role", "networks", "publicKey", "signature", "nonce", "tools", "toolName", "name", "toolInput",
    "arguments", "targetAgent", "timeout", "requestId", "channels", "channel", "networkId", "data",
    "tool", "includeProviders", "_kadi", "requireProvider", "code", "message", "inputSchema",
    "directReply", "id",
]  # fmt: skip
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["echo", "global", "a.*", "#", "kadi.ability.list", "\ud800"]),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    ),
    max_leaves=8,
)
calls = st.fixed_dictionaries(
    {"toolName": st.just("echo")},
    optional={
        "toolInput": values,
        "timeout": st.sampled_from([1, 6000, 1e9]),
        "targetAgent": leaves,
        "directReply": st.booleans(),
    },
)
frames = st.one_of(
    st.fixed_dictionaries(
        {"method": st.just("kadi.ability.request"), "id": leaves, "params": calls}
    ),
    st.fixed_dictionaries(
        {"method": st.sampled_from(METHODS)},
        optional={
            "id": leaves,
            "jsonrpc": leaves,
            "params": st.dictionaries(st.sampled_from(MEMBERS), values, max_size=5),
        },
    ),
    st.fixed_dictionaries({"id": leaves}, optional={"result": values, "error": values}),
    st.fixed_dictionaries({"id": st.just("$request"), "error": values}),
    st.fixed_dictionaries({"id": st.just("$request")}, optional={"result": values}),
    values,
)
texts = st.one_of(
    st.builds(lambda frame, ascii_: json.dumps(frame, ensure_ascii=ascii_), frames, st.booleans()),
    st.text(max_size=20),
    st.binary(max_size=20),
)
steps = st.lists(
    st.tuples(st.integers(0, 2), texts, st.sampled_from([0.0, 0.0, 0.0, 5.0])), max_size=25
)


@settings(max_examples=examples(300))
@given(steps, st.booleans())
def test_no_frame_whatever_makes_the_core_raise_or_send_nonsense(
    steps: list[tuple[int, str | bytes, float]], small: bool
) -> None:
    limits: dict[str, Any] = {}
    if small:
        limits = {"outbox_frames": 3, "outstanding": 2, "subscriptions": 2, "tools": 2}
    desk = Desk(default_timeout=8.0, **limits)
    sessions = [desk.join(tools=["echo"]), desk.join(), desk.connect()]
    for who, data, seconds in steps:
        session = sessions[who]
        if isinstance(data, str) and (serving := next(iter(session.serving), None)):
            data = data.replace("$request", serving)
        desk.advance(seconds)
        for ready in desk.router.receive(session, data, desk.now):
            if who != 1 or ready is not session:
                for frame in read(ready):
                    assert frame["jsonrpc"] == "2.0"
                    assert ("method" in frame) or ("result" in frame) != ("error" in frame)
    for session in sessions:
        desk.router.disconnect(session)
    stats = desk.router.stats()
    present = ("sessions", "authenticated", "tools", "subscriptions", "outstanding_calls")
    assert [stats[name] for name in present] == [0] * len(present)
    fates = ("completed", "failed", "timed_out", "cancelled", "provider_lost")
    assert stats["calls_started"] == sum(stats[f"calls_{fate}"] for fate in fates)
