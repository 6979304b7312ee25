"""Brokers that exchange messages by hand: what the wire of a test loses or delays, it decides."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.kadi_localnet.test_broker_router import Desk, cancellation, only, read

from kadi_localnet.broker.access import Access
from kadi_localnet.broker.cluster import EVERYONE, PIECE_BYTES
from kadi_localnet.broker.session import Session


class Brokers:
    """Several desks and the messages between them, in the order in which they were sent."""

    def __init__(self, number: int = 2, **options: Any) -> None:
        self.desks = {f"b{index}": Desk(**options) for index in range(number)}
        self.delivers: Callable[[str, str], bool] = lambda sender, receiver: True
        self.passed = 0
        for id_ in self.desks:
            self.join(id_)

    def __getitem__(self, index: int) -> Desk:
        return list(self.desks.values())[index]

    def join(self, id_: str, formerly: str = "") -> None:
        desk = self.desks[id_]
        desk.router.cluster.join(id_, formerly, desk.now)
        self.run()

    def run(self) -> None:
        """Deliver until nothing is left."""
        while any(list(map(self._deliver, self.desks))):
            pass

    def _deliver(self, sender: str) -> bool:
        message = self.desks[sender].router.cluster.pop()
        if message is None:
            return False
        to, data = message
        for receiver, desk in self.desks.items():
            if to in (receiver, EVERYONE) and self.delivers(sender, receiver):
                self.passed += 1
                desk.router.cluster.receive(data, desk.now)
                desk.router.settle()
        return True

    def advance(self, seconds: float) -> None:
        for desk in self.desks.values():
            desk.advance(seconds)
        self.run()

    def provider(self, index: int, *tools: str, **register: Any) -> Session:
        """A session that offers tools, once all brokers know."""
        desk = self[index]
        session = desk.join()
        params = {"tools": [{"name": name} for name in tools], **register}
        answer = desk.send(session, "kadi.agent.register", params)
        self.run()
        for frame in [answer] if answer else read(session):
            assert "registered" in json.dumps(frame)
        return session

    def call(self, index: int, caller: Session, tool: str = "echo", **params: Any) -> str:
        id_ = self[index].call(caller, tool, **params)
        self.run()
        return id_


def test_a_registration_is_answered_when_the_others_know_it() -> None:
    brokers = Brokers(3)
    session = brokers[0].join()
    assert brokers[0].send(session, "kadi.agent.register", {"tools": [{"name": "echo"}]}) is None
    for desk in (brokers[1], brokers[2]):
        assert desk.send(desk.join(), "kadi.ability.list") == {"tools": []}
    brokers.run()
    assert only(session)["result"]["status"] == "registered"
    for desk in (brokers[1], brokers[2]):
        (tool,) = desk.send(desk.join(), "kadi.ability.list")["tools"]
        assert tool["name"] == "echo"


def test_a_registration_is_answered_even_if_another_broker_is_mute() -> None:
    brokers = Brokers(2)
    brokers.delivers = lambda sender, receiver: sender != "b1"
    session = brokers[0].join()
    assert brokers[0].send(session, "kadi.agent.register", {"tools": [{"name": "echo"}]}) is None
    brokers.advance(1.9)
    assert read(session) == []
    brokers.advance(0.2)
    assert only(session)["result"]["status"] == "registered"


def test_a_broker_that_joins_later_knows_the_tools_of_all() -> None:
    brokers = Brokers(2)
    provider = brokers.provider(0, "echo")
    late = brokers.desks["late"] = Desk()
    brokers.join("late")
    caller = late.join()
    request = brokers.call(2, caller)
    assert only(provider)["params"]["requestId"] == request


@pytest.mark.parametrize("size", [10, PIECE_BYTES, 3 * PIECE_BYTES + 1])
def test_a_call_and_its_answer_pass_whatever_their_size(size: int) -> None:
    brokers = Brokers(2)
    provider, caller = brokers.provider(0, "echo"), brokers[1].join()
    text = "x" * size
    request = brokers.call(1, caller, toolInput={"text": text})
    asked = only(provider)
    assert asked["params"]["toolInput"] == {"text": text}
    brokers[0].answer(provider, asked["id"], result=text)
    brokers.run()
    assert only(caller)["params"] == {"requestId": request, "result": text}
    assert brokers[0].router.stats()["outstanding_calls"] == 0


def test_the_load_of_a_provider_counts_the_calls_of_all_brokers() -> None:
    brokers = Brokers(2)
    busy, free = brokers.provider(0, "echo"), brokers.provider(1, "echo")
    caller = brokers[0].join()
    busy_id = busy.agent_id
    for _ in range(4):
        brokers.call(0, caller, targetAgent=busy_id)
    brokers.advance(1.0)
    other = brokers[1].join()
    for _ in range(4):
        brokers.call(1, other)
    assert len(read(busy)) == 4
    assert len(read(free)) == 4


def test_an_event_reaches_a_session_once_whatever_it_subscribed_to() -> None:
    brokers = Brokers(3)
    hearers = [desk.join(networks=["n", "global"]) for desk in brokers.desks.values()]
    for desk, hearer in zip(brokers.desks.values(), hearers, strict=True):
        for pattern in ("#", "a.#", "*", "a"):
            desk.send(hearer, "kadi.event.subscribe", {"pattern": pattern})
    publisher = brokers[0].join(networks=["n", "global"])
    brokers[0].send(publisher, "kadi.event.publish", {"channel": "a", "data": 1})
    brokers.run()
    for hearer in hearers:
        delivery = only(hearer)["params"]
        assert (delivery["channel"], delivery["data"]) == ("a", 1)
        assert delivery["source"] == publisher.agent_id


def test_a_cancelled_and_an_overdue_call_are_cancelled_at_the_provider() -> None:
    brokers = Brokers(2)
    provider, caller = brokers.provider(0, "echo"), brokers[1].join()
    cancelled = brokers.call(1, caller)
    brokers[1].send(caller, "kadi.ability.cancel", {"requestId": cancelled})
    overdue = brokers.call(1, caller, timeout=500)
    brokers.advance(0.6)
    told = [frame for frame in read(provider) if frame["method"] == "kadi.ability.cancel"]
    assert told == [cancellation(cancelled), cancellation(overdue)]
    assert "within 0.5 s" in only(caller)["params"]["error"]
    brokers[0].answer(provider, overdue, result="late")
    brokers.run()
    assert read(caller) == []


def test_a_provider_that_leaves_ends_the_calls_of_other_brokers() -> None:
    brokers = Brokers(2)
    provider, caller = brokers.provider(0, "echo"), brokers[1].join()
    begun = brokers.call(1, caller)
    brokers[0].router.disconnect(provider)
    late = brokers[1].call(caller)  # before the news arrive
    brokers.run()
    assert only(caller)["params"] == {
        "requestId": begun,
        "error": "the provider of 'echo' disconnected before answering",
    }
    for _ in range(32):
        brokers.advance(1.0)
    end = only(caller)["params"]
    assert end["requestId"] == late, "it was not received, so it has waited"
    assert end["error"].startswith("no provider")


class Crossing:
    """Calls and cancellations on three brokers, and the end of the provider of their tool."""

    def __init__(self) -> None:
        self.brokers = Brokers(3)
        self.provider = self.brokers.provider(0, "echo")
        self.callers = [desk.join() for desk in self.brokers.desks.values()]
        self.asked: dict[str, int] = {}
        self.received: set[str] = set()
        """Calls that the provider had when it ended."""

    def request(self, index: int, method: str, **params: Any) -> None:
        frame = {"id": 1, "method": method, "params": params}
        desk = self.brokers[index]
        desk.router.receive(self.callers[index], json.dumps(frame), desk.now)

    def call(self, index: int) -> None:
        request_id = f"r{len(self.asked)}"
        self.asked[request_id] = index
        self.request(index, "kadi.ability.request", toolName="echo", requestId=request_id)

    def cancel(self, index: int) -> None:
        for request_id in [each for each, place in self.asked.items() if place == index][:1]:
            self.request(index, "kadi.ability.cancel", requestId=request_id)

    def end(self, _index: int) -> None:
        if self.provider.id in self.brokers[0].router._sessions:
            self.received = {*self.provider.serving, *self.provider.relaying}
            self.brokers[0].router.disconnect(self.provider)

    def deliver(self, index: int) -> None:
        self.brokers._deliver(f"b{index}")

    def begin(self, index: int) -> None:
        """Another provider comes."""
        desk = self.brokers[index]
        desk.send(desk.join(), "kadi.agent.register", {"tools": [{"name": "echo"}]})
        self.brokers.run()

    def answer_all(self) -> None:
        for index, desk in enumerate(self.brokers.desks.values()):
            for session in list(desk.router._sessions.values()):
                for id_ in [*session.serving, *session.relaying]:
                    self.brokers[index].answer(session, id_, result=id_)
        self.brokers.run()


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["call", "call", "end", "deliver", "deliver", "cancel"]),
            st.integers(0, 2),
        ),
        max_size=30,
    ),
    st.sampled_from([None, 0, 1, 2]),
    st.integers(0, 2),
)
def test_calls_that_cross_the_news_of_an_end_wait_or_go_elsewhere(
    steps: list[tuple[str, int]], other: int | None, back: int
) -> None:
    """Every call ends once, and only one that the provider has received ends with it."""
    crossing = Crossing()
    if other is not None:
        crossing.begin(other)
    for step, index in steps:
        getattr(crossing, step)(index)
    crossing.brokers.run()
    crossing.begin(back)
    crossing.answer_all()
    ended: list[str] = []
    for caller in crossing.callers:
        for frame in read(caller):
            if frame.get("method") == "kadi.ability.response":
                ended.append(frame["params"]["requestId"])
                failed = frame["params"].get("error", "")
                assert not failed or (crossing.received and "disconnected before" in failed)
    assert len(ended) == len(set(ended))
    cancelled = set(crossing.asked) - set(ended)
    assert len(cancelled) <= sum(step == "cancel" for step, _ in steps)
    assert all(desk.stat("outstanding_calls") == 0 for desk in crossing.brokers.desks.values())
    assert all(
        not session.serving
        for desk in crossing.brokers.desks.values()
        for broker in desk.router.cluster._brokers.values()
        for session in broker.left.values()
    )


@pytest.mark.parametrize("back", [0, 1, 2])
def test_a_call_waits_on_every_broker_for_a_provider_that_comes_back_anywhere(back: int) -> None:
    brokers = Brokers(3)
    provider, callers = (
        brokers.provider(0, "echo"),
        [desk.join() for desk in brokers.desks.values()],
    )
    brokers[0].router.disconnect(provider)
    brokers.run()
    requests = [brokers.call(index, caller) for index, caller in enumerate(callers)]
    assert [read(caller) for caller in callers] == [[], [], []]
    assert brokers[1].send(callers[1], "kadi.ability.list") == {"tools": []}
    session = brokers[back].join()
    brokers[back].send(session, "kadi.agent.register", {"tools": [{"name": "echo"}]})
    brokers.run()
    asked = [*session.serving, *session.relaying]
    assert sorted(asked) == sorted(requests)
    for id_ in asked:
        brokers[back].answer(session, id_, result=id_)
    brokers.run()
    for caller, request in zip(callers, requests, strict=True):
        assert only(caller)["params"] == {"requestId": request, "result": request}
    assert all(desk.stat("outstanding_calls") == 0 for desk in brokers.desks.values())


def test_calls_that_waited_end_when_nobody_comes_back_to_any_broker() -> None:
    brokers = Brokers(2)
    provider, caller = brokers.provider(0, "echo"), brokers[1].join()
    brokers[0].router.disconnect(provider)
    brokers.run()
    request = brokers.call(1, caller)
    for _ in range(32):
        brokers.advance(1.0)
    assert only(caller)["params"]["requestId"] == request
    answer = brokers[1].send(caller, "kadi.ability.request", {"toolName": "echo"})
    assert "no provider" in answer["message"]


def test_a_broker_that_falls_silent_is_a_provider_and_a_caller_that_left() -> None:
    brokers = Brokers(2)
    here, there = brokers.provider(0, "echo"), brokers.provider(1, "other")
    brokers.call(0, here, "other")
    served = brokers.call(1, there, "echo")
    read(there), read(here)
    del brokers.desks["b1"]
    for _ in range(9):
        brokers.advance(1.0)
    assert read(here) == []
    brokers.advance(1.0)
    brokers.advance(0.5)
    frames = read(here)
    assert cancellation(served, reason="caller_lost") in frames
    (ended,) = [each for each in frames if each["method"] == "kadi.ability.response"]
    assert "'other' disconnected before answering" in ended["params"]["error"]
    assert brokers[0].stat("brokers") == 1


def test_a_lost_message_is_noticed_and_the_brokers_begin_anew() -> None:
    brokers = Brokers(2)
    provider, caller = brokers.provider(0, "echo"), brokers[1].join()
    brokers.delivers = lambda sender, receiver: False
    lost = brokers.call(1, caller)
    brokers.delivers = lambda sender, receiver: True
    brokers.call(1, caller)
    assert brokers[1].router.cluster.forgotten
    assert read(provider) == []
    brokers[1].router.cluster.leave()
    ends = read(caller)
    assert lost in {each["params"]["requestId"] for each in ends}
    assert all("disconnected" in each["params"]["error"] for each in ends)
    brokers.desks["new"] = brokers.desks.pop("b1")
    brokers.join("new", formerly="b1")
    assert brokers[0].stat("brokers") == brokers[1].stat("brokers") == 2
    again = brokers.call(1, caller)
    assert only(provider)["params"]["requestId"] == again


def test_a_broker_that_stood_still_joins_again_itself() -> None:
    brokers = Brokers(2)
    provider, caller = brokers.provider(0, "echo"), brokers[1].join()
    brokers.call(1, caller)
    brokers[0].advance(11.0)
    assert brokers[0].router.cluster.forgotten
    assert not brokers[1].router.cluster.forgotten
    brokers[0].router.cluster.leave()
    brokers.desks = {"new": brokers[0], "b1": brokers[1]}
    brokers.join("new", formerly="b0")
    assert "disconnected" in only(caller)["params"]["error"]
    again = brokers.call(1, caller)
    asked = [each for each in read(provider) if each["method"] == "kadi.ability.request"]
    assert asked[-1]["params"]["requestId"] == again
    assert brokers[0].stat("brokers") == brokers[1].stat("brokers") == 2


def test_brokers_that_missed_each_other_meet_at_the_next_beat() -> None:
    brokers = Brokers(0)
    brokers.desks = {"b0": Desk(), "b1": Desk()}
    brokers.delivers = lambda sender, receiver: False
    brokers.join("b0")
    brokers.join("b1")
    brokers.delivers = lambda sender, receiver: True
    assert brokers[0].stat("brokers") == 1
    brokers.advance(1.0)
    assert brokers[0].stat("brokers") == brokers[1].stat("brokers") == 2
    assert not any(desk.router.cluster.forgotten for desk in brokers.desks.values())


def test_a_broker_that_takes_no_messages_is_given_up() -> None:
    brokers = Brokers(2, outbox_frames=4)
    brokers.provider(0, "echo")
    caller = brokers[1].join()
    answers = [
        brokers[1].send(caller, "kadi.ability.request", {"toolName": "echo"}) for _ in range(6)
    ]
    assert [answer.get("status") for answer in answers] == ["pending"] * 4 + [None] * 2
    assert "overloaded" in answers[4]["message"]


def test_the_rules_of_a_broker_hold_for_the_tools_of_another() -> None:
    brokers = Brokers(1)
    strict = brokers.desks["strict"] = Desk(
        access=Access(providers={"arcade-*": {"nobody"}}, members={"inner": {"nobody"}})
    )
    brokers.join("strict")
    brokers.provider(0, "arcade-query")
    brokers.provider(0, "echo", networks=["inner", "global"])
    caller = strict.join()
    (tool,) = strict.send(caller, "kadi.ability.list", {"includeProviders": True})["tools"]
    assert tool["name"] == "echo"
    assert tool["providers"][0]["networks"] == ["global"]


def test_a_message_of_somebody_else_is_ignored() -> None:
    brokers = Brokers(2)
    for data in (b"", b"\xc1", b'{"jsonrpc": "2.0"}', b"\x92\xa5Hello\x01"):
        brokers[0].router.cluster.receive(data, brokers[0].now)
    assert brokers[0].stat("brokers") == 2


def test_events_for_a_slow_broker_are_counted_and_give_way() -> None:
    brokers = Brokers(2, max_message_bytes=4000, outbox_bytes=90_000, memory_bytes=80_000)
    publisher = brokers[0].join()
    memory = brokers[0].router.memory
    for _ in range(100):
        event = {"channel": "c", "data": "x" * 3000}
        brokers[0].send(publisher, "kadi.event.publish", event)
        assert memory.used <= 40_000
    assert memory.used > 3000
    assert brokers[0].stat("events_dropped") > 50
    brokers[0].router.cluster.lose("b1")
    assert memory.used == 0
