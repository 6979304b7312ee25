"""Measure the judged sets below a directory, and compare each with its recorded run.

A set is a directory in BEIR layout, see docs/evaluation.md. The exit code is 1 if hybrid search has
become certainly worse on a set, or on the mean of all, or is certainly worse on a set than the
better of its retrievers: the 95 % interval of the difference of nDCG@10 is below 0. With
``--record``, and for a set without a record, the run of hybrid search is recorded.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from ability_search.evaluation.comparison import RESAMPLES, SEED, Difference, Values, paired
from ability_search.evaluation.runs import Run, read_run

METRIC = "nDCG@10"
MODES = ("semantic", "keyword", "hybrid")
AS_OF = "2026-03-25"
"""The day of all queries: ``last week`` must not mean another one in every measurement."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run as it is recorded: the digest of the set, and the metric of each query."""

    digest: str
    values: Mapping[str, float]


def sets_below(directory: Path, smallest: int | None) -> list[Path]:
    """Return the judged sets below a directory, the ``smallest`` by the size of their texts."""
    found = sorted(path.parent for path in directory.rglob("corpus.jsonl"))
    sizes = {each: (each / "corpus.jsonl").stat().st_size for each in found}
    return sorted(found, key=lambda each: (sizes[each], each))[:smallest]


def group_of(directory: Path, sets: Path) -> str:
    """Return the name of the directory below ``sets`` that a set is in, such as ``locomo-dev``."""
    return next(iter(directory.relative_to(sets).parts), directory.name)


def measured(directory: Path) -> Run:
    """Return the run of a set, in all modes, through a stack of its own."""
    with TemporaryDirectory() as home:
        output = Path(home) / "run.json"
        command = [sys.executable, "-m", "ability_search", "eval", str(directory), "--up"]
        # Data of its own: what an earlier version has indexed must not be measured.
        command += ["--data-dir", str(Path(home) / "data"), "--output", str(output)]
        command += ["--limit", "10", "--as-of", AS_OF]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return read_run(output)


def recorded_of(run: Run, mode: str = "hybrid") -> Recorded:
    """Return what is recorded of a run."""
    queries = run.modes[mode].queries.items()
    return Recorded(run.dataset.digest, {id: each.metrics[METRIC] for id, each in queries})


def over_better(run: Run) -> Difference:
    """Compare hybrid search with the retriever that has the better mean on the set."""
    means = {mode: run.modes[mode].metrics[METRIC] for mode in MODES[:2]}
    better = recorded_of(run, max(means, key=means.__getitem__))
    return compared(better, recorded_of(run))[0]


def described(run: Run, over: Difference) -> str:
    """Return the means of a run in words."""
    means = ", ".join(f"{mode} {run.modes[mode].metrics[METRIC]:.4f}" for mode in MODES)
    hybrid = run.modes["hybrid"].metrics
    return (
        f"{means}, Recall@10 {hybrid['Recall@10']:.4f}, Hit@3 {hybrid['Hit@3']:.4f}; "
        f"over the better retriever {over.difference:+.4f} ({over.low:+.4f} to {over.high:+.4f})"
    )


def compared(before: Recorded, now: Recorded) -> tuple[Difference, Values]:
    """Compare two runs of a set; return also the differences per query.

    Raises:
        ValueError: if the set was changed in between.
    """
    if before.digest != now.digest:
        raise ValueError("the set has changed since it was recorded: record it again (--record)")
    a, b = (np.array([each.values[id] for id in before.values]) for each in (before, now))
    return paired(a, b), b - a


def mean_interval(differences: Sequence[Values]) -> tuple[float, float, float]:
    """Return the mean over sets of their mean differences, and its 95 % bootstrap interval."""
    rng = np.random.default_rng(SEED)
    means = [
        each[rng.integers(0, len(each), (RESAMPLES // 10, len(each)))].mean(axis=1)
        for each in differences
    ]
    low, high = np.percentile(np.mean(means, axis=0), [2.5, 97.5])
    return float(np.mean([each.mean() for each in differences])), float(low), float(high)


def main() -> int:
    """Measure, compare, print; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", type=Path, help="directory with judged sets, at any depth")
    parser.add_argument("recorded", type=Path, help="directory of the recorded runs")
    parser.add_argument("--smallest", type=int, help="only so many sets, the smallest")
    parser.add_argument("--record", action="store_true", help="record the runs, compare nothing")
    arguments = parser.parse_args()
    found = sets_below(arguments.sets, arguments.smallest)
    if not found:
        parser.error(f"sets: {arguments.sets} has no corpus.jsonl, at any depth")
    worse, differences = False, []
    for directory in found:
        name = "-".join(directory.relative_to(arguments.sets).parts) or directory.name
        run, file = measured(directory), arguments.recorded / f"{name}.json"
        now, over = recorded_of(run), over_better(run)
        worse = worse or over.high < 0
        print(f"{name}: {described(run, over)}", flush=True)
        if arguments.record or not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"digest": now.digest, "values": now.values}, indent=0)
            file.write_text(f"{text}\n", encoding="utf-8")
            print(f"{name}: {np.mean(list(now.values.values())):.4f} recorded", flush=True)
            continue
        change, each = compared(Recorded(**json.loads(file.read_text("utf-8"))), now)
        differences.append(each)
        worse = worse or change.high < 0
        interval = f"({change.low:+.4f} to {change.high:+.4f})"
        print(f"{name}: {change.b:.4f}, {change.difference:+.4f} {interval}", flush=True)
    if differences:
        mean, low, high = mean_interval(differences)
        worse = worse or high < 0
        print(f"mean: {mean:+.4f} ({low:+.4f} to {high:+.4f})")
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
