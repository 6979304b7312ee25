"""Metrics read back from the text format of Prometheus."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from ability_search.ops.metrics.metric_table import Metric

_COUNTED = ("_total", "_bucket", "_count", "_sum")


@dataclass(frozen=True, slots=True)
class Reading:
    """Values by the name of the sample and its labels; a histogram counts."""

    values: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def total(self, metric: Metric, **labels: str) -> float:
        sample = _sample(metric)
        return sum(
            value
            for (name, given), value in self.values.items()
            if name == sample and labels.items() <= given
        )

    def by(self, metric: Metric, label: str) -> dict[str, float]:
        """Totals by the values of a label, in their order."""
        sample = _sample(metric)
        sums: defaultdict[str, float] = defaultdict(float)
        for (name, given), value in self.values.items():
            if name == sample:
                sums[dict(given).get(label, "")] += value
        return dict(sorted(sums.items()))

    def since(self, before: Reading) -> Reading:
        """What was counted since ``before``; gauges stay."""
        return Reading(
            {
                series: value - before.values.get(series, 0.0)
                if series[0].endswith(_COUNTED)
                else value
                for series, value in self.values.items()
            }
        )


def parse(text: str) -> Reading:
    return Reading(
        {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )


def _sample(metric: Metric) -> str:
    return f"{metric.name}_count" if metric.kind == "histogram" else metric.name
