"""Networks of brokers over real servers: one alone, three over NATS, three over RabbitMQ."""

from __future__ import annotations

import asyncio
import os
import shutil
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
RABBITMQ_SECONDS = 60.0


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

    def kill(self, number: int = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)
        self.process.wait(RABBITMQ_SECONDS)


def free_ports(number: int) -> list[int]:
    with ExitStack() as stack:
        listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
        for each in listening:
            stack.enter_context(each)
        return [each.getsockname()[1] for each in listening]


@contextmanager
def rabbitmq_nodes(number: int) -> Iterator[list[Node]]:
    """RabbitMQ nodes of this process that are a cluster. Skips without an installed server."""
    # Debian's script in PATH starts it as another user, without this environment.
    executable = shutil.which("/usr/lib/rabbitmq/bin/rabbitmq-server") or shutil.which(
        "rabbitmq-server"
    )
    if executable is None:
        pytest.skip("rabbitmq-server is not installed: apt-get install rabbitmq-server")
    ports, internal = free_ports(number), free_ports(number)
    names = [f"tests{port}@localhost" for port in ports]
    nodes: list[Node] = []
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        lines = ["cluster_formation.peer_discovery_backend = classic_config"]
        for at, name in enumerate(names, 1):
            lines.append(f"cluster_formation.classic_config.nodes.{at} = {name}")
        Path(directory, "rabbitmq.conf").write_text("\n".join(lines))
        for name, port, distribution in zip(names, ports, internal, strict=True):
            environ = {
                **os.environ,
                "HOME": directory,
                "RABBITMQ_NODENAME": name,
                "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
                "RABBITMQ_NODE_PORT": str(port),
                "RABBITMQ_DIST_PORT": str(distribution),
                "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
                "RABBITMQ_LOG_BASE": f"{directory}/log",
                "RABBITMQ_PID_FILE": f"{directory}/{name}.pid",
                "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
                "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq",
                "ERL_EPMD_ADDRESS": "127.0.0.1",
            }
            with open(f"{directory}/{name}.output", "wb") as output:
                process = subprocess.Popen(
                    [executable], env=environ, stdout=output, stderr=output, start_new_session=True
                )
            nodes.append(Node(f"amqp://guest:guest@127.0.0.1:{port}", process))
            stack.callback(nodes[-1].kill, signal.SIGTERM if number == 1 else signal.SIGKILL)
        for port, node in zip(ports, nodes, strict=True):
            _wait_for_amqp(port, node.process)
        yield nodes


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


def _wait_for_amqp(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once a node greets: it closes a connection that speaks no AMQP with a header."""
    deadline = time.monotonic() + RABBITMQ_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
                connection.sendall(b"HELLO123")
                if connection.recv(4) == b"AMQP":
                    return
        except OSError:
            pass
        time.sleep(0.2)
    raise AssertionError("RabbitMQ did not start")


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    with nats() as url:
        yield url


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    with rabbitmq_nodes(1) as (node,):
        yield node.url


@pytest.fixture(
    scope="session",
    params=[
        None,
        "nats_url",
        pytest.param("rabbitmq_url", marks=pytest.mark.rabbitmq),
    ],
    ids=["one", "nats", "rabbitmq"],
)
def backplane(request: pytest.FixtureRequest) -> str | None:
    """The backplane of the network of a test; ``None`` for a single broker."""
    return None if request.param is None else str(request.getfixturevalue(request.param))
