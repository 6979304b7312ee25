"""Processes killed at any moment: what was acknowledged is there, the same call completes."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import (
    LIMITS,
    MODEL,
    PATIENCE,
    Network,
    WordModel,
    document,
    store_over,
)
from tests.ability_search.flows.stored import assert_consistent, chunks, rows
from tests.java_machine import SAME_SOURCES, SHORT_LIVED

from ability_search.client.tool_client import Target
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.extensions.artifacts.artifact_reader import Artifact
from ability_search.extensions.artifacts.artifact_service import open_local_services
from ability_search.extensions.artifacts.exporter import Exporter
from ability_search.worker import open_worker
from kadi_client import Connection
from kadi_client.errors import KadiError
from kadi_localnet.broker import serve_broker

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.timeout(240)]

DATABASE = """
import asyncio, sys
from pathlib import Path
from kadi_client import Connection
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

async def main(url, directory, heap="256"):
    async with EmbeddedDatabases(Path(directory), heap_mb=int(heap)) as engine:
        async with Connection(url, name="db", role="ability", tools=database_tools(engine)) as at:
            sys.stdout.write("ready\\n")
            sys.stdout.flush()
            await at.serve_forever()

asyncio.run(main(*sys.argv[1:]))
"""

WORKER = """
import asyncio, os, sys
from pathlib import Path
from ability_search.config.loader import load_settings
from ability_search.worker import open_worker

async def main(base):
    async with open_worker(load_settings(dict(os.environ), Path(base)), base=Path(base)) as at:
        sys.stdout.write("ready\\n")
        sys.stdout.flush()
        await at.serve_forever()

