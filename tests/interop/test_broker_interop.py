"""The broker of this project against a client that only knows the protocol, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.interop.kadi_peer import PATIENCE, Peer
from tests.networks import Network, connected

from kadi_localnet.broker import Limits


@pytest.fixture
async def broker(backplane: str | None) -> AsyncIterator[Network]:
    async with running(backplane) as network:
        yield network


@asynccontextmanager
async def running(backplane: str | None, **limits: Any) -> AsyncIterator[Network]:
    limits = {"handshake_timeout": 1.0, **limits}
    async with connected(backplane, limits=Limits(**limits)) as network:
        yield network


async def settled(broker: Network, watcher: Peer, **expected: int) -> None:
    """Return once the counters are as expected; a dead peer makes no sign but the broker's own."""
    async with asyncio.timeout(PATIENCE):
        while {name: broker.stats()[name] for name in expected} != expected:
            await watcher.synchronise()


# --- handshake ---------------------------------------------------------------------------------


async def test_the_handshake_gives_the_agent_id_of_the_key(broker: Network) -> None:
    peer = await Peer.open(broker.url)
    hello = await peer.request("kadi.session.hello", {"role": "agent", "version": "0.12"})
    assert isinstance(hello["nonce"], str)
    assert hello["heartbeatInterval"] == 30
    assert hello["directReplies"] is True
    answer = await peer.authenticate(hello["nonce"], wantNewId=False)
    der = base64.b64decode(peer.public_key)
    assert len(der) == 44
    assert answer["agentId"] == hashlib.sha256(peer.public_key.encode()).hexdigest()[:16]
    assert await peer.request("kadi.session.ping") == "pong"


async def test_the_same_key_is_the_same_agent_and_another_is_another(broker: Network) -> None:
    first, second, third = [await Peer.open(broker.url) for _ in range(3)]
    second.key = first.key
    for peer in (first, second, third):
        await peer.log_in()
    assert first.agent_id == second.agent_id != third.agent_id


async def test_a_nonce_need_not_be_repeated(broker: Network) -> None:
    peer = await Peer.open(broker.url)
    nonce = (await peer.request("kadi.session.hello", {"role": "ability"}))["nonce"]
    params = {"publicKey": peer.public_key, "signature": peer.sign(nonce)}
    assert len((await peer.request("kadi.session.authenticate", params))["agentId"]) == 16


@pytest.mark.parametrize(
    "forge",
    [
        lambda peer, nonce: {"signature": peer.sign(nonce + "x")},
        lambda peer, nonce: {
            "signature": base64.b64encode(
                Ed25519PrivateKey.generate().sign(nonce.encode())
            ).decode()
        },
        lambda peer, nonce: {"signature": "not base64!"},
        lambda peer, nonce: {"signature": ""},
        lambda peer, nonce: {"publicKey": "AAAA"},
        lambda peer, nonce: {"publicKey": base64.b64encode(bytes(44)).decode()},
        lambda peer, nonce: {
            "signature": base64.b64encode(
                peer.key.sign(base64.urlsafe_b64decode(nonce + "=="))
            ).decode()
        },
    ],
    ids=["other-text", "other-key", "no-base64", "empty", "no-key", "null-key", "decoded-nonce"],
)
async def test_a_wrong_signature_is_an_error_and_then_the_end(broker: Network, forge: Any) -> None:
    peer = await Peer.open(broker.url)
    nonce = (await peer.request("kadi.session.hello", {"role": "agent"}))["nonce"]
    answer = await peer.authenticate(nonce, **forge(peer, nonce))
    assert "authentication failed" in answer["error"]["message"]
    assert await peer.closed() == 1008


async def test_a_nonce_is_good_for_one_authentication(broker: Network) -> None:
    peer = await Peer.open(broker.url)
    nonce = (await peer.request("kadi.session.hello", {"role": "agent"}))["nonce"]
    assert "agentId" in await peer.authenticate(nonce)
    assert "nonce" in (await peer.authenticate(nonce))["error"]["message"]
    assert await peer.closed() == 1008


