from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.kadi_client.offered import ECHO, Forever

from kadi_client import Tool, serve_stdio
from kadi_client.framing import Message, MessageReader, frame
from kadi_client.pipes import PIECE_BYTES

PATIENCE = 10.0


class Client:
    """The other ends of the pipes."""

    def __init__(self, to_server: int, from_server: int) -> None:
        self._to_server = os.fdopen(to_server, "wb", buffering=0)
        self._from_server = os.fdopen(from_server, "rb", buffering=0)
        self._reader = MessageReader(2**25)
        self._items: list[Any] = []

    async def send(self, data: bytes) -> None:
        await asyncio.to_thread(self._to_server.write, data)

    async def call(self, method: str, params: Any = None, *, id_: Any = 1, headed: bool) -> None:
        message = {"id": id_, "method": method, "params": params or {}}
        await self.send(frame(json.dumps(message).encode(), headed=headed))

    async def message(self) -> Message:
        async with asyncio.timeout(PATIENCE):
            while not self._items:
                piece = await asyncio.to_thread(self._from_server.read, 65536)
                assert piece, "the server closed its output"
                self._items += self._reader.feed(piece)
        item = self._items.pop(0)
        assert isinstance(item, Message)
        return item

    async def answer(self) -> Any:
        return json.loads((await self.message()).body)

    def hang_up(self) -> None:
        self._to_server.close()

    def stop_listening(self) -> None:
        self._from_server.close()


@contextlib.asynccontextmanager
async def serving(
    *tools: Tool, blocking: bool = True, **options: Any
) -> AsyncIterator[tuple[Client, asyncio.Task[None]]]:
    stdin, to_server = os.pipe()
    from_server, stdout = os.pipe()
    os.set_blocking(stdin, blocking)
    os.set_blocking(stdout, blocking)
    client = Client(to_server, from_server)
    with os.fdopen(stdin, "rb") as source, os.fdopen(stdout, "wb") as sink:
        task = asyncio.create_task(
            serve_stdio(tools or [ECHO], stdin=source, stdout=sink, **options)
        )
        try:
            async with asyncio.timeout(PATIENCE):
                yield client, task
                client.hang_up()
                await asyncio.wait([task])
        finally:
            client.hang_up()
            task.cancel()
            await asyncio.wait([task])
            client.stop_listening()


REQUEST = {"toolName": "echo", "toolInput": {"x": "é", "_kadi": {}}}


@pytest.mark.parametrize("headed", [True, False])
async def test_a_call_is_answered_in_the_framing_it_came_in(headed: bool) -> None:
    async with serving() as (client, _):
        await client.call("kadi.ability.request", REQUEST, id_="a", headed=headed)
        message = await client.message()
        assert message.headed is headed
        assert json.loads(message.body) == {"jsonrpc": "2.0", "id": "a", "result": {"x": "é"}}


async def test_the_session_methods_are_answered() -> None:
    async with serving() as (client, _):
        await client.call("kadi.session.hello", {"role": "agent"}, headed=True)
        hello = (await client.answer())["result"]
        assert (hello["requiredSteps"], hello["heartbeatInterval"]) == ([], 30.0)
        await client.call("kadi.session.ping", headed=True)
        assert (await client.answer())["result"] == "pong"
        listing = {"name": "echo", "description": "Says it again", "inputSchema": ECHO.input_schema}
        await client.call("kadi.ability.list", headed=True)
        assert (await client.answer())["result"] == {"tools": [listing]}
        await client.call("kadi.ability.request", {"name": "kadi.ability.list"}, headed=True)
        assert (await client.answer())["result"] == {"tools": [listing]}
        await client.call("kadi.moon", id_=5, headed=True)
        reply = await client.answer()
        assert (reply["id"], reply["error"]["code"]) == (5, -32601)


async def test_garbage_and_oversize_are_answered_and_survived() -> None:
    async with serving(max_message_bytes=200) as (client, _):
        await client.send(b"{nonsense\n")
        assert (await client.answer())["error"]["code"] == -32700
        await client.send(frame(b"x" * 1000))
        assert "1000 bytes" in (await client.answer())["error"]["message"]
        await client.send(b"\xff\xfe\n[1]\n")
        assert (await client.answer())["error"]["code"] == -32700
        assert (await client.answer())["error"]["code"] == -32600
        await client.call("kadi.ability.request", {"toolName": 5}, id_=9, headed=True)
        reply = await client.answer()
        assert (reply["id"], reply["error"]["code"]) == (9, -32602)
        await client.call("kadi.session.ping", headed=False)
        assert (await client.answer())["result"] == "pong"


async def test_a_result_over_the_limit_is_an_error() -> None:
    async def large(_input: Any, _call: Any) -> Any:
        return "x" * 1000

    async with serving(Tool("large", "", {}, large), max_message_bytes=500) as (client, _):
        await client.call("kadi.ability.request", {"toolName": "large"}, headed=True)
        assert "limit of 500 bytes" in (await client.answer())["error"]["message"]


async def test_events_of_a_handler_reach_the_peer() -> None:
    async def progress(_input: Any, call: Any) -> Any:
        await call.publish("job.progress", {"done": 1})
        await call.publish("job.progress", object())
        return "done"

    async with serving(Tool("progress", "", {}, progress)) as (client, _):
        await client.call("kadi.ability.request", {"toolName": "progress"}, headed=False)
        event = await client.answer()
        assert event["method"] == "kadi.event.delivery"
        assert (event["params"]["channel"], event["params"]["data"]) == (
            "job.progress",
            {"done": 1},
        )
        assert (await client.answer())["result"] == "done"


