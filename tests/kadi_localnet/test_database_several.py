"""Several databases of one engine: no call sees a record, or a transaction, of another database.

The databases have the same types, made in the same order, so that their records have the same ids.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jpype
import numpy as np
import pytest
from tests.kadi_client.calls import PlainCall

from kadi_client.messages import decode, encode
from kadi_client.tools import Origin
from kadi_localnet.database import embedded
from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tickets import Ticket
from kadi_localnet.database.tools import database_tools, shared_threads
from kadi_localnet.database.vector_indexes import warm_vector_indexes

pytestmark = pytest.mark.engine

NAMES = ["kadi_memory", "other", "third"]
THREADS = 12
RECORDS = 40
SECONDS = 60.0
SCHEMA = """
    CREATE VERTEX TYPE Doc BUCKETS 2;
    CREATE EDGE TYPE Cites;
    CREATE PROPERTY Doc.name STRING;
    CREATE PROPERTY Doc.vector ARRAY_OF_FLOATS;
    CREATE PROPERTY Doc.ids ARRAY_OF_INTEGERS;
    CREATE PROPERTY Doc.weights ARRAY_OF_FLOATS;
    CREATE PROPERTY Doc.next LINK;
    CREATE INDEX ON Doc (name) UNIQUE;
    CREATE INDEX ON Doc (ids, weights)
        LSM_SPARSE_VECTOR METADATA {"dimensions": 0, "weightQuantization": "FP32"};
    CREATE INDEX ON Doc (vector) LSM_VECTOR METADATA {"dimensions": 4, "similarity": "COSINE"};
    CREATE DOCUMENT TYPE Scratch BUCKETS 2;
