"""ToolError: what is read out of the answers of any ability."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kadi_client import KadiError, RemoteError, ToolError

DOCUMENTED = {
    "success": False,
    "error": "no collection named 'dosc'",
    "code": "not_found",
    "tool": "search-query",
    "hint": "Did you mean docs?",
    "retryable": True,
    "retryAfterMs": 1500,
}


def test_every_field_of_a_documented_failure_is_read() -> None:
    error = ToolError("search-query", DOCUMENTED)
    assert str(error) == "no collection named 'dosc'"
    assert (error.tool, error.code, error.hint) == (
        *("search-query", "not_found", "Did you mean docs?"),
    )
    assert (error.retryable, error.retry_after) == (True, 1.5)
    assert error.answer == DOCUMENTED


def test_a_failure_with_only_a_reason_has_no_code_and_is_not_retryable() -> None:
    error = ToolError("arcade-query", {"success": False, "error": "syntax error"})
    assert str(error) == "syntax error"
    assert (error.code, error.hint, error.retryable, error.retry_after) == ("", "", False, None)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"error": {"message": "model not found", "type": "x"}}, "model not found"),
        ({"error": {"type": "x"}}, "t failed and gave no reason"),
        ({"error": ""}, "t failed and gave no reason"),
        ({"error": None}, "t failed and gave no reason"),
        ({"error": ["a"]}, "t failed and gave no reason"),
        ({"error": 17}, "17"),
        ({}, "t failed and gave no reason"),
    ],
)
def test_a_reason_is_found_in_any_shape(answer: dict[str, Any], text: str) -> None:
    assert str(ToolError("t", {"success": False, **answer})) == text


@pytest.mark.parametrize(
    ("answer", "code"), [({"code": -32000}, "-32000"), ({"code": None}, ""), ({"code": []}, "")]
)
def test_a_code_is_always_a_text(answer: dict[str, Any], code: str) -> None:
    assert ToolError("t", answer).code == code


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [(250, 0.25), (0, 0.0), (-5, 0.0), (1.5, 0.0015), ("1", None), (True, None)],
)
def test_the_time_to_wait_is_in_seconds(sent: Any, seconds: float | None) -> None:
    assert ToolError("t", {"retryAfterMs": sent}).retry_after == seconds


def test_only_true_is_retryable() -> None:
    assert not ToolError("t", {"retryable": "no"}).retryable


def test_an_answer_is_not_a_remote_error() -> None:
    assert issubclass(ToolError, KadiError)
    assert not issubclass(ToolError, RemoteError)


def test_it_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(ToolError("search-query", DOCUMENTED)))
    assert (str(copy), copy.code, copy.answer) == (DOCUMENTED["error"], "not_found", DOCUMENTED)
