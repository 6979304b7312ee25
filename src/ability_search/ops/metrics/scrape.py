"""Metrics read back from the text format of Prometheus, to subtract, add and summarise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from ability_search.ops.metrics.metric_table import Metric

Series = tuple[str, frozenset[tuple[str, str]]]
"""Name of a sample and its labels."""

_CUMULATIVE = ("_total", "_bucket", "_count", "_sum")
_LE = "le"


@dataclass(frozen=True, slots=True)
class Reading:
    """Values by series; a histogram has buckets, a count and a sum."""

    values: Mapping[Series, float]

    def total(self, metric: Metric, **labels: str) -> float:
        """Return the sum over all series with these labels; the count for a histogram."""
        sample, wanted = _sample(metric), labels.items()
        return sum(
            value for (name, own), value in self.values.items() if name == sample and wanted <= own
        )

    def by(self, metric: Metric, label: str) -> dict[str, float]:
        """Return :meth:`total` for each value of a label, sorted by value."""
        sample = _sample(metric)
        sums: defaultdict[str, float] = defaultdict(float)
        for (name, own), value in self.values.items():
            if name == sample:
                sums[dict(own).get(label, "")] += value
        return dict(sorted(sums.items()))

    def buckets(self, histogram: Metric, **labels: str) -> list[tuple[float, float]]:
        """Return ascending upper bounds with the number of values up to each."""
        wanted = labels.items()
        sums: defaultdict[float, float] = defaultdict(float)
        for (name, own), value in self.values.items():
            if name == f"{histogram.name}_bucket" and wanted <= own:
                sums[float(dict(own)[_LE])] += value
        return sorted(sums.items())

    def quantile(self, share: float, histogram: Metric, **labels: str) -> float | None:
        """Return a quantile of a histogram, see :func:`quantile`."""
        return quantile(share, self.buckets(histogram, **labels))

    def since(self, before: Reading) -> Reading:
        """Return the increase of counters since ``before``; gauges are unchanged.

        A counter that is smaller than before was reset in between.
        """
        return Reading(
            {
                series: _increase(value, before.values.get(series, 0.0))
                if series[0].endswith(_CUMULATIVE)
                else value
                for series, value in self.values.items()
            }
        )


NOTHING = Reading({})


def parse(text: str) -> Reading:
    """Parse the text format of Prometheus.

    Raises:
        ValueError: if it is not in that format.
    """
    return Reading(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def added(readings: Iterable[Reading]) -> Reading:
    """Return the sum of several readings."""
    sums: defaultdict[Series, float] = defaultdict(float)
    for reading in readings:
        for series, value in reading.values.items():
            sums[series] += value
    return Reading(sums)


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """Return the value below which a ``share`` of the values lies, interpolated in its bucket.

    Like ``histogram_quantile`` of Prometheus: the first bucket begins at 0; in the last, unbounded
    bucket the result is its lower bound. Return ``None`` if there are no values.

    Args:
        share: In [0, 1].
        buckets: As from :meth:`Reading.buckets`; the last bound is infinite.
    """
    if not buckets or not buckets[-1][1]:
        return None
    rank = share * buckets[-1][1]
    low, below = 0.0, 0.0
    for bound, count in buckets[:-1]:
        if count >= rank and count > below:
            return low + (bound - low) * (rank - below) / (count - below)
        low, below = bound, count
    return low


def _sample(metric: Metric) -> str:
    return f"{metric.name}_count" if metric.kind == "histogram" else metric.name


def _increase(now: float, before: float) -> float:
    return now - before if now >= before else now