async def test_a_nonce_of_another_session_is_refused(broker: Network) -> None:
    mine, other = await Peer.open(broker.url), await Peer.open(broker.url)
    await mine.request("kadi.session.hello", {"role": "agent"})
    foreign = (await other.request("kadi.session.hello", {"role": "agent"}))["nonce"]
    assert "nonce" in (await mine.authenticate(foreign))["error"]["message"]
    assert await mine.closed() == 1008
    assert "agentId" in await other.authenticate(foreign)


async def test_nothing_but_the_handshake_is_served_to_strangers(broker: Network) -> None:
    await Peer.join(broker.url, tools=["echo"])
    peer = await Peer.open(broker.url)
    for method in ("kadi.ability.list", "kadi.ability.request", "kadi.event.publish"):
        answer = await peer.request(method, {"toolName": "echo", "channel": "c"})
        assert "not authenticated" in answer["error"]["message"]
    await peer.log_in()
    assert len((await peer.request("kadi.ability.list"))["tools"]) == 1


# --- calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize("id_", [1, 0, "a-string-id", "7", 2**53])
async def test_a_call_is_answered_under_the_id_it_was_made(broker: Network, id_: int | str) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    await caller.send(
        {
            "id": id_,
            "method": "kadi.ability.request",
            "params": {"toolName": "echo", "toolInput": {"text": "héllo\u2028", "n": 1.5}},
        }
    )
    asked = await provider.asked()
    assert isinstance(asked["id"], str)
    assert asked["params"]["toolName"] == "echo"
    assert asked["params"]["toolInput"] == {"text": "héllo\u2028", "n": 1.5}
    await provider.answer(asked, {"echoed": asked["params"]["toolInput"]})
    notice = await caller.notified("kadi.ability.response")
    pending = await caller.expect(lambda frame: frame.get("id") == id_)
    assert type(pending["id"]) is type(id_)
    assert pending["result"] == {"status": "pending", "requestId": notice["params"]["requestId"]}
    assert asked["params"]["requestId"] == notice["params"]["requestId"]
    assert notice["params"]["result"] == {"echoed": {"text": "héllo\u2028", "n": 1.5}}


