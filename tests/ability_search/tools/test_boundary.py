"""Exceptions as callers see them."""

from __future__ import annotations

import json
import logging

import pytest
from pydantic import ValidationError

from ability_search import errors
from ability_search.tools.boundary import failure, with_collection
from ability_search.tools.inputs import QueryInput


def test_search_error_is_reported_with_its_hint() -> None:
    answer = failure(errors.Busy("3 calls", retry_after=1.5), "search-query")
    assert answer == {
        "success": False,
        "error": "3 calls",
        "code": "busy",
        "tool": "search-query",
        "hint": errors.Busy.default_hint,
        "retryable": True,
        "retryAfterMs": 1500,
    }


def test_a_failure_names_the_collection_of_the_input_if_the_name_is_valid() -> None:
    report = failure(errors.Busy("b"), "t")
    assert with_collection(report, {"collection": "docs"}) == {**report, "collection": "docs"}
    for name in ("x" * 100, "a b", "sk-key\n", ["docs"], None):
        assert with_collection(report, {"collection": name}) == report
    found: dict[str, object] = {"results": []}
    assert with_collection(found, {"collection": "docs"}) == found


def test_unexpected_error_is_reported_by_its_incident_id(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        answer = failure(KeyError("SELECT secret FROM /path"), "search-query")
    assert answer["code"] == "internal"
    assert answer["retryable"] is False
    assert "secret" not in json.dumps(answer)
    incident = answer["error"].rpartition(" ")[2]
    assert incident in caplog.text
    assert "secret" in caplog.text


def test_invalid_fields_are_named_without_their_values() -> None:
    with pytest.raises(ValidationError) as raised:
        QueryInput.model_validate({"query": "hunter2", "mode": "hunter2", "sorted": "hunter2"})
    answer = failure(raised.value, "search-query")
    assert answer["code"] == "invalid_input"
    for field in ("collection", "mode", "sorted"):
        assert f"{field}:" in answer["error"]
    assert "hunter2" not in json.dumps(answer)


def test_long_errors_are_truncated() -> None:
    answer = failure(errors.NotFound("chunk", "x" * 100_000), "search-similar")
    assert len(answer["error"]) < 2100


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidInput("f", "p"),
        errors.NotFound("collection", "c"),
        errors.ModelMismatch("c", recorded="a", requested="b"),
        errors.DimensionMismatch("c", recorded=1, received=2),
        errors.EmbeddingUnavailable("e"),
        errors.StatementRefused("other", "SELECT"),
        errors.TooLarge("t", hint="h"),
        errors.Busy("b"),
        errors.ForbiddenPath("p", hint="h"),
        errors.DeadlineExceeded("d"),
        errors.Cancelled("c"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_has_a_hint(error: errors.SearchError) -> None:
    answer = failure(error, "search-query")
    assert answer["code"] == error.code != "internal"
    assert answer["hint"]
    assert "SELECT" not in json.dumps(answer)
