"""A real broker in a thread, and tools on it that answer what a test says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.command_lines import root
from typer.testing import CliRunner, Result

from ability_search.extensions.cli.app import all_commands
from ability_search.tools.table import TOOLS, all_tools
from kadi_client import Connection, Tool
from kadi_localnet.broker import serve_broker

Answer = Callable[[dict[str, Any]], Any]
SECONDS = 20.0


def _missing(_: dict[str, Any]) -> Any:
    return {"success": False, "error": "no such collection", "code": "not_found"}


@dataclass
class Network:
    """The broker's address, what the tools were asked, and what they answer."""

    url: str
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    answers: dict[str, Answer] = field(default_factory=lambda: {"search-collection-info": _missing})
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def inputs(self, tool: str) -> list[dict[str, Any]]:
        return [tool_input for name, tool_input in self.asked if name == tool]


@pytest.fixture
def network() -> Iterator[Network]:
    """All tools of a worker are there, and a reranker; a test sets ``answers`` before it calls."""
    with played([row.name for row in all_tools()]) as network:
        yield network


@pytest.fixture
def eight() -> Iterator[Network]:
    """The eight tools of a worker are there, and no others of it."""
    with played([row.name for row in TOOLS]) as network:
        yield network


@contextmanager
def played(names: Sequence[str]) -> Iterator[Network]:
    """A network where these tools of a worker answer what a test says."""
    ready: Future[tuple[Network, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def run() -> None:
        async with serve_broker(port=0) as broker:
            network = Network(broker.url)
            tools = [_tool(network, name) for name in names]
            tools += [_tool(network, "rerank"), _tool(network, "chat-completion")]
            async with Connection(broker.url, role="ability", tools=tools, grace=0):
                leave = asyncio.Event()
                ready.set_result((network, asyncio.get_running_loop(), leave))
                await leave.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    network, loop, leave = ready.result(SECONDS)
    try:
        yield network
    finally:
        loop.call_soon_threadsafe(leave.set)
        thread.join(SECONDS)
        assert not thread.is_alive()


def _tool(network: Network, name: str) -> Tool:
    async def handle(tool_input: dict[str, Any], call: Any) -> Any:
        network.asked.append((name, tool_input))
        for channel, data in network.events:
            await call.publish(channel, {**data, "jobId": tool_input.get("jobId")})
        return network.answers[name](tool_input)

    return Tool(name, name, {"type": "object"}, handle)


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command line in a directory of its own, without settings of the machine."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    for name in ("BROKER_URL", "KADI_BROKER_URL", "BROKER_NETWORKS", "KADI_BROKER_NETWORKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SEARCH_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SEARCH_SECRET_KEY_FILE", str(tmp_path / "key"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    # Else each call makes all commands from their functions.
    monkeypatch.setattr("typer.testing._get_command", lambda _: root())
    runner = CliRunner()

    def invoke(*arguments: str, given: str | None = None, broker: str | None = None) -> Result:
        further = ("--broker", broker) if broker else ()
        return runner.invoke(all_commands(), [*arguments, *further], input=given)

    return invoke