async def test_older_spellings_of_a_call_are_understood(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    await caller.request("kadi.ability.request", {"name": "echo", "arguments": {"a": 1}})
    assert (await provider.asked())["params"]["toolInput"] == {"a": 1}
    await caller.request("kadi.ability.request", {"toolName": "echo"})
    assert (await provider.asked())["params"]["toolInput"] == {}


async def test_a_failure_arrives_as_a_string(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    request_id = await caller.start("echo")
    await provider.fail(await provider.asked(), {"code": -32000, "message": "it broke"})
    assert await caller.outcome(request_id) == {"requestId": request_id, "error": "it broke"}


@pytest.mark.parametrize("error", ["", {"code": -32000, "message": ""}])
async def test_a_failure_without_a_message_is_given_one(broker: Network, error: Any) -> None:
    """Clients test the text: an empty one would be a success without a result."""
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    request_id = await caller.start("echo")
    await provider.fail(await provider.asked(), error)
    assert (await caller.outcome(request_id))["error"] == "the tool failed without a message"


async def test_an_answer_without_a_result_is_null(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    request_id = await caller.start("echo")
    await provider.send({"jsonrpc": "2.0", "id": (await provider.asked())["id"]})
    assert await caller.outcome(request_id) == {"requestId": request_id, "result": None}


async def test_answers_may_come_in_any_order(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    started = [await caller.start("echo", {"n": n}) for n in range(5)]
    asked = [await provider.asked() for _ in started]
    for request in reversed(asked):
        await provider.answer(request, request["params"]["toolInput"]["n"])
    for number, request_id in enumerate(started):
        assert (await caller.outcome(request_id))["result"] == number


async def test_a_tool_on_a_network_that_the_caller_may_join_is_named_with_that_network(
    broker: Network,
) -> None:
    await Peer.join(broker.url, tools=["elsewhere"], networks=["annex"])
    caller = await Peer.join(broker.url, networks=["global", "lab"])

    async def refusal(tool: str) -> str:
        answer = await caller.request("kadi.ability.request", {"toolName": tool})
        text: str = answer["error"]["message"]
        assert f"'{tool}'" in text
        assert "global, lab" in text
        return text

    assert "annex" not in await refusal("absent")
    assert "it is offered on network 'annex', which this agent may join" in await refusal(
        "elsewhere"
    )


@pytest.mark.parametrize("hint", ["targetAgent", "requireProvider", "requireAgent"])
async def test_a_named_provider_is_the_only_one_asked(broker: Network, hint: str) -> None:
    first = await Peer.join(broker.url, tools=["echo"])
    second = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)

    def params(agent: str) -> dict[str, Any]:
        if hint == "targetAgent":
            return {"toolName": "echo", "toolInput": {}, "targetAgent": agent}
        return {"toolName": "echo", "toolInput": {"_kadi": {hint: agent}}}

    for _ in range(3):
        answer = await caller.request("kadi.ability.request", params(second.agent_id))
        assert answer["status"] == "pending"
        await second.asked()
    await first.synchronise()
    assert first.kept == []
    answer = await caller.request("kadi.ability.request", params("feedfacefeedface"))
    assert "feedfacefeedface" in answer["error"]["message"]
    assert "'echo'" in answer["error"]["message"]


async def test_two_providers_share_the_load(broker: Network) -> None:
    providers = [await Peer.join(broker.url, tools=["echo"]) for _ in range(2)]
    caller = await Peer.join(broker.url)
    for _ in range(10):
        await caller.start("echo")
    for provider in providers:
        for _ in range(5):
            await provider.asked()


async def test_the_death_of_a_provider_ends_its_calls_at_once(broker: Network) -> None:
    doomed = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    started = [await caller.start("echo", timeout=3_600_000) for _ in range(3)]
    for _ in started:
        await doomed.asked()
    doomed.vanish()
    for request_id in started:
        assert "disconnected" in (await caller.outcome(request_id))["error"]
    answer = await caller.request("kadi.ability.request", {"toolName": "never offered"})
    assert "no provider" in answer["error"]["message"]


async def test_a_call_waits_for_a_provider_that_has_left_to_come_back(broker: Network) -> None:
    leaving = await Peer.join(broker.url, tools=["echo"])
    callers = [await Peer.join(broker.url) for _ in range(3)]
    await leaving.leave()
    await settled(broker, callers[0], tools=0)
    waiting = [await caller.start("echo", {"n": n}) for n, caller in enumerate(callers)]
    assert (await callers[0].request("kadi.ability.list"))["tools"] == []
    back = await Peer.join(broker.url, tools=["echo"])
    for _ in callers:
        asked = await back.asked()
        await back.answer(asked, asked["params"]["toolInput"]["n"])
    for n, caller in enumerate(callers):
        assert (await caller.outcome(waiting[n]))["result"] == n


async def test_a_call_does_not_wait_longer_than_a_provider_may_be_away(
    backplane: str | None,
) -> None:
    async with running(backplane, absence=0.1) as broker:
        leaving, caller = await Peer.join(broker.url, tools=["echo"]), await Peer.join(broker.url)
        await leaving.leave()
        await settled(broker, caller, tools=0)
        answer = await caller.request("kadi.ability.request", {"toolName": "echo"})
        if "error" not in answer:
            answer = await caller.outcome(answer["requestId"])
        assert "no provider for tool 'echo'" in str(answer["error"])


async def test_the_death_of_a_caller_harms_nobody(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    doomed, other = await Peer.join(broker.url), await Peer.join(broker.url)
    request_id = await doomed.start("echo")
    asked = await provider.asked()
    doomed.vanish()
    notice = await provider.notified("kadi.ability.cancel")
    assert notice["params"] == {"requestId": request_id, "reason": "caller_lost"}
    assert "id" not in notice
    await provider.answer(asked, "for nobody")
    second = await other.start("echo")
    await provider.answer(await provider.asked(), "for somebody")
    assert (await other.outcome(second))["result"] == "for somebody"
    assert broker.stats()["calls_discarded"] == 1


async def test_a_call_that_takes_too_long_ends_with_an_error(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["slow"])
    caller = await Peer.join(broker.url)
    request_id = await caller.start("slow", timeout=50)
    asked = await provider.asked()
    assert 0 < asked["params"]["timeout"] <= 50
    ended = await caller.outcome(request_id)
    assert "'slow'" in ended["error"]
    assert "0.05 s" in ended["error"]
    assert (await provider.notified("kadi.ability.cancel"))["params"] == {"requestId": request_id}
    await provider.answer(asked, "too late")
    await provider.synchronise()
    await caller.synchronise()
    assert caller.kept == []


async def test_a_caller_that_asks_for_a_direct_reply_gets_one_frame(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    call = {"toolName": "echo", "toolInput": {"a": 1}, "directReply": True}
    request = {"jsonrpc": "2.0", "method": "kadi.ability.request", "params": call}
    lookalike = {"status": "pending", "requestId": "r"}
    await caller.send({**request, "id": "first"})
    await caller.send({**request, "id": "second"})
    await caller.send({**request, "id": "third"})
    asked = [await provider.asked() for _ in range(3)]
    await caller.send({"method": "kadi.ability.cancel", "params": {"id": "third"}})
    told = (await provider.notified("kadi.ability.cancel"))["params"]
    assert told == {"requestId": asked[2]["params"]["requestId"]}
    await provider.fail(asked[1], {"code": -32601, "message": "it broke"})
    await provider.answer(asked[0], lookalike)
    await provider.answer(asked[2], "for nobody")
    await settled(broker, provider, calls_discarded=1)
    assert [await caller.expect(lambda frame: True) for _ in range(2)] == [
        {"jsonrpc": "2.0", "id": "second", "error": {"code": -32000, "message": "it broke"}},
        {"jsonrpc": "2.0", "id": "first", "result": lookalike},
    ]


# --- discovery ---------------------------------------------------------------------------------


async def test_discovery_speaks_all_its_dialects(broker: Network) -> None:
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    tool = {"name": "search", "description": "finds", "inputSchema": schema}
    provider = await Peer.join(broker.url, tools=[tool, "other"], displayName="finder")
    await Peer.join(broker.url, tools=["hidden"], networks=["elsewhere"])
    caller = await Peer.join(broker.url)
    params = {"includeProviders": True, "networks": ["global"]}
    direct = await caller.request("kadi.ability.list", params)
    inline = await caller.request(
        "kadi.ability.request", {"toolName": "kadi.ability.list", "toolInput": params}
    )
    assert "requestId" not in inline
    assert direct == inline
    assert [entry["name"] for entry in direct["tools"]] == ["other", "search"]
    (found,) = (
        await caller.request(
            "kadi.ability.request",
            {
                "toolName": "kadi.discover",
                "toolInput": {"tool": "search", "includeProviders": True, "_kadi": {}},
            },
        )
    )["tools"]
    assert found == direct["tools"][1]
    assert found["inputSchema"] == schema
    (source,) = found["providers"]
    assert (source["agentId"], source["displayName"]) == (provider.agent_id, "finder")
    assert {"sessionId", "source"} <= source.keys()
    plain = await caller.request("kadi.discover", {"tool": "search"})
    assert plain["tools"] == [tool]


async def test_registering_again_replaces_the_tools(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["before"])
    caller = await Peer.join(broker.url)
    await provider.request("kadi.agent.register", {"tools": [{"name": "after"}]})
    listed = (await caller.request("kadi.ability.list"))["tools"]
    assert [tool["name"] for tool in listed] == ["after"]
    answer = await caller.request("kadi.ability.request", {"toolName": "before"})
    assert "no provider" in answer["error"]["message"]


# --- events ------------------------------------------------------------------------------------


async def test_events_reach_those_who_want_them(broker: Network) -> None:
    publisher = await Peer.join(broker.url)
    wide, narrow = await Peer.join(broker.url), await Peer.join(broker.url)
    await wide.request("kadi.event.subscribe", {"channels": ["search.#"], "networkId": "global"})
    await narrow.request("kadi.event.subscribe", {"channels": ["search.*.done"]})
    await publisher.request(
        "kadi.event.publish", {"channel": "search.index.done", "data": {"n": [1, None]}}
    )
    await publisher.request("kadi.event.publish", {"channel": "search", "data": "root"})
    for peer in (wide, narrow):
        frame = await peer.notified("kadi.event.delivery")
        assert "id" not in frame
        assert frame["params"].pop("timestamp") > 1.6e12
        assert frame["params"] == {
            "channel": "search.index.done",
            "data": {"n": [1, None]},
            "networkId": "global",
            "source": publisher.agent_id,
        }
    assert (await wide.notified("kadi.event.delivery"))["params"]["data"] == "root"
    await narrow.synchronise()
    assert narrow.kept == []
    await wide.request("kadi.event.unsubscribe", {"channels": ["search.#"]})
    await publisher.request("kadi.event.publish", {"channel": "search.more", "data": 1})
    await wide.synchronise()
    assert wide.kept == []


async def test_networks_keep_events_apart(broker: Network) -> None:
    publisher = await Peer.join(broker.url, networks=["red", "blue"])
    red, green = [await Peer.join(broker.url, networks=[name]) for name in ("red", "green")]
    for peer in (red, green):
        await peer.request("kadi.event.subscribe", {"channels": ["#"]})
    await publisher.request("kadi.event.publish", {"channel": "c", "data": 1, "networkId": "blue"})
    await publisher.request("kadi.event.publish", {"channel": "c", "data": 2})
    frame = await red.notified("kadi.event.delivery")
    assert (frame["params"]["data"], frame["params"]["networkId"]) == (2, "red")
    await green.synchronise()
    assert green.kept == []
    answer = await green.request("kadi.event.publish", {"channel": "c", "networkId": "red"})
    assert "networkId" in answer["error"]["message"]


# --- what goes wrong ---------------------------------------------------------------------------


async def test_garbage_is_answered_and_the_connection_lives(broker: Network) -> None:
    peer = await Peer.join(broker.url)
    frames: list[tuple[str | bytes, int]] = [
        ("this is no json", -32700),
        ("", -32700),
        ('{"id": 1, "method": "kadi.session.ping"', -32700),
        (b"\xff\xfe\xfd", -32700),
        ("[1, 2]", -32600),
        ('{"jsonrpc": "2.0"}', -32600),
    ]
    for text, code in frames:
        await peer.send_text(text)
        answer = await peer.expect(lambda frame: "error" in frame)
        assert (answer["id"], answer["error"]["code"]) == (None, code)
    answer = await peer.request("kadi.unheard.of")
    assert answer["error"]["code"] == -32601
    await peer.synchronise()


async def test_a_binary_frame_is_read_as_text(broker: Network) -> None:
    peer = await Peer.join(broker.url)
    await peer.send_text(b'{"id": "b", "method": "kadi.session.ping"}')
    assert (await peer.expect(lambda frame: frame["id"] == "b"))["result"] == "pong"


async def test_a_message_may_come_in_fragments(broker: Network) -> None:
    peer = await Peer.join(broker.url)
    parts = ["", '{"id": "f", "met', "", 'hod": "kadi.session.ping"}', ""]
    for _ in range(2):
        await peer.socket.send(parts)
        assert (await peer.expect(lambda frame: frame["id"] == "f"))["result"] == "pong"
        await peer.synchronise()


async def test_an_oversize_message_costs_its_sender_the_session_and_nobody_else(
    backplane: str | None,
) -> None:
    async with running(backplane, max_message_bytes=100_000) as broker:
        provider = await Peer.join(broker.url, tools=["echo"])
        greedy, modest = await Peer.join(broker.url), await Peer.join(broker.url)
        request_id = await modest.start("echo")
        await greedy.send_text(json.dumps({"id": 1, "method": "x", "params": "y" * 100_000}))
        assert await greedy.closed() == 1009
        await provider.answer(await provider.asked(), "y" * 99_000)
        assert len((await modest.outcome(request_id))["result"]) == 99_000


async def test_a_message_of_many_megabytes_passes(broker: Network) -> None:
    provider = await Peer.join(broker.url, tools=["echo"])
    caller = await Peer.join(broker.url)
    text = "x" * (20 * 1024 * 1024)
    request_id = await caller.start("echo", {"text": text})
    asked = await provider.asked()
    assert asked["params"]["toolInput"]["text"] == text
    await provider.answer(asked, text)
    assert (await caller.outcome(request_id))["result"] == text


async def test_a_consumer_that_stops_reading_loses_old_events_and_slows_nobody(
    backplane: str | None,
) -> None:
    async with running(backplane, outbox_frames=10) as broker:
        publisher, good = await Peer.join(broker.url), await Peer.join(broker.url)
        stuck = await Peer.join(broker.url)
        for peer in (stuck, good):
            await peer.request("kadi.event.subscribe", {"channels": ["#"]})
        stuck.socket.transport.pause_reading()
        data = "x" * 200_000
        sent = 0
        async with asyncio.timeout(PATIENCE):
            while broker.stats()["events_dropped"] < 5:
                sent += 1
                await publisher.request(
                    "kadi.event.publish", {"channel": "c", "data": [sent, data]}
                )
                frame = await good.notified("kadi.event.delivery")
                assert frame["params"]["data"][0] == sent
        dropped = broker.stats()["events_dropped"]
        stuck.socket.transport.resume_reading()
        numbers = [
            (await stuck.notified("kadi.event.delivery"))["params"]["data"][0]
            for _ in range(sent - dropped)
        ]
        assert numbers == sorted(numbers)
        assert numbers[-10:] == list(range(sent - 9, sent + 1))
        await stuck.synchronise()


async def test_a_caller_that_stops_reading_is_cut_off_and_its_calls_with_it(
    backplane: str | None,
) -> None:
    async with running(backplane, outbox_frames=5, outstanding=10_000) as broker:
        provider = await Peer.join(broker.url, tools=["echo"])
        stuck, good = await Peer.join(broker.url), await Peer.join(broker.url)
        waiting = await stuck.start("echo")
        await provider.asked()
        stuck.socket.transport.pause_reading()
        result = "x" * 200_000
        async with asyncio.timeout(PATIENCE):
            while not broker.stats()["overflows"]:
                await stuck.send(
                    {
                        "id": "more",
                        "method": "kadi.ability.request",
                        "params": {"toolName": "echo", "toolInput": {}},
                    }
                )
                await provider.answer(await provider.asked(), result)
                await provider.synchronise()
        notice = await provider.notified(
            "kadi.ability.cancel", lambda params: params["requestId"] == waiting
        )
        assert notice["params"]["requestId"] == waiting
        request_id = await good.start("echo")
        await provider.answer(await provider.asked(), "fine")
        assert (await good.outcome(request_id))["result"] == "fine"
        stuck.vanish()


async def test_a_session_that_overflows_is_told_1013(backplane: str | None) -> None:
    async with running(backplane, outbox_frames=1) as broker:
        peer = await Peer.join(broker.url)
        peer.socket.transport.pause_reading()
        async with asyncio.timeout(PATIENCE):
            number = 0
            while not broker.stats()["overflows"]:
                number += 1
                id_ = f"{number}-" + "x" * 300_000
                await peer.send({"id": id_, "method": "kadi.session.ping"})
        peer.socket.transport.resume_reading()
        assert await peer.closed() == 1013


async def test_goodbye_is_answered_before_the_close(broker: Network) -> None:
    peer = await Peer.join(broker.url, tools=["echo"])
    assert await peer.request("kadi.session.goodbye") == {"status": "goodbye"}
    assert await peer.closed() == 1000
    await settled(broker, await Peer.join(broker.url), tools=0)


async def test_a_silent_session_is_dropped(backplane: str | None) -> None:
    async with running(backplane, silence=0.2, heartbeat=0.1) as broker:
        provider = await Peer.join(broker.url, tools=["echo"])
        assert await provider.closed() == 1008
        assert broker.stats()["silent"] == 1


async def test_whatever_ends_a_session_leaves_nothing_behind(broker: Network) -> None:
    watcher = await Peer.join(broker.url)
    for end in (Peer.leave, Peer.vanish):
        provider = await Peer.join(broker.url, tools=["echo"], networks=["n"])
        await provider.request("kadi.event.subscribe", {"channels": ["#"]})
        await provider.start("echo")
        ended = end(provider)
        if ended is not None:
            await ended
        nothing = {"tools": 0, "subscriptions": 0, "outstanding_calls": 0}
        await settled(broker, watcher, sessions=1, connections=1, **nothing)
