from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.kadi_client.fake_broker import PATIENCE, FakeBroker, Frame, Peer
from tests.kadi_client.offered import ECHO, Forever, echo

from kadi_client import (
    Agent,
    AuthenticationError,
    CallTimeout,
    Connection,
    FrameTooLarge,
    Identity,
    NotConnected,
    ProtocolError,
    Raw,
    RemoteError,
    Tool,
    ToolError,
)
from kadi_client.context import handling
from kadi_client.messages import decode

REQUEST = "kadi.ability.request"


@pytest.fixture
async def broker() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def connection(broker: FakeBroker) -> AsyncIterator[Connection]:
    async with Connection(broker.url, tools=[ECHO], max_backoff=0.05, grace=1.0) as connection:
        yield connection


@contextlib.asynccontextmanager
async def running(coroutine: Any) -> AsyncIterator[asyncio.Task[Any]]:
    """Run a coroutine beside the test, bounded, cancelled at the end."""
    task = asyncio.ensure_future(coroutine)
    try:
        async with asyncio.timeout(PATIENCE):
            yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def acknowledge(peer: Peer, request_id: Any = "r1") -> Frame:
    frame = await peer.expect(REQUEST)
    await peer.reply(frame, {"status": "pending", "requestId": request_id})
    return frame


async def lose(connection: Connection, peer: Peer) -> None:
    """Break the session and wait until the client has noticed."""
    async with running(connection.invoke("t", {})) as call:
        await peer.expect(REQUEST)
        await peer.drop()
        with pytest.raises(NotConnected):
            await call
    assert not connection.connected


# Connecting


async def test_connecting_proves_the_identity_and_registers(broker: FakeBroker) -> None:
    identity = Identity.generate()
    async with Connection(
        broker.url, identity=identity, name="s", role="ability", networks=["n"], tools=[ECHO]
    ) as connection:
        peer = await broker.peer()
        assert peer.public_key == identity.public_key
        assert connection.agent_id == "agent-of-the-broker"
        assert connection.connected
        register = await peer.expect("kadi.agent.register")
        assert register["params"]["networks"] == ["n"]
        assert [tool["name"] for tool in register["params"]["tools"]] == ["echo"]
    assert not connection.connected
    assert peer.methods[-1] == "kadi.session.goodbye"


async def test_small_frames_are_not_delayed(connection: Connection) -> None:
    session = await connection._next_session()
    sock = session.socket.transport.get_extra_info("socket")
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_no_broker_fails_fast(broker: FakeBroker) -> None:
    await broker.stop()
    with pytest.raises(NotConnected, match=f"127.0.0.1:{broker.port}"):
        await Connection(broker.url).open()


async def test_who_waits_for_a_connection_learns_that_it_failed(broker: FakeBroker) -> None:
    await broker.stop()
    connection = Connection(broker.url)
    opening = asyncio.create_task(connection.open())
    await asyncio.sleep(0)
    waiting = asyncio.create_task(connection.wait_connected())
    serving = asyncio.create_task(connection.serve_forever())
    async with asyncio.timeout(PATIENCE):
        for task in (waiting, serving, opening):
            with pytest.raises(NotConnected):
                await task
        with pytest.raises(NotConnected, match="cannot reach"):
            await connection.serve_forever()
    async with broker:
        await connection.open()
        await connection.wait_connected()
        async with running(connection.serve_forever()) as serving:
            await connection.close()
            await serving


async def test_a_connection_that_nobody_opens_serves_nothing(broker: FakeBroker) -> None:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NotConnected, match="not open"):
            await Connection(broker.url).serve_forever()


async def test_a_broker_that_comes_up_late_is_waited_for(broker: FakeBroker) -> None:
    await broker.stop()
    refused = asyncio.Event()
    handler = logging.Handler()
    handler.emit = lambda record: refused.set()  # type: ignore[method-assign]
    logger = logging.getLogger("kadi_client.reconnection")
    logger.addHandler(handler)
    connection = Connection(broker.url, connect_timeout=PATIENCE, max_backoff=0.05)
    try:
        async with running(connection.open()) as opening:
            await refused.wait()
            async with broker:
                await opening
                assert connection.connected
                await connection.close()
    finally:
        logger.removeHandler(handler)


