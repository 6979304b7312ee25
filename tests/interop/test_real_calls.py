"""Calls between the real KADI client and ours, through our broker."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from tests.interop.conftest import CreatePython, CreateReal
from tests.interop.real_client import (
    ClientError,
    NodeProcess,
    RealClient,
    needs_real_client,
    running_node,
    until,
    within,
)
from tests.interop.relay import Relay
from tests.interop.values import TEN_MEGABYTES, VALUES, assert_same
from tests.kadi_client.fake_broker import FakeBroker
from tests.kadi_client.fake_broker import Peer as BrokerSide
from tests.networks import Network

from kadi_client import Call, CallTimeout, Connection, Identity, RemoteError, Tool
from kadi_client.tools import Handler
from kadi_localnet.broker import Limits, serve_broker

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), needs_real_client]


def tool(handler: Handler, name: str = "tool") -> Tool:
    return Tool(name, name, {"type": "object"}, handler)


async def value(tool_input: dict[str, Any], _call: Call) -> Any:
    return tool_input["value"]


# --- values ------------------------------------------------------------------------------------


@pytest.fixture(params=VALUES)
def given(request: pytest.FixtureRequest) -> Any:
    return VALUES[request.param]


async def test_values_pass_from_our_provider_to_the_real_client(
    real: CreateReal, python: CreatePython, given: Any
) -> None:
    received = []

    async def keep(tool_input: dict[str, Any], _call: Call) -> Any:
        received.append(tool_input)
        return tool_input["value"]

    await python(tools=[tool(keep)])
    caller = await real()
    assert_same(await caller.invoke_remote("tool", {"value": given, "more": [given]}), given)
    assert_same(received, [{"value": given, "more": [given]}])


async def test_halves_of_surrogate_pairs_become_replacement_characters(
    real: CreateReal, python: CreatePython
) -> None:
    """JavaScript's strings may hold them, Unicode text does not."""

    async def keep(tool_input: dict[str, Any], _call: Call) -> Any:
        return {"received": tool_input["value"], "\ud83e": "\udded"}

    await python(tools=[tool(keep)])
    provider, caller = await real(connected=False), await real()
    await provider.register_tool("theirs", "value")
    await provider.connect()
    halves = "\ud83e low \udded, \U0001f9ed"
    assert (
        await caller.invoke_remote("theirs", {"value": halves}) == "\ufffd low \ufffd, \U0001f9ed"
    )
    with pytest.raises(ClientError, match="not JSON"):
        await caller.invoke_remote("tool", {"value": halves})


async def test_values_pass_from_the_real_provider_to_our_client(
    real: CreateReal, python: CreatePython, given: Any
) -> None:
    provider = await real(connected=False)
    await provider.register_tool("tool", "value")
    await provider.connect()
    caller = await python()
    assert_same(await caller.invoke("tool", {"value": given}), given)


async def test_ten_megabytes_pass_between_real_clients(real: CreateReal) -> None:
    provider, caller = await real(connected=False), await real()
    await provider.register_tool("tool", "value")
    await provider.connect()
    answer = await caller.invoke_remote("tool", {"value": TEN_MEGABYTES})
    assert (answer == TEN_MEGABYTES) is True


async def test_a_negative_zero_stays_negative(real: CreateReal, python: CreatePython) -> None:
    async def zero(_input: dict[str, Any], _call: Call) -> float:
        return -0.0

    await python(tools=[tool(zero)])
    caller = await real()
    assert await caller.ask("inspectRemote", tool="tool", input={}) == "-0"


async def test_numbers_that_javascript_makes_of_ours(
    real: CreateReal, python: CreatePython
) -> None:
    """A whole float is an integer there, and integers above 2**53 are rounded."""
    provider, caller = await real(connected=False), await python()
    await provider.register_tool("tool", "value")
    await provider.connect()
    for sent, received in ((1.0, 1), (-0.0, 0), (2**53 + 1, 2**53), (1e22, 1e22)):
        answer = await caller.invoke("tool", {"value": sent})
        assert answer == received
        assert math.copysign(1, answer) == math.copysign(1, received)


