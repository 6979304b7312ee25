"""The KADI client of the TypeScript agents, `@kadi.build/core`, driven from tests.

A :class:`NodeProcess` runs `real_client.mjs`, which holds any number of :class:`RealClient`. Every
wait is bounded.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

PATIENCE = 20.0
"""Seconds that anything may take."""
HOME = Path(sys.prefix) / "kadi-core"
NODE = HOME / "node"
MODULE = HOME / "node_modules" / "@kadi.build" / "core" / "dist" / "index.js"
DRIVER = Path(__file__).with_name("real_client.mjs")

needs_real_client = pytest.mark.skipif(
    not (NODE.exists() and MODULE.exists()),
    reason="@kadi.build/core is not installed: `make .venv/.kadi-core` tells why",
)

T = TypeVar("T")
Handler = Callable[[Any, dict[str, Any]], Awaitable[Any]]
"""Answers a call of a tool: takes its input and the context that the client makes of ``_meta``.

A RuntimeError or ValueError becomes an ``Error`` in JavaScript.
"""


class ClientError(Exception):
    """An error of the client; ``code`` is its ``KadiError.code``."""

    def __init__(self, message: str, code: str | None, context: dict[str, Any]) -> None:
        super().__init__(message)
        self.code = code
        self.context = context


@dataclass
class Stream:
    """Events, in the order in which the client's handler got them."""

    node: NodeProcess
    number: int

    async def next(self) -> Any:
        return await within(self.node.events[self.number].get())

    def waiting(self) -> list[Any]:
        """Take out the events that have come so far."""
        queue = self.node.events[self.number]
        return [queue.get_nowait() for _ in range(queue.qsize())]

    async def end(self) -> None:
        await self.node.ask("end", stream=self.number)


@dataclass
class RealAbility:
    """The ability that ``loadBroker`` and ``loadStdio`` return."""

    node: NodeProcess
    number: int

    async def describe(self) -> dict[str, Any]:
        return dict(await self.node.ask("describe", ability=self.number))

    async def invoke(self, tool: str, tool_input: Any, **options: Any) -> Any:
        return await self.node.ask(
            "invoke", ability=self.number, tool=tool, input=tool_input, options=options
        )

    async def on(self, pattern: str) -> Stream:
        return self.node.stream(await self.node.ask("on", ability=self.number, pattern=pattern))

    async def disconnect(self) -> None:
        await self.node.ask("leave", ability=self.number)


@dataclass
class RealClient:
    """One client; its methods are those of ``KadiClient``, times are in milliseconds."""

    node: NodeProcess
    name: str
    agent_id: str
    public_key: str

    async def ask(self, command: str, **arguments: Any) -> Any:
        return await self.node.ask(command, client=self.name, **arguments)

    async def connect(self) -> None:
        await self.ask("connect")

    async def disconnect(self) -> None:
        await self.ask("disconnect")

    async def register_tool(
        self,
        name: str,
        does: str | Handler = "echo",
        *,
        networks: list[str] | None = None,
        **fields: str,
    ) -> None:
        """Register a tool that does what Python says, or ``echo``, ``value`` or ``embed``.

        ``fields`` are those of its input, with their types as Zod calls them.
        """
        if not isinstance(does, str):
            self.node.handlers[self.name, name] = does
        options = {"brokers": {"local": {"networks": networks}}} if networks else {}
        behaviour = does if isinstance(does, str) else ""
        await self.ask(
            "registerTool", tool=name, behaviour=behaviour, fields=fields, options=options
        )

    async def invoke_remote(self, tool: str, tool_input: Any, **options: Any) -> Any:
        return await self.ask("invokeRemote", tool=tool, input=tool_input, options=options)

    async def request(self, method: str, **params: Any) -> Any:
        return await self.ask("request", method=method, params=params)

    async def load_broker(self, name: str, **options: Any) -> RealAbility:
        number = await self.ask("loadBroker", name=name, options=options)
        return RealAbility(self.node, number)

    async def load_stdio(self, name: str, **options: Any) -> RealAbility:
        number = await self.ask("loadStdio", name=name, options=options)
        return RealAbility(self.node, number)

    async def subscribe(self, pattern: str) -> Stream:
        return self.node.stream(await self.ask("subscribe", pattern=pattern))

    async def publish(self, channel: str, data: Any, **options: Any) -> None:
        await self.ask("publish", channel=channel, data=data, options=options)

    async def request_secrets(self, environment: dict[str, str], **options: Any) -> Any:
        """Ask the deployer for secrets, with the environment that it gives an agent."""
        return await self.ask("requestSecrets", environment=environment, options=options)

    async def synchronise(self) -> None:
        """Return once everything that the broker has sent so far has been handled."""
        assert await self.request("kadi.session.ping") == "pong"