asyncio.run(main(sys.argv[1]))
"""


class Process:
    """A part of the network in a process of its own, which can be killed and started again."""

    def __init__(self, program: str, *arguments: str, environ: dict[str, str]) -> None:
        self._command = [sys.executable, "-c", program, *arguments]
        self._environ = {**SHORT_LIVED, **SAME_SOURCES, **environ}
        self._running: asyncio.subprocess.Process | None = None
        self.ended: list[int] = []

    async def start(self) -> None:
        self._running = await asyncio.create_subprocess_exec(
            *self._command,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=self._environ,
        )
        assert self._running.stdout is not None
        async with asyncio.timeout(PATIENCE):
            async for line in self._running.stdout:
                if line.strip() == b"ready":
                    return
        raise AssertionError("the process ended before it was ready")

    async def keep(self) -> None:
        """Start it again whenever it ends; ``ended`` has its exit codes."""
        while True:
            assert self._running is not None
            self.ended.append(await self._running.wait())
            await self.start()

    @property
    def died(self) -> bool:
        """Whether it ended without having been killed."""
        return self._running is not None and self._running.returncode is not None

    async def kill(self) -> None:
        if self._running is not None:
            if not self.died:
                self._running.send_signal(signal.SIGKILL)
            async with asyncio.timeout(PATIENCE):
                await self._running.wait()
            self._running = None


def network_of(client: Connection, settings: Settings) -> Network:
    """What the questions to the stored data need."""
    return Network(
        client=client,
        model=WordModel(),
        calls=[],
        url="",
        tools=[],
        settings=settings,
        databases=None,
        store=store_over(client, settings),
        parts=client,
        faults=[],
        restart_broker=None,  # type: ignore[arg-type]
        outputs={},
        worker=client,
        instead={},
    )


def documents(round_: int) -> list[dict[str, Any]]:
    """Thirty documents, of which each round changes two thirds."""
    return [
        document(
            f"d{n}", f"round {round_ if n % 3 else 0} of document {n}. " + f"fox{n} runs. " * 40
        )
        for n in range(30)
    ]


async def index(client: Connection, round_: int) -> Any:
    """A call as a patient caller makes it: whatever goes wrong is an answer."""
    given = {"collection": "docs", "documents": documents(round_), "maxTokens": 32}
    try:
        return await client.invoke("search-index", given, timeout=PATIENCE, check=False)
    except KadiError as exc:
        return {"success": False, "error": type(exc).__name__}


async def assert_stored(network: Network, round_: int) -> None:
    await assert_consistent(network, "docs")
    by_source: dict[str, list[Any]] = {}
    for row in await chunks(network, "docs"):
        by_source.setdefault(row["source"], []).append(row)
    for given in documents(round_):
        own = sorted(by_source.pop(given["source"]), key=lambda row: row["chunkIndex"])
        assert "".join(row["lead"] + row["content"] for row in own) == given["content"].rstrip()
    assert by_source == {}


async def assert_round(network: Network, round_: int) -> None:
    await assert_stored(network, round_)
    assert await rows(network, "SELECT FROM Staging") == []


@asynccontextmanager
async def parts(tmp_path: Path) -> AsyncIterator[tuple[dict[str, str], Settings, WordModel]]:
    """A broker and a model manager, with the settings of a worker beside them."""
    async with serve_broker("127.0.0.1", 0, limits=LIMITS) as broker:
        model = WordModel()
        environ = {
            "HOME": str(tmp_path),
            "BROKER_URL": broker.url,
            "SEARCH_DATABASE": "crash",
            "SEARCH_EMBEDDING_MODEL": MODEL,
            "SEARCH_DATABASE_WRITE_GROUP_CHUNKS": "12",
            "SEARCH_DATABASE_TIMEOUT": "5",
            "SEARCH_EMBEDDING_BATCH_TEXTS": "8",
            "SEARCH_EMBEDDING_REUSE": "false",
        }
        async with Connection(broker.url, name="models", role="ability", tools=[model.tool]):
            yield environ, load_settings(environ, tmp_path), model


async def kill_after(process: Process, model: WordModel, requests: int) -> None:
    """Kill once the model manager has been asked that many times more."""
    goal = model.requests + requests
    reached = asyncio.Event()

    def count(_request: dict[str, Any]) -> None:
        if model.requests >= goal:
            reached.set()

    model.failure = count
    async with asyncio.timeout(PATIENCE):
        await reached.wait()
    model.failure = None
    await process.kill()


async def test_a_database_killed_while_it_is_written_to_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(5)
    async with parts(tmp_path) as (environ, settings, model):
        database = Process(
            DATABASE, environ["BROKER_URL"], str(tmp_path / "data"), environ={"HOME": str(tmp_path)}
        )
        async with (
            open_worker(settings, base=tmp_path),
            Connection(environ["BROKER_URL"], name="test") as client,
        ):
            network = network_of(client, settings)
            await database.start()
            try:
                for round_ in range(1, 4):
                    call = asyncio.create_task(index(client, round_))
                    await kill_after(database, model, chance.randint(2, 14))
                    await database.start()
                    async with asyncio.timeout(PATIENCE):
                        await call
                    answer = await index(client, round_)
                    assert answer.get("failed") == [], answer
                    await assert_round(network, round_)
            finally:
                await database.kill()


async def test_a_worker_killed_while_it_indexes_leaves_a_state_that_the_next_completes(
    tmp_path: Path,
) -> None:
    chance = random.Random(6)
    async with parts(tmp_path) as (environ, settings, model):
        database = Process(
            DATABASE, environ["BROKER_URL"], str(tmp_path / "data"), environ={"HOME": str(tmp_path)}
        )
        worker = Process(WORKER, str(tmp_path), environ=environ)
        async with Connection(environ["BROKER_URL"], name="test") as client:
            network = network_of(client, settings)
            await database.start()
            await worker.start()
            try:
                for round_ in range(1, 4):
                    call = asyncio.create_task(index(client, round_))
                    await kill_after(worker, model, chance.randint(2, 14))
                    async with asyncio.timeout(PATIENCE):
                        killed = await call
                    assert killed["success"] is False
                    await worker.start()
                    before = await rows(network, "SELECT count(*) AS n FROM Collection")
                    if before[0]["n"]:
                        await assert_consistent(network, "docs")
                    answer = await index(client, round_)
                    assert answer.get("failed") == [], answer
                    await assert_round(network, round_)
            finally:
                await worker.kill()
                await database.kill()


async def test_an_export_outlasts_a_restart_of_the_database(tmp_path: Path) -> None:
    async with parts(tmp_path) as (environ, _, _):
        environ |= {"SEARCH_DATABASE_TIMEOUT": "60", "SEARCH_DATABASE_PATIENCE": "0"}
        settings = load_settings(environ, tmp_path)
        database = Process(
            DATABASE, environ["BROKER_URL"], str(tmp_path / "data"), environ={"HOME": str(tmp_path)}
        )
        target = Target(environ["BROKER_URL"], ("global",), "test")
        async with (
            open_worker(settings, base=tmp_path),
            Connection(environ["BROKER_URL"], name="test") as client,
            open_local_services(settings, target, name="export") as (services, _),
        ):
            await database.start()
            restarts: list[asyncio.Task[None]] = []

            async def restart(*_progress: object) -> None:
                if not restarts:
                    await database.kill()
                    restarts.append(asyncio.create_task(database.start()))

            try:
                assert (await index(client, 1))["failed"] == []
                exporter = Exporter(services.ports)
                manifest = await exporter.export("docs", tmp_path / "out", restart)
                assert restarts
                await asyncio.gather(*restarts)
                assert manifest.counts.sources == 30
                Artifact(tmp_path / "out", manifest).check()
            finally:
                await database.kill()


@pytest.mark.long
@pytest.mark.timeout(480)
async def test_a_document_that_exhausts_the_heap_is_named_and_nothing_else_is_lost(
    tmp_path: Path,
) -> None:
    async with parts(tmp_path) as (environ, _, _):
        environ |= {"SEARCH_DATABASE_WRITE_GROUP_CHUNKS": "5000", "SEARCH_DATABASE_TIMEOUT": "60"}
        settings = load_settings(environ, tmp_path)
        database = Process(
            DATABASE, environ["BROKER_URL"], str(tmp_path / "data"), "40", environ=environ
        )
        async with (
            open_worker(settings, base=tmp_path),
            Connection(environ["BROKER_URL"], name="test") as client,
        ):
            network = network_of(client, settings)
            await database.start()
            keeping = asyncio.create_task(database.keep())
            try:
                assert (await index(client, 1))["failed"] == []
                words = " ".join(f"{chr(97 + n % 26) * 60}{n % 400}" for n in range(60_000))
                given = {"documents": [document("huge", words)], "maxTokens": 512}
                answer = await client.invoke(
                    "search-index", {"collection": "docs", **given}, timeout=200, check=False
                )
                assert "while writing 'huge'" in str(answer), answer
                assert (await index(client, 1))["failed"] == []
                # The exit code of a JVM without memory; after at most three the write is given up.
                assert 1 <= len(database.ended) <= 3
                assert set(database.ended) == {3}
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
                await database.kill()
            # What compares everything needs more memory.
            database = Process(
                DATABASE, environ["BROKER_URL"], str(tmp_path / "data"), environ=environ
            )
            try:
                await database.start()
                # The write that was given up may have left staged rows, which are discarded later.
                await assert_stored(network, 1)
            finally:
                await database.kill()
