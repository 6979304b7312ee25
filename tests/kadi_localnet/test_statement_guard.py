"""Statements that agents must not run: every known way out of the database, tried on the engine."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jpype
import pytest

from kadi_client.messages import decode
from kadi_localnet.database.allowlist import (
    BUCKET_SELECTIONS,
    CALLS,
    CATALOGUES,
    DOTTED_CALLS,
    FUNCTIONS,
    METHODS,
    SETTINGS,
    STATEMENTS,
)
from kadi_localnet.database.backend import LANGUAGES, DatabaseError, Statement
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.statement_guard import _GENERATED, StatementGuard

pytestmark = pytest.mark.engine


SECRET = "the token of another part"

REFUSED_STATEMENTS = {
    "AlignDatabase",
    "AlterGraphAnalyticalView",
    "AlterMaterializedView",
    "AlterTimeSeriesType",
    "BackupDatabase",
    "CheckDatabase",
    "CompactTimeSeriesType",
    "Console",
    "CreateContinuousAggregate",
    "CreateGraphAnalyticalView",
    "CreateMaterializedView",
    "CreateTimeSeriesType",
    "CreateTrigger",
    "DefineFunction",
    "DeleteFunction",
    "DropContinuousAggregate",
    "DropGraphAnalyticalView",
    "DropMaterializedView",
    "DropTimeSeriesType",
    "ExportDatabase",
    "ImportDatabase",
    "Lock",
    "RebuildGraphAnalyticalView",
    "RefreshContinuousAggregate",
    "RefreshMaterializedView",
    "RestoreDocument",
    "RestoreEdge",
    "RestoreVertex",
    "SetGlobal",
    "Sleep",
}
"""Those of the engine that are not on the allowlist; where one is new, decide where it belongs."""

REFUSED_FUNCTIONS = {"eval", "promql"}
REFUSED_METHODS = {"convert", "javatype"}

STATEMENTS_REFUSED = [
    "IMPORT DATABASE file://{file}",
    "IMPORT DATABASE '{file}'",
    "IMPORT DATABASE http://192.0.2.1/data.json",
    "IMPORT DATABASE classpath://com/arcadedb/x.json",
    "EXPORT DATABASE",
    "EXPORT DATABASE file://export.jsonl.tgz WITH overwrite = true",
    "BACKUP DATABASE",
    "BACKUP DATABASE file://backup.zip",
    "CHECK DATABASE FIX",
    "ALIGN DATABASE",
    "ALTER DATABASE `arcadedb.opencypher.loadCsv.allowFileUrls` true",
    "ALTER DATABASE `arcadedb.vectorIndex.prefilterMaxSelectivity` 1.0,"
    " `arcadedb.externalPropertyBucketPath` '/'",
    "ALTER DATABASE `arcadedb.vectorIndex.prefilterMaxSelectivity` '${{HOME}}'",
    "DEFINE FUNCTION f.js 'return 1' LANGUAGE js",
    "DEFINE FUNCTION f.sql 'INSERT INTO T SET k = 666' LANGUAGE sql",
    "DELETE FUNCTION f.sql",
    "CREATE TRIGGER t BEFORE CREATE ON TYPE T EXECUTE JAVASCRIPT 'return true'",
    "CREATE TRIGGER t BEFORE CREATE ON TYPE T EXECUTE JAVA 'java.lang.Thread'",
    "CREATE TRIGGER t BEFORE CREATE ON TYPE T EXECUTE SQL 'BACKUP DATABASE'",
    "CREATE TIMESERIES TYPE `../../{name}` TIMESTAMP ts FIELDS (v DOUBLE)",
    "CREATE MATERIALIZED VIEW v AS SELECT FROM T REFRESH EVERY 1 SECOND",
    "CREATE CONTINUOUS AGGREGATE a AS SELECT FROM T",
    "CREATE GRAPH ANALYTICAL VIEW `../g`",
    "CONSOLE.error 'x'",
    "SLEEP 1",
    "LOCK TYPE T",
    "SET GLOBAL $x = 1",
    "RESTORE DOCUMENT T RID #1:7 SET k = 666",
    "CREATE DOCUMENT TYPE `../{name}`",
    "CREATE DOCUMENT TYPE `..\\{name}`",
    "CREATE BUCKET `../{name}`",
    "CREATE INDEX `../{name}` ON T (k) NOTUNIQUE",
    "ALTER TYPE T NAME `../{name}`",
    "ALTER TYPE T BUCKETSELECTIONSTRATEGY `java.lang.Thread`",
    """CREATE INDEX ON T (s) FULL_TEXT METADATA {{"analyzer": "java.lang.Thread"}}""",
    """CREATE INDEX ON T (s) FULL_TEXT METADATA {{"s_analyzer": "java.lang.Thread"}}""",
    """CREATE INDEX ON T (s) FULL_TEXT METADATA {{"anal\\u0079zer": "java.lang.Thread"}}""",
    "CREATE PROPERTY T.d STRING (default eval('1 = 1'))",
    "CREATE PROPERTY T.d STRING (default (BACKUP DATABASE))",
    r"CREATE PROPERTY T.d STRING (default 'a\' + (BACKUP DATABASE) + \'b')",
    """ALTER PROPERTY T.s DEFAULT "a' + (BACKUP DATABASE) + 'b" """,
]
"""Commands; ``{file}`` is a file of the host, ``{name}`` no database."""

QUERIES_REFUSED = [
    "BACKUP DATABASE",
    "EXPLAIN BACKUP DATABASE",
    "PROFILE BACKUP DATABASE",
    "SELECT (BACKUP DATABASE)",
    "SELECT FROM (BACKUP DATABASE)",
    "SELECT $b LET $b = (BACKUP DATABASE)",
    "SELECT FROM T WHERE (BACKUP DATABASE) IS NOT NULL",
    "SELECT FROM T WHERE k IN (SELECT FROM (EXPORT DATABASE))",
    "TRAVERSE FROM (BACKUP DATABASE)",
    "MATCH {{type: T, as: t, where: ((BACKUP DATABASE) IS NULL)}} RETURN t",
    "FIND REFERENCES (BACKUP DATABASE)",
    "SELECT FROM schema:database",
    "SELECT FROM SCHEMA:DATABASE",
    "SELECT path FROM (SELECT FROM schema:database)",
    "SELECT eval('(INSERT INTO T SET k = 666) IS NOT NULL') FROM T",
    "SELECT EVAL('1 = 1')",
    "SELECT `eval`('1 = 1')",
    "SELECT FROM T WHERE eval('(INSERT INTO T SET k = 666) IS NOT NULL')",
    "SELECT FROM T ORDER BY eval('1 = 1')",
    "SELECT CASE WHEN eval('1 = 1') THEN 1 ELSE 2 END",
    "SELECT [eval('1 = 1')]",
    "SELECT {{'a': eval('1 = 1')}}",
    "SELECT [x FOR x IN [1] WHERE eval('1 = 1')]",
    "SELECT FROM T LIMIT eval('1 = 1')",
    "MATCH {{type: T, as: t, where: (eval('1 = 1'))}} RETURN t",
    "SELECT promql('up')",
    "SELECT `f.sql`()",
    "SELECT f.sql()",
    "SELECT s.convert('java.lang.Thread') FROM T",
    "SELECT s.`convert`('java.lang.Thread') FROM T",
    "SELECT 's'.trim().convert('java.lang.Thread')",
    "SELECT :p.convert('java.lang.Thread')",
    "MATCH {{type: T, as: t}}.(out('E').convert('java.lang.Thread'){{}}){{as: u}} RETURN t",
    "SELECT `util.sleep`(100000)",
]
"""Reads, each of which is refused as a command as well."""

SCRIPTS_REFUSED = [
    "SELECT 1; BACKUP DATABASE;",
    "LET b = BACKUP DATABASE; RETURN $b;",
    "LET b = (BACKUP DATABASE); RETURN $b;",
    "RETURN (BACKUP DATABASE);",
    "IF (true) {{ IF (false) {{ SELECT 1; }} ELSE {{ BACKUP DATABASE; }} }}",
    "IF ((BACKUP DATABASE) IS NULL) {{ SELECT 1; }}",
    "FOREACH ($i IN [1]) {{ WHILE (true) {{ BACKUP DATABASE; BREAK; }} }}",
    "FOREACH ($i IN (BACKUP DATABASE)) {{ SELECT 1; }}",
    "BEGIN; COMMIT RETRY 2 ELSE {{ BACKUP DATABASE; }};",
    "/* BEGIN */ backup\n-- SELECT\nDATABASE;",
    "eval('(INSERT INTO T SET k = 666) IS NOT NULL');",
    "RETURN eval('1 = 1');",
    "INSERT INTO T SET k = 666; SLEEP 1;",
]

ALLOWED = [
    "SELECT count(*), max(k), sum(k) FROM T WHERE s LIKE 'x%' GROUP BY s ORDER BY s LIMIT 3",
    "SELECT s.trim().toUpperCase().left(2), k.asString(), @this.toJSON() FROM T",
    "SELECT vector.sum([1.0], [2.0]), `vector.add`([1.0], [2.0]), vectorAdd([1.0], [2.0])",
    "SELECT expand(set(k)) FROM T",
    "SELECT 'BACKUP DATABASE', \"eval('1 = 1')\", 'file:///etc/passwd' AS `schema:database`",
    "SELECT FROM T WHERE s = 'IMPORT DATABASE http://x' -- EXPORT DATABASE",
    "SELECT FROM schema:types",
    "SELECT FROM schema:indexes",
    "EXPLAIN SELECT FROM T",
    "PROFILE SELECT FROM T",
    "MATCH {type: T, as: t} RETURN t.s.length() AS n",
    "CREATE PROPERTY T.d STRING (default 'it', mandatory false, regexp '[a-z]+')",
    "CREATE PROPERTY T.at DATETIME (default sysdate())",
    "CREATE INDEX ON T (s) FULL_TEXT METADATA"
    ' {"analyzer": "org.apache.lucene.analysis.en.EnglishAnalyzer"}',
    "ALTER TYPE T BUCKETSELECTIONSTRATEGY `round-robin`",
    "ALTER DATABASE `arcadedb.vectorIndex.prefilterMaxSelectivity` 1.0",
    "TRUNCATE TYPE T",
    "REBUILD INDEX *",
]


@pytest.fixture
async def databases(tmp_path: Path) -> AsyncIterator[EmbeddedDatabases]:
    async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as backend:
        await backend.create("d", timeout=20)
        for text in (
            "CREATE DOCUMENT TYPE T",
            "CREATE PROPERTY T.k INTEGER",
            "CREATE PROPERTY T.s STRING",
            "INSERT INTO T SET k = 1, s = 'x'",
        ):
            await backend.write("d", [Statement(text)], timeout=20)
        yield backend


@pytest.fixture
def given(tmp_path: Path) -> dict[str, str]:
    """What the placeholders of a statement stand for."""
    (tmp_path / "environ").write_text(SECRET)
    return {"file": str(tmp_path / "environ"), "name": "outside"}


async def rows(backend: EmbeddedDatabases, text: str) -> Any:
    return decode((await backend.read("d", Statement(text), timeout=20)).json)


def outside(directory: Path) -> list[str]:
    return sorted(str(each) for each in directory.rglob("*") if each.parent.name != "d")


async def state(backend: EmbeddedDatabases, directory: Path) -> object:
    """What a statement could change: files beside the database, its records and its schema."""
    return (
        outside(directory),
        await rows(backend, "SELECT FROM T"),
        await rows(backend, "SELECT name, properties, indexes FROM schema:types"),
        await rows(backend, "SELECT name FROM schema:triggers"),
    )


async def refused(backend: EmbeddedDatabases, tmp_path: Path, *statements: Statement) -> None:
    """Assert that no way of running them does anything."""
    before = await state(backend, tmp_path)
    with pytest.raises(DatabaseError, match="is not allowed: statements may use the records"):
        await backend.write("d", statements, timeout=20)
    with pytest.raises(DatabaseError, match="is not allowed: statements may use the records"):
        await backend.read("d", statements[-1], timeout=20)
    assert await state(backend, tmp_path) == before


@pytest.mark.slow
@pytest.mark.parametrize("text", [*STATEMENTS_REFUSED, *QUERIES_REFUSED])
async def test_a_statement_that_reaches_beyond_its_database_is_refused(
    databases: EmbeddedDatabases, tmp_path: Path, given: dict[str, str], text: str
) -> None:
    await refused(databases, tmp_path, Statement(text.format(**given)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", [*SCRIPTS_REFUSED, *(f"SELECT 1; {text};" for text in STATEMENTS_REFUSED)]
)
async def test_a_script_that_reaches_beyond_its_database_is_refused(
    databases: EmbeddedDatabases, tmp_path: Path, given: dict[str, str], text: str
) -> None:
    await refused(databases, tmp_path, Statement(text.format(**given), "sqlscript"))


async def test_nothing_of_a_batch_runs_if_one_of_it_is_refused(
    databases: EmbeddedDatabases, tmp_path: Path
) -> None:
    first = Statement("CREATE DOCUMENT TYPE Made"), Statement("INSERT INTO T SET k = 666")
    await refused(databases, tmp_path, *first, Statement("BACKUP DATABASE"))


@pytest.mark.slow
@pytest.mark.parametrize("text", ALLOWED)
@pytest.mark.parametrize("language", LANGUAGES)
async def test_ordinary_statements_run(
    databases: EmbeddedDatabases, text: str, language: str
) -> None:
    await databases.write("d", [Statement(f"{text}\n;", language)], timeout=20)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO T SET k = 2",
        "UPDATE T SET k = 2",
        "DELETE FROM T",
        "TRUNCATE TYPE T UNSAFE",
        "DROP TYPE T UNSAFE",
        "ALTER TYPE T NAME U",
        "CREATE PROPERTY T.n STRING",
        "CREATE BUCKET b",
        "REBUILD INDEX *",
        "COMPACT INDEX *",
        "REBUILD TYPE T",
        "ALTER DATABASE `arcadedb.vectorIndex.prefilterMaxSelectivity` 0.5",
        "PROFILE INSERT INTO T SET k = 2",
        "SELECT (INSERT INTO T SET k = 2)",
        "SELECT FROM (INSERT INTO T SET k = 2)",
        "SELECT FROM T LET x = (INSERT INTO T SET k = 2)",
        "SELECT FROM T WHERE (DELETE FROM T) IS NULL",
        "SELECT FROM T ORDER BY (DELETE FROM T)",
        "TRAVERSE FROM (DELETE FROM T)",
        "MATCH {type: T, as: t, where: ((DELETE FROM T) IS NULL)} RETURN t",
        "FIND REFERENCES (DELETE FROM T)",
        "LET x = (DELETE FROM T)",
    ],
)
async def test_a_read_changes_nothing(
    databases: EmbeddedDatabases, tmp_path: Path, text: str
) -> None:
    before = await state(databases, tmp_path)
    for statement in (Statement(text), Statement(f"SELECT 1; {text};", "sqlscript")):
        with pytest.raises(DatabaseError, match="not read-only|syntax error"):
            await databases.read("d", statement, timeout=20)
    assert await state(databases, tmp_path) == before


async def test_an_explained_statement_is_not_run(databases: EmbeddedDatabases) -> None:
    assert await rows(databases, "EXPLAIN DELETE FROM T")
    assert await rows(databases, "SELECT count(*) AS n FROM T") == [{"n": 1}]


async def test_a_statement_that_cannot_be_read_says_why(databases: EmbeddedDatabases) -> None:
    for statement in (Statement("SELECT FROM"), Statement("SELECT 1; SELECT FROM;", "sqlscript")):
        with pytest.raises(DatabaseError, match="syntax error"):
            await databases.read("d", statement, timeout=20)


async def test_a_statement_nested_too_deep_is_refused_at_once(databases: EmbeddedDatabases) -> None:
    deep = f"SELECT {'(' * 50_000}1{')' * 50_000}"
    for statement in (Statement(deep), Statement(f"{deep};", "sqlscript")):
        with pytest.raises(DatabaseError, match="depth"):
            await databases.read("d", statement, timeout=20)


async def test_what_a_database_kept_from_before_does_not_open_files(
    tmp_path: Path, given: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as backend:
        await backend.create("d", timeout=20)
        assert backend._engine is not None
        java = backend._engine.open["d"].java
        for text in (
            "CREATE DOCUMENT TYPE T",
            "CREATE TRIGGER planted BEFORE CREATE ON T EXECUTE SQL"
            f" 'IMPORT DATABASE file://{given['file']}'",
            "DEFINE FUNCTION old.sql 'SELECT 1' LANGUAGE sql",
        ):
            java.command("sql", text)
    with caplog.at_level(logging.WARNING):
        async with EmbeddedDatabases(tmp_path / "data", heap_mb=512) as backend:
            with pytest.raises(DatabaseError, match="not allowed. Permitted directories"):
                await backend.write("d", [Statement("INSERT INTO T SET k = 1")], timeout=20)
            with pytest.raises(DatabaseError, match=r"old.sql.* is not allowed"):
                await backend.read("d", Statement("SELECT `old.sql`()"), timeout=20)
            await backend.write("d", [Statement("DROP TRIGGER planted")], timeout=20)
            await backend.write("d", [Statement("INSERT INTO T SET k = 1")], timeout=20)
    assert "d has triggers (planted) or functions (old)" in caplog.text


async def test_every_part_of_the_engines_sql_was_decided_upon(databases: EmbeddedDatabases) -> None:
    parser = jpype.JClass("com.arcadedb.query.sql.grammar.SQLParser").class_
    alternatives = {
        str(each.getSimpleName()).removesuffix("StmtContext")
        for each in parser.getDeclaredClasses()
        if re.search(r"\$(Script)?StatementContext$", str(each.getSuperclass().getName()))
    }
    assert alternatives == STATEMENTS | REFUSED_STATEMENTS
    assert databases._engine is not None
    engine = databases._engine.open["d"].java.getQueryEngine("sql")
    functions = set(map(str, engine.getFunctionFactory().getBuiltInFunctionNames()))
    spelled = {name.replace("vector.", "vector") for name in FUNCTIONS}
    assert functions <= FUNCTIONS | spelled | REFUSED_FUNCTIONS
    methods = set(map(str, engine.getMethodFactory().getBuiltInMethodNames()))
    assert methods == METHODS | REFUSED_METHODS
    assert not REFUSED_METHODS & DOTTED_CALLS
    for name in CATALOGUES:
        await databases.read("d", Statement(f"SELECT FROM schema:{name}"), timeout=20)


@pytest.mark.usefixtures("databases")
def test_a_statement_is_checked_once() -> None:
    guard = StatementGuard()
    text = f"SELECT k, s FROM T WHERE s IN {[str(n) for n in range(200)]} LIMIT 10"
    statement = Statement(text)
    guard.check(statement)
    for _ in range(50):
        guard.check(Statement(text[:1] + text[1:]))
    assert guard._cached.cache_info()[:2] == (50, 1)


@pytest.mark.usefixtures("databases")
def test_long_statements_are_checked_and_not_kept() -> None:
    guard = StatementGuard()
    padding = f"/* {'x' * 20_000} */"
    guard.check(Statement(f"SELECT 1 {padding}"))
    with pytest.raises(DatabaseError, match="BACKUP DATABASE is not allowed"):
        guard.check(Statement(f"BACKUP DATABASE {padding}"))
    assert guard._cached.cache_info().currsize == 0


@pytest.mark.usefixtures("databases")
def test_names_that_a_program_made_up_are_one_name_to_the_cache() -> None:
    guard = StatementGuard()
    names = [f"Chunk_docs_{n:017x}" for n in range(50)]
    for name in names:
        guard.check(Statement(f"SELECT FROM `{name}` WHERE id = 'a_{name}'"))
    assert guard._cached.cache_info()[:2] == (49, 1)
    for name in names[:2]:
        with pytest.raises(DatabaseError, match=f"the function {name}"):
            guard.check(Statement(f"SELECT {name}(1)"))
        with pytest.raises(DatabaseError, match="the name"):
            guard.check(Statement(f"CREATE DOCUMENT TYPE `../{name}`"))
    every = CALLS | DOTTED_CALLS | CATALOGUES | SETTINGS | STATEMENTS | BUCKET_SELECTIONS
    assert not [word for word in every if _GENERATED.search(word) or word.endswith("_0")]
