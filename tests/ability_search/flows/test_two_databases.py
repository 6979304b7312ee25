"""Two database abilities on one network: nothing acknowledged is lost, the ambiguity is named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, WordModel, document

from ability_search.client.tool_client import Target
from ability_search.components.health_checks import check_network
from ability_search.config.loader import load_settings
from ability_search.store.shards import rendezvous
from ability_search.worker import open_worker
from kadi_client import Connection, Identity, ToolError
from kadi_client.messages import decode
from kadi_localnet.broker import Broker, serve_broker
from kadi_localnet.database.backend import Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = pytest.mark.engine

SECONDS = 30.0
FIRST, SECOND = Identity.generate(), Identity.generate()


@dataclass
class Bench:
    broker: Broker
    engines: list[EmbeddedDatabases]
    client: Connection
    base: Path

    def database(self, engine: int, identity: Identity) -> Connection:
        tools = database_tools(self.engines[engine])
        return Connection(self.broker.url, identity=identity, name="db", tools=tools)

    @asynccontextmanager
    async def worker(
        self, patience: float = 0.5, shards: str = "", split: str = ""
    ) -> AsyncIterator[None]:
        environ = {
            "BROKER_URL": self.broker.url,
            "SEARCH_EMBEDDING_MODEL": MODEL,
            "SEARCH_DATABASE_PATIENCE": str(patience),
            "SEARCH_DATA_DIR": str(self.base),
            "SEARCH_DATABASE_SHARDS": shards,
            "SEARCH_DATABASE_SPLIT": split,
        }
        async with open_worker(load_settings(environ, self.base), base=self.base):
            yield

    async def index(self, source: str, collection: str = "docs") -> Any:
        documents = [document(source, f"words of {source}")]
        return await self.call("search-index", collection=collection, documents=documents)

    async def call(self, tool: str, /, **given: Any) -> Any:
        return await self.client.invoke(tool, given, timeout=SECONDS)

    async def sources(self) -> list[str]:
        info = await self.client.invoke(
            "search-collection-info", {"collection": "docs"}, timeout=SECONDS
        )
        sources: list[str] = info["sources"]
        return sources


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        engines = [
            await enter(EmbeddedDatabases(tmp_path / name, heap_mb=512, warm_up=False))
            for name in ("one", "two")
        ]
        broker = await enter(serve_broker(port=0))
        await enter(Connection(broker.url, tools=[WordModel().tool]))
        client = await enter(Connection(broker.url))
        yield Bench(broker, engines, client, tmp_path)


async def test_a_worker_stays_with_its_database_when_another_one_joins(bench: Bench) -> None:
    async with bench.database(0, FIRST), bench.worker():
        await bench.index("a")
        async with bench.database(1, SECOND):
            for source in "bcdefgh":
                assert (await bench.index(source))["added"] == 1
        assert await bench.sources() == list("abcdefgh")


async def test_a_worker_that_finds_two_databases_refuses_and_names_both(bench: Bench) -> None:
    async with bench.database(0, FIRST), bench.database(1, SECOND), bench.worker():
        with pytest.raises(ToolError, match="several databases are offered") as refused:
            await bench.index("a")
    for identity in (FIRST, SECOND):
        assert identity.agent_id in str(refused.value)


async def test_doctor_names_the_databases_that_differ(bench: Bench) -> None:
    settings = load_settings({"SEARCH_DATA_DIR": str(bench.base)}, bench.base)
    target = Target(bench.broker.url, ("global",), "test")

    async def failures() -> list[str]:
        checks = [each async for each in check_network(settings, target)]
        return [each.text for each in checks if (each.name, each.state) == ("database", "fail")]

    async with bench.database(0, FIRST):
        async with bench.worker():
            await bench.index("a")
        assert await failures() == []
        async with bench.database(0, SECOND):
            assert await failures() == []
        async with bench.database(1, SECOND):
            (text,) = await failures()
    assert text.startswith("several databases are offered")
    assert re.search(f"agent {FIRST.agent_id} offers [0-9a-f]{{16}}", text)
    assert f"agent {SECOND.agent_id} offers none" in text


async def test_another_database_in_the_place_of_the_known_one_is_refused(bench: Bench) -> None:
    async with bench.worker():
        async with bench.database(0, FIRST):
            await bench.index("a")
        async with bench.database(1, SECOND):
            other = {"name": "kadi_memory"}
            await bench.client.invoke("arcade-db-create", other, timeout=SECONDS)
            with pytest.raises(ToolError, match="has worked with the database [0-9a-f]{16}"):
                await bench.index("b")
        async with bench.database(0, FIRST):
            assert (await bench.index("b"))["added"] == 1
            assert await bench.sources() == ["a", "b"]


async def test_a_call_waits_for_its_database_although_another_one_is_offered(
    bench: Bench,
) -> None:
    async with bench.worker(patience=SECONDS):
        async with bench.database(0, FIRST):
            await bench.index("a")
        async with bench.database(1, SECOND):
            other = {"name": "kadi_memory"}
            await bench.client.invoke("arcade-db-create", other, timeout=SECONDS)
            call = asyncio.create_task(bench.index("b"))
            assert not (await asyncio.wait([call], timeout=0.5))[0], "the call did not wait"
            async with bench.database(0, FIRST):
                assert (await call)["added"] == 1


async def test_the_same_database_through_another_agent_is_used(bench: Bench) -> None:
    async with bench.worker():
        async with bench.database(0, FIRST):
            await bench.index("a")
        async with bench.database(0, SECOND):
            await bench.index("b")
            assert await bench.sources() == ["a", "b"]


async def test_replicas_share_the_calls(bench: Bench) -> None:
    async with bench.database(0, FIRST), bench.worker():
        await bench.index("a")
    async with bench.database(0, FIRST), bench.database(0, SECOND), bench.worker():
        for source in "bcd":
            await bench.index(source)
        assert await bench.sources() == list("abcd")


async def test_the_id_of_a_database_survives_restarts_of_the_worker(bench: Bench) -> None:
    async with bench.database(0, FIRST):
        for source in "ab":
            async with bench.worker():
                await bench.index(source)
        asked = {"database": "kadi_memory", "query": "SELECT id FROM DatabaseId"}
        answer = await bench.client.invoke("arcade-query", asked, timeout=SECONDS)
        assert len(answer["result"]) == 1


NAMES = [f"notes-{number}" for number in range(8)]
SHARDS = "one,two"


async def answers(bench: Bench) -> list[Any]:
    """What is found in all collections, and in each of them."""
    found = []
    for name in ("*", *NAMES):
        answer = await bench.call("search-query", collection=name, query="words of b", limit=20)
        found.append([(hit["chunkId"], hit["score"], hit["scores"]) for hit in answer["results"]])
    return found


async def fill(bench: Bench) -> None:
    for name in NAMES:
        for source in "abc":
            await bench.index(source, name)


async def test_collections_are_spread_over_databases_and_answer_as_from_one(bench: Bench) -> None:
    one, two = bench.engines
    async with bench.database(0, FIRST):
        async with bench.worker():
            await fill(bench)
            expected = await answers(bench)
        await one.create("one", timeout=SECONDS)
        await two.create("two", timeout=SECONDS)
        async with bench.database(1, SECOND), bench.worker(shards=SHARDS):
            await fill(bench)
            assert await answers(bench) == expected
        counts = []
        for engine, name in ((one, "one"), (two, "two")):
            stored = Statement("SELECT name FROM Collection")
            rows = decode((await engine.read(name, stored, timeout=SECONDS)).json)
            assert {row["name"] for row in rows} == {
                each for each in NAMES if rendezvous(each, ("one", "two")) == name
            }
            counts.append(len(rows))
        assert min(counts) > 0
        assert sum(counts) == len(NAMES)


async def test_a_database_that_is_added_takes_new_collections_only(bench: Bench) -> None:
    for name in ("one", "two"):
        await bench.engines[0].create(name, timeout=SECONDS)
    await bench.engines[1].create("three", timeout=SECONDS)
    async with bench.database(0, FIRST), bench.database(1, SECOND):
        async with bench.worker(shards=SHARDS):
            await fill(bench)
            expected = await answers(bench)
        more = ("one", "two", "three")
        assert "three" in {rendezvous(name, more) for name in NAMES}
        async with bench.worker(shards="one,two,three"):
            assert await answers(bench) == expected
            later = next(f"n{at}" for at in range(99) if rendezvous(f"n{at}", more) == "three")
            await bench.index("a", later)
            listed = await bench.call("search-collections")
            assert [each["name"] for each in listed["collections"]] == sorted([later, *NAMES])
        stored = Statement("SELECT name FROM Collection")
        rows = decode((await bench.engines[1].read("three", stored, timeout=SECONDS)).json)
        assert [row["name"] for row in rows] == [later]


async def test_nothing_is_created_again_while_a_database_is_gone(bench: Bench) -> None:
    one, two = bench.engines
    await one.create("one", timeout=SECONDS)
    await two.create("two", timeout=SECONDS)
    async with bench.database(0, FIRST):
        async with bench.database(1, SECOND), bench.worker(shards=SHARDS):
            await fill(bench)
            expected = await answers(bench)
            there, gone = (
                next(name for name in NAMES if rendezvous(name, ("one", "two")) == shard)
                for shard in ("one", "two")
            )
        async with bench.worker(shards=SHARDS):
            for name in ("unseen", gone):
                with pytest.raises(ToolError, match="database_shards") as refused:
                    await bench.index("d", name)
                assert refused.value.code == "database_unavailable"
            assert await one.databases(timeout=SECONDS) == ["one"]
            async with bench.database(1, SECOND):
                assert await answers(bench) == expected
            found = await bench.call("search-query", collection=there, query="words of a")
            assert len(found["results"]) == 3


WORDS = ("rain", "snow", "wind", "sun", "cloud", "storm", "fog", "ice", "frost", "hail", "mist")


def large() -> list[dict[str, Any]]:
    """Documents with several chunks, metadata and links."""
    made = []
    for number in range(40):
        own = [WORDS[(number * step + step) % len(WORDS)] for step in range(1, 7)]
        text = "\n\n".join(f"{' '.join(own[at:])} number {number} part {at}" for at in range(3))
        link = {"target": f"s{(number * 7) % 40}", "kind": "cites", "weight": 0.9}
        made.append(
            {
                **document(f"s{number}", text),
                "metadata": {"even": number % 2 == 0},
                "links": [link] if number % 3 else [],
            }
        )
    return made


QUERIES: list[dict[str, Any]] = [
    {"mode": "semantic"},
    {"mode": "keyword"},
    {"prf": True},
    {"filter": {"metadata.even": True}},
    {"limit": 5, "offset": 10},
    {"limit": 20},
    {"expand": {"mode": "neighbors", "window": 1}},
    {"diversity": 0.5},
    {"maxPerSource": 1},
    {"graph": {"hops": 2, "minSimilarity": 0.1}},
    {"explain": True, "rerank": {"title": {"weight": 0.2, "rules": {"contains": "s1"}}}},
]


async def large_answers(bench: Bench) -> dict[str, Any]:
    """What a large collection answers; times and versions are left out."""
    found: dict[str, Any] = {}
    for options in QUERIES:
        given = {"query": "snow and storm", **options}
        answer = await bench.call("search-query", collection="large", **given)
        found[f"{given}"] = [_shown(hit) for hit in answer["results"]]
    for given in ({"source": "s4"}, {"chunkId": "large:s7:0"}):
        answer = await bench.call("search-similar", collection="large", limit=20, **given)
        found[f"{given}"] = [_shown(hit) for hit in answer["results"]]
    info = await bench.call("search-collection-info", collection="large")
    found["info"] = [info["sources"], info["chunks"]]
    return found


def _shown(hit: dict[str, Any]) -> dict[str, Any]:
    kept = ("chunkId", "score", "scores", "content", "context")
    return {name: hit[name] for name in kept if name in hit}


def _shape(value: Any) -> Any:
    """An answer without its fractions."""
    if isinstance(value, dict):
        return {name: _shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_shape, value))
    return None if isinstance(value, float) else value


def _numbers(value: Any) -> list[float]:
    """The fractions of an answer, in order."""
    if isinstance(value, dict | list):
        parts = value.values() if isinstance(value, dict) else value
        return [number for each in parts for number in _numbers(each)]
    return [value] if isinstance(value, float) else []


async def test_large_collection_split_over_databases_answers_as_from_one(bench: Bench) -> None:
    one, two = bench.engines

    async def life() -> list[dict[str, Any]]:
        """The answers after each of some changes."""
        documents = large()
        for start in range(0, 40, 10):
            part = documents[start : start + 10]
            options = {"chunkStrategy": "paragraph", "maxTokens": 16, "overlap": 0}
            await bench.call("search-index", collection="large", documents=part, **options)
        found = [await large_answers(bench)]
        await bench.call("search-delete", collection="large", source="s3")
        again = await bench.call("search-index", collection="large", documents=documents[5:8])
        assert again["unchanged"] == 3
        changed = [document("s5", "snow storm"), document("s40", "storm")]
        await bench.call("search-index", collection="large", documents=changed)
        found.append(await large_answers(bench))
        await bench.call("search-reindex", collection="large", maxTokens=24)
        found.append(await large_answers(bench))
        return found

    async with bench.database(0, FIRST), bench.worker():
        expected = await life()
    await one.create("one", timeout=SECONDS)
    await two.create("two", timeout=SECONDS)
    async with bench.database(0, FIRST):
        async with bench.database(1, SECOND), bench.worker(shards=SHARDS, split="la*"):
            for found, wanted in zip(await life(), expected, strict=True):
                for asked, answer in wanted.items():
                    assert _shape(found[asked]) == _shape(answer), asked
                    assert _numbers(found[asked]) == pytest.approx(_numbers(answer), abs=1e-5)
            counts = []
            for engine, name in ((one, "one"), (two, "two")):
                stored = Statement("SELECT name, sources FROM Collection")
                (row,) = decode((await engine.read(name, stored, timeout=SECONDS)).json)
                counts.append(row["sources"])
            assert sum(counts) == 40
            assert min(counts) > 10
        async with bench.worker(shards=SHARDS):
            with pytest.raises(ToolError, match="database_shards"):
                await bench.call("search-query", collection="large", query="fog")
            with pytest.raises(ToolError, match="database_shards"):
                await bench.index("s41", "large")
            async with bench.database(1, SECOND):
                assert _shape(await large_answers(bench)) == _shape(expected[-1])
                await bench.call("search-delete", collection="large")
        for engine, name in ((one, "one"), (two, "two")):
            left = Statement("SELECT FROM Collection")
            assert (await engine.read(name, left, timeout=SECONDS)).count == 0
