"""Reading numbers back: what a part serves, as values that can be subtracted and added."""

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
    """Values by series; of histograms their buckets, counts and sums."""

    values: Mapping[Series, float]

    def total(self, metric: Metric, **labels: str) -> float:
        """The sum over the series with these labels, of histograms the count; 0 without any."""
        sample, wanted = _sample(metric), labels.items()
        return sum(
            value for (name, own), value in self.values.items() if name == sample and wanted <= own
        )

    def by(self, metric: Metric, label: str) -> dict[str, float]:
        """The same by the values of one label, those in their order."""
        sample = _sample(metric)
        sums: defaultdict[str, float] = defaultdict(float)
        for (name, own), value in self.values.items():
            if name == sample:
                sums[dict(own).get(label, "")] += value
        return dict(sorted(sums.items()))

    def buckets(self, histogram: Metric, **labels: str) -> list[tuple[float, float]]:
        """Upper bounds and how many values are not above them, rising."""
        wanted = labels.items()
        sums: defaultdict[float, float] = defaultdict(float)
        for (name, own), value in self.values.items():
            if name == f"{histogram.name}_bucket" and wanted <= own:
                sums[float(dict(own)[_LE])] += value
        return sorted(sums.items())

    def quantile(self, share: float, histogram: Metric, **labels: str) -> float | None:
        """See :func:`quantile`."""
        return quantile(share, self.buckets(histogram, **labels))

    def since(self, before: Reading) -> Reading:
        """Return what was counted after ``before``; gauges as they are.

        A counter that is smaller than before began anew meanwhile.
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
    """Read Prometheus' text format.

    Raises:
        ValueError: if it is something else.
    """
    return Reading(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def added(readings: Iterable[Reading]) -> Reading:
    """The sums over several parts."""
    sums: defaultdict[Series, float] = defaultdict(float)
    for reading in readings:
        for series, value in reading.values.items():
            sums[series] += value
    return Reading(sums)


def quantile(share: float, buckets: Sequence[tuple[float, float]]) -> float | None:
    """The value below which a ``share`` of the values lies, interpolated within its bucket.

    As ``histogram_quantile`` of Prometheus does it: the first bucket begins at 0, and of the last,
    which has no end, the answer is where it begins. ``None`` without values.

    Args:
        share: In [0, 1].
        buckets: As :meth:`Reading.buckets`; the last is infinite.
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
