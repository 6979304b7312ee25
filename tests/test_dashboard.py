"""The Grafana dashboard against the table of metrics."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ability_search.extensions.cli.prometheus_meter import process_metrics
from ability_search.extensions.gateway import middleware
from ability_search.extensions.localstack import stack_metrics
from ability_search.ops.metrics.metric_table import METRICS as OWN
from ability_search.ops.metrics.metric_table import Metric

METRICS = (*OWN, *stack_metrics.METRICS, *middleware.METRICS)

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parent.parent / "deploy" / "grafana-dashboard.json").read_text(
        encoding="utf-8"
    )
)
BY_NAME = {metric.name: metric for metric in (*METRICS, *process_metrics())}
SCRAPED = {"job", "instance"}
"""Labels that Prometheus adds."""
SELECTOR = re.compile(r"\b([a-z_]+)\{([^}]*)\}")
GROUPING = re.compile(r"\bby \(([^)]*)\)")


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Each query with its legend."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]


def metric_of(sample: str) -> Metric:
    """The metric of a sample; a histogram has buckets, a sum and a count, and nothing else."""
    if sample in BY_NAME:
        assert BY_NAME[sample].kind != "histogram", sample
        return BY_NAME[sample]
    base, _, what = sample.rpartition("_")
    assert (BY_NAME[base].kind, what in ("bucket", "sum", "count")) == ("histogram", True), sample
    return BY_NAME[base]


def asked(expression: str) -> Iterator[tuple[Metric, set[str]]]:
    """The metrics of a query, and the labels that it picks them by."""
    for sample, labels in SELECTOR.findall(expression):
        if sample != "up":
            yield metric_of(sample), set(re.findall(r"(\w+)!?=", labels))


def test_every_query_asks_for_metrics_and_labels_that_there_are() -> None:
    for expression, legend in expressions():
        metrics = list(asked(expression))
        assert metrics or expression.startswith("sum(up{"), expression
        known = {"le", *SCRAPED}.union(*(metric.labels for metric, _ in metrics))
        for metric, picked in metrics:
            assert picked <= {*metric.labels, *SCRAPED}, expression
        grouped = {label for labels in GROUPING.findall(expression) for label in labels.split(", ")}
        assert grouped <= known, expression
        shown = set(re.findall(r"\{\{(\w+)\}\}", legend))
        assert shown <= (grouped or SCRAPED), (expression, legend)
        rates = re.findall(r"(?:rate|increase)\((\w+)\{", expression)
        assert {metric_of(sample).kind for sample in rates} <= {"counter", "histogram"}
        for metric, _ in metrics:
            counted = metric.kind != "gauge"
            assert counted == any(metric.name in sample for sample in rates), expression


def test_what_a_part_counts_is_drawn() -> None:
    drawn = {metric for expression, _ in expressions() for metric, _ in asked(expression)}
    left_out = {metric.name for metric in METRICS if metric not in drawn}
    assert left_out == {
        "ability_search_part_info",
        "ability_search_collections_known",
        "ability_search_gateway_tool_calls_total",
        "ability_search_gateway_tool_call_seconds",
    }


def test_it_can_be_imported_anywhere() -> None:
    assert DASHBOARD["id"] is None
    assert DASHBOARD["schemaVersion"] >= 36
    source, *_ = DASHBOARD["templating"]["list"]
    assert (source["type"], source["query"]) == ("datasource", "prometheus")
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels():
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        assert {each["uid"] for each in sources} == {f"${{{source['name']}}}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)


def test_no_panel_covers_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        own = set(
            itertools.product(
                range(place["x"], place["x"] + place["w"]),
                range(place["y"], place["y"] + place["h"]),
            )
        )
        assert place["x"] + place["w"] <= 24
        assert not own & taken, panel["title"]
        taken |= own