"""
VECTOR = np.array([1.0, 0.2, 0.1, 0.4], "<f4")
COMPARED = {
    "near": {"properties": ["vector"], "vector": base64.b64encode(VECTOR.tobytes()).decode()},
    "heavy": {"properties": ["ids", "weights"], "ids": [1, 2, 3], "weights": [1.0, 0.5, 2.0]},
}
SPARSE = "expand(`vector.sparseNeighbors`('Doc[ids,weights]', [1, 2], [1.0, 0.5], 8))"
DENSE = "expand(vectorNeighbors('Doc[vector]', [1.0, 0.2, 0.1, 0.4], 8))"

Row = Mapping[str, Any]


@dataclass
class Abilities:
    """The tools of the engine, for calls of agents that are all different."""

    engine: EmbeddedDatabases

    def __post_init__(self) -> None:
        threads = shared_threads(self.engine)
        tools = database_tools(self.engine, threads=threads)
        self.tools = {tool.name: tool for tool in tools}
        self.numbers = itertools.count()

    async def call(self, tool: str, given: Row) -> Any:
        call = PlainCall(SECONDS, origin=Origin(on_behalf_of=f"agent-{next(self.numbers)}"))
        return decode(encode(await self.tools[tool].handler(dict(given), call)))


def document(database: str, number: int) -> Row:
    """Return a record of a database; it differs from those of the others in ``database`` only."""
    rng = random.Random(number)
    return {
        "database": database,
        "name": f"d{number}",
        "vector": [rng.uniform(-1, 1) for _ in range(4)],
        "ids": sorted(rng.sample(range(1, 9), 4)),
        "weights": [round(rng.uniform(0.1, 2.0), 3) for _ in range(4)],
    }


async def filled(engine: EmbeddedDatabases, name: str, *, further_types: int = 0) -> None:
    """Create a database with records, whose ids are higher after further types."""
    further = "".join(f"CREATE DOCUMENT TYPE Other{n} BUCKETS 1;" for n in range(further_types))
    rows = {"rows": [document(name, number) for number in range(RECORDS)]}
    await engine.create(name, timeout=SECONDS)
    for statement in (
        Statement(further + SCHEMA, "sqlscript"),
        Statement("INSERT INTO Doc CONTENT :rows", params=rows),
        Statement("UPDATE Doc SET next = (SELECT FROM Doc WHERE name = 'd7')"),
        Statement(
            "CREATE EDGE Cites FROM (SELECT FROM Doc WHERE name = 'd1')"
            " TO (SELECT FROM Doc WHERE name = 'd2')"
        ),
    ):
        await engine.write(name, [statement], timeout=SECONDS)


@pytest.fixture
async def abilities(tmp_path: Path) -> AsyncIterator[Abilities]:
    async with EmbeddedDatabases(tmp_path, heap_mb=512, workers=THREADS) as engine:
        yield Abilities(engine)


def search(database: str, *names: str, where: str | None = None, limit: int = 8) -> Row:
    """Return the input of a search by some of the vector and the terms."""
    lookup = {"type": "Doc", "where": {"name": "d3"}, "columns": ["database", "name"]}
    scanned = {"type": "Doc", "where": {"weights": [9]}, "columns": ["database"]}
    return {
        "database": database,
        "compared": {name: COMPARED[name] for name in COMPARED if name in names or len(names) < 2},
        "searches": {
            name: {"type": "Doc", "by": name, "limits": [limit, 2 * limit], "where": where}
            for name in names
        },
        "columns": ["database", "name"],
        "ahead": ["name", "database"],
        "first": 3,
        "orders": [dict.fromkeys(names, (1.0, None))],
        "before": [lookup],
        "after": [lookup, scanned],
    }


def searched(result: Row) -> list[str]:
    """Return the databases of all rows of a search, which may not be empty."""
    rows = [*result["rows"], *result["before"][0], *result["after"][0]]
    names = [name for _, name in result["ahead"]["rows"]]
    assert result["rids"]
    assert names
    assert all(np.isfinite(scores).all() for scores in map(scores_of, result["scores"].values()))
    return [database for database, _ in rows] + names


def scores_of(block: str) -> Any:
    return np.frombuffer(base64.b64decode(block), "<f4")


def selected(rows: list[Row]) -> list[str]:
    """Return the databases of the rows of a statement, which may not be empty."""
    assert rows, "a statement found nothing"
    names: list[str] = []
    for row in rows:
        value = row["database"]
        names += value if isinstance(value, list) else [value]
    return names


QUERIES = [
    "SELECT database FROM Doc",
    "SELECT database FROM Doc WHERE name = 'd5'",
    f"SELECT database FROM (SELECT {SPARSE})",
    f"SELECT database FROM (SELECT {DENSE})",
    "SELECT next.database AS database FROM Doc LIMIT 5",
    "SELECT database FROM (SELECT expand(next) FROM Doc LIMIT 5)",
    "SELECT out('Cites').database AS database FROM Doc WHERE name = 'd1'",
    "MATCH {type: Doc, where: (name = 'd1'), as: a}-Cites->{as: b} RETURN b.database AS database",
    "SELECT database FROM (TRAVERSE out('Cites') FROM (SELECT FROM Doc WHERE name = 'd1'))",
    "SELECT $a.database AS database LET $a = (SELECT FROM Doc WHERE @rid IN"
    " (SELECT @rid FROM Doc WHERE name = 'd9'))",
    "SELECT database FROM :rid",
    "SELECT database FROM Doc WHERE @rid IN [:rid]",
]


@dataclass(frozen=True)
class Step:
    """A call, and the function of its answer that returns the databases of all records in it."""

    tool: str
    given: Row
    databases: Callable[[Any], list[str]]


def step(kind: str, database: str, number: int, rid: str) -> Step:
    """Return a call of a kind; ``number`` decides between calls of that kind."""
    rng = random.Random(number)
    if kind == "search":
        names = rng.choice([("heavy",), ("near",), ("near", "heavy")])
        where = rng.choice([None, "name <> 'd4'"])
        given = search(database, *names, where=where, limit=rng.randint(2, 20))
        return Step("arcade-index-search", given, lambda answer: searched(answer["result"]))
    if kind == "query":
        given = {"query": rng.choice(QUERIES), "params": {"rid": rid}}
        return Step(
            "arcade-query",
            {"database": database, **given},
            lambda answer: selected(answer["result"]),
        )
    insert = f"INSERT INTO Scratch SET database = '{database}', n = {number}"
    if kind == "batch":
        commands = [insert, f"DELETE FROM Scratch RETURN BEFORE WHERE n = {number}"]
        return Step(
            "arcade-batch",
            {"database": database, "commands": commands},
            lambda answer: selected(answer["results"]),
        )
    if kind == "script":
        text = (
            f"BEGIN; {insert}; LET rows = SELECT database FROM (SELECT {SPARSE});"
            f" DELETE FROM Scratch WHERE n = {number}; COMMIT; RETURN $rows"
        )
    elif kind == "refused":
        text = f"{insert}; INSERT INTO Doc SET name = 'd1', database = 'refused'"
        return Step(
            "arcade-command",
            {"database": database, "command": text, "language": "sqlscript"},
            lambda answer: [database if "DuplicatedKey" in answer["error"] else answer["error"]],
        )
    elif kind == "info":
        given = {"database": database}
        return Step("arcade-db-info", given, lambda answer: [answer["name"]])
    elif kind == "stats":
        given = {"database": database}
        return Step(
            "arcade-db-stats",
            given,
            lambda answer: [entry["name"] for entry in answer["databases"]],
        )
    else:
        return Step("arcade-db-list", {}, lambda answer: answer["databases"])
    return Step(
        "arcade-command",
        {"database": database, "command": text, "language": "sqlscript"},
        lambda answer: selected(answer["result"]),
    )


def assert_of(database: str, call: Step, answer: Any) -> None:
    """Hold that a call succeeded with records of its database only."""
    if call.tool == "arcade-db-list":
        assert set(answer["databases"]) >= set(NAMES)
    else:
        assert set(call.databases(answer)) == {database}, (call, answer)


KINDS = ["search"] * 8 + ["query"] * 5 + ["batch", "script", "refused", "list", "info", "stats"]


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("further_types", [0, 60])
async def test_calls_of_many_threads_see_records_of_their_own_database_only(
    abilities: Abilities, seed: int, further_types: int
) -> None:
    engine, rng = abilities.engine, random.Random(seed)
    for number, name in enumerate(NAMES):
        await filled(engine, name, further_types=number * further_types)
    rids = {}
    for name in NAMES:
        given = {"database": name, "query": "SELECT @rid AS rid FROM Doc WHERE name = 'd6'"}
        [row] = (await abilities.call("arcade-query", given))["result"]
        rids[name] = row["rid"]
    assert further_types or len(set(rids.values())) == 1
    further = (f"further{number}" for number in itertools.count())

    async def agent(share: list[tuple[str, str, int]]) -> None:
        for kind, name, number in share:
            call = step(kind, name, number, rids[name])
            assert_of(name, call, await abilities.call(call.tool, call.given))

    async def creator() -> None:
        for _ in range(3):
            await filled(engine, next(further))

    calls = [(rng.choice(KINDS), rng.choice(NAMES), rng.randrange(10**9)) for _ in range(480)]
    shares = [calls[start::THREADS] for start in range(THREADS)]
    async with asyncio.TaskGroup() as group:
        for share in shares:
            group.create_task(agent(share))
        group.create_task(creator())
    for name in NAMES:
        # The records of refused and of finished calls are gone.
        given = {"database": name, "query": "SELECT count(*) AS n FROM Scratch"}
        assert (await abilities.call("arcade-query", given))["result"] == [{"n": 0}]


async def test_a_search_after_statements_on_another_database_finds_its_own_records(
    abilities: Abilities,
) -> None:
    for name in ("kadi_memory", "other"):
        await filled(abilities.engine, name)
    for _ in range(2):
        for name, by in itertools.product(("kadi_memory", "other"), ("heavy", "near")):
            answers = [
                await abilities.call("arcade-query", {"database": other, "query": QUERIES[0]})
                for other in ("kadi_memory", "other")
                for _ in range(THREADS)
            ]
            assert all(answer["success"] for answer in answers)
            answer = await abilities.call("arcade-index-search", search(name, by))
            assert set(searched(answer["result"])) == {name}


class Broken:
    """A database that cannot roll back."""

    def isTransactionActive(self) -> bool:
        return True

    def rollbackAllNested(self) -> None:
        jpype.JClass("java.lang.Integer").parseInt("none")


def context_names() -> set[str]:
    """Return the databases of which this thread has a context."""
    contexts = jpype.JClass("com.arcadedb.database.DatabaseContext").INSTANCE.get()
    return set() if contexts is None else {Path(str(path)).name for path in contexts.keySet()}


async def in_thread(engine: EmbeddedDatabases, work: Callable[[], Any]) -> Any:
    """Run work in the only thread of the engine."""
    return await engine._in_thread(lambda _ticket: work())


@pytest.mark.parametrize("end", ["answered", "failed", "stopped", "created", "opened"])
async def test_a_call_leaves_no_context_in_its_thread(tmp_path: Path, end: str) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=256, workers=1, warm_up=False) as engine:
        await filled(engine, "d")
        if end == "answered":
            await engine.read("d", Statement(QUERIES[0]), timeout=SECONDS)
        elif end == "failed":
            with pytest.raises(DatabaseError, match="Gone"):
                await engine.read("d", Statement("SELECT FROM Gone"), timeout=SECONDS)
        elif end == "stopped":
            endless = Statement("LET $x = 1; WHILE ($x = 1) { SELECT FROM Doc; }", "sqlscript")
            with pytest.raises(DatabaseError, match="the statement was stopped"):
                await engine.read("d", endless, timeout=0.2)
        elif end == "opened":
            await engine.close()
            engine = EmbeddedDatabases(tmp_path, heap_mb=256, workers=1, warm_up=False)
            await engine.start()
            await in_thread(engine, engine._open_existing)
        assert await in_thread(engine, context_names) == set()
        await engine.close()


async def test_a_transaction_that_was_left_open_is_no_part_of_the_next_call(
    tmp_path: Path,
) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=256, workers=1, warm_up=False) as engine:
        await filled(engine, "d")

        def leave_open() -> None:
            with engine._ready("d", [], Ticket()) as database:
                database.java.begin()
                database.java.begin()
                database.java.command("sql", "INSERT INTO Scratch SET database = 'd'")

        await in_thread(engine, leave_open)
        await engine.write("d", [Statement("INSERT INTO Scratch SET n = 1")], timeout=SECONDS)
        counted = await engine.read("d", Statement("SELECT n FROM Scratch"), timeout=SECONDS)
        assert decode(bytes(counted.json)) == [{"n": 1}]


async def test_a_rollback_that_fails_is_logged_and_leaves_no_context(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=256, workers=1, warm_up=False) as engine:
        await filled(engine, "d")

        def lose() -> None:
            with engine._ready("d", [], Ticket()) as database:
                database.java.begin()
                engine._running_engine().contexts._leave(Broken())
                assert context_names() == set()

        await in_thread(engine, lose)
        assert "a transaction was not rolled back: NumberFormatException" in caplog.text
        counted = await engine.read("d", Statement("SELECT n FROM Scratch"), timeout=SECONDS)
        assert counted.count == 0


async def test_a_thread_that_ended_is_no_thread_of_the_engine_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = jpype.JClass("java.lang.Thread")
    numbers: list[int] = []

    def warm(*given: Any) -> None:
        warm_vector_indexes(*given)
        assert context_names() == {"d"}
        numbers.append(int(threads.currentThread().threadId()))

    async with EmbeddedDatabases(tmp_path, heap_mb=256, warm_up=False) as engine:
        await filled(engine, "d")
    monkeypatch.setattr(embedded, "warm_vector_indexes", warm)
    async with EmbeddedDatabases(tmp_path, heap_mb=256) as engine:
        await engine.read("d", Statement(QUERIES[0]), timeout=SECONDS)
        for warmer in engine._warmers:
            await asyncio.to_thread(warmer.join)
        alive = {int(thread.threadId()) for thread in threads.getAllStackTraces().keySet()}
        assert len(numbers) == 1
        assert alive.isdisjoint(numbers)