async def test_a_refused_identity_is_not_tried_twice(broker: FakeBroker) -> None:
    attempts = []

    async def refuse(peer: Peer, frame: Frame) -> None:
        attempts.append(frame)
        await peer.refuse(frame, {"code": -32000, "message": "bad signature"})

    broker.script["kadi.session.authenticate"] = refuse
    with pytest.raises(AuthenticationError, match="bad signature"):
        await Connection(broker.url, connect_timeout=PATIENCE).open()
    assert len(attempts) == 1


async def test_a_broker_that_never_answers_is_given_up(broker: FakeBroker) -> None:
    del broker.script["kadi.session.hello"]
    with pytest.raises(NotConnected, match=r"within 0\.1 s"):
        await Connection(broker.url, open_timeout=0.1).open()


async def test_cancelling_the_opening_leaves_nothing_behind(broker: FakeBroker) -> None:
    reached = asyncio.Event()

    async def silence(_peer: Peer, _frame: Frame) -> None:
        reached.set()

    broker.script["kadi.session.hello"] = silence
    connection = Connection(broker.url)
    async with running(connection.open()) as opening:
        await reached.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await connection.serve_forever()
    with pytest.raises(NotConnected):
        await connection.invoke("t", {})


async def test_closing_while_opening_ends_the_opening(broker: FakeBroker) -> None:
    reached = asyncio.Event()

    async def silence(_peer: Peer, _frame: Frame) -> None:
        reached.set()

    broker.script["kadi.session.hello"] = silence
    connection = Connection(broker.url)
    async with running(connection.open()) as opening:
        await reached.wait()
        await connection.close()
        with pytest.raises(NotConnected, match="closed while opening"):
            await opening


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"url": "http://localhost"}, "url"),
        ({"url": "ws://"}, "url"),
        ({"url": "ws://h:port"}, "url"),
        ({"networks": []}, "networks"),
        ({"networks": "global"}, "networks"),
        ({"max_message_bytes": 10}, "max_message_bytes"),
        ({"max_concurrent": 0}, "max_concurrent"),
        ({"tools": [ECHO, ECHO]}, "tools"),
    ],
)
def test_arguments_that_cannot_work_are_named(arguments: Any, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Connection(**arguments)


async def test_a_connection_is_opened_once(connection: Connection) -> None:
    with pytest.raises(RuntimeError, match="once"):
        await connection.open()


async def test_using_an_unopened_connection_says_so() -> None:
    connection = Connection()
    with pytest.raises(NotConnected, match="async with"):
        await connection.invoke("t", {})
    await connection.close()


# Calling


@pytest.mark.parametrize("request_id", ["r1", 7])
@pytest.mark.parametrize("overtaking", [False, True])
async def test_a_call_is_answered_in_either_order(
    broker: FakeBroker, connection: Connection, overtaking: bool, request_id: Any
) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {"q": "é"}, target_agent="a")) as call:
        frame = await peer.expect(REQUEST)
        assert frame["params"]["toolInput"] == {"_kadi": {"requireAgent": "a"}, "q": "é"}
        assert 0 < frame["params"]["timeout"] <= 30_000
        if overtaking:
            await peer.outcome(request_id, result={"n": 1})
        await peer.reply(frame, {"status": "pending", "requestId": request_id})
        if not overtaking:
            await peer.outcome(request_id, result={"n": 1})
        assert await call == {"n": 1}


async def test_a_direct_result_is_final(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {})) as call:
        await peer.reply(await peer.expect(REQUEST), {"n": 1})
        assert await call == {"n": 1}