async def test_a_tool_that_returns_nothing_answers_null(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    """``JSON.stringify`` leaves ``undefined`` out: the response has neither result nor error."""
    provider = await real(url=relay.url, connected=False)
    await provider.register_tool("tool", "value")
    await provider.connect()
    caller, real_caller = await python(), await real()
    assert await caller.invoke("tool", {}, timeout=5) is None
    assert await real_caller.invoke_remote("tool", {}, timeout=5000) is None
    answers = [frame for frame in relay.sent if "method" not in frame]
    assert [frame.keys() for frame in answers] == [{"jsonrpc", "id"}] * 2


@pytest.mark.parametrize("bare", [None, [], "text", 5, True])
async def test_an_input_that_is_no_object_is_refused(
    real: CreateReal, python: CreatePython, bare: Any
) -> None:
    async def echo(tool_input: dict[str, Any], _call: Call) -> Any:
        return tool_input

    await python(tools=[tool(echo)])
    caller = await real()
    if bare is None:
        assert await caller.invoke_remote("tool", bare) == {}
        return
    with pytest.raises(ClientError, match="toolInput must be an object") as raised:
        await caller.invoke_remote("tool", bare)
    assert raised.value.code == "BROKER_ERROR"


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["it broke", "", "two\nlines", "\U0001f4a5 \ud83d \x00", "long " * 1000]
)
async def test_errors_of_our_provider_reach_the_real_client(
    real: CreateReal, python: CreatePython, text: str
) -> None:
    async def fail(_input: dict[str, Any], _call: Call) -> None:
        raise RemoteError(text)

    await python(tools=[tool(fail)])
    caller = await real()
    with pytest.raises(ClientError) as raised:
        await caller.invoke_remote("tool", {})
    assert raised.value.code == "TOOL_INVOCATION_FAILED"
    message = str(raised.value)
    assert message.startswith(f'Tool "tool" failed: {text.replace(chr(0xD83D), "?")}')


@pytest.mark.parametrize("text", ["it broke", "", "two\nlines", "\U0001f4a5 \x00"])
async def test_errors_of_the_real_provider_reach_both_clients(
    real: CreateReal, python: CreatePython, text: str
) -> None:
    async def fail(_input: Any, _context: dict[str, Any]) -> None:
        raise RuntimeError(text)

    provider = await real(connected=False)
    await provider.register_tool("tool", fail)
    await provider.connect()
    caller, real_caller = await python(), await real()
    with pytest.raises(RemoteError) as ours:
        await caller.invoke("tool", {})
    with pytest.raises(ClientError) as theirs:
        await real_caller.invoke_remote("tool", {})
    assert theirs.value.code == "TOOL_INVOCATION_FAILED"
    said = text or "the tool failed without a message"
    assert said in str(ours.value)
    assert said in str(theirs.value)


async def test_a_call_of_an_unknown_tool_is_refused(real: CreateReal) -> None:
    caller = await real(networks=["lab", "global"])
    with pytest.raises(ClientError) as raised:
        await caller.invoke_remote("absent", {})
    assert raised.value.code == "BROKER_ERROR"
    assert "no provider for tool 'absent'" in str(raised.value)
    assert "lab, global" in str(raised.value)


@pytest.mark.parametrize("side", ["caller", "provider"])
async def test_a_message_over_the_limit_ends_the_call_at_once(
    real: CreateReal, node: NodeProcess, side: str
) -> None:
    limit = 2**16
    async with serve_broker(port=0, limits=Limits(max_message_bytes=limit)) as broker:
        provider = await real(url=broker.url, connected=False, autoReconnect=False)

        async def answer(_input: Any, _context: dict[str, Any]) -> str:
            return "x" * (limit if side == "provider" else 1)

        await provider.register_tool("tool", answer)
        await provider.connect()
        caller = await real(url=broker.url, autoReconnect=False)
        with pytest.raises(ClientError) as raised:
            await caller.invoke_remote("tool", {"value": "x" * (limit if side == "caller" else 1)})
        if side == "caller":
            assert raised.value.code == "BROKER_NOT_CONNECTED"
        else:
            assert "disconnected before answering" in str(raised.value)
        for client in (caller, provider):
            await client.disconnect()
    node.logs.clear()


# --- many calls, lost calls --------------------------------------------------------------------


