"""Both backends give the same answers: every test here runs against each of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.kadi_localnet.backends import Abilities, MakeBackend, names

from kadi_localnet.database.backend import ATTEMPTS

pytestmark = pytest.mark.engine


@pytest.mark.slow
async def test_every_kind_of_value_has_one_form(db: Abilities) -> None:
    for name, kind in {
        "at": "DATETIME",
        "day": "DATE",
        "f": "FLOAT",
        "exact": "DECIMAL",
        "bytes": "BINARY",
        "vector": "ARRAY_OF_FLOATS",
        "m": "MAP",
        "l": "LIST",
    }.items():
        if name == "at":
            await db.run("CREATE DOCUMENT TYPE T")
        await db.run(f"CREATE PROPERTY T.{name} {kind}")
    [stored] = await db.run(
        "INSERT INTO T SET at = '2026-01-02 03:04:05.678', day = '2026-01-02', f = 1.1,"
        " exact = 12.34, bytes = :bytes, vector = [1.5, 2], m = {'a': {'b': [1, null]}},"
        " l = [1, 'x', {'k': 2.5}], nothing = null, big = 9223372036854775807, s = :s, ok = true",
        {"bytes": [1, 2, 127], "s": 'é😀"\\\n\u0000\u0001 日本'},
    )
    [row] = await db.rows("SELECT FROM T")
    assert stored == row
    rid = row.pop("@rid")
    assert rid[0] == "#"
    assert row == {
        "@type": "T",
        "@cat": "d",
        "at": "2026-01-02T03:04:05.678",
        "day": "2026-01-02",
        "f": 1.1,
        "exact": 12.34,
        "bytes": [1, 2, 127],
        "vector": [1.5, 2.0],
        "m": {"a": {"b": [1, None]}},
        "l": [1, "x", {"k": 2.5}],
        "nothing": None,
        "big": 9223372036854775807,
        "s": 'é😀"\\\n\u0000\u0001 日本',
        "ok": True,
    }
    assert await db.rows("SELECT @rid AS r, at, exact FROM T") == [
        {"r": rid, "at": "2026-01-02T03:04:05.678", "exact": 12.34}
    ]
    assert await db.rows("SELECT f FROM T WHERE @rid IN :rids", {"rids": [rid]}) == [{"f": 1.1}]


async def test_numbers_that_json_cannot_write_stay_valid_json(db: Abilities) -> None:
    assert await db.rows("SELECT 1e400 AS x, 1.0 AS y") == [{"x": "PosInfinity", "y": 1.0}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("RETURN {'a': 1, 'b': [1, 2]};", [{"value": {"a": 1, "b": [1, 2]}}]),
        ("RETURN {'value': {'a': 1}};", [{"value": {"value": {"a": 1}}}]),
        ("RETURN {'value': 5};", [{"value": {"value": 5}}]),
        ("RETURN [1, 'x'];", [{"value": 1}, {"value": "x"}]),
        ("RETURN [{'a': 1}, {'b': 2}];", [{"a": 1}, {"b": 2}]),
        ("RETURN 5;", [{"value": 5}]),
        ("RETURN null;", [{"value": None}]),
        ("RETURN {};", [{"value": {}}]),
        ("LET $x = 5;", []),
        ("SELECT 1 AS a;", [{"a": 1}]),
        (
            "LET $s = SELECT 1 AS a; LET $k = SELECT 2 AS b; RETURN {'s': $s, 'k': $k};",
            [{"value": {"s": [{"a": 1}], "k": [{"b": 2}]}}],
        ),
    ],
)
@pytest.mark.parametrize("through", ["rows", "run"])
async def test_a_script_answers_what_it_returns(
    db: Abilities, script: str, expected: Any, through: str
) -> None:
    assert await getattr(db, through)(script, language="sqlscript") == expected


async def test_a_query_of_variables_answers_with_the_rows_of_each(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    for number in (1, 2, 3):
        await db.run("INSERT INTO T SET n = :n, v = [1.0, 2.0]", {"n": number})
    text = (
        "SELECT $low AS low, $more AS more LET"
        " $low = (SELECT n, @rid AS r FROM T WHERE n < :most ORDER BY n),"
        " $more = (SELECT n + $low[0].n AS sum, v FROM T WHERE @rid IN $low.r ORDER BY n)"
    )
    for most in (3, 1, 2):
        [answer] = await db.rows(text, {"most": most})
        assert [row["n"] for row in answer["low"]] == list(range(1, most))
        assert answer["more"] == [{"sum": n + 1, "v": [1.0, 2.0]} for n in range(1, most)]


async def test_a_query_that_the_engine_keeps_reads_the_clock_each_time(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    await db.run("CREATE PROPERTY T.at LONG")
    text = "SELECT $new AS new LET $new = (SELECT FROM T WHERE at > `date.currentTimestamp`() - 50)"
    assert await db.rows(text) == [{"new": []}]
    await db.run("INSERT INTO T SET at = `date.currentTimestamp`()")
    async with asyncio.timeout(20):
        while (await db.rows(text))[0]["new"]:
            pass


async def test_a_plain_query_keeps_a_column_named_value(db: Abilities) -> None:
    assert await db.rows("SELECT {'a': 1} AS value") == [{"value": {"a": 1}}]


async def test_parameters_are_named_or_positional(db: Abilities) -> None:
    given = {"v": [1, 2, 3], "w": {"a": None}, "x": "it's \\", "y": -1.5}
    assert await db.rows("SELECT :v AS v, :w AS w, :x AS x, :y AS y", given) == [given]
    assert await db.rows("SELECT ? AS a, ? AS b, ? AS c", [1, "x", [1, "y"]]) == [
        {"a": 1, "b": "x", "c": [1, "y"]}
    ]
    assert await db.rows("SELECT 1 AS a", {}) == [{"a": 1}]


@pytest.mark.parametrize("language", ["cypher", "opencypher", "OpenCypher", "java", "redis", ""])
async def test_other_languages_are_refused(db: Abilities, language: str) -> None:
    for answer in (
        await db.query("RETURN 1", language=language),
        await db.command("RETURN 1", language=language),
        await db.call(
            "arcade-batch",
            {"database": db.database, "commands": [{"command": "RETURN 1", "language": language}]},
        ),
    ):
        assert answer["success"] is False
        if language:
            assert "only sql and sqlscript" in answer["error"]
            assert "use MATCH of SQL" in answer["error"]


async def test_vectors_are_stored_and_searched(db: Abilities) -> None:
    await db.run("CREATE VERTEX TYPE V")
    await db.run("CREATE PROPERTY V.embedding ARRAY_OF_FLOATS")
    metadata = '{"dimensions": 16, "similarity": "COSINE"}'
    await db.run(f"CREATE INDEX ON V (embedding) LSM_VECTOR METADATA {metadata}")
    axis = [[1.0 if i == k else 0 for i in range(16)] for k in range(16)]
    deep = {"scores": [0.123456789012345] * 9}
    rows = [{"k": k, "embedding": axis[k], "metadata": deep} for k in range(16)]
    stored = await db.run("INSERT INTO V CONTENT :rows RETURN @rid", {"rows": rows})
    assert len(stored) == 16
    found = await db.rows(
        "SELECT k, distance FROM (SELECT expand(vectorNeighbors('V[embedding]', :v, 1)))",
        {"v": [0.25 if i == 5 else 0 for i in range(16)]},
    )
    assert [row["k"] for row in found] == [5]
    assert found[0]["distance"] == pytest.approx(0, abs=1e-6)
    [row] = await db.rows("SELECT embedding, metadata FROM V WHERE k = 3")
    assert row == {"embedding": axis[3], "metadata": deep}
    similar = await db.rows(
        "SELECT k FROM V WHERE vectorCosineSimilarity(embedding, :v) > 0.9", {"v": axis[7]}
    )
    assert similar == [{"k": 7}]


async def test_a_sparse_index_takes_terms_and_weights(db: Abilities) -> None:
    await db.run("CREATE VERTEX TYPE S")
    await db.run("CREATE PROPERTY S.terms ARRAY_OF_INTEGERS")
    await db.run("CREATE PROPERTY S.weights ARRAY_OF_FLOATS")
    await db.run('CREATE INDEX ON S (terms, weights) LSM_SPARSE_VECTOR METADATA {"dimensions":0}')
    terms = list(range(1, 21))
    weights = [0.5] * 19 + [1]
    rows = [{"k": 1, "terms": terms, "weights": weights}, {"k": 2, "terms": [3], "weights": [9.0]}]
    await db.run("INSERT INTO S CONTENT :rows", {"rows": rows})
    found = await db.rows(
        "SELECT k, score FROM (SELECT"
        " expand(`vector.sparseNeighbors`('S[terms,weights]', :i, :w, 5)))",
        {"i": [3, 20], "w": [1.0, 2.0]},
    )
    assert [(row["k"], row["score"]) for row in found] == [(2, 9.0), (1, 2.5)]


async def test_a_sparse_search_in_groups_keeps_what_a_filter_leaves(db: Abilities) -> None:
    await db.run("CREATE VERTEX TYPE S")
    await db.run("CREATE PROPERTY S.terms ARRAY_OF_INTEGERS")
    await db.run("CREATE PROPERTY S.weights ARRAY_OF_FLOATS")
    await db.run('CREATE INDEX ON S (terms, weights) LSM_SPARSE_VECTOR METADATA {"dimensions":0}')
    rows = [{"k": k, "terms": [1], "weights": [1.0 + k]} for k in range(100)]
    await db.run("INSERT INTO S CONTENT :rows", {"rows": rows})
    neighbours = "expand(`vector.sparseNeighbors`('S[terms,weights]', :i, :w, 2, {%s}))"
    [answer] = await db.rows(
        f"""
        LET allowed = SELECT @rid FROM S WHERE k IN :ks;
        LET s = SELECT k, score FROM (SELECT {neighbours % "filter: $allowed"});
        LET first = $s.size();
        IF ($s.size() < 2) {{
            LET s = SELECT k, score FROM
                (SELECT {neighbours % "groupBy: 'k', groupSize: 1, filter: $allowed"});
        }}
        RETURN {{'first': $first, 's': $s}};
        """,
        {"i": [1], "w": [1.0], "ks": [0, 1]},
        "sqlscript",
    )
    # Without groups a few are taken from the whole index, and then looked through.
    found = [{"k": 1, "score": 2.0}, {"k": 0, "score": 1.0}]
    assert answer == {"value": {"first": 0, "s": found}}


async def test_a_query_that_writes_is_refused(db: Abilities) -> None:
    for text, language in [
        ("CREATE DOCUMENT TYPE X", "sql"),
        ("CREATE DOCUMENT TYPE X;", "sqlscript"),
    ]:
        answer = await db.query(text, language=language)
        assert not answer["success"]
        assert "arcade-command" in answer["error"]
    assert await db.rows("SELECT FROM schema:types WHERE name = 'X'") == []


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("SELECT FROM Nope", "sql", "'Nope' was not found"),
        ("SELEC", "sql", "syntax error"),
        ("SELECT 1", "klingon", "klingon"),
    ],
)
async def test_a_failing_statement_says_why(
    db: Abilities, text: str, language: str, expected: str
) -> None:
    for answer in (await db.query(text, language=language), await db.command(text, None, language)):
        assert answer.keys() == {"success", "error"}
        assert answer["success"] is False
        assert expected in answer["error"]


async def test_a_delete_counts_in_its_row(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    await db.run("INSERT INTO T CONTENT :rows", {"rows": [{"x": 1}, {"x": 2}, {"x": 3}]})
    assert await db.run("DELETE FROM T WHERE x < 3") == [{"count": 2}]
    assert await db.rows("SELECT x FROM T") == [{"x": 3}]


@pytest.mark.parametrize(
    ("script", "stored"),
    [
        ("INSERT INTO T SET x = 1; INSERT INTO T SET x = 2; RETURN 1;", [1, 2]),
        ("INSERT INTO T SET x = 1; SELECT FROM Nope;", []),
        ("BEGIN; INSERT INTO T SET x = 1; COMMIT; RETURN 1;", [1]),
        ("BEGIN; INSERT INTO T SET x = 1; ROLLBACK; RETURN 1;", []),
        ("BEGIN; INSERT INTO T SET x = 1; SELECT FROM Nope; COMMIT;", []),
        ("BEGIN; INSERT INTO T SET x = 1; COMMIT; SELECT FROM Nope;", []),
        ("BEGIN; INSERT INTO T SET x = 1; RETURN 1;", []),
    ],
)
async def test_a_script_is_one_transaction(db: Abilities, script: str, stored: list[int]) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    answer = await db.command(script, language="sqlscript")
    assert answer["success"] is ("Nope" not in script)
    assert [row["x"] for row in await db.rows("SELECT x FROM T ORDER BY x")] == stored
    await db.run("INSERT INTO T SET x = 9")
    assert [row["x"] for row in await db.rows("SELECT x FROM T ORDER BY x")] == [*stored, 9]


async def test_a_batch_is_all_or_nothing(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    good: list[Any] = [
        "INSERT INTO T SET x = 1",
        {"command": "INSERT INTO T SET x = :x RETURN @this.x", "params": {"x": 2}},
        "SELECT x FROM T WHERE x > 2",
        "SELECT x FROM T ORDER BY x",
        {"command": "RETURN {'n': 7};", "language": "sqlscript"},
    ]
    answer = await db.call("arcade-batch", {"database": db.database, "commands": good})
    assert answer["success"] is True
    assert answer["committed"] is True
    first, *others = answer["results"]
    assert (first["@type"], first["x"]) == ("T", 1)
    assert others == [{"@this.x": 2}, {"x": 1}, {"x": 2}, {"value": {"n": 7}}]
    bad = [*good, "INSERT INTO Nope SET x = 3"]
    answer = await db.call("arcade-batch", {"database": db.database, "commands": bad})
    assert answer["success"] is False
    assert answer["committed"] is False
    assert "Nope" in answer["error"]
    assert [row["x"] for row in await db.rows("SELECT x FROM T ORDER BY x")] == [1, 2]


async def test_concurrent_writers_to_one_record_lose_nothing(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    await db.run("INSERT INTO T SET x = 0")
    written = db.counts.writes
    answers = await asyncio.gather(*(db.command("UPDATE T SET x = x + 1") for _ in range(24)))
    won = [answer for answer in answers if answer["success"]]
    lost = [answer for answer in answers if not answer["success"]]
    assert await db.rows("SELECT x FROM T") == [{"x": len(won)}]
    assert len(won) >= 12
    assert all("concurrent" in answer["error"] for answer in lost)
    assert db.counts.writes == written + 24
    assert db.counts.conflicts >= ATTEMPTS * len(lost)


async def test_databases_are_listed_and_created_once(db: Abilities) -> None:
    listed = await db.call("arcade-db-list", {})
    assert listed["success"] is True
    assert db.database in listed["databases"]
    again = await db.call("arcade-db-create", {"name": db.database})
    assert again == {"success": False, "error": f"database '{db.database}' already exists"}


async def test_a_missing_database_names_the_remedy(db: Abilities) -> None:
    answer = await db.call("arcade-query", {"database": "nowhere", "query": "SELECT 1"})
    assert answer["success"] is False
    assert "nowhere" in answer["error"]
    assert "arcade-db-create" in answer["error"]


@pytest.mark.parametrize("name", ["", "a b", "../up", "a/b", "x" * 65, "a\n", "ä", "a;drop"])
async def test_a_bad_name_is_refused_by_its_field(db: Abilities, name: str) -> None:
    calls: list[tuple[str, dict[str, Any], str]] = [
        ("arcade-db-create", {"name": name}, "name"),
        ("arcade-query", {"database": name, "query": "SELECT 1"}, "database"),
        ("arcade-command", {"database": name, "command": "SELECT 1"}, "database"),
        ("arcade-batch", {"database": name, "commands": ["SELECT 1"]}, "database"),
    ]
    for tool, given, field in calls:
        answer = await db.call(tool, given)
        assert answer["success"] is False
        assert answer["error"].startswith(f"{field}: ")


async def test_more_rows_than_allowed_are_an_error(make_backend: MakeBackend) -> None:
    async with make_backend(max_rows=3) as backend:
        few = Abilities(backend, next(names))
        await few.call("arcade-db-create", {"name": few.database})
        three = await few.query("SELECT expand([1, 2, 3])")
        assert three["count"] == 3
        four = await few.query("SELECT expand([1, 2, 3, 4])")
        assert four["success"] is False
        assert "more than 3 rows" in four["error"]
        assert "LIMIT" in four["error"]
        bounded = await few.query("SELECT FROM (SELECT expand([1, 2, 3, 4])) LIMIT 3")
        assert bounded["count"] == 3


async def test_more_bytes_than_allowed_are_an_error(make_backend: MakeBackend) -> None:
    async with make_backend(max_bytes=10_000) as backend:
        few = Abilities(backend, next(names))
        await few.call("arcade-db-create", {"name": few.database})
        await few.run("CREATE DOCUMENT TYPE T")
        for text in ("é" * 2500, "y" * 2500):
            await few.run("INSERT INTO T SET text = :text", {"text": text})
        assert len(await few.rows("SELECT FROM T")) == 2
        await few.run("INSERT INTO T SET text = :text", {"text": "z" * 2500})
        too_large = await few.query("SELECT FROM T")
        assert too_large["success"] is False
        assert "the answer is too large: more than 10000 bytes" in too_large["error"]
        assert "max_message_bytes" in too_large["error"]
        assert len(await few.rows("SELECT FROM T LIMIT 2")) == 2
        changed = await few.command("UPDATE T SET n = 1 RETURN AFTER")
        assert changed["success"] is False
        assert "the answer is too large" in changed["error"]
        nothing = "nothing was written" in changed["error"]
        assert len(await few.rows("SELECT n FROM T WHERE n = 1")) == (0 if nothing else 3)


async def test_a_call_ends_at_its_deadline(db: Abilities) -> None:
    await db.run("CREATE DOCUMENT TYPE T")
    await db.run("INSERT INTO T CONTENT :rows", {"rows": [{"x": i} for i in range(4000)]})
    endless = (
        "SELECT x, (SELECT count(*) FROM T WHERE x <> $parent.$current.x) AS c FROM T"
        " ORDER BY c LIMIT 1"
    )
    given = {"database": db.database, "query": endless}
    async with asyncio.timeout(15):
        answer = await db.call("arcade-query", given, remaining=0.5)
    assert answer["success"] is False
    assert "no answer within" in answer["error"]
    assert await db.rows("SELECT count(*) AS n FROM T") == [{"n": 4000}]
    late = await db.call("arcade-query", given, remaining=0.0)
    assert late == {"success": False, "error": "the deadline has passed already"}