async def test_an_answer_may_come_in_fragments(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {})) as call:
        key = (await peer.expect(REQUEST))["id"]
        await peer.socket.send(['{"result": {"n', '": 1}, ', f'"id": {key}}}'])
        assert await call == {"n": 1}


async def test_json_is_passed_through_unread(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    async with running(connection.invoke_raw("t", Raw(b'{"x":1.50}'))) as call:
        frame = await acknowledge(peer)
        assert frame["params"]["toolInput"] == {"x": 1.5}
        await peer.send(
            '{"method":"kadi.ability.response","params":{"requestId":"r1","result":{"y": 2.50}}}'
        )
        assert bytes(await call) == b'{"y": 2.50}'


async def test_an_answer_that_reports_a_failure_is_raised(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    answer = {"success": False, "error": "no such row", "code": "not_found"}
    async with running(connection.invoke("t", {})) as call:
        await acknowledge(peer)
        await peer.outcome("r1", result=answer)
        with pytest.raises(ToolError, match="no such row") as failure:
            await call
    assert (failure.value.tool, failure.value.answer) == ("t", answer)


async def test_an_answer_that_reports_a_failure_is_returned_unchecked(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    answer = {"success": False, "error": "no such row"}
    async with running(connection.invoke("t", {}, check=False)) as call:
        await peer.reply(await peer.expect(REQUEST), answer)
        assert await call == answer
    async with running(connection.invoke_raw("t", {})) as raw:
        await peer.reply(await peer.expect(REQUEST), answer)
        assert decode(await raw) == answer


@pytest.mark.parametrize("answer", [{"success": 0}, {"success": True}, {}, [], "text", None, False])
async def test_only_success_false_is_a_failure(
    broker: FakeBroker, connection: Connection, answer: Any
) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {})) as call:
        await peer.reply(await peer.expect(REQUEST), answer)
        assert await call == answer


@pytest.mark.parametrize("error", ["no such row", {"code": -32000, "message": "no such row"}])
async def test_errors_of_the_provider_and_of_the_broker_are_raised(
    broker: FakeBroker, connection: Connection, error: Any
) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {})) as call:
        await acknowledge(peer)
        await peer.outcome("r1", error=error)
        with pytest.raises(RemoteError, match="no such row"):
            await call
    async with running(connection.invoke("t", {})) as call:
        await peer.refuse(await peer.expect(REQUEST), error)
        with pytest.raises(RemoteError, match="no such row"):
            await call


