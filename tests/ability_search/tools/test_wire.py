"""Inputs of the tools, read within the limits, and results written."""

from __future__ import annotations

from typing import Any

import pytest
from ability_search.querying import Hit, QueryAnswer
from pydantic import ValidationError

from ability_search.config.schema import Limits
from ability_search.errors import InvalidInput, TooLarge
from ability_search.tools import inputs, requests, responses

LIMITS = Limits()


def query(**fields: Any) -> Any:
    given = {"collection": "docs", "query": "words", **fields}
    return requests.query(inputs.QueryInput.model_validate(given), LIMITS)


def test_a_plain_query_has_the_defaults() -> None:
    read = query()
    assert (read.text, read.limit, read.offset, read.mode) == ("words", 10, 0, "hybrid")
    assert read.predicate is None
    assert read.fusion is None


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
    assert (read.limit, read.offset, read.mode, read.model) == (3, 4, "semantic", "m")
    assert (read.min_score, read.highlights, read.explain) == (0.5, True, True)
    assert read.embedded_text == "answer"
    assert read.fusion is not None
    assert (read.fusion.k, read.fusion.semantic, read.fusion.keyword) == (7, None, 2)
    assert read.predicate is not None


FIELDS = inputs.QueryInput.model_json_schema()["properties"]


@pytest.mark.parametrize(
    ("field", "example"),
    [(name, each) for name, field in FIELDS.items() for each in field.get("examples", ())],
)
def test_an_example_of_the_schema_can_be_copied(field: str, example: Any) -> None:
    assert query(**{field: example})


def test_what_has_no_value_of_its_own_to_begin_with_has_an_example() -> None:
    begun = (str, int, float, bool)
    bare = {name for name, field in FIELDS.items() if not isinstance(field.get("default"), begun)}
    assert {name for name in bare if not FIELDS[name].get("examples")} == set()


def test_a_weight_of_zero_is_fine_while_another_counts() -> None:
    assert query(fusion={"method": "convex", "weights": {"semantic": 0}}).fusion.semantic == 0
    with pytest.raises(InvalidInput, match=r"fusion\.weights"):
        query(fusion={"method": "convex", "weights": {"semantic": 0, "keyword": 0}})


def test_a_query_is_asked_now_at_an_instant_or_at_the_end_of_a_day() -> None:
    assert query().as_of is None
    assert query(asOf="1970-01-02").as_of == 2 * 86_400_000 - 1
    assert query(asOf="1970-01-02T01:00:00+01:00").as_of == 86_400_000


@pytest.mark.parametrize("text", ["yesterday", "2021-02-30", "0000-01-01", "2021-03", "1616630400"])
def test_when_a_query_is_asked_must_be_a_time(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^asOf: is not a date") as refused:
        query(asOf=text)
    assert refused.value.hint


def test_bytes_are_counted_not_characters() -> None:
    most = int(LIMITS.query_bytes)
    assert query(query="x" * most).text
    for field in ("query", "hypotheticalAnswer"):
        with pytest.raises(TooLarge, match=field):
            query(**{field: "ä" * (most // 2 + 1)})


@pytest.mark.parametrize("text", ["", " ", "\n\t\u2003"])
def test_blank_texts_are_refused_in_words(text: str) -> None:
    with pytest.raises(ValidationError, match="must not be blank"):
        query(query=text)


def test_the_old_name_of_a_path_is_still_taken() -> None:
    for name in ("path", "filePath"):
        read = inputs.IndexFileInput.model_validate({"collection": "docs", name: "a.md"})
        assert read.path == "a.md"


def test_wholes_that_are_none_are_refused() -> None:
    for value in (True, "3", 1.5):
        with pytest.raises(ValidationError, match="limit"):
            query(limit=value)


def hit(**row: Any) -> Hit:
    columns = {
        "chunkId": "docs:a:0",
        "source": "a",
        "title": "A",
        "content": "text",
        "chunkIndex": 0,
        "totalChunks": 1,
        "embedding": [1.0],
        "rid": "#1:0",
    }
    return Hit("docs", {**columns, **row}, 0.5, {"semantic": 0.5}, ("semantic",))


def written(item: Hit, asked: Any = "docs") -> dict[str, Any]:
    given = inputs.QueryInput.model_validate({"collection": asked, "query": "w"})
    answer = QueryAnswer([item], "hybrid", "m", timings={"total": 1.23456})
    result = responses.query_result(answer, given)
    dumped: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped


def test_a_hit_has_its_columns_and_nothing_of_the_database() -> None:
    (found,) = written(hit())["results"]
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


def test_null_in_metadata_is_kept() -> None:
    (found,) = written(hit(metadata={"a": None, "b": {"c": None}}))["results"]
    assert found["metadata"] == {"a": None, "b": {"c": None}}


def test_times_are_in_utc() -> None:
    (found,) = written(hit(createdAt=1_700_000_000_123))["results"]
    assert found["createdAt"] == "2023-11-14T22:13:20.123Z"


def test_hits_of_several_collections_name_theirs() -> None:
    for asked in ("*", ["docs"]):
        assert written(hit(), asked)["results"][0]["collection"] == "docs"


def test_timings_are_rounded() -> None:
    assert written(hit())["timings"] == {"total": 1.235}
