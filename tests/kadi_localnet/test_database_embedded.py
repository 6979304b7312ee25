"""The embedded engine: its process, directory, threads and Java virtual machine."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jpype
import numpy as np
import pytest

from kadi_client.messages import decode
from kadi_localnet.database import embedded, jvm, vector_indexes
from kadi_localnet.database.backend import Conflict, DatabaseError, Statement
from kadi_localnet.database.conversion import Parameters
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.index_use import IndexUse
from kadi_localnet.database.tickets import translate
from kadi_localnet.database.vector_indexes import stored_vectors, warm_vector_indexes

pytestmark = pytest.mark.engine

MIB = 1024 * 1024
TASKS = Path("/proc/self/task")
INSERT = "INSERT INTO T CONTENT :rows RETURN @rid"

CHILD = """
import asyncio, signal, sys
from pathlib import Path
from kadi_localnet.database.backend import Statement
from kadi_localnet.database.embedded import EmbeddedDatabases

async def serve(directory):
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    if "handler" in sys.argv:
        loop.add_signal_handler(signal.SIGTERM, ended.set)
    async with EmbeddedDatabases(Path(directory), heap_mb=256) as databases:
        async def write(text, params=None):
            return await databases.write("d", [Statement(text, params=params)], timeout=20)
        if not await databases.databases(timeout=5):
            await databases.create("d", timeout=20)
            await write("CREATE DOCUMENT TYPE T")
            await write("CREATE PROPERTY T.k INTEGER")
            await write("CREATE INDEX ON T (k) UNIQUE")
            await write("CREATE PROPERTY T.ids ARRAY_OF_INTEGERS")
            await write("CREATE PROPERTY T.weights ARRAY_OF_FLOATS")
            await write("CREATE INDEX ON T (ids, weights) LSM_SPARSE_VECTOR"
                        " METADATA {'dimensions': 0}")
        await databases.read("d", Statement("SELECT count(*) FROM T"), timeout=20)
        print("ready", flush=True)
        batch = 0
        while "write" in sys.argv:
            rows = [{"k": batch * 50 + i, "part": batch, "v": [0.5] * 64,
                     "ids": [batch * 50 + i], "weights": [1.0]} for i in range(50)]
            await write("INSERT INTO T CONTENT :rows RETURN COUNT", {"rows": rows})
            print(batch, flush=True)
            batch += 1
        await ended.wait()
    print("closed", flush=True)

