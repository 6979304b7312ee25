"""Paired comparison of two runs of the same set.

Both tests resample the differences per query, because both runs have the same queries: the
interval is the percentile bootstrap of the mean difference, the p-value that of the two-sided
sign-flip permutation test. Queries without a difference do not affect the permutation test; it is
exact if the others have no more sign flips than there are resamples.

Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993; Smucker, Allan and Carterette, *A
Comparison of Statistical Significance Tests for Information Retrieval Evaluation*, 2007.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from ability_search.errors import InvalidInput
from ability_search.extensions.evaluation.runs import EvaluationRun, ModeRun, Outcome

RESAMPLES = 10_000
SEED = 0
CONFIDENCE = 0.95

_VALUES_AT_ONCE = 2_000_000
"""Maximum number of resampled values in memory."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Difference:
    """The means of a metric in two runs, their difference and its significance."""

    queries: int
    a: float
    b: float
    difference: float
    """``b - a``."""
    low: float
    high: float
    """Bounds of the 95 % confidence interval of the difference."""
    p: float
    """Probability of a difference at least this large if the runs do not differ."""
    gained: int
    """Queries that are better in B."""
    lost: int

    @property
    def significant(self) -> bool:
        """Return whether ``p`` is below 5 %."""
        return self.p < 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Change:
    """A query whose metric differs between the runs."""

    query: str
    text: str
    category: str | None
    a: float
    b: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of run B with run A."""

    a: str
    b: str
    metric: str
    """Metric of the categories and queries."""
    metrics: Mapping[str, Difference]
    categories: Mapping[str, Difference]
    gained: tuple[Change, ...]
    """Improved queries, largest change first."""
    lost: tuple[Change, ...]
    """Worsened queries, largest change first."""

    def as_json(self, *, most: int) -> dict[str, Any]:
        """Return a JSON object with at most ``most`` improved and ``most`` worsened queries."""
        shown = replace(self, gained=self.gained[:most], lost=self.lost[:most])
        tests = {"resamples": RESAMPLES, "seed": SEED, "confidence": CONFIDENCE}
        return asdict(shown) | tests


def compare(
    a: EvaluationRun, b: EvaluationRun, *, mode_a: str, mode_b: str, metric: str = "nDCG@10"
) -> Comparison:
    """Compare a mode of one run with a mode of another run or of the same run.

    Raises:
        InvalidInput: if a run lacks the mode or the metric, or the runs have different sets.
    """
    if a.dataset.digest != b.dataset.digest:
        raise InvalidInput(
            "A and B",
            f"are runs of different sets, {a.dataset.name} and {b.dataset.name}, or the set was"
            " changed in between",
            hint="Run both on the same files.",
        )
    first, second = _mode(a, mode_a), _mode(b, mode_b)
    shared = [name for name in first.metrics if name in second.metrics]
    if metric not in shared:
        raise InvalidInput("--metric", f"{metric} is not in both runs: {', '.join(shared)}")
    label_a, label_b = a.name, b.name
    if mode_a != mode_b or a.name == b.name:
        label_a, label_b = f"{a.name} {mode_a}", f"{b.name} {mode_b}"
    changes = [
        Change(id, before.text, before.category, before.metrics[metric], after.metrics[metric])
        for id, before in first.queries.items()
        if (after := second.queries[id]).metrics[metric] != before.metrics[metric]
    ]
    changes.sort(key=lambda each: each.a - each.b)
    return Comparison(
        a=label_a,
        b=label_b,
        metric=metric,
        metrics={name: _difference(first.queries, second.queries, name) for name in shared},
        categories={
            category: _difference(outcomes, second.queries, metric)
            for category, outcomes in first.by_category().items()
        },
        gained=tuple(each for each in changes if each.b > each.a),
        lost=tuple(each for each in reversed(changes) if each.b < each.a),
    )


def paired(a: Values, b: Values, *, resamples: int = RESAMPLES) -> Difference:
    """Compare the values of a metric, each of shape (queries,), in the same order.

    With a single query, both bounds of the interval are its difference.
    """
    differences = b - a
    changed = differences[differences != 0]
    low = high = float(differences.mean())
    p = 1.0
    if len(differences) > 1:
        interval = stats.bootstrap(
            (differences,),
            np.mean,
            confidence_level=CONFIDENCE,
            method="percentile",
            **_resampling(differences, resamples),
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    if len(changed) > 1:
        test = stats.permutation_test(
            (changed,), np.mean, permutation_type="samples", **_resampling(changed, resamples)
        )
        p = float(test.pvalue)
    return Difference(
        queries=len(differences),
        a=float(a.mean()),
        b=float(b.mean()),
        difference=float(differences.mean()),
        low=low,
        high=high,
        p=p,
        gained=int((differences > 0).sum()),
        lost=int((differences < 0).sum()),
    )


def _resampling(differences: Values, resamples: int) -> dict[str, Any]:
    batch = max(1, _VALUES_AT_ONCE // len(differences))
    return {"n_resamples": resamples, "batch": batch, "rng": np.random.default_rng(SEED)}


def _difference(
    chosen: Mapping[str, Outcome], other: Mapping[str, Outcome], metric: str
) -> Difference:
    return paired(
        np.array([each.metrics[metric] for each in chosen.values()]),
        np.array([other[id].metrics[metric] for id in chosen]),
    )


def _mode(run: EvaluationRun, mode: str) -> ModeRun:
    if mode not in run.modes:
        raise InvalidInput("--mode", f"run {run.name!r} has {', '.join(run.modes)}, not {mode}")
    return run.modes[mode]
