"""A collection is rebuilt, and searched, while its workers, its database and its model are killed.

The long form takes minutes: ``pytest -m long -s tests/ability_search/flows/test_jobs_killed.py``.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, PATIENCE, Network, document
from tests.ability_search.flows.stored import assert_consistent, chunks
from tests.ability_search.flows.test_crash import DATABASE, WORKER, Process, network_of
from tests.ability_search.flows.test_reindexing import only_the_live_generation_is_left

from ability_search.config.loader import load_settings
from kadi_client import Connection
from kadi_client.errors import KadiError, ToolError
from kadi_localnet.broker import serve_broker

pytestmark = [pytest.mark.process, pytest.mark.engine]

MODELS = """
import asyncio, sys
from kadi_client import Connection
from tests.ability_search.flows.conftest import WordModel

async def main(url):
    async with Connection(url, name="models", role="ability", tools=[WordModel().tool]) as at:
        sys.stdout.write("ready\\n")
        sys.stdout.flush()
        await at.serve_forever()

asyncio.run(main(*sys.argv[1:]))
"""


@dataclass
class Ordeal:
    """A network in processes, and what was seen of it."""

    network: Network
    parts: dict[str, Process]
    documents: list[dict[str, Any]]
    chance: random.Random
    seen: Counter[str] = field(default_factory=Counter)
    answered: asyncio.Condition = field(default_factory=asyncio.Condition)
    starting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def patiently(self, tool: str, /, **tool_input: Any) -> Any:
        """Call a tool until it answers."""
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                try:
                    return await self.network.client.invoke(tool, tool_input, timeout=PATIENCE)
                except ToolError as exc:
                    assert exc.code in ("database_unavailable", "busy"), exc.answer
                    self.seen[f"told: {exc.code}"] += 1
                except KadiError:
                    self.seen["told: lost"] += 1
                await self.supervise()

    async def search(self) -> None:
        """Look for one document after another, each by the word that only it has."""
        for mode in itertools.cycle(("keyword", "hybrid")):
            wanted = self.chance.randrange(len(self.documents))
            found = await self.patiently(
                "search-query", collection="docs", query=f"where is fox{wanted}", mode=mode
            )
            hits = [hit["source"] for hit in found["results"]]
            self.seen["answers"] += 1
            self.seen["missing"] += not hits
            # The vectors of words are coarse: by meaning another document may come first.
            self.seen["wrong"] += f"d{wanted}" not in (hits if mode == "hybrid" else hits[:1])
            self.seen["degraded"] += "degraded" in found
            async with self.answered:
                self.answered.notify_all()

    async def after_answers(self, count: int) -> None:
        """Wait for some answers, or until there is none for a while, as the database is away."""
        goal = self.seen["answers"] + count
        async with asyncio.timeout(2 * PATIENCE), self.answered:
            await self.answered.wait_for(lambda: self.seen["answers"] >= goal)

    async def job(self) -> Any:
        info = await self.patiently("search-collection-info", collection="docs")
        return next((job for job in info["jobs"] if job["kind"] == "reindex"), None)

    async def kill(self, name: str) -> None:
        async with self.starting:
            await self.parts[name].kill()
            self.seen[f"killed: {name}"] += 1
            await self.parts[name].start()

    async def supervise(self) -> None:
        """Start again what died by itself."""
        async with self.starting:
            for name, part in self.parts.items():
                if part.died:
                    self.seen[f"died: {name}"] += 1
                    await part.start()


@asynccontextmanager
async def ordeal(tmp_path: Path, documents: int, sentences: int) -> AsyncIterator[Ordeal]:
    async with serve_broker("127.0.0.1", 0) as broker:
        environ = {
            "HOME": str(tmp_path),
            "BROKER_URL": broker.url,
            "SEARCH_DATABASE": "ordeal",
            "SEARCH_DATABASE_TIMEOUT": "10",
            "SEARCH_DATABASE_GRACE_PERIOD": "1",
            "SEARCH_DATABASE_WRITE_GROUP_CHUNKS": "100",
            "SEARCH_EMBEDDING_MODEL": MODEL,
            "SEARCH_EMBEDDING_BREAKER_RESET": "1",
            "SEARCH_EMBEDDING_REUSE": "false",
            "SEARCH_JOB_LEASE": "2",
        }
        plain = {"HOME": str(tmp_path)}
        workers = [
            environ | {"SEARCH_IDENTITY_FILE": str(tmp_path / f"worker{n}.pem")} for n in (1, 2)
        ]
        parts = {
            "database": Process(DATABASE, broker.url, str(tmp_path / "data"), "512", environ=plain),
            "models": Process(MODELS, broker.url, environ=plain),
            "worker 1": Process(WORKER, str(tmp_path), environ=workers[0]),
            "worker 2": Process(WORKER, str(tmp_path), environ=workers[1]),
        }
        given = [
            document(f"d{n}", " ".join(f"The fox{n} runs, number {i}." for i in range(sentences)))
            for n in range(documents)
        ]
        async with Connection(broker.url, name="test") as client:
            network = network_of(client, load_settings(environ, tmp_path))
            try:
                for part in parts.values():
                    await part.start()
                yield Ordeal(network, parts, given, random.Random(documents))
            finally:
                for part in parts.values():
                    await part.kill()


async def rebuilt_under_fire(under: Ordeal, kills: int, answers: int) -> None:
    """Rebuild the collection again and again until so many kills are survived."""
    sizes = itertools.cycle((24, 32))
    size = 0
    names = list(under.parts)
    for number in range(kills):
        job = await under.job()
        if job is None or job["state"] == "done":
            size = next(sizes)
            await under.patiently(
                "search-reindex", collection="docs", maxTokens=size, background=True
            )
            under.seen["jobs"] += 1
        else:
            assert job["state"] in ("running", "interrupted"), job
        await under.after_answers(under.chance.randint(1, answers))
        await under.kill(names[number % len(names)])
    async with asyncio.timeout(4 * PATIENCE):
        while (job := await under.job())["state"] != "done":
            assert job["state"] in ("running", "interrupted"), job
            await under.after_answers(1)
    assert (await assert_consistent(under.network, "docs")).chunk_size == size


async def all_is_there(under: Ordeal) -> None:
    texts: dict[str, str] = {}
    for row in sorted(
        await chunks(under.network, "docs"), key=lambda row: (row["source"], row["chunkIndex"])
    ):
        texts[row["source"]] = texts.get(row["source"], "") + row["lead"] + row["content"]
    assert texts == {given["source"]: given["content"] for given in under.documents}
    await only_the_live_generation_is_left(under.network)
    assert (under.seen["wrong"], under.seen["missing"]) == (0, 0), under.seen


async def survived(tmp_path: Path, *, documents: int, sentences: int, kills: int) -> Ordeal:
    async with ordeal(tmp_path, documents, sentences) as under:
        for start in range(0, documents, 200):
            await under.patiently(
                "search-index",
                collection="docs",
                documents=under.documents[start : start + 200],
                maxTokens=32,
            )
        searching = asyncio.create_task(under.search())
        try:
            await rebuilt_under_fire(under, kills, answers=max(4, documents // 20))
        finally:
            searching.cancel()
            await asyncio.wait({searching})
            if not searching.cancelled():
                searching.result()
        await all_is_there(under)
    return under


@pytest.mark.timeout(300)
async def test_a_job_survives_every_part(tmp_path: Path) -> None:
    await survived(tmp_path, documents=80, sentences=24, kills=4)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_twenty_thousand_chunks_and_thirty_kills(tmp_path: Path) -> None:
    under = await survived(tmp_path, documents=1400, sentences=40, kills=30)
    sys.stdout.write(f"\n{dict(sorted(under.seen.items()))}\n")
