"""The database ability's client against a cluster of three real servers whose leader is killed.

The servers are the last release that replicates without a plugin; it has no sparse vectors, so it
holds rows of this test only. ``make cluster`` installs it.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from kadi_client.messages import decode
from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.remote_server import HttpDatabases

INSTALLED = Path(sys.prefix) / "cluster" / "arcadedb_embedded"
PASSWORD = "correct-horse-battery"
RECOVERY = 240.0
"""Seconds: two servers that want to lead at once wait for each other for 30 seconds, repeatedly."""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not INSTALLED.exists(), reason="make cluster installs the servers"),
]


class Node:
    """A server of the cluster."""

    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return ports


async def start(root: Path, number: int, port: int, replication: list[int]) -> Node:
    settings = {
        "server.name": f"node{number}",
        "server.rootPath": root,
        "server.rootPassword": PASSWORD,
        "server.httpIncomingHost": "127.0.0.1",
        "server.httpIncomingPort": port,
        "ha.enabled": "true",
        "ha.clusterName": "test",
        "ha.serverList": ",".join(f"127.0.0.1:{each}" for each in replication),
        "ha.replicationIncomingHost": "127.0.0.1",
        "ha.replicationIncomingPorts": replication[number],
    }
    (root / "log").mkdir(parents=True)
    with (root / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            INSTALLED / "jre" / "bin" / "java",
            "-Xmx384m",
            *("-cp", f"{INSTALLED}/jars/*"),
            *(f"-Darcadedb.{name}={value}" for name, value in settings.items()),
            "com.arcadedb.server.ArcadeDBServer",
            cwd=root,
            stdout=output,
            stderr=output,
            env={name: value for name, value in os.environ.items() if "PYTHON" not in name},
        )
    return Node(process, f"http://127.0.0.1:{port}")


async def leader(nodes: list[Node], *, timeout: float) -> Node:
    """Return the node that the others have elected."""
    async with asyncio.timeout(timeout), httpx.AsyncClient(auth=("root", PASSWORD)) as client:
        while True:
            for node in nodes:
                try:
                    answer = await client.get(f"{node.url}/api/v1/server?mode=cluster", timeout=2)
                except httpx.HTTPError:
                    continue
                cluster = answer.json().get("ha", {})
                named = [each for each in nodes if each.url[7:] == cluster.get("leaderAddress")]
                online = cluster.get("network", {}).get("replicas", [])
                if named and len(online) == len(nodes) - 1:
                    return named[0]
            await asyncio.sleep(0.5)


async def create(backend: HttpDatabases, name: str) -> None:
    """Create a database, which needs all servers; they come and go at first."""
    async with asyncio.timeout(120):
        while True:
            try:
                if name not in await backend.databases(timeout=5):
                    await backend.create(name, timeout=20)
                return
            except DatabaseError:
                await asyncio.sleep(0.5)


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[list[Node]]:
    nodes: list[Node] = []
    try:
        replication = free_ports(3)
        for number, port in enumerate(free_ports(3)):
            nodes.append(await start(directory / str(number), number, port, replication))
        yield nodes
    finally:
        for node in nodes:
            if node.process.returncode is None:
                node.process.kill()
            await node.process.wait()


async def test_nothing_acknowledged_is_lost_when_the_leader_is_killed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as nodes:
        first = await leader(nodes, timeout=120)
        urls = [each.url for each in nodes]
        backend = HttpDatabases(urls, user="root", password=PASSWORD, oldest=(26, 3))
        await create(backend, "d")
        await backend.write("d", [Statement("CREATE DOCUMENT TYPE T")], timeout=30)
        acknowledged: list[int] = []
        stale = 0
        until = math.inf
        refused = ""
        numbers = itertools.count()
        while len(acknowledged) < 200:
            number = next(numbers)
            insert = Statement("INSERT INTO T SET n = :n", params={"n": number})
            mark = Statement("UPDATE T SET m = 1 WHERE n = :n", params={"n": number})
            try:
                await backend.write("d", [insert, mark] if number % 2 else [insert], timeout=20)
                acknowledged.append(number)
                found = await backend.read(
                    "d", Statement("SELECT n FROM T WHERE n = :n", params={"n": number}), timeout=20
                )
                stale += found.count == 0
            except DatabaseError as exc:
                refused = str(exc)
                await asyncio.sleep(0.2)
            if len(acknowledged) >= 100 and first.process.returncode is None:
                until = time.monotonic() + RECOVERY
                first.process.kill()
                await first.process.wait()
            assert time.monotonic() < until, f"did not recover: {refused}"
        answer = await backend.read("d", Statement("SELECT n FROM T LIMIT -1"), timeout=20)
        await backend.close()
        stored = [row["n"] for row in decode(answer.json)]
        assert stale == 0
        assert set(acknowledged) <= set(stored)
        assert len(stored) == len(set(stored))
