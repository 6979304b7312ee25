"""The id and the trace of a call, and how they travel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kadi_client.context import (
    CALL_ID,
    TRACESTATE,
    call_id,
    calling,
    current,
    handling,
    headers,
    incident,
)
from kadi_client.messages import Raw, encode
from kadi_client.tracing import TRACEPARENT

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
BROKEN = [
    PARENT.upper(),
    PARENT.replace("4", "0").replace("bf92f3577b30da6a3ce929d0e0e0736", "0" * 31),
    PARENT.replace("00f067aa0ba902b7", "0" * 16),
    PARENT + "\n",
    PARENT + "-more",
    "ff" + PARENT[2:],
    7,
    None,
]


@pytest.mark.parametrize("id_", ["a", "x" * 64, "A.b_c:d-9"])
def test_a_callers_id_is_taken(id_: str) -> None:
    with handling({CALL_ID: id_}) as context:
        assert context.call == call_id() == id_
    assert call_id() is None


@pytest.mark.parametrize("id_", ["", "x" * 65, "a b", "a\n", "ä", 7, None, ["a"], {}])
def test_an_id_that_is_none_is_replaced(id_: Any) -> None:
    with handling({CALL_ID: id_}, otherwise="broker-17") as context:
        assert context.call == "broker-17"
    with handling({CALL_ID: id_}, otherwise="17") as first, handling({}) as second:
        assert len(first.call) == 16
        assert first.call != second.call


def test_a_trace_that_is_none_is_left_out() -> None:
    for given in BROKEN:
        with handling({TRACEPARENT: given}) as context:
            assert context.traceparent is None, given
    with handling({TRACEPARENT: PARENT}) as context:
        assert context.traceparent == PARENT


@pytest.mark.parametrize("state", ["", "x" * 513, "a=1\n", "a=\u00e4", 7, None])
def test_what_others_keep_beside_a_trace_goes_on_with_it(state: Any) -> None:
    told = {TRACEPARENT: PARENT, TRACESTATE: "vendor=a:1,other=b"}
    with handling(told):
        assert {name: headers()[name] for name in told} == told
        assert current().items() >= told.items()
    for given in (told | {TRACESTATE: state}, told | {TRACEPARENT: "none"}):
        with handling(given):
            assert TRACESTATE not in headers()


async def test_tasks_and_threads_belong_to_the_call_that_starts_them() -> None:
    async def look() -> str | None:
        return call_id()

    with handling({CALL_ID: "a"}):
        task = asyncio.create_task(look())
        thread = asyncio.create_task(asyncio.to_thread(call_id))
    with handling({CALL_ID: "b"}):
        assert await asyncio.create_task(look()) == "b"
    assert (await task, await thread, call_id()) == ("a", "a", None)


def test_calls_made_meanwhile_carry_id_and_trace() -> None:
    assert current() == {}
    with handling({CALL_ID: "a", TRACEPARENT: PARENT}):
        assert current() == {CALL_ID: "a", TRACEPARENT: PARENT}


def test_a_call_is_part_of_another_or_begins_one() -> None:
    with calling({"_kadi": {CALL_ID: "a"}}), calling({"_kadi": {CALL_ID: "b"}}) as inner:
        assert inner.call == "a"
    with calling({"_kadi": Raw(encode({CALL_ID: "raw"}))}) as raw:
        assert raw.call == "raw"
    for odd in (None, {"_kadi": "text"}, {"_kadi": Raw(b"[1]")}, {"_kadi": Raw(b"1e400")}):
        with calling(odd) as new:
            assert len(new.call) == 16


def test_an_incident_names_its_call() -> None:
    assert len(incident()) == 12
    with handling({CALL_ID: "a"}):
        assert incident().endswith(" of call a")