async def test_fifty_calls_in_flight_get_their_own_results(
    real: CreateReal, python: CreatePython, broker: Network
) -> None:
    all_in_flight, running = asyncio.Event(), 0

    async def hold(number: int) -> dict[str, int]:
        nonlocal running
        running += 1
        if running == 100:
            all_in_flight.set()
        await all_in_flight.wait()
        return {"squared": number**2}

    async def theirs(tool_input: Any, _context: dict[str, Any]) -> Any:
        return await hold(tool_input["n"])

    async def ours(tool_input: dict[str, Any], _call: Call) -> Any:
        return await hold(tool_input["n"])

    provider = await real(connected=False)
    await provider.register_tool("theirs", theirs)
    await provider.connect()
    mine = await python(tools=[tool(ours, "ours")])
    caller = await real()
    numbers = range(50)
    results = await within(
        asyncio.gather(
            *(caller.invoke_remote("ours", {"n": n}) for n in numbers),
            *(mine.invoke("theirs", {"n": n}) for n in numbers),
        )
    )
    assert results == [{"squared": n**2} for n in numbers] * 2
    assert broker.stats()["calls_completed"] == 100
    assert broker.stats()["outstanding_calls"] == 0


async def test_a_call_is_acknowledged_and_answered_under_the_id_that_the_caller_chose(
    real: CreateReal, relay: Relay
) -> None:
    provider = await real(url=relay.url, connected=False)
    await provider.register_tool("tool")
    await provider.connect()
    caller = await real(url=relay.url)
    assert await caller.invoke_remote("tool", {"n": 1}, timeout=5000) == {"n": 1}
    asked, served = relay.calls("kadi.ability.request")  # to the broker, and from it
    chosen = asked["params"]["requestId"]
    assert asked["params"]["timeout"] == 5000
    assert relay.answer_to(asked)["result"] == {"status": "pending", "requestId": chosen}
    (answer,) = relay.calls("kadi.ability.response")
    assert answer["params"] == {"requestId": chosen, "result": {"n": 1}}
    assert isinstance(served["id"], str)
    assert served["params"]["requestId"] == served["id"] != chosen
    assert 0 < served["params"]["timeout"] <= 5000