@dataclass
class NodeProcess:
    """A running `real_client.mjs`."""

    process: Process
    logs: list[str] = field(default_factory=list)
    """What the clients print, each line after its level: ``warn``, ``error``."""
    exits: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    """How processes ended that ``loadStdio`` had started: ``code`` and ``signal``."""
    events: dict[int, asyncio.Queue[Any]] = field(default_factory=dict)
    handlers: dict[tuple[str, str], Handler] = field(default_factory=dict)
    stderr: bytearray = field(default_factory=bytearray)
    _answers: dict[int, asyncio.Future[Any]] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=count)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _logged: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def create(
        self, url: str, *, networks: list[str] | None = None, **config: Any
    ) -> RealClient:
        """Make a client that knows one broker as ``local``; it is not connected yet."""
        name = f"real-{next(self._numbers)}"
        broker = {"url": url} if networks is None else {"url": url, "networks": networks}
        made = {"name": name, "brokers": {"local": broker}, "requestTimeout": PATIENCE * 1000}
        identity = await self.ask("create", client=name, config=made | config)
        return RealClient(self, name, identity["agentId"], identity["publicKey"])

    async def ask(self, command: str, **arguments: Any) -> Any:
        """Have the driver carry out one command.

        Raises:
            ClientError: if the client raises.
        """
        if self.process.stdout is None or self.process.stdout.at_eof():
            raise self._ended()
        id_ = next(self._numbers)
        answer = self._answers[id_] = asyncio.get_running_loop().create_future()
        line = json.dumps({"id": id_, "command": command, **arguments})
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode("ascii") + b"\n")
        return await within(answer)

    async def wait_logged(self, text: str) -> None:
        """Return once a client has printed a line with ``text``."""
        async with self._logged:
            await within(self._logged.wait_for(lambda: any(text in line for line in self.logs)))

    def stream(self, number: int) -> Stream:
        self.events.setdefault(number, asyncio.Queue())
        return Stream(self, number)

    async def read(self) -> None:
        """Take in what the driver says, until it ends."""
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            message = json.loads(line)
            if "note" in message:
                await self._note(message)
                continue
            answer = self._answers.pop(message["id"])
            if answer.done():
                continue
            if "error" in message:
                error = message["error"]
                answer.set_exception(
                    ClientError(error["message"], error.get("code"), error.get("context") or {})
                )
            else:
                answer.set_result(message.get("value"))
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(self._ended())

    def _ended(self) -> Exception:
        return ConnectionError(f"Node.js has ended: {self.stderr.decode(errors='replace')}")

    async def read_stderr(self) -> None:
        assert self.process.stderr is not None
        while piece := await self.process.stderr.read(2**16):
            self.stderr += piece

    async def _note(self, note: dict[str, Any]) -> None:
        match note["note"]:
            case "event":
                self.events.setdefault(note["stream"], asyncio.Queue()).put_nowait(note["value"])
            case "log":
                async with self._logged:
                    self.logs.append(f"{note['level']} {note['text']}")
                    self._logged.notify_all()
            case "exit":
                self.exits.put_nowait(note)
            case "called":
                task = asyncio.create_task(self._answer(note))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _answer(self, note: dict[str, Any]) -> None:
        handler = self.handlers[note["client"], note["tool"]]
        try:
            outcome = {"result": await handler(note.get("input"), note["context"])}
        except (RuntimeError, ValueError) as exc:
            outcome = {"error": str(exc)}
        await self.ask("answer", call=note["call"], **outcome)


async def within(waited_for: Awaitable[T]) -> T:
    """Return what is waited for, within :data:`PATIENCE`."""
    async with asyncio.timeout(PATIENCE):
        return await waited_for


async def until(holds: Callable[[], object]) -> None:
    """Return once something holds, which other tasks bring about."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what it asks has no event to wait for
            await asyncio.sleep(0.002)


@asynccontextmanager
async def running_node(
    *, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> AsyncIterator[NodeProcess]:
    """Start a process, which ends with the block; what it starts inherits its environment."""
    process = await asyncio.create_subprocess_exec(
        *(NODE, DRIVER, MODULE),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env=environment,
        limit=2**27,
    )
    node = NodeProcess(process)
    readers = [asyncio.create_task(node.read()), asyncio.create_task(node.read_stderr())]
    try:
        yield node
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await within(process.wait())
        finally:
            if process.returncode is None:
                process.kill()
            await asyncio.gather(*readers)
