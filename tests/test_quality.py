"""The gate of ranking quality."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import quality
from benchmarks.quality import MODES, Recorded, compared, mean_interval, sets_below
from tests.ability_search.evaluation.sets import mode_run, run_of, write_set

from ability_search.evaluation.runs import METRICS, ModeRun, Run

DOCUMENTS = [{"_id": f"d{n}", "title": "", "text": f"the keel of ship {n}"} for n in range(12)]


def recorded(values: list[float], digest: str = "d") -> Recorded:
    return Recorded(digest, {f"q{n}": value for n, value in enumerate(values)})


def run_with(semantic: float, keyword: float, hybrid: float) -> Run:
    def found(value: float) -> ModeRun:
        mode = mode_run({f"q{n}": value for n in range(20)})
        return mode.model_copy(update={"metrics": dict.fromkeys(METRICS, value)})

    modes = zip(MODES, map(found, (semantic, keyword, hybrid)), strict=True)
    return run_of(dict(modes), digest="d")


def test_sets_are_found_at_any_depth_the_smallest_first(tmp_path: Path) -> None:
    write_set(tmp_path / "large", DOCUMENTS, qrels=[("q1", "d1", 1)])
    write_set(tmp_path / "talks" / "1")
    assert sets_below(tmp_path, None) == [tmp_path / "talks" / "1", tmp_path / "large"]
    assert sets_below(tmp_path, 1) == [tmp_path / "talks" / "1"]


def test_runs_of_different_files_are_not_compared() -> None:
    with pytest.raises(ValueError, match="record it again"):
        compared(recorded([1.0]), recorded([1.0], "other"))


def test_the_interval_of_a_certain_loss_is_below_zero() -> None:
    before, worse = [0.9] * 40, [0.9] * 10 + [0.4] * 30
    difference, each = compared(recorded(before), recorded(worse))
    assert difference.high < 0
    assert each.mean() == pytest.approx(difference.difference) == pytest.approx(-0.375)
    mean, low, high = mean_interval([each, np.zeros(5)])
    assert mean == pytest.approx(-0.1875)
    assert low < mean < high < 0


@pytest.mark.parametrize(("recorded_as", "code"), [(0.0, 0), (1.0, 1)])
def test_the_exit_code_tells_a_certain_loss(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    recorded_as: float,
    code: int,
) -> None:
    write_set(tmp_path / "sets" / "ships")
    runs = tmp_path / "runs"
    now = recorded([0.5] * 20)
    monkeypatch.setattr(quality, "measured", lambda _directory: run_with(0.4, 0.3, 0.5))
    monkeypatch.setattr(sys, "argv", ["quality", str(tmp_path / "sets"), str(runs)])
    assert quality.main() == 0
    assert "ships: 0.5000 recorded" in capsys.readouterr().out
    stored = json.loads((runs / "ships.json").read_text())
    assert stored == {"digest": "d", "values": dict(now.values)}
    stored["values"] = dict.fromkeys(now.values, recorded_as)
    (runs / "ships.json").write_text(json.dumps(stored))
    assert quality.main() == code
    assert "mean:" in capsys.readouterr().out


@pytest.mark.parametrize(("semantic", "code"), [(0.5, 0), (0.6, 1)])
def test_hybrid_search_is_not_worse_than_the_better_retriever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, semantic: float, code: int
) -> None:
    write_set(tmp_path / "sets" / "ships")
    monkeypatch.setattr(quality, "measured", lambda _directory: run_with(semantic, 0.3, 0.5))
    monkeypatch.setattr(sys, "argv", ["quality", str(tmp_path / "sets"), str(tmp_path / "runs")])
    assert quality.main() == code


@pytest.mark.engine
@pytest.mark.model
def test_a_set_is_measured_through_a_stack(tmp_path: Path) -> None:
    write_set(tmp_path / "sets" / "ships")
    paths = [str(tmp_path / "sets"), str(tmp_path / "runs")]
    command = [sys.executable, "-m", "benchmarks.quality", *paths]
    for printed in ("ships: 1.0000 recorded", "ships: 1.0000, +0.0000"):
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, printed in done.stdout) == (0, True), done.stderr
