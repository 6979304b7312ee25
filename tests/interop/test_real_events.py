"""Events between the real KADI client and ours."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.interop.conftest import CreatePython, CreateReal
from tests.interop.real_client import ClientError, RealClient, Stream, needs_real_client, within
from tests.interop.relay import Relay

from kadi_client import Call, Tool
from kadi_client.subscriptions import Subscription

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), needs_real_client]

CHANNELS = ["news", "news.today", "news.today.late", "weather.today", "newsroom"]
MATCHES = {
    "news": ["news"],
    "news.*": ["news.today"],
    "news.#": ["news", "news.today", "news.today.late"],
    "*.today": ["news.today", "weather.today"],
    "#.today": ["news.today", "weather.today"],
    "#.late": ["news.today.late"],
    "news.#.late": ["news.today.late"],
    "*.*": ["news.today", "weather.today"],
    "*": ["news", "newsroom"],
    "#": CHANNELS,
}
DATA: list[Any] = [{"a": [1, None]}, "text", 0, False, None, "", "\U0001f9ed", "x" * 1_000_000]


async def received(stream: Stream, number: int) -> list[Any]:
    return [await stream.next() for _ in range(number)]


@pytest.mark.parametrize("pattern", MATCHES)
async def test_the_real_client_gets_the_events_that_match(
    real: CreateReal, python: CreatePython, pattern: str
) -> None:
    ours, theirs = await python(), await real()
    events = await theirs.subscribe(pattern)
    for channel in CHANNELS:
        await ours.publish(channel, channel)
    arrived = await received(events, len(MATCHES[pattern]))
    await theirs.synchronise()
    assert [event["channel"] for event in (*arrived, *events.waiting())] == MATCHES[pattern]


@pytest.mark.parametrize("pattern", MATCHES)
async def test_our_client_gets_the_events_that_match(
    real: CreateReal, python: CreatePython, pattern: str
) -> None:
    ours, theirs = await python(), await real()
    async with ours.subscribe(pattern) as events:
        for channel in CHANNELS:
            await theirs.publish(channel, channel)
        channels = [(await within(anext(events))).channel for _ in MATCHES[pattern]]
    assert channels == MATCHES[pattern]


@pytest.mark.parametrize("data", DATA, ids=lambda data: str(data)[:10])
async def test_an_event_arrives_complete(
    real: CreateReal, python: CreatePython, relay: Relay, data: Any
) -> None:
    ours, theirs = await python(), await real(url=relay.url)
    events = await theirs.subscribe("news.*")
    async with ours.subscribe("news.*") as mine:
        began = time.time() * 1000
        await ours.publish("news.ours", data)
        arrived = await received(events, 1)
        await theirs.publish("news.theirs", data)
        arrived += await received(events, 1)
        for event, agent in zip(arrived, (ours.agent_id, theirs.agent_id), strict=True):
            at = (await within(anext(mine))).data
            assert (at == data) is True
            assert began - 1 <= event.pop("timestamp") <= time.time() * 1000 + 1
            assert (event.pop("data") == data) is True
            assert event.pop("source") == agent
            assert event.pop("networkId") == "global"
            assert event.pop("channel").startswith("news.")
            assert event == {}
    for delivery in relay.calls("kadi.event.delivery"):
        assert delivery["params"].keys() == {
            "channel",
            "data",
            "networkId",
            "source",
            "timestamp",
        }
        assert isinstance(delivery["params"]["timestamp"], int)


async def test_two_handlers_of_one_pattern_get_each_event_once(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    ours, theirs = await python(), await real(url=relay.url)
    first, second = await theirs.subscribe("news.*"), await theirs.subscribe("news.*")
    assert len(relay.calls("kadi.event.subscribe")) == 1
    await ours.publish("news.today", 1)
    assert [len(await received(each, 1)) for each in (first, second)] == [1, 1]
    await first.end()
    assert relay.calls("kadi.event.unsubscribe") == []
    await ours.publish("news.today", 2)
    assert [event["data"] for event in await received(second, 1)] == [2]
    assert first.waiting() == []
    await second.end()
    assert len(relay.calls("kadi.event.unsubscribe")) == 1
    await ours.publish("news.today", 3)
    await theirs.synchronise()
    assert [first.waiting(), second.waiting()] == [[], []]
    assert len(relay.calls("kadi.event.delivery")) == 2


async def test_an_event_that_two_patterns_match_reaches_each_handler_once(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    """The client hands a delivery to every handler that matches: the broker must send one."""
    ours, theirs = await python(), await real(url=relay.url)
    wide, narrow = await theirs.subscribe("news.#"), await theirs.subscribe("news.today")
    await ours.publish("news.today", 1)
    assert [len(await received(each, 1)) for each in (wide, narrow)] == [1, 1]
    await theirs.synchronise()
    assert wide.waiting() == narrow.waiting() == []
    assert len(relay.calls("kadi.event.delivery")) == 1


async def test_unsubscribing_from_one_pattern_leaves_the_other(
    real: CreateReal, python: CreatePython
) -> None:
    ours, theirs = await python(), await real()
    wide, narrow = await theirs.subscribe("news.#"), await theirs.subscribe("news.today")
    await wide.end()
    for channel in ("news.today", "news.yesterday"):
        await ours.publish(channel, channel)
    assert [event["data"] for event in await received(narrow, 1)] == ["news.today"]
    await theirs.synchronise()
    assert wide.waiting() == narrow.waiting() == []


async def test_our_unsubscription_ends_the_deliveries(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    ours, theirs = await python(url=relay.url), await real()
    async with ours.subscribe("news.*", "weather.*"):
        pass
    await ours.list_tools()
    assert len(relay.calls("kadi.event.unsubscribe")) == 2
    await theirs.publish("news.today", 1)
    await ours.list_tools()
    assert relay.calls("kadi.event.delivery") == []


async def test_a_publisher_that_subscribes_gets_its_own_events(real: CreateReal) -> None:
    client = await real()
    events = await client.subscribe("news.*")
    await client.publish("news.today", 1)
    assert (await events.next())["source"] == client.agent_id


async def test_events_stay_in_their_network(real: CreateReal, python: CreatePython) -> None:
    both: RealClient = await real(networks=["red", "green"])
    red, green = await real(networks=["red"]), await python(networks=["green"])
    at_both, at_red = await both.subscribe("#"), await red.subscribe("#")
    async with green.subscribe("#") as at_green:
        await both.publish("first", 1)
        await both.publish("second", 2, network="green")
        await red.publish("third", 3)
        await green.publish("fourth", 4)
        with pytest.raises(ClientError, match="'green' is not a network of this session"):
            await red.publish("fifth", 5, network="green")
        assert sorted(seen(await received(at_both, 4))) == [
            (1, "red"),
            (2, "green"),
            (3, "red"),
            (4, "green"),
        ]
        assert sorted(seen(await received(at_red, 2))) == [(1, "red"), (3, "red")]
        mine = [await within(anext(at_green)) for _ in range(2)]
        assert sorted((event.data, event.network) for event in mine) == [(2, "green"), (4, "green")]


def seen(events: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    return [(event["data"], event["networkId"]) for event in events]


async def test_an_event_of_ours_reaches_a_client_of_two_networks_once(
    real: CreateReal, python: CreatePython
) -> None:
    ours, theirs = await python(networks=["red", "green"]), await real(networks=["green", "red"])
    events = await theirs.subscribe("news")
    for number in (1, 2):
        await ours.publish("news", number)
    assert [event["data"] for event in await received(events, 2)] == [1, 2]


# --- events of an ability ----------------------------------------------------------------------


def announcing() -> Tool:
    """A tool that publishes what it is given, within its call."""

    async def announce(tool_input: dict[str, Any], call: Call) -> Any:
        await call.publish(tool_input["channel"], tool_input["data"])
        return "announced"

    return Tool("announce", "", {"type": "object"}, announce)


async def test_a_loaded_ability_passes_on_its_own_events_only(
    real: CreateReal, python: CreatePython
) -> None:
    wanted = await python(name="wanted", tools=[announcing()])
    other = await python(name="other", tools=[announcing()])
    caller = await real()
    ability = await caller.load_broker("wanted")
    events, everything = await ability.on("news.*"), await caller.subscribe("news.*")
    await other.publish("news.today", "of the other")
    await wanted.publish("news.today", "of the wanted")
    call = {"channel": "news.late", "data": {"within": "a call"}}
    assert await ability.invoke("announce", call) == "announced"
    sources = [event["source"] for event in await received(everything, 3)]
    assert sorted(sources) == sorted([other.agent_id, wanted.agent_id, wanted.agent_id])
    assert await received(events, 2) == ["of the wanted", {"within": "a call"}]
    await events.end()
    await wanted.publish("news.today", "too late")
    assert len(await received(everything, 1)) == 1
    assert events.waiting() == []


async def test_an_event_of_a_call_comes_before_its_answer(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    await python(name="wanted", tools=[announcing()])
    caller = await real(url=relay.url)
    ability = await caller.load_broker("wanted")
    await ability.on("news.*")
    await caller.synchronise()
    await ability.invoke("announce", {"channel": "news.today", "data": 1})
    methods = [frame["method"] for frame in relay.received if "method" in frame]
    assert methods == ["kadi.event.delivery", "kadi.ability.response"]


async def test_leaving_an_ability_unsubscribes(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    wanted = await python(name="wanted", tools=[announcing()])
    caller = await real(url=relay.url)
    ability = await caller.load_broker("wanted")
    events = await ability.on("news.*")
    await caller.synchronise()
    await ability.disconnect()
    assert len(relay.calls("kadi.event.unsubscribe")) == 1
    await wanted.publish("news.today", 1)
    await caller.synchronise()
    assert events.waiting() == []


async def test_a_thousand_events_arrive_in_order(real: CreateReal, python: CreatePython) -> None:
    ours, theirs = await python(), await real()
    events = await theirs.subscribe("news.#")
    subscription: Subscription = ours.subscribe("news.#")
    async with subscription as mine:
        for number in range(1000):
            await ours.publish(f"news.n{number}", number)
        assert [event["data"] for event in await received(events, 1000)] == list(range(1000))
        assert [(await within(anext(mine))).data for _ in range(1000)] == list(range(1000))
