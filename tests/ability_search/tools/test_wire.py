"""Inputs of the tools, read within the limits, and results written."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from pydantic import ValidationError
from tests.ability_search.search.values import PIPELINE, candidates_of, chunk, query_of

from ability_search.config.schema import Limits
from ability_search.errors import InvalidInput, TooLarge
from ability_search.search.candidates import Answer
from ability_search.search.hit_rows import build_hits, hit_of, result_of
from ability_search.search.response import Hit, QueryResult
from ability_search.search.wants import SearchRequest
from ability_search.store.records import ChunkText
from ability_search.text.analyzer import analyzer_for
from ability_search.tools import inputs, requests

LIMITS = Limits()


def query(**fields: Any) -> Any:
    given = {"collection": "docs", "query": "words", **fields}
    asked = inputs.QueryInput.model_validate(given)
    return PIPELINE.parse(asked, requests.query_filter(asked, LIMITS, None))


def test_a_plain_query_has_the_defaults() -> None:
    read = query()
    asked = read.asked
    assert (asked.query, asked.limit, asked.offset, asked.mode) == ("words", 10, 0, "hybrid")
    assert read.filter is None
    assert asked.fusion is None


def test_every_option_is_read() -> None:
    read = query(
        limit=3,
        offset=4,
        mode="semantic",
        model="m",
        minScore=0.5,
        hypotheticalAnswer="answer",
        fusion={"method": "rrf", "k": 7, "weights": {"keyword": 2}},
        highlights=True,
        explain=True,
        excludeSources=["secret/**"],
    )
    asked = read.asked
    assert (asked.limit, asked.offset, asked.mode, asked.model) == (3, 4, "semantic", "m")
    assert (asked.min_score, asked.highlights, asked.explain) == (0.5, True, True)
    assert PIPELINE.wants(read).vectors == {"cosine": "answer"}
    assert asked.fusion is not None
    assert (asked.fusion.k, asked.fusion.weights) == (7, {"keyword": 2})
    assert read.filter is not None


FIELDS = inputs.QueryInput.model_json_schema()["properties"]


@pytest.mark.parametrize(
    ("field", "example"),
    [(name, each) for name, field in FIELDS.items() for each in field.get("examples", ())],
)
def test_schema_examples_are_valid(field: str, example: Any) -> None:
    assert query(**{field: example})


def test_options_without_a_scalar_default_have_an_example() -> None:
    begun = (str, int, float, bool)
    bare = {name for name, field in FIELDS.items() if not isinstance(field.get("default"), begun)}
    assert {name for name in bare if not FIELDS[name].get("examples")} == set()


def test_fusion_needs_one_positive_weight() -> None:
    read = query(fusion={"method": "convex", "weights": {"semantic": 0}})
    assert read.asked.fusion.weights == {"semantic": 0}
    with pytest.raises(InvalidInput, match=r"fusion\.weights"):
        query(fusion={"method": "convex", "weights": {"semantic": 0, "keyword": 0}})


def test_as_of_is_now_an_instant_or_the_end_of_a_day() -> None:
    assert query().as_of == 0
    assert query(asOf="1970-01-02").as_of == 2 * 86_400_000 - 1
    assert query(asOf="1970-01-02T01:00:00+01:00").as_of == 86_400_000


@pytest.mark.parametrize("text", ["yesterday", "2021-02-30", "0000-01-01", "2021-03", "1616630400"])
def test_invalid_as_of_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^asOf: is not a date") as refused:
        query(asOf=text)
    assert refused.value.hint


def test_query_limit_counts_bytes() -> None:
    most = int(LIMITS.query_bytes)
    assert query(query="x" * most).asked.query
    for field in ("query", "hypotheticalAnswer"):
        with pytest.raises(TooLarge, match=field):
            query(**{field: "ä" * (most // 2 + 1)})


@pytest.mark.parametrize("text", ["", " ", "\n\t\u2003"])
def test_blank_query_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="must not be blank"):
        query(query=text)


def test_file_path_is_accepted_for_path() -> None:
    for name in ("path", "filePath"):
        read = inputs.IndexFileInput.model_validate({"collection": "docs", name: "a.md"})
        assert read.path == "a.md"


def test_non_integer_limits_are_refused() -> None:
    for value in (True, "3", 1.5):
        with pytest.raises(ValidationError, match="limit"):
            query(limit=value)


TEXT = ChunkText(
    handle="#1:0",
    chunk_id="docs:a:0",
    source="a",
    title="A",
    content="text",
    metadata={},
    kind=None,
    chunk_index=0,
    total_chunks=1,
    breadcrumb=None,
    page=None,
    start_line=None,
    end_line=None,
    created_at=None,
    tokens=None,
    embedding=[1.0],
)


def written(text: ChunkText = TEXT, asked: Any = "docs") -> dict[str, Any]:
    item = chunk("#1:0", "docs:a:0", 0.5, ranks={"semantic": 1}, score=0.5)
    item.row, item.depth = text, 1
    candidates = candidates_of(query_of("w", collection=asked), SearchRequest())
    answer = Answer(candidates.query, searched={"docs": candidates}, page=[item])
    build_hits(answer)
    answer.clock.milliseconds["rows"] = 1.23456
    dumped: dict[str, Any] = result_of(answer).model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    return dumped


def test_hit_has_no_database_columns() -> None:
    (found,) = written()["results"]
    assert found == {
        "chunkId": "docs:a:0",
        "source": "a",
        "title": "A",
        "content": "text",
        "score": 0.5,
        "metadata": {},
        "chunkIndex": 0,
        "totalChunks": 1,
        "scores": {"semantic": 0.5},
        "matchedVia": ["semantic"],
    }


def test_a_hit_that_is_not_checked_is_the_same_as_one_that_is() -> None:
    item = chunk("#1:0", "docs:a:0", 0.5, ranks={"keyword": 1}, values={"keyword": 2}, score=0.5)
    item.row, item.trace = replace(TEXT, metadata={"a": None}), {"fusion": {"score": 0.5}}
    marked = frozenset(["text"]), analyzer_for("english")
    for explain in (False, True):
        hit = hit_of(item, query_of("w", explain=explain), marked)
        checked = Hit.model_validate(dict(hit))
        assert hit == checked
        assert hit.model_dump_json(by_alias=True) == checked.model_dump_json(by_alias=True)
        assert hit.model_fields_set == Hit.model_fields.keys()
        assert repr(hit.model_copy(update={"content": ""})) == repr(
            checked.model_copy(update={"content": ""})
        )


def test_a_result_that_is_not_checked_is_the_same_as_one_that_is() -> None:
    query = query_of("w", explain=True, collection=["docs"])
    result = result_of(Answer(query, searched={"docs": candidates_of(query, SearchRequest())}))
    checked = QueryResult.model_validate(dict(result))
    assert result == checked
    assert result.model_dump_json(by_alias=True) == checked.model_dump_json(by_alias=True)
    assert result.model_fields_set == QueryResult.model_fields.keys()


def test_null_in_metadata_is_kept() -> None:
    (found,) = written(replace(TEXT, metadata={"a": None, "b": {"c": None}}))["results"]
    assert found["metadata"] == {"a": None, "b": {"c": None}}


def test_times_are_in_utc() -> None:
    (found,) = written(replace(TEXT, created_at=1_700_000_000_123))["results"]
    assert found["createdAt"] == "2023-11-14T22:13:20.123Z"


def test_hits_of_several_collections_name_theirs() -> None:
    for asked in ("*", ["docs"]):
        assert written(asked=asked)["results"][0]["collection"] == "docs"


def test_timings_are_rounded() -> None:
    assert written()["timings"]["rows"] == 1.235
