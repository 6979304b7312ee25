"""The Java classes that the bridge wraps before the first call."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

CHILD = """
import asyncio, sys
from pathlib import Path

import _jpype
import jpype

made = []
finish = _jpype._jclassPost

def finished(wrapper, *rest):
    made.append(wrapper)
    return finish(wrapper, *rest)

_jpype._jclassPost = finished

from kadi_localnet.database import bridge, jvm
from kadi_localnet.database.backend import DatabaseError, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases

TYPES = [
    "CREATE DOCUMENT TYPE {0} BUCKETS 1", "CREATE PROPERTY {0}.k INTEGER",
    "CREATE INDEX ON {0} (k) UNIQUE", "CREATE PROPERTY {0}.x STRING",
    "CREATE INDEX ON {0} (x) FULL_TEXT", "CREATE PROPERTY {0}.v ARRAY_OF_FLOATS",
    "CREATE INDEX ON {0} (v) LSM_VECTOR METADATA {{'dimensions': 16}}",
    "CREATE PROPERTY {0}.ids ARRAY_OF_INTEGERS", "CREATE PROPERTY {0}.weights ARRAY_OF_FLOATS",
    "CREATE INDEX ON {0} (ids, weights) LSM_SPARSE_VECTOR METADATA {{'dimensions': 0}}",
]
ROWS = {"rows": [{"k": i, "x": "a b", "v": [0.5] * 16, "ids": [i], "weights": [1.0]}
                 for i in range(50)]}
READS = [
    ("SELECT FROM {0} WHERE k = ?", [1], "sql"),
    ("SELECT FROM {0} WHERE SEARCH_INDEX('{0}[x]', 'a') = true", None, "sql"),
    ("SELECT expand(vectorNeighbors('{0}[v]', :v, 5))", {"v": [0.5] * 16}, "sql"),
    ("SELECT expand(vectorNeighbors('{0}[v]', :v, 5))", {"v": [0.5] * 15}, "sql"),
    ("MATCH (n:{0}) RETURN n", None, "opencypher"), ("MATCH (n RETURN n", None, "opencypher"),
    ("SELEC", None, "sql"), ("SELECT FROM Missing", None, "sql"), ("SELECT 1/0", None, "sql"),
    ("INSERT INTO {0} SET k = 99", None, "sql"), ("SELECT FROM #999:0", None, "sql"),
    ("SELECT FROM {0} WHERE k = :missing", {"other": 1}, "sql"),
    ("EXPLAIN SELECT FROM {0}", None, "sql"),
]
WRITES = [
    ("INSERT INTO {0} CONTENT :rows RETURN @rid", ROWS, "sql"),
    ("INSERT INTO {0} CONTENT :rows RETURN @rid", ROWS, "sql"),
    ("UPDATE {0} SET x = 'c' WHERE k = 2", None, "sql"),
    ("LET a = SELECT FROM {0}; RETURN $a", None, "sqlscript"), ("LE", None, "sqlscript"),
    ("DROP TYPE {0} IF EXISTS UNSAFE", None, "sql"), ("DROP TYPE {0}", None, "sql"),
]

async def use(databases, name):
    async def run(write, text, params, language):
        statement = Statement(text.format(name), params=params, language=language)
        try:
            if write:
                await databases.write("d", [statement], timeout=60)
            else:
                await databases.read("d", statement, timeout=60)
        except DatabaseError:
            pass
    for text in TYPES:
        await run(True, text, None, "sql")
    await run(True, *WRITES[0])
    await asyncio.gather(*(run(False, *each) for each in READS))
    for each in WRITES[1:]:
        await run(True, *each)

async def serve(directory):
    async with EmbeddedDatabases(Path(directory), heap_mb=256) as databases:
        before = len(made)
        sys.setswitchinterval(1e-6)
        await databases.create("d", timeout=60)
        await asyncio.gather(*(use(databases, f"T{i}") for i in range(4)))
        jvm.waiting_threads()
        jvm.heap_bytes()
    sys.setswitchinterval(0.005)
    late = {each.__name__ for each in made[before:]}
    called, _ = bridge._called()
    for each in list(made):
        for method in each.class_.getMethods():
            if str(method.getName()) in called:
                names = {str(each.getName()) for each in method.getParameterTypes()}
                for name in names & late:
                    print(f"{each.__name__}.{method.getName()}: {name}")

asyncio.run(serve(sys.argv[1]))
"""


@pytest.mark.process
async def test_no_parameter_of_what_may_be_called_is_wrapped_first_by_calls(tmp_path: Path) -> None:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CHILD, str(tmp_path / "data")),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(120):
        printed, errors = await child.communicate()
    assert child.returncode == 0, errors.decode()
    assert printed.decode().splitlines() == []
