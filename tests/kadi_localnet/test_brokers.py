"""One agent on several brokers, each a real one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from kadi_client import (
    Agent,
    Brokers,
    Connection,
    Endpoint,
    Identity,
    KadiError,
    NoProvider,
    NotConnected,
    RemoteError,
    Tool,
    ToolError,
)
from kadi_localnet.broker import Broker, Limits, serve_broker

PATIENCE = 10.0
NOWHERE = "ws://127.0.0.1:1/kadi"


@pytest.fixture
async def two() -> AsyncIterator[tuple[Broker, Broker]]:
    limits = Limits(absence=0.1)  # what a broker does not wait for, a client does
    async with (
        serve_broker(port=0, limits=limits) as first,
        serve_broker(port=0, limits=limits) as second,
    ):
        yield first, second


def answering(name: str, result: Any) -> Tool:
    async def answer(_input: dict[str, Any], _call: Any) -> Any:
        return result

    return Tool(name, "", {"type": "object"}, answer)


def offering(broker: Broker, *tools: Tool, **options: Any) -> Connection:
    return Connection(broker.url, tools=tools, grace=0, **options)


@asynccontextmanager
async def agent(*brokers: Broker | str, **options: Any) -> AsyncIterator[Brokers]:
    urls = [each if isinstance(each, str) else each.url for each in brokers]
    endpoints = {f"b{number}": Endpoint(url) for number, url in enumerate(urls, start=1)}
    async with Brokers(endpoints, grace=0, max_backoff=0.05, **options) as network:
        yield network


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)


async def answer_or_error(network: Brokers, tool: str, target: str | None = None) -> Any:
    """What a call gives: the result, or the error of the broker or of the routing."""
    try:
        return await network.invoke(tool, {}, target_agent=target)
    except (RemoteError, NotConnected) as exc:
        return exc


async def eventually(
    network: Brokers, tool: str, wanted: Any, target: str | None = None
) -> list[Any]:
    """Call a tool until it gives what is wanted; returns the other results on the way."""
    others: list[Any] = []
    async with asyncio.timeout(PATIENCE):
        while (answer := await answer_or_error(network, tool, target)) != wanted:
            if not isinstance(answer, Exception):
                others.append(answer)
            await asyncio.sleep(0.02)
    return others


async def test_tools_are_offered_on_all_brokers(two: tuple[Broker, Broker]) -> None:
    async with agent(*two, tools=[answering("t", 1)]) as network:
        for broker in two:
            async with Connection(broker.url) as caller:
                assert await caller.invoke("t", {}) == 1
        await network.serve([answering("u", 2)])
        for broker in two:
            async with Connection(broker.url) as caller:
                assert await caller.invoke("u", {}) == 2
                assert [tool["name"] for tool in await caller.list_tools()] == ["u"]


async def test_each_broker_has_its_own_networks(two: tuple[Broker, Broker]) -> None:
    first, second = two
    brokers = {"a": Endpoint(first.url, ["x"]), "b": Endpoint(second.url, ["y"])}
    async with (
        Brokers(brokers, tools=[answering("t", 1)]),
        Connection(first.url, networks=["y"]) as outside,
        Connection(second.url, networks=["y"]) as inside,
    ):
        assert await inside.invoke("t", {}) == 1
        with pytest.raises(RemoteError, match="no provider"):
            await outside.invoke("t", {})


async def test_a_call_goes_where_its_tool_is_offered(two: tuple[Broker, Broker]) -> None:
    first, second = two
    async with (
        offering(first, answering("one", 1), answering("both", "first")),
        offering(second, answering("two", 2), answering("both", "second")),
        agent(*two) as network,
    ):
        assert [await network.invoke(tool, {}) for tool in ("one", "two", "both")] == [
            1,
            2,
            "first",
        ]
        with pytest.raises(RemoteError, match="no provider for tool 'none'"):
            await network.invoke("none", {})


async def test_a_tool_that_appears_later_is_found(two: tuple[Broker, Broker]) -> None:
    async with agent(*two) as network:
        with pytest.raises(RemoteError):
            await network.invoke("late", {})
        async with offering(two[1], answering("late", 1)):
            assert await eventually(network, "late", 1) == []


async def test_a_provider_that_leaves_is_replaced_by_one_elsewhere(
    two: tuple[Broker, Broker],
) -> None:
    async with offering(two[1], answering("t", "second")), agent(*two) as network:
        async with offering(two[0], answering("t", "first")):
            assert await network.invoke("t", {}) == "first"
        assert await eventually(network, "t", "second") == []


async def test_a_call_waits_for_the_broker_where_its_tool_was_offered(
    two: tuple[Broker, Broker],
) -> None:
    async with AsyncExitStack() as stack:
        gone = await stack.enter_async_context(AsyncExitStack())
        first = await gone.enter_async_context(serve_broker(port=0))
        port = int(first.url.rpartition(":")[2].partition("/")[0])
        await stack.enter_async_context(offering(first, answering("t", 1), max_backoff=0.05))
        network = await stack.enter_async_context(agent(first, two[1]))
        assert await network.invoke("t", {}) == 1
        await gone.aclose()
        await until(lambda: network.connected == ["b2"])
        call = asyncio.create_task(answer_or_error(network, "t"))
        assert isinstance(await answer_or_error(network, "none"), RemoteError)
        assert not call.done(), "the call did not wait"
        await stack.enter_async_context(serve_broker(port=port))
        answer = await call
        # The provider may come back a moment after the agent.
        assert answer == 1 or isinstance(answer, RemoteError)
        assert await eventually(network, "t", 1) == []


async def test_a_call_for_an_agent_goes_to_its_broker_and_to_no_other_agent(
    two: tuple[Broker, Broker],
) -> None:
    database = Identity.generate()
    async with offering(two[0], answering("write", "other")), agent(*two) as network:
        async with offering(two[1], answering("write", "mine"), identity=database):
            assert await eventually(network, "write", "mine", database.agent_id) == []
            assert await network.invoke("write", {}) == "other"
        with pytest.raises(NoProvider, match=database.agent_id):
            await network.invoke("write", {}, target_agent=database.agent_id)
        async with offering(two[0], answering("write", "moved"), identity=database):
            assert await eventually(network, "write", "moved", database.agent_id) == []


async def test_events_are_published_on_all_brokers(two: tuple[Broker, Broker]) -> None:
    async with AsyncExitStack() as stack:
        heard = []
        for broker in two:
            listener = await stack.enter_async_context(Connection(broker.url))
            heard.append(await stack.enter_async_context(listener.subscribe("a.#")))
        network = await stack.enter_async_context(agent(*two))
        await network.publish("a.b", 1)
        async with asyncio.timeout(PATIENCE):
            for events in heard:
                event = await anext(events)
                assert (event.data, event.source) == (1, network.agent_id)


async def test_events_of_all_brokers_are_received(two: tuple[Broker, Broker]) -> None:
    async with (
        Connection(two[0].url) as first,
        Connection(two[1].url) as second,
        agent(*two) as network,
        network.subscribe("a.#") as events,
    ):
        for publisher in (first, second):
            await publisher.publish("a.b", publisher.agent_id)
            async with asyncio.timeout(PATIENCE):
                event = await anext(events)
            assert event.data == event.source == publisher.agent_id
        await network.close()
        assert [event async for event in events] == []


async def test_agents_are_listed_of_every_broker(two: tuple[Broker, Broker]) -> None:
    first, second = two
    tool = answering("t", 1)
    async with (
        agent(*two) as network,
        offering(first, tool, name="near") as near,
        offering(second, tool, name="far", networks=["global", "elsewhere"]) as far,
    ):
        joined = frozenset({"global"})
        assert await network.agents("t") == [
            Agent(near.agent_id, "near", joined),
            Agent(far.agent_id, "far", joined),
        ]
        assert await network.providers("t") == {near.agent_id, far.agent_id}
        assert await network.agents("missing") == []
        await far.close()
        async with offering(second, answering("t", 2), name="far") as successor:
            listed = await network.agents("t")
            assert listed[1].id == successor.agent_id
            # The call finds an agent that was listed a moment ago.
            assert await network.invoke("t", {}, target_agent=successor.agent_id) == 2


async def test_only_events_of_the_providers_of_a_tool_are_delivered(
    caplog: pytest.LogCaptureFixture, two: tuple[Broker, Broker]
) -> None:
    broker, _ = two
    async with (
        Connection(broker.url) as reader,
        Connection(broker.url) as forger,
        offering(broker, answering("t", 1)) as provider,
        reader.subscribe("a", from_providers_of="t") as events,
        asyncio.timeout(PATIENCE),
    ):
        for number in range(3):
            await forger.publish("a", "forged")
            await provider.publish("a", number)
        assert [(await anext(events)).data for _ in range(3)] == [0, 1, 2]
        async with offering(broker, answering("t", 1)) as late:
            await forger.publish("a", "forged")
            await late.publish("a", "late")
            assert (await anext(events)).data == "late"
        await reader.close()
        assert [event async for event in events] == []
    assert caplog.text.count(f"events of agent {forger.agent_id} are dropped") == 1


async def test_a_subscription_reaches_a_broker_that_joins_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve_broker(port=0) as first:
        async with serve_broker(port=0) as gone:
            url, port = gone.url, int(gone.url.rpartition(":")[2].partition("/")[0])
        async with agent(first, url) as network, network.subscribe("a.#") as events:
            await until(lambda: "going on without it for now" in caplog.text)
            async with serve_broker(port=port) as second:
                await until(lambda: network.connected == ["b1", "b2"])
                async with Connection(second.url) as publisher, asyncio.timeout(PATIENCE):
                    await until(lambda: second.stats()["subscriptions"] == 1)
                    await publisher.publish("a.b", "late")
                    assert (await anext(events)).data == "late"


async def test_one_broker_is_enough_and_the_other_joins_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serve_broker(port=0) as first:
        async with serve_broker(port=0) as gone:
            url, port = gone.url, int(gone.url.rpartition(":")[2].partition("/")[0])
        async with agent(first, url, tools=[answering("t", 1)]) as network:
            assert network.connected == ["b1"]
            await network.publish("a", 1)
            await until(lambda: "going on without it for now" in caplog.text)
            async with serve_broker(port=port) as second:
                await until(lambda: network.connected == ["b1", "b2"])
                async with Connection(second.url) as caller:
                    assert await caller.invoke("t", {}) == 1


async def test_without_any_broker_there_is_no_agent() -> None:
    with pytest.raises(NotConnected, match="127.0.0.1:1"):
        async with agent(NOWHERE, NOWHERE):
            pytest.fail("entered without a broker")
    with pytest.raises(ValueError, match="at least one"):
        Brokers({})


async def test_a_lost_broker_ends_its_own_calls_only(two: tuple[Broker, Broker]) -> None:
    started: asyncio.Queue[str] = asyncio.Queue()
    go_on = asyncio.Event()

    async def wait(tool_input: dict[str, Any], call: Any) -> Any:
        started.put_nowait(call.request_id)
        await go_on.wait()
        return tool_input

    async with (
        agent(*two, tools=[Tool("wait", "", {}, wait)], max_concurrent=2) as network,
        Connection(two[0].url, grace=0) as leaving,
        Connection(two[1].url) as staying,
    ):
        lost = asyncio.create_task(leaving.invoke("wait", {"n": 1}))
        kept = asyncio.create_task(staying.invoke("wait", {"n": 2}))
        async with asyncio.timeout(PATIENCE):
            await started.get()
            await started.get()
        await leaving.close()
        with pytest.raises(KadiError):
            await lost
        await until(lambda: network.calls_waiting == 0)
        go_on.set()
        assert await kept == {"n": 2}


async def test_handlers_share_their_limit_over_all_brokers(two: tuple[Broker, Broker]) -> None:
    running = most = 0
    pairs = asyncio.Barrier(2)

    async def work(_input: dict[str, Any], _call: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await pairs.wait()
        running -= 1
        return None

    async with (
        agent(*two, tools=[Tool("work", "", {}, work)], max_concurrent=2),
        Connection(two[0].url) as first,
        Connection(two[1].url) as second,
    ):
        await asyncio.gather(*(each.invoke("work", {}) for each in (first, second) * 5))
    assert most == 2


async def test_a_failure_of_a_tool_is_raised_from_any_broker(two: tuple[Broker, Broker]) -> None:
    failing = answering("t", {"success": False, "error": "no"})
    async with offering(two[1], failing), agent(*two) as network:
        with pytest.raises(ToolError, match="no"):
            await network.invoke("t", {})
        assert await network.invoke("t", {}, check=False) == {"success": False, "error": "no"}


async def test_closing_ends_serving(two: tuple[Broker, Broker]) -> None:
    async with agent(*two) as network:
        serving = asyncio.create_task(network.serve_forever())
        await asyncio.sleep(0)
        await network.close()
        async with asyncio.timeout(PATIENCE):
            await serving
        with pytest.raises(NotConnected):
            await network.publish("a", 1)
        with pytest.raises(NotConnected):
            await network.invoke("t", {})
        await network.close()


async def test_an_agent_that_a_broker_refuses_goes_on_with_the_others(
    two: tuple[Broker, Broker], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    refusing = two[1].url

    def sign(self: Identity, nonce: str) -> str:
        return original(self, nonce if spoil_after() else "another")

    calls = iter([True, False])
    original = Identity.sign

    def spoil_after() -> bool:
        return next(calls, True)

    monkeypatch.setattr(Identity, "sign", sign)
    async with agent(two[0], refusing) as network:
        await until(lambda: len(network.connected) == 1)
        await until(lambda: "going on without it" in caplog.text)
        assert "authentication failed" in caplog.text
        async with network.subscribe("#") as events:
            await network.close()
            assert [event async for event in events] == []


@pytest.mark.parametrize(("patience", "answers"), [(PATIENCE, True), (0.0, False)])
async def test_a_call_waits_for_a_provider_that_comes_back(
    two: tuple[Broker, Broker], patience: float, answers: bool
) -> None:
    broker, _ = two
    async with Connection(broker.url, provider_patience={"t": patience}) as caller:
        with pytest.raises(NoProvider):
            await caller.invoke("t", {})  # it has never answered: nothing to wait for
        async with offering(broker, answering("t", 1)):
            assert await caller.invoke("t", {}) == 1
        await until(lambda: broker.stats()["tools"] == 0)
        before = broker.stats()["refused"]
        call = asyncio.create_task(caller.invoke("t", {}))
        if answers:
            await until(lambda: broker.stats()["refused"] >= before + 2)
            async with offering(broker, answering("t", 2)):
                assert await call == 2
        else:
            with pytest.raises(NoProvider, match="no provider for tool 't'"):
                await call