asyncio.run(serve(sys.argv[1]))
"""


@pytest.fixture
async def databases(tmp_path: Path) -> AsyncIterator[EmbeddedDatabases]:
    async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as backend:
        await backend.create("d", timeout=20)
        yield backend


async def run(backend: EmbeddedDatabases, text: str, params: Any = None) -> Any:
    [rows] = await backend.write("d", [Statement(text, params=params)], timeout=20)
    return decode(rows.json)


async def read(backend: EmbeddedDatabases, text: str) -> Any:
    return decode((await backend.read("d", Statement(text), timeout=20)).json)


async def start_child(directory: Path, *flags: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        CHILD,
        str(directory),
        *flags,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        cwd=directory.parent,
    )


async def line_of(child: asyncio.subprocess.Process) -> str:
    assert child.stdout is not None
    async with asyncio.timeout(30):
        return (await child.stdout.readline()).decode().strip()


async def rest_of(child: asyncio.subprocess.Process) -> tuple[str, str]:
    async with asyncio.timeout(30):
        out, err = await child.communicate()
    return out.decode(), err.decode()


def full_collections() -> int:
    """How often the Java machine has stopped everything to collect all of its heap."""
    management = jpype.JClass("java.lang.management.ManagementFactory")
    beans = management.getGarbageCollectorMXBeans()
    full = [
        bean for bean in beans if str(bean.getName()) in ("G1 Old Generation", "MarkSweepCompact")
    ]
    assert full
    return sum(int(bean.getCollectionCount()) for bean in full)


def compiling_threads() -> list[int]:
    """The threads of this process that compile what runs often."""
    names = {int(task.name): (task / "comm").read_text() for task in TASKS.iterdir()}
    return [thread for thread, name in names.items() if name.startswith(("C1 Comp", "C2 Comp"))]


def test_only_the_notice_of_the_module_is_kept_back(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError), jvm._without_notice():
        os.write(2, b"WARNING: Using incubator modules: x\nnot enough memory\n")
        raise RuntimeError
    assert capfd.readouterr().err == "not enough memory\n"


def test_the_heap_follows_the_memory_within_bounds() -> None:
    empty = jvm.needed_heap_mb([])
    assert jvm.heap_mb_for(empty, 512 * MIB) == 256
    assert jvm.heap_mb_for(empty, 4096 * MIB) == 1024
    assert jvm.heap_mb_for(empty, 65536 * MIB) == 2048
    assert 256 <= jvm.heap_mb_for(empty) <= 2048


def test_a_heap_holds_the_stored_vectors_with_room_to_grow() -> None:
    million = jvm.needed_heap_mb([(900_000, 384), (100_000, 384)])
    assert million == 256 + 1_000_000 * (16 * 384 + 800) // MIB
    assert jvm.heap_mb_for(million, 24 * 1024 * MIB) == int(1.5 * million)
    with pytest.raises(DatabaseError, match=f"about {million} MiB, and this machine has 8192 MiB"):
        jvm.heap_mb_for(million, 8192 * MIB)


@pytest.mark.parametrize("version", ["26.10.2", "26.10.2.post1", "27.1", "26.11.1-SNAPSHOT"])
def test_a_recent_engine_is_accepted(version: str) -> None:
    jvm.check_version(version)


@pytest.mark.parametrize("version", ["26.10.1", "26.9.1", "25.12.1"])
def test_an_old_engine_is_refused_with_the_remedy(version: str) -> None:
    with pytest.raises(DatabaseError, match=rf"{version} is too old.*pip install"):
        jvm.check_version(version)


def test_large_pages_are_asked_for_where_there_are_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tmp_path / "enabled"
    monkeypatch.setattr(jvm, "_LARGE_PAGES", kernel)
    assert not jvm._large_pages()
    kernel.write_text("always [madvise] never\n")
    assert jvm._large_pages() == ["-XX:+UseTransparentHugePages"]
    kernel.write_text("always madvise [never]\n")
    assert not jvm._large_pages()


@pytest.mark.slow
@pytest.mark.usefixtures("databases")
async def test_collections_of_python_bring_about_none_of_java() -> None:
    before = full_collections()
    kept = []
    for _ in range(4):
        kept.append([bytes(60_000) for _ in range(500)])
        gc.collect()
    assert full_collections() == before


@pytest.mark.skipif(not TASKS.is_dir(), reason="threads are no files here")
@pytest.mark.usefixtures("databases")
async def test_compiling_gives_way_to_answering() -> None:
    compilers = compiling_threads()
    nicer = min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)
    assert compilers
    assert {os.getpriority(os.PRIO_PROCESS, each) for each in compilers} == {nicer}


async def test_only_plain_vectors_become_float_arrays(databases: EmbeddedDatabases) -> None:
    vector = [1, *[0.5] * 8]
    given = {
        "vector": vector,
        "whole": list(range(9)),
        "short": [0.5] * 7,
        "huge": [1e300, *[0.5] * 8],
        "mixed": [0.5] * 8 + ["x"],
        "flags": [True, *[0.5] * 8],
        "rows": [{"e": vector, "deep": {"e": vector}}],
    }
    java = await asyncio.to_thread(Parameters().to_java, given)
    floats = jpype.JArray(jpype.JFloat)
    lists = jpype.JClass("java.util.List")
    assert isinstance(java.get("vector"), floats)
    assert np.array_equal(np.asarray(java.get("vector")), np.asarray(vector, np.float32))
    assert isinstance(java.get("rows").get(0).get("e"), floats)
    assert isinstance(java.get("rows").get(0).get("deep").get("e"), lists)
    for name in ("whole", "short", "huge", "mixed", "flags"):
        assert isinstance(java.get(name), lists), name
    positional = await asyncio.to_thread(Parameters().to_java, [vector, None, "x"])
    assert isinstance(positional[0], floats)
    assert list(positional[1:]) == [None, "x"]


async def test_params_that_are_not_json_are_refused(databases: EmbeddedDatabases) -> None:
    with pytest.raises(DatabaseError, match="params: not JSON"):
        await run(databases, "SELECT :x", {"x": "\ud800"})


async def test_a_statement_nested_too_deeply_is_told_so(databases: EmbeddedDatabases) -> None:
    with pytest.raises(DatabaseError, match="^the statement is nested too deeply: split it"):
        await run(databases, "SELECT 1" + " + 1" * 100_000)
    await run(databases, "SELECT 1 + 1")


async def test_a_commit_outlives_the_database_being_closed(tmp_path: Path) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as first:
        await first.create("d", timeout=20)
        await run(first, "CREATE DOCUMENT TYPE T")
        await run(first, INSERT, {"rows": [{"x": 1}, {"x": 2}]})
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as second:
        assert await second.databases(timeout=5) == ["d"]
        assert await read(second, "SELECT x FROM T ORDER BY x") == [{"x": 1}, {"x": 2}]


async def test_a_write_stopped_at_its_deadline_is_rolled_back(databases: EmbeddedDatabases) -> None:
    await run(databases, "CREATE DOCUMENT TYPE T")
    await run(databases, INSERT, {"rows": [{"x": i} for i in range(3000)]})
    slow = Statement(
        "UPDATE T SET y = (SELECT count(*) AS n FROM T WHERE x <> $parent.$current.x)[0].n"
    )
    with pytest.raises(DatabaseError, match=r"no answer within 0\.3 s.*rolled back"):
        await databases.write("d", [Statement("INSERT INTO T SET x = -1"), slow], timeout=0.3)
    assert await read(databases, "SELECT FROM T WHERE x = -1 OR y IS NOT NULL") == []
    await run(databases, "UPDATE T SET x = x + 1")
    assert await read(databases, "SELECT min(x) AS x FROM T") == [{"x": 1}]


async def test_a_cancelled_call_gives_its_thread_back(tmp_path: Path) -> None:
    endless = Statement(
        "SELECT x, (SELECT count(*) FROM T WHERE x <> $parent.$current.x) AS c FROM T ORDER BY c"
    )
    async with EmbeddedDatabases(tmp_path, heap_mb=512, workers=1) as single:
        await single.create("d", timeout=20)
        await run(single, "CREATE DOCUMENT TYPE T")
        await run(single, INSERT, {"rows": [{"x": i} for i in range(5000)]})
        running = asyncio.create_task(single.read("d", endless, timeout=60))
        waiting = asyncio.create_task(single.read("d", endless, timeout=60))
        await asyncio.sleep(0)
        for task in (waiting, running):
            task.cancel()
        async with asyncio.timeout(20):
            await asyncio.gather(running, waiting, return_exceptions=True)
            assert await read(single, "SELECT count(*) AS n FROM T") == [{"n": 5000}]


@pytest.mark.slow
async def test_the_loop_stays_responsive_while_the_engine_works(
    databases: EmbeddedDatabases,
) -> None:
    await run(databases, "CREATE DOCUMENT TYPE T")
    await run(databases, INSERT, {"rows": [{"x": i} for i in range(500)]})
    slow = "SELECT count(*) AS n FROM T WHERE (SELECT count(*) FROM T WHERE x < 0)[0].n IS NULL"
    reading = asyncio.create_task(read(databases, slow))
    turns = 0
    while not reading.done():
        turns += 1
        await asyncio.sleep(0)
    await reading
    assert turns > 100


async def test_close_ends_running_calls_and_refuses_new_ones(tmp_path: Path) -> None:
    backend = EmbeddedDatabases(tmp_path, heap_mb=512)
    await backend.start()
    await backend.create("d", timeout=20)
    await run(backend, "CREATE DOCUMENT TYPE T")
    await run(backend, INSERT, {"rows": [{"x": i} for i in range(5000)]})
    endless = Statement(
        "SELECT x, (SELECT count(*) FROM T WHERE x <> $parent.$current.x) AS c FROM T ORDER BY c"
    )
    running = asyncio.create_task(backend.read("d", endless, timeout=60))
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        await backend.close()
        with pytest.raises(DatabaseError, match="shutting down"):
            await running
    with pytest.raises(DatabaseError, match="shutting down"):
        await backend.databases(timeout=5)
    await backend.close()


async def test_calls_that_wait_for_a_thread_when_it_closes_are_told(tmp_path: Path) -> None:
    backend = EmbeddedDatabases(tmp_path, heap_mb=512, workers=1)
    await backend.start()
    await backend.create("d", timeout=20)
    calls = [asyncio.create_task(run(backend, "SELECT 1")) for _ in range(20)]
    await asyncio.sleep(0)
    await backend.close()
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(outcome, DatabaseError | list), outcome


async def test_what_is_there_is_opened_before_anybody_asks(tmp_path: Path) -> None:
    for _ in range(2):
        backend = EmbeddedDatabases(tmp_path, heap_mb=512)
        await backend.start()
        async with asyncio.timeout(20):
            assert backend._engine is not None
            while sorted(backend._engine.open) != await backend.databases(timeout=5):
                pass
        if not backend._engine.open:
            await backend.create("d", timeout=20)
        await backend.close()


async def test_conflicts_are_recognised_through_their_causes(databases: EmbeddedDatabases) -> None:
    def thrown() -> list[type]:
        need_retry = jpype.JClass("com.arcadedb.exception.NeedRetryException")
        modified = jpype.JClass("com.arcadedb.exception.ConcurrentModificationException")("page 3")
        locked = jpype.JClass("com.arcadedb.exception.LockTimeoutException")("file 7")
        wrapped = jpype.JClass("com.arcadedb.exception.CommandExecutionException")("x", modified)
        other = jpype.JClass("com.arcadedb.exception.SchemaException")("y")
        return [type(translate(each, need_retry)) for each in (modified, locked, wrapped, other)]

    assert await asyncio.to_thread(thrown) == [Conflict, Conflict, Conflict, DatabaseError]


async def test_a_vector_index_is_warm_before_anybody_searches(tmp_path: Path) -> None:
    vectors = np.random.default_rng(3).standard_normal((400, 16)).tolist()
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as first:
        await first.create("d", timeout=20)
        await run(first, "CREATE VERTEX TYPE T")
        await run(first, "CREATE PROPERTY T.e ARRAY_OF_FLOATS")
        metadata = '{"dimensions": 16, "similarity": "COSINE"}'
        await run(first, f"CREATE INDEX ON T (e) LSM_VECTOR METADATA {metadata}")
        await run(first, INSERT, {"rows": [{"k": k, "e": e} for k, e in enumerate(vectors)]})
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as second:
        assert await read(second, "SELECT count(*) AS n FROM T") == [{"n": 400}]
        async with asyncio.timeout(20):
            for warmer in second._warmers:
                await asyncio.to_thread(warmer.join)
        assert second._engine is not None
        java = second._engine.open["d"].java
        kind = jpype.JClass("com.arcadedb.index.vector.LSMVectorIndex")
        indexes = [index for index in java.getSchema().getIndexes() if isinstance(index, kind)]
        assert [index.isWarm() for index in indexes] == [True]
        await asyncio.to_thread(warm_vector_indexes, "d", java, IndexUse(), second._closing)
        found = await second.read(
            "d",
            Statement(
                "SELECT k FROM (SELECT expand(vectorNeighbors('T[e]', :v, 1)))",
                params={"v": vectors[7]},
            ),
            timeout=20,
        )
        assert decode(found.json) == [{"k": 7}]
    [(count, dimensions)] = stored_vectors(tmp_path)
    assert dimensions == 16
    assert count == pytest.approx(400, rel=0.1)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
async def test_a_dropped_vector_index_leaves_no_file_open(
    databases: EmbeddedDatabases, tmp_path: Path
) -> None:
    vectors = np.random.default_rng(3).standard_normal((50, 16)).tolist()
    search = "SELECT k FROM (SELECT expand(vectorNeighbors('T[e]', :v, 1)))"

    def open_graphs() -> list[str]:
        links = (os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd"))
        files = {os.readlink(each) for each in links if os.path.lexists(each)}
        return [each for each in files if each.startswith(str(tmp_path)) and "vecgraph" in each]

    await run(databases, "CREATE VERTEX TYPE Kept")
    for searched in (True, False, True):
        await run(databases, "CREATE VERTEX TYPE T BUCKETS 1")
        await run(databases, "CREATE PROPERTY T.e ARRAY_OF_FLOATS")
        metadata = '{"dimensions": 16, "similarity": "COSINE"}'
        await run(databases, f"CREATE INDEX ON T (e) LSM_VECTOR METADATA {metadata}")
        await run(databases, INSERT, {"rows": [{"k": k, "e": e} for k, e in enumerate(vectors)]})
        if searched:
            found = await databases.read(
                "d", Statement(search, params={"v": vectors[7]}), timeout=9
            )
            assert decode(found.json) == [{"k": 7}]
        assert open_graphs()
        await run(databases, "DROP TYPE T UNSAFE")
        assert open_graphs() == []
    await run(databases, "INSERT INTO Kept SET n = 1")
    assert await read(databases, "SELECT n FROM Kept") == [{"n": 1}]


async def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    backend = EmbeddedDatabases(tmp_path / "file", heap_mb=512)
    with pytest.raises(DatabaseError, match="data directory .*file"):
        await backend.start()
    await backend.close()


@pytest.mark.process
async def test_a_database_held_by_another_process_is_named(tmp_path: Path) -> None:
    child = await start_child(tmp_path / "data", "handler")
    assert await line_of(child) == "ready"
    try:
        async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as second:
            with pytest.raises(DatabaseError, match=r"data is in use by another process: stop"):
                await read(second, "SELECT 1")
    finally:
        child.terminate()
        out, err = await rest_of(child)
    # Without its second compiler, as in the tests, the engine says that vectors are slower.
    said = [line for line in err.splitlines() if "C2 compiler is disabled" not in line]
    assert (child.returncode, said) == (0, [])
    assert out.strip() == "closed"
    assert not (tmp_path / "log").exists()
    async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as second:
        assert await read(second, "SELECT count(*) AS n FROM T") == [{"n": 0}]


@pytest.mark.process
async def test_sigterm_without_a_handler_is_an_ordinary_end(tmp_path: Path) -> None:
    child = await start_child(tmp_path / "data")
    assert await line_of(child) == "ready"
    child.terminate()
    await rest_of(child)
    assert child.returncode == -signal.SIGTERM


@pytest.mark.parametrize("trial", range(3))
@pytest.mark.process
async def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path, trial: int) -> None:
    child = await start_child(tmp_path / "data", "write")
    assert await line_of(child) == "ready"
    wait = random.Random(trial).uniform(0.05, 0.8)
    acknowledged = -1
    try:
        async with asyncio.timeout(wait):
            while True:
                acknowledged = int(await line_of(child))
    except TimeoutError:
        os.kill(child.pid, signal.SIGKILL)
    out, _ = await rest_of(child)
    acknowledged = max([acknowledged, *map(int, out.split())])
    async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as again:
        stored = await read(again, "SELECT part, count(*) AS n FROM T GROUP BY part")
        counts = {row["part"]: row["n"] for row in stored}
        assert set(range(acknowledged + 1)) <= counts.keys() <= set(range(acknowledged + 2))
        assert set(counts.values()) <= {50}
        for key in range(0, 50 * len(counts), 37):
            [found] = await read(again, f"SELECT part FROM T WHERE k = {key}")
            assert found["part"] == key // 50
            search = f"`vector.sparseNeighbors`('T[ids,weights]', [{key}], [1.0], 5)"
            assert await read(again, f"SELECT k FROM (SELECT expand({search}))") == [{"k": key}]


@pytest.mark.process
async def test_a_kill_while_indexes_are_rebuilt_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = await start_child(tmp_path / "data", "write")
    while await line_of(child) != "2":
        pass
    os.kill(child.pid, signal.SIGKILL)
    await rest_of(child)
    repair = vector_indexes._repair_sparse_indexes

    class Killed(Exception):
        """What ends the process after the first step of a rebuild."""

    class Dying:
        def __init__(self, database: Any) -> None:
            self._database = database

        def command(self, language: str, text: str) -> None:
            self._database.command(language, text.replace("REBUILD", "DROP"))
            self._database.close()
            raise Killed

    def interrupted(directory: Path, database: Any, *, killed: bool) -> None:
        repair(directory, Dying(database), killed=killed)

    async with EmbeddedDatabases(tmp_path / "data", heap_mb=512, warm_up=False) as databases:
        # The engine is started by now, and the database is opened by the first call.
        monkeypatch.setattr(vector_indexes, "_repair_sparse_indexes", interrupted)
        with pytest.raises(Killed):
            await read(databases, "SELECT FROM T")
        monkeypatch.undo()
        for key in (0, 60, 149):
            search = f"`vector.sparseNeighbors`('T[ids,weights]', [{key}], [1.0], 5)"
            assert await read(databases, f"SELECT k FROM (SELECT expand({search}))") == [{"k": key}]
    assert not list((tmp_path / "data").rglob("*rebuilding*"))


async def test_an_engine_that_ends_no_call_any_more_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded, "STUCK_SECONDS", 0.5)
    reported, freed = threading.Event(), threading.Event()
    async with EmbeddedDatabases(tmp_path, heap_mb=512, workers=1, stuck=reported.set) as databases:
        await databases.create("d", timeout=20)
        run = databases._run
        monkeypatch.setattr(
            databases, "_run", lambda *given, **named: freed.wait(20) and run(*given, **named)
        )
        with pytest.raises(DatabaseError, match="no answer within"):
            await databases.read("d", Statement("SELECT 1"), timeout=0.1)
        assert not reported.is_set()
        async with asyncio.timeout(10):
            while not reported.is_set():  # Further calls wait for the thread in vain.
                with pytest.raises(DatabaseError, match="no answer within"):
                    await databases.read("d", Statement("SELECT 1"), timeout=0.1)
        assert "no call has ended" in caplog.text
        freed.set()
        assert (await databases.read("d", Statement("SELECT 1"), timeout=20)).count == 1


async def test_files_left_beside_a_graph_are_removed_when_a_database_is_opened(
    tmp_path: Path,
) -> None:
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as first:
        await first.create("d", timeout=30)
    directory = tmp_path / "d"
    kept = {path.name for path in directory.iterdir()}
    graph = "T_0_1_vecgraph.9.262144.v0.vecgraph"
    for name in (f"{graph}.vecordmap", f"{graph}.vecgraphfp"):
        (directory / name).write_bytes(b"of a type that was dropped")
    async with EmbeddedDatabases(tmp_path, heap_mb=512) as again:
        assert (await again.read("d", Statement("SELECT 1 AS n"), timeout=30)).count == 1
        assert not list(directory.glob("*vecgraph*"))
    assert kept <= {path.name for path in directory.iterdir()}