async def test_a_request_id_in_use_is_refused_and_free_again_afterwards(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    go = asyncio.Event()

    async def hold(tool_input: dict[str, Any], _call: Call) -> Any:
        await go.wait()
        return tool_input

    await python(tools=[tool(hold)])
    caller, other = await real(url=relay.url), await real()
    request = {"toolName": "tool", "toolInput": {"n": 1}, "requestId": "mine"}
    pending = {"status": "pending", "requestId": "mine"}
    assert await caller.request("kadi.ability.request", **request) == pending
    with pytest.raises(ClientError, match="in flight") as raised:
        await caller.request("kadi.ability.request", **request)
    assert raised.value.code == "BROKER_ERROR"
    assert await other.request("kadi.ability.request", **request) == pending
    go.set()
    await until(lambda: relay.calls("kadi.ability.response"))
    (answer,) = relay.calls("kadi.ability.response")
    assert answer["params"] == {"requestId": "mine", "result": {"n": 1}}
    assert await caller.request("kadi.ability.request", **request) == pending


async def test_a_provider_that_dies_ends_its_calls_at_once(
    real: CreateReal, python: CreatePython, broker: Network
) -> None:
    begun = asyncio.Semaphore(0)

    async def hold(_input: Any, _context: dict[str, Any]) -> None:
        begun.release()
        await asyncio.Event().wait()

    async with running_node() as doomed:
        provider = await doomed.create(broker.url)
        await provider.register_tool("tool", hold)
        await provider.connect()
        ours, theirs = await python(), await real()
        calls = [
            asyncio.create_task(ours.invoke("tool", {}, timeout=3600)),
            asyncio.create_task(theirs.invoke_remote("tool", {}, timeout=3_600_000)),
        ]
        for _ in calls:
            await within(begun.acquire())
        doomed.process.kill()
        with pytest.raises(RemoteError, match="disconnected before answering"):
            await within(calls[0])
        with pytest.raises(ClientError, match="disconnected before answering") as raised:
            await calls[1]
        assert raised.value.code == "TOOL_INVOCATION_FAILED"
        assert broker.stats()["calls_provider_lost"] == 2


async def test_a_call_that_takes_too_long_is_cancelled_at_our_provider(
    real: CreateReal, python: CreatePython
) -> None:
    remaining: list[float | None] = []
    cancelled = asyncio.Event()

    async def hold(_input: dict[str, Any], call: Call) -> None:
        remaining.append(call.remaining)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    await python(tools=[tool(hold)])
    caller = await real()
    with pytest.raises(ClientError) as raised:
        await caller.invoke_remote("tool", {}, timeout=100)
    # Its own clock, the broker's or the provider's, whichever is first.
    assert raised.value.code in ("BROKER_TIMEOUT", "TOOL_INVOCATION_FAILED")
    await within(cancelled.wait())
    (allowed,) = remaining
    assert allowed is not None
    assert 0 < allowed <= 0.1


async def test_a_late_answer_of_the_real_provider_is_discarded(
    real: CreateReal, python: CreatePython, broker: Network
) -> None:
    begun, go = asyncio.Semaphore(0), asyncio.Event()

    async def hold(tool_input: Any, _context: dict[str, Any]) -> Any:
        if tool_input["wait"]:
            begun.release()
            await go.wait()
        return tool_input

    provider = await real(connected=False)
    await provider.register_tool("tool", hold)
    await provider.connect()
    caller = await python()
    calls = [asyncio.create_task(caller.invoke("tool", {"wait": True})) for _ in range(2)]
    for _ in calls:
        await within(begun.acquire())
    for call in calls:
        call.cancel()
    await until(lambda: broker.stats()["calls_cancelled"] == 2)
    assert broker.stats()["outstanding_calls"] == 0
    go.set()
    await until(lambda: broker.stats()["calls_discarded"] == 2)
    assert await caller.invoke("tool", {"wait": False}) == {"wait": False}


async def test_a_call_that_the_real_provider_does_not_answer_times_out(
    real: CreateReal, python: CreatePython, broker: Network
) -> None:
    go = asyncio.Event()

    async def hold(tool_input: Any, _context: dict[str, Any]) -> Any:
        await go.wait()
        return tool_input

    provider = await real(connected=False)
    await provider.register_tool("tool", hold)
    await provider.connect()
    caller = await python()
    with pytest.raises((CallTimeout, RemoteError)):
        await caller.invoke("tool", {}, timeout=0.1)
    await until(lambda: broker.stats()["outstanding_calls"] == 0)
    go.set()
    assert await caller.invoke("tool", {"n": 1}) == {"n": 1}


async def test_a_call_of_a_loaded_ability_times_out_at_its_caller(
    real: CreateReal, python: CreatePython
) -> None:
    go = asyncio.Event()

    async def hold(tool_input: dict[str, Any], _call: Call) -> Any:
        await go.wait()
        return tool_input

    await python(name="holder", tools=[tool(hold)])
    caller = await real()
    ability = await caller.load_broker("holder")
    with pytest.raises(ClientError) as raised:
        await ability.invoke("tool", {"n": 1}, timeout=50)
    assert raised.value.code == "BROKER_TIMEOUT"
    go.set()
    assert await ability.invoke("tool", {"n": 2}) == {"n": 2}


async def test_a_cancelled_call_is_cancelled_at_our_provider(
    real: CreateReal, python: CreatePython
) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def hold(_input: dict[str, Any], _call: Call) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await python(tools=[tool(hold)])
    caller = await real()
    await caller.request("kadi.ability.request", toolName="tool", toolInput={}, requestId="mine")
    await within(begun.wait())
    answer = await caller.request("kadi.ability.cancel", requestId="mine")
    assert answer == {"status": "cancelled", "requestId": "mine"}
    await within(ended.wait())


# --- who calls, and how ------------------------------------------------------------------------


async def test_our_provider_is_told_which_real_client_calls(
    real: CreateReal, python: CreatePython
) -> None:
    calls: list[Call] = []

    async def keep(tool_input: dict[str, Any], call: Call) -> Any:
        calls.append(call)
        return tool_input

    await python(name="keeper", tools=[tool(keep)], networks=["lab", "global"])
    caller, in_lab = await real(), await real(networks=["lab"])
    ability = await caller.load_broker("keeper")
    assert await caller.invoke_remote("tool", {"n": 1}) == {"n": 1}
    assert await ability.invoke("tool", {"n": 2}) == {"n": 2}  # without the routing hint
    assert await in_lab.invoke_remote("tool", {"n": 3}) == {"n": 3}
    for call, client, network in zip(
        calls, (caller, caller, in_lab), ("global", "global", "lab"), strict=True
    ):
        assert call.origin.protocol == "kadi"
        assert call.origin.public_key == client.public_key
        assert call.origin.agent_id == client.agent_id
        assert call.origin.network == network
        assert call.origin.session_id
    assert calls[0].origin.session_id == calls[1].origin.session_id != calls[2].origin.session_id


async def test_the_real_provider_is_told_who_calls(real: CreateReal, python: CreatePython) -> None:
    contexts: list[dict[str, Any]] = []

    async def keep(tool_input: Any, context: dict[str, Any]) -> Any:
        contexts.append(context)
        return tool_input

    provider = await real(connected=False, networks=["lab", "global"])
    await provider.register_tool("tool", keep)
    await provider.connect()
    identity = Identity.generate()
    ours = await python(identity=identity, networks=["lab"])
    theirs = await real()
    assert await ours.invoke("tool", {"n": 1}) == {"n": 1}
    assert await ours.invoke("tool", {"n": 2}, target_agent=provider.agent_id) == {"n": 2}
    assert await theirs.invoke_remote("tool", {"n": 3}) == {"n": 3}
    sessions = {context.pop("callerSessionId") for context in contexts}
    assert len(sessions) == 2
    assert len({context.pop("requestId") for context in contexts}) == 3
    mine = {
        "broker": "local",
        "network": "lab",
        "callerProtocol": "kadi",
        "callerPublicKey": identity.public_key,
    }
    assert contexts == [
        mine,
        mine,
        {**mine, "network": "global", "callerPublicKey": theirs.public_key},
    ]


RESULTS: dict[str, Any] = {
    "object": {"a": 1, "b": [None, "\u00e9"]},
    "text": "text",
    "number": 5,
    "null": None,
    "empty": [],
    "image": {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]},
    "mixed": {
        "content": [
            {"type": "text", "text": "t"},
            {"type": "resource", "resource": {"uri": "a:b"}},
            {"type": "resource_link", "uri": "a:b"},
            {"type": "audio", "data": "AA==", "mimeType": "audio/wav"},
        ],
        "isError": True,
    },
    "structured": {"structuredContent": {"a": 1}},
    "no-content": {"content": []},
    "wrong-content": {"content": [{"type": "text"}]},
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
async def test_both_providers_answer_mcp_calls_alike(
    node: NodeProcess, real: CreateReal, result: Any
) -> None:
    async with FakeBroker() as broker:
        theirs = await real(url=broker.url, connected=False)
        await theirs.register_tool("tool", "value")
        await theirs.connect()
        their_side = await broker.peer()
        async with Connection(broker.url, tools=[tool(value)], grace=0):
            our_side = await broker.peer()
            expected = await mcp_answer(their_side, {"value": result})
            answered = await mcp_answer(our_side, {"value": result})
        await theirs.disconnect()
    assert answered == expected
    assert expected["content" if "structuredContent" not in expected else "structuredContent"]
    assert len(node.logs) == 1
    assert "returned different agentId" in node.logs.pop()


async def test_both_providers_answer_failed_mcp_calls_alike(
    node: NodeProcess, real: CreateReal
) -> None:
    async def theirs(_input: Any, _context: dict[str, Any]) -> None:
        raise RuntimeError("it broke")

    async def ours(_input: dict[str, Any], _call: Call) -> None:
        raise RuntimeError("it broke")

    async with FakeBroker() as broker:
        provider = await real(url=broker.url, connected=False)
        await provider.register_tool("tool", theirs)
        await provider.connect()
        their_side = await broker.peer()
        async with Connection(broker.url, tools=[tool(ours)], grace=0):
            expected = await mcp_answer(their_side, {})
            answered = await mcp_answer(await broker.peer(), {})
        await provider.disconnect()
    assert expected == {"content": [{"type": "text", "text": "it broke"}], "isError": True}
    assert answered == expected
    node.logs.clear()


async def mcp_answer(client: BrokerSide, tool_input: Any) -> Any:
    """Call the tool as a broker with an MCP side does for an MCP client."""
    await client.call(1, "tool", tool_input, _meta={"callerProtocol": "mcp", "network": "global"})
    return (await client.expect(""))["result"]


async def test_a_real_client_may_serve_and_call_itself(real: CreateReal) -> None:
    client: RealClient = await real(connected=False)
    await client.register_tool("tool", "echo")
    await client.connect()
    assert await client.invoke_remote("tool", {"n": 1}) == {"n": 1}