async def test_running_handlers_finish_after_the_end_of_the_input() -> None:
    started, release = asyncio.Event(), asyncio.Event()

    async def slow(_input: Any, _call: Any) -> Any:
        started.set()
        await release.wait()
        return "done"

    async with serving(Tool("slow", "", {}, slow)) as (client, task):
        await client.call("kadi.ability.request", {"toolName": "slow"}, headed=True)
        await started.wait()
        client.hang_up()
        assert not task.done()
        release.set()
        assert (await client.answer())["result"] == "done"
        await task


async def test_a_goodbye_ends_the_service_and_a_cancelled_call_its_handler() -> None:
    forever = Forever()
    async with serving(forever.tool) as (client, task):
        await client.call("kadi.ability.request", {"toolName": "forever"}, id_="c", headed=True)
        await forever.started.wait()
        await client.call("kadi.ability.cancel", {"requestId": "c"}, id_=None, headed=True)
        await forever.stopped.wait()
        assert "cancelled" in (await client.answer())["error"]["message"]
        await client.call("kadi.session.goodbye", id_=3, headed=True)
        assert (await client.answer())["id"] == 3
        await task


async def test_an_output_nobody_reads_any_more_ends_the_service() -> None:
    async with serving(grace=600) as (client, task):
        client.stop_listening()
        await client.call("kadi.session.ping", headed=True)
        await task


async def test_a_message_larger_than_the_pipe_passes_without_blocking_the_loop() -> None:
    text = "x" * (40 * PIECE_BYTES)
    async with serving() as (client, _):
        params = {"toolName": "echo", "toolInput": {"text": text}}
        await client.call("kadi.ability.request", params, headed=True)
        assert (await client.answer())["result"] == {"text": text}


async def test_pipes_set_to_non_blocking_will_do() -> None:
    text = "x" * (40 * PIECE_BYTES)
    async with serving(blocking=False) as (client, _):
        params = {"toolName": "echo", "toolInput": {"text": text}}
        await client.call("kadi.ability.request", params, headed=True)
        assert (await client.answer())["result"] == {"text": text}


async def test_regular_files_will_do(tmp_path: Path) -> None:
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    calls = [
        {
            "id": n,
            "method": "kadi.ability.request",
            "params": {"name": "echo", "arguments": {"n": n}},
        }
        for n in range(100)
    ]
    requests.write_text("".join(json.dumps(call) + "\n" for call in calls))
    async with asyncio.timeout(PATIENCE):
        with requests.open("rb") as source, answers.open("wb") as sink:
            await serve_stdio([ECHO], stdin=source, stdout=sink)
    results = [json.loads(line)["result"]["n"] for line in answers.read_text().splitlines()]
    assert sorted(results) == list(range(100))


async def test_cancelling_the_service_ends_it() -> None:
    async with serving() as (client, task):
        await client.call("kadi.session.ping", headed=True)
        await client.answer()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


PRINTING = """
import asyncio, os
from kadi_client import Tool, serve_stdio

async def talk(tool_input, call):
    print("from Python")
    os.write(1, b"from a library")
    return "done"

asyncio.run(serve_stdio([Tool("talk", "", {}, talk)]))
print("afterwards")
"""


def test_what_a_tool_prints_never_reaches_the_peer() -> None:
    request = b'{"id":1,"method":"kadi.ability.request","params":{"toolName":"talk"}}'
    done = subprocess.run(
        [sys.executable, "-c", PRINTING],
        input=frame(request),
        capture_output=True,
        timeout=30,
        check=True,
    )
    answer = frame(b'{"jsonrpc":"2.0","id":1,"result":"done"}')
    assert done.stdout == answer + b"afterwards\n"
    assert b"from Python" in done.stderr
    assert b"from a library" in done.stderr


async def test_a_loaded_ability_tells_its_card_and_is_invoked() -> None:
    async def progress(tool_input: Any, call: Any) -> Any:
        await call.publish("job.progress", {"done": 1})
        return tool_input

    tools = (ECHO, Tool("progress", "", {}, progress), Tool("fail", "", {}, _fail))
    async with serving(*tools, name="search", version="1.2.3") as (client, task):
        await client.call("readAgentJson", {}, id_=0, headed=True)
        card = await client.answer()
        assert (card["id"], card["result"]["name"], card["result"]["version"]) == (
            0,
            "search",
            "1.2.3",
        )
        assert [each["name"] for each in card["result"]["tools"]] == ["echo", "progress", "fail"]
        invoked = {"toolName": "progress", "toolInput": {"x": [1]}}
        await client.call("invoke", invoked, id_=1, headed=True)
        event = await client.answer()
        assert event == {
            "jsonrpc": "2.0",
            "method": "event",
            "params": {"name": "job.progress", "data": {"done": 1}},
        }
        assert (await client.answer())["result"] == {"x": [1]}
        await client.call("invoke", {"toolName": "fail", "toolInput": {}}, id_=2, headed=True)
        assert (await client.answer())["error"] == {"code": -32000, "message": "no such row"}
        await client.call("shutdown", {}, id_=3, headed=True)
        assert (await client.answer())["result"] == {"ok": True}
        async with asyncio.timeout(PATIENCE):
            await task


async def _fail(_input: Any, _call: Any) -> Any:
    raise LookupError("no such row")