async def test_many_calls_are_told_apart(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    calls = asyncio.gather(*(connection.invoke("t", {"n": n}) for n in range(200)))
    async with running(calls):
        frames = [await peer.expect(REQUEST) for _ in range(200)]
        for frame in reversed(frames):
            n = frame["params"]["toolInput"]["n"]
            await peer.reply(frame, {"status": "pending", "requestId": f"r{n}"})
        for frame in frames:
            n = frame["params"]["toolInput"]["n"]
            await peer.outcome(f"r{n}", result=n)
        assert await calls == list(range(200))


@pytest.mark.parametrize(
    ("propagate", "extended", "sent"),
    [(True, True, {"callId": "a"}), (False, True, None), (True, False, None)],
)
async def test_a_call_carries_its_context_to_a_broker_that_passes_it_on(
    broker: FakeBroker, propagate: bool, extended: bool, sent: Any
) -> None:
    broker.extended = extended
    async with Connection(broker.url, propagate=propagate) as connection:
        peer = await broker.peer()
        with handling({"callId": "a"}):
            async with running(connection.invoke("echo", {"x": 1})) as call:
                frame = await peer.expect(REQUEST)
                await peer.reply(frame, {"x": 1})
                await call
    assert frame["params"]["toolInput"] == {"x": 1}
    assert frame["params"].get("_meta") == sent


async def test_a_call_without_an_answer_times_out_and_the_late_answer_is_dropped(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    with pytest.raises(CallTimeout, match="'t' within 0.05 s"):
        await connection.invoke("t", {}, timeout=0.05)
    await acknowledge(peer)
    await peer.outcome("r1", result="late")
    async with running(connection.invoke("t", {})) as call:
        await acknowledge(peer, "r2")
        await peer.outcome("r2", result="in time")
        assert await call == "in time"


async def test_a_cancelled_call_is_forgotten(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {})) as call:
        await acknowledge(peer)
    session = await connection._next_session()
    assert call.cancelled()
    assert not session._waiters
    assert len(session._calls) == 0


async def test_a_message_over_the_limit_is_refused_before_it_is_sent(broker: FakeBroker) -> None:
    async with Connection(broker.url, max_message_bytes=4096) as connection:
        peer = await broker.peer()
        with pytest.raises(FrameTooLarge):
            await connection.invoke("t", "x" * 5000)
        with pytest.raises(FrameTooLarge):
            await connection.publish("c", "x" * 5000)
        async with running(connection.invoke("t", "x" * 3000)) as call:
            await peer.reply(await peer.expect(REQUEST), 1)
            assert await call == 1


async def test_input_that_is_not_json_is_refused(connection: Connection) -> None:
    with pytest.raises(TypeError):
        await connection.invoke("t", object())


async def test_a_large_message_passes_both_ways(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    text = "x" * 3_000_000
    async with running(connection.invoke("t", text)) as call:
        frame = await peer.expect(REQUEST)
        assert frame["params"]["toolInput"] == text
        await peer.reply(frame, text)
        assert await call == text


async def test_an_unreadable_result_is_an_error(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    async with running(connection.invoke("t", {})) as call:
        frame = await peer.expect(REQUEST)
        await peer.send(b'{"id":%d,"result":1e999}' % frame["id"])
        with pytest.raises(ProtocolError):
            await call


async def test_garbage_is_answered_and_survived(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    await peer.send("{nonsense")
    reply = await peer.expect("")
    assert (reply["id"], reply["error"]["code"]) == (None, -32700)
    await peer.send({"id": "p", "method": "kadi.session.ping"})
    assert (await peer.expect(""))["result"] == "pong"
    await peer.send({"id": 4, "method": "kadi.moon"})
    assert (await peer.expect(""))["error"]["code"] == -32601


async def test_tools_are_listed(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    async with running(connection.list_tools(networks=["n"], include_providers=True)) as call:
        frame = await peer.expect("kadi.ability.list")
        assert frame["params"] == {"networks": ["n"], "includeProviders": True}
        await peer.reply(frame, {"tools": [{"name": "t"}]})
        assert await call == [{"name": "t"}]


async def test_tools_are_listed_by_brokers_that_know_it_as_a_tool_only(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    async with running(connection.list_tools()) as call:
        await peer.refuse(await peer.expect("kadi.ability.list"), {"code": -32601, "message": "?"})
        frame = await peer.expect(REQUEST)
        assert frame["params"]["toolName"] == "kadi.ability.list"
        await peer.reply(frame, {"tools": [{"name": "t"}]})
        assert await call == [{"name": "t"}]


@pytest.mark.parametrize(
    ("providers", "agents"),
    [
        (
            [
                {"agentId": "a", "displayName": "one", "networks": ["global", "elsewhere"]},
                {"agentId": "b"},
            ],
            [Agent("a", "one", frozenset({"global"})), Agent("b")],
        ),
        ([{"sessionId": "s", "source": "mcp-upstream"}], [Agent("")]),
        ([{"agentId": 5, "displayName": None, "networks": "global"}, "?"], [Agent("")]),
        ([], [Agent("")]),
        ("?", [Agent("")]),
        (None, [Agent("")]),
    ],
)
async def test_agents_are_read_from_lists_of_any_form(
    broker: FakeBroker, connection: Connection, providers: Any, agents: list[Agent]
) -> None:
    """Their networks are those that this agent has joined; a broker may name further ones."""
    peer = await broker.peer()
    tools = [{"name": "other"}, {"name": "t", "providers": providers}]
    for tool, expected in (("t", agents), ("missing", [])):
        async with running(connection.agents(tool)) as call:
            frame = await peer.expect("kadi.ability.list")
            assert frame["params"] == {"includeProviders": True}
            await peer.reply(frame, {"tools": tools})
            assert await call == expected
    async with running(connection.providers("t")) as call:
        await peer.reply(await peer.expect("kadi.ability.list"), {"tools": tools})
        assert await call == {agent.id for agent in agents} - {""}


@pytest.mark.parametrize("answer", [{}, {"tools": 5}, []])
async def test_a_list_of_tools_without_tools_is_an_error(
    broker: FakeBroker, connection: Connection, answer: Any
) -> None:
    peer = await broker.peer()
    async with running(connection.list_tools()) as call:
        await peer.reply(await peer.expect("kadi.ability.list"), answer)
        with pytest.raises(ProtocolError, match="no 'tools'"):
            await call
    async with running(connection.list_tools()) as call:
        await peer.refuse(await peer.expect("kadi.ability.list"), "not today")
        with pytest.raises(RemoteError, match="not today"):
            await call


# Offering


async def test_a_tool_is_called_with_its_id_echoed(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    await peer.call("s-1", "echo", {"x": 1, "_kadi": {"requireProvider": "me"}})
    reply = await peer.expect("")
    assert reply == {"jsonrpc": "2.0", "id": "s-1", "result": {"x": 1}}


async def test_the_tools_can_be_replaced_at_any_time(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    await peer.expect("kadi.agent.register")
    await connection.serve([Tool("other", "", {}, echo)])
    register = await peer.expect("kadi.agent.register")
    assert [tool["name"] for tool in register["params"]["tools"]] == ["other"]
    await peer.call(1, "echo", {})
    assert (await peer.expect(""))["error"]["message"] == "unknown tool: echo"
    await peer.call(2, "other", {"x": 1})
    assert (await peer.expect(""))["result"] == {"x": 1}


async def test_a_result_over_the_limit_is_an_error_and_no_dead_socket(broker: FakeBroker) -> None:
    async def large(_input: Any, _call: Any) -> Any:
        return "x" * 5000

    tools = [Tool("large", "", {}, large), ECHO]
    async with Connection(broker.url, tools=tools, max_message_bytes=4096):
        peer = await broker.peer()
        await peer.call("a", "large", {})
        error = (await peer.expect(""))["error"]
        assert "limit of 4096 bytes" in error["message"]
        await peer.call("b", "echo", {})
        assert (await peer.expect(""))["result"] == {}


async def test_a_handler_publishes_on_the_session_its_call_came_in_on(broker: FakeBroker) -> None:
    async def progress(_input: Any, call: Any) -> Any:
        await call.publish("job.progress", {"done": 1})
        await call.publish("job.progress", object())
        return call.request_id

    async with Connection(broker.url, tools=[Tool("progress", "", {}, progress)]):
        peer = await broker.peer()
        await peer.call("a", "progress", {})
        event = await peer.expect("kadi.event.publish")
        params = {"channel": "job.progress", "data": {"done": 1}, "networkId": "global"}
        assert event["params"] == params
        assert (await peer.expect(""))["result"] == "r-a"


async def test_the_broker_can_cancel_a_call(broker: FakeBroker) -> None:
    forever = Forever()
    async with Connection(broker.url, tools=[forever.tool]):
        peer = await broker.peer()
        await peer.call("a", "forever", {})
        async with asyncio.timeout(PATIENCE):
            await forever.started.wait()
            params = {"requestId": "r-a"}
            await peer.send({"method": "kadi.ability.cancel", "params": params})
            await forever.stopped.wait()
        assert "cancelled" in (await peer.expect(""))["error"]["message"]


# Losing the session


async def test_a_lost_session_is_replaced_by_one_just_like_it(
    broker: FakeBroker, connection: Connection
) -> None:
    first = await broker.peer()
    async with connection.subscribe("a.*", "b.#", network="n") as events:
        await first.expect("kadi.event.subscribe")
        await first.drop()
        second = await broker.peer()
        assert second.public_key == first.public_key
        register = await second.expect("kadi.agent.register")
        assert [tool["name"] for tool in register["params"]["tools"]] == ["echo"]
        for pattern in ("a.*", "b.#"):
            subscribe = await second.expect("kadi.event.subscribe")
            assert subscribe["params"] == {"pattern": pattern, "networkId": "n"}
        params = {"channel": "a.x", "data": 5, "networkId": "n"}
        await second.send({"method": "kadi.event.delivery", "params": params})
        async with asyncio.timeout(PATIENCE):
            assert (await anext(events)).data == 5
        await second.call("c", "echo", {"again": True})
        assert (await second.expect(""))["result"] == {"again": True}


async def test_calls_in_flight_fail_at_once_when_the_session_is_lost(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    async with (
        running(connection.invoke("t", {}, timeout=600)) as known,
        running(connection.invoke("t", {}, timeout=600)) as unknown,
    ):
        await acknowledge(peer)
        await peer.expect(REQUEST)
        await peer.drop()
        for call in (known, unknown):
            with pytest.raises(NotConnected, match="lost"):
                await call


async def test_a_call_made_meanwhile_waits_for_the_next_session(
    broker: FakeBroker, connection: Connection
) -> None:
    first = await broker.peer()
    broker.script["kadi.agent.register"], register = _never, broker.script["kadi.agent.register"]
    await first.drop()
    second = await broker.peer()
    frame = await second.expect("kadi.agent.register")
    assert not connection.connected
    async with running(connection.invoke("t", {})) as call:
        await register(second, frame)
        await second.reply(await second.expect(REQUEST), "done")
        assert await call == "done"


async def test_a_call_made_meanwhile_waits_no_longer_than_its_timeout(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    broker.script["kadi.session.hello"] = _never
    await lose(connection, peer)
    with pytest.raises(CallTimeout):
        await connection.invoke("t", {}, timeout=0.05)


async def test_tools_replaced_meanwhile_are_registered_by_the_next_session(
    broker: FakeBroker, connection: Connection
) -> None:
    first = await broker.peer()
    broker.script["kadi.agent.register"], register = _never, broker.script["kadi.agent.register"]
    await first.drop()
    second = await broker.peer()
    frame = await second.expect("kadi.agent.register")
    await connection.serve([Tool("newer", "", {}, echo)])
    await register(second, frame)
    frame = await second.expect("kadi.agent.register")
    assert [tool["name"] for tool in frame["params"]["tools"]] == ["newer"]


async def test_tools_too_large_to_register_meanwhile_do_not_end_the_connection(
    broker: FakeBroker,
) -> None:
    async with Connection(
        broker.url, tools=[ECHO], max_message_bytes=4096, max_backoff=0.05
    ) as connection:
        first = await broker.peer()
        register = broker.script["kadi.agent.register"]
        broker.script["kadi.agent.register"] = _never
        await first.drop()
        second = await broker.peer()
        frame = await second.expect("kadi.agent.register")
        await connection.serve([Tool("large", "x" * 5000, {}, echo)])
        await register(second, frame)
        async with running(connection.invoke("t", {})) as call:
            await second.reply(await second.expect(REQUEST), "alive")
            assert await call == "alive"


async def test_handlers_stop_when_nobody_can_take_their_answer(broker: FakeBroker) -> None:
    forever = Forever()
    async with Connection(broker.url, tools=[forever.tool], max_backoff=0.05):
        peer = await broker.peer()
        await peer.call("a", "forever", {})
        async with asyncio.timeout(PATIENCE):
            await forever.started.wait()
            await peer.drop()
            await forever.stopped.wait()


async def test_a_message_from_the_broker_over_the_limit_ends_the_session_only(
    broker: FakeBroker,
) -> None:
    async with Connection(broker.url, max_message_bytes=4096, max_backoff=0.05) as connection:
        first = await broker.peer()
        async with running(connection.invoke("t", {})) as call:
            await first.reply(await first.expect(REQUEST), "x" * 5000)
            with pytest.raises(NotConnected, match="1009"):
                await call
            second = await broker.peer()
        async with running(connection.invoke("t", {})) as call:
            await second.reply(await second.expect(REQUEST), "small")
            assert await call == "small"


async def test_heartbeats_are_sent_as_the_broker_asks(broker: FakeBroker) -> None:
    broker.heartbeat = 0.1
    async with Connection(broker.url):
        peer = await broker.peer()
        for _ in range(5):
            await peer.expect("kadi.session.heartbeat")
        assert not peer.closed.is_set()


async def test_a_silent_broker_is_left_for_a_new_session(broker: FakeBroker) -> None:
    broker.heartbeat = 0.1
    del broker.script["kadi.session.heartbeat"]
    async with Connection(broker.url, max_backoff=0.05) as connection:
        first = await broker.peer()
        async with running(connection.invoke("t", {})) as call:
            with pytest.raises(NotConnected, match="stopped responding"):
                await call
        await first.wait_closed()
        await broker.peer()


# Events


async def test_events_arrive_where_they_are_wanted(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()

    async def deliver(channel: str, data: Any, network: str | None) -> None:
        params = {"channel": channel, "data": data, "networkId": network, "source": "s"}
        await peer.send({"method": "kadi.event.delivery", "params": params})

    async with (
        connection.subscribe("a.*") as anywhere,
        connection.subscribe("a.b", network="n") as here,
    ):
        await deliver("a.c", 1, "n")
        await deliver("a.b", 2, "m")
        await deliver("a.b", 3, "n")
        async with asyncio.timeout(PATIENCE):
            assert [(await anext(anywhere)).data for _ in range(3)] == [1, 2, 3]
            event = await anext(here)
            assert (event.channel, event.data, event.network) == ("a.b", 3, "n")
    for _ in range(2):
        await peer.expect("kadi.event.unsubscribe")


async def test_events_unwanted_or_unreadable_do_no_harm(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    async with connection.subscribe("a") as events, asyncio.timeout(PATIENCE):
        for params in ('"b","data":1', '"a","data":1e999', '"a","data":2'):
            await peer.send(f'{{"method":"kadi.event.delivery","params":{{"channel":{params}}}}}')
        assert (await anext(events)).data == 2
        assert events.dropped == 0


async def test_iterating_a_subscription_outside_its_context_ends_at_once(
    connection: Connection,
) -> None:
    assert [event async for event in connection.subscribe("a")] == []


async def test_a_pattern_is_unsubscribed_with_its_last_subscription(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    async with connection.subscribe("a", "b"), connection.subscribe("b", "c"):
        pass
    frames = [await peer.expect("kadi.event.unsubscribe") for _ in range(3)]
    assert [frame["params"] for frame in frames] == [{"pattern": each} for each in "cab"]


async def test_a_refused_subscription_raises(broker: FakeBroker, connection: Connection) -> None:
    async def refuse(peer: Peer, frame: Frame) -> None:
        await peer.refuse(frame, "too many")

    broker.script["kadi.event.subscribe"] = refuse
    with pytest.raises(RemoteError, match="too many"):
        async with connection.subscribe("a"):
            pytest.fail("entered a refused subscription")
    assert not connection._subscriptions


async def test_a_subscription_that_is_refused_in_part_is_taken_back(
    broker: FakeBroker, connection: Connection
) -> None:
    async def refuse_some(peer: Peer, frame: Frame) -> None:
        if frame["params"]["pattern"] == "b":
            await peer.refuse(frame, "too many")
        else:
            await peer.reply(frame, {"status": "subscribed"})

    broker.script["kadi.event.subscribe"] = refuse_some
    peer = await broker.peer()
    with pytest.raises(RemoteError, match="too many"):
        async with connection.subscribe("a", "b"):
            pytest.fail("entered a refused subscription")
    frames = [await peer.expect("kadi.event.unsubscribe") for _ in range(2)]
    assert [frame["params"]["pattern"] for frame in frames] == ["a", "b"]


async def test_publishing_waits_for_the_broker(broker: FakeBroker, connection: Connection) -> None:
    peer = await broker.peer()
    await connection.publish("a.b", {"x": 1}, network="n")
    frame = await peer.expect("kadi.event.publish")
    assert frame["params"] == {"channel": "a.b", "data": {"x": 1}, "networkId": "n"}


@pytest.mark.parametrize(("extended", "named"), [(False, ["n1", "n2"]), (True, [None])])
async def test_an_event_for_all_networks_reaches_each(
    broker: FakeBroker, extended: bool, named: list[str | None]
) -> None:
    broker.extended = extended
    async with Connection(broker.url, networks=["n1", "n2"]) as connection:
        peer = await broker.peer()
        await connection.publish("a.b", 1)
        assert peer.methods.count("kadi.event.publish") == len(named)
        frames = [await peer.expect("kadi.event.publish") for _ in named]
    assert [frame["params"].get("networkId") for frame in frames] == named


# Closing


async def test_closing_wakes_everybody(broker: FakeBroker) -> None:
    connection = Connection(broker.url)
    await connection.open()
    peer = await broker.peer()

    listening = asyncio.Event()

    async def listen() -> list[Any]:
        async with connection.subscribe("a") as events:
            listening.set()
            return [event async for event in events]

    async with (
        running(connection.invoke("t", {}, timeout=600)) as call,
        running(listen()) as listener,
        running(connection.serve_forever()) as server,
    ):
        await peer.expect(REQUEST)
        await listening.wait()
        await connection.close()
        with pytest.raises(NotConnected):
            await call
        assert await listener == []
        await server
    await peer.expect("kadi.session.goodbye")
    with pytest.raises(NotConnected, match="closed"):
        await connection.invoke("t", {})
    await connection.close()


async def test_closing_wakes_those_who_wait_for_a_session(
    broker: FakeBroker, connection: Connection
) -> None:
    peer = await broker.peer()
    broker.script["kadi.session.hello"] = _never
    await lose(connection, peer)
    async with running(connection.invoke("t", {}, timeout=600)) as call:
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(NotConnected, match="closed"):
            await call


async def test_running_handlers_finish_before_the_goodbye(broker: FakeBroker) -> None:
    connection: Connection
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_input: Any, _call: Any) -> Any:
        started.set()
        await release.wait()
        return await connection.invoke("inner", {})

    connection = Connection(broker.url, tools=[Tool("slow", "", {}, slow)], grace=PATIENCE)
    await connection.open()
    peer = await broker.peer()
    await peer.call("a", "slow", {})
    async with asyncio.timeout(PATIENCE):
        await started.wait()
    async with running(connection.close()) as closing:
        await asyncio.sleep(0)
        await peer.call("b", "slow", {})
        refusal = await peer.expect("")
        assert (refusal["id"], refusal["error"]["message"]) == (
            "b",
            "the provider is shutting down",
        )
        release.set()
        await peer.reply(await peer.expect(REQUEST), "inner result")
        assert (await peer.expect(""))["result"] == "inner result"
        await closing
    await peer.expect("kadi.session.goodbye")


async def test_a_handler_may_close_the_connection_it_runs_on(broker: FakeBroker) -> None:
    connection: Connection

    async def leave(_input: Any, _call: Any) -> Any:
        await connection.close()

    connection = Connection(broker.url, tools=[Tool("leave", "", {}, leave)], grace=600)
    async with connection:
        peer = await broker.peer()
        await peer.call("a", "leave", {})
        async with asyncio.timeout(PATIENCE):
            await connection.serve_forever()


async def _never(_peer: Peer, _frame: Frame) -> None:
    """Leave a request unanswered."""
