from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.ability_search.extensions.evaluation.sets import mode_run, run_of

from ability_search.errors import InvalidInput
from ability_search.extensions.evaluation.runs import (
    means,
    read_run,
    summary,
    top_scores,
    write_run,
)

CATEGORIES = {"q1": "x", "q2": "y", "q3": "x"}
FOUND = mode_run({"q1": 1.0, "q2": 0.5, "q3": 0.0}, CATEGORIES)


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = run_of({"hybrid": FOUND})
    write_run(run, tmp_path / "runs" / "a.json")
    assert read_run(tmp_path / "runs" / "a.json") == run


def test_a_summary_has_categories_but_no_queries() -> None:
    told = summary(run_of({"hybrid": FOUND}))["modes"]["hybrid"]
    assert "queries" not in told
    assert told["metrics"]["nDCG@10"] == 0.5
    assert told["categories"] == {
        "x": {"queries": 2, "nDCG@10": 0.5, "Hit@1": 0.5},
        "y": {"queries": 1, "nDCG@10": 0.5, "Hit@1": 1.0},
    }
    assert told["topScores"] == {"answered": 0.5, "unanswered": None, "unansweredMax": None}
    json.dumps(told)


def test_no_outcomes_have_no_means() -> None:
    assert means({}) == {}
    assert top_scores(mode_run({}))["answered"] is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "ability-search-eval/2"}'])
def test_a_file_that_is_no_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"run\.json: is not a run"):
        read_run(tmp_path / "run.json")


def test_a_run_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"none\.json: No such file"):
        read_run(tmp_path / "none.json")
