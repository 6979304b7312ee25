"""The table of metrics, what takes numbers down, and reading them back."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.ability_search.metric_readings import parse
from tests.kadi_client.calls import PlainCall

from ability_search.errors import ConfigurationError
from ability_search.extensions.cli.prometheus_meter import (
    MOST_SERIES,
    OTHER,
    PrometheusMeter,
    serve_metrics,
)
from ability_search.extensions.gateway import middleware
from ability_search.extensions.localstack import stack_metrics
from ability_search.ops.metrics import metric_table
from ability_search.ops.metrics.call_metrics import metered_rpc, metered_tools
from ability_search.ops.metrics.meter import UNMETERED
from ability_search.ops.metrics.metric_table import METRICS as OWN
from kadi_client import CallTimeout, NotConnected, Tool, ToolError

METRICS = (*OWN, *stack_metrics.METRICS, *middleware.METRICS)
LOCAL = "127.0.0.1"


def client() -> httpx.AsyncClient:
    return httpx.AsyncClient(trust_env=False, timeout=20)


def test_metric_names_contain_type_and_unit() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) > 30
    for metric in METRICS:
        assert metric.name.startswith("ability_search_")
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.about.endswith("."), metric.name
        assert metric.kind == "histogram" or metric.buckets is metric_table.SECONDS
        if metric.kind == "histogram":
            assert metric.name.endswith(("_seconds", "_texts"))
            assert list(metric.buckets) == sorted(set(metric.buckets))


@pytest.mark.parametrize("part", metric_table.COMPONENTS)
def test_a_component_has_only_its_metrics(part: metric_table.ComponentName) -> None:
    meter = PrometheusMeter(part, "1")
    for metric in METRICS:
        if part not in metric.components:
            continue
        labels = [f"a {label}" for label in metric.labels]
        if metric.kind == "histogram":
            meter.observe(metric, 0.02, *labels)
        elif metric.kind == "counter":
            meter.add(metric, 2, *labels)
        elif metric is not metric_table.COMPONENT_INFO:
            meter.watch(metric, {tuple(labels): 3.0}.copy)
    text = meter.text().decode()
    told = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ability_")}
    assert told == {metric.name for metric in METRICS if part in metric.components}
    reading = parse(text)
    assert reading.by(metric_table.COMPONENT_INFO, "part") == {part: 1}
    for metric in METRICS:
        if part in metric.components and metric is not metric_table.COMPONENT_INFO:
            expected = {"counter": 2, "gauge": 3, "histogram": 1}[metric.kind]
            assert reading.total(metric) == expected, metric.name


def test_a_watched_counter_is_read_at_each_scrape() -> None:
    meter = PrometheusMeter("database", "1")
    kept: dict[tuple[str, ...], float] = {("read",): 3.0}
    meter.watch(stack_metrics.DATABASE_STATEMENTS, lambda: kept)
    assert parse(meter.text().decode()).total(stack_metrics.DATABASE_STATEMENTS, kind="read") == 3
    kept["read",] = 5.0
    assert parse(meter.text().decode()).total(stack_metrics.DATABASE_STATEMENTS) == 5


def test_the_number_of_series_is_bounded() -> None:
    meter = PrometheusMeter("worker", "1")
    before = parse(meter.text().decode()).by(metric_table.DEGRADED_ANSWERS, "reason")
    assert before == dict.fromkeys(sorted(metric_table.DEGRADED_ANSWERS.expected), 0)
    for number in range(MOST_SERIES - len(before) + 7):
        meter.add(metric_table.DEGRADED_ANSWERS, 1, f"reason {number}")
    meter.add(metric_table.DEGRADED_ANSWERS, 1, "reason 0")
    counts = parse(meter.text().decode()).by(metric_table.DEGRADED_ANSWERS, "reason")
    assert len(counts) == MOST_SERIES + 1
    assert (counts[OTHER], counts["reason 0"]) == (7, 2)


async def test_calls_are_counted_by_outcome() -> None:
    meter = PrometheusMeter("worker", "1")

    async def give(value: Any) -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    outcomes = {
        "ok": {"success": True},
        "refused": ToolError("t", {"success": False, "error": "no such type"}),
        "timeout": CallTimeout("t", 1.0),
        "not_connected": NotConnected("gone"),
        "failed": ValueError("out of order"),
        "cancelled": asyncio.CancelledError(),
    }
    for outcome in outcomes.values():
        await asyncio.gather(metered_rpc(meter, "t", give(outcome)), return_exceptions=True)
    answers = [
        {"success": True},
        {"success": False, "code": "not_found"},
        {"success": False},
        ValueError(),
        asyncio.CancelledError(),
    ]

    async def handle(given: dict[str, Any], _call: Any) -> Any:
        return await give(answers[given["n"]])

    tool = Tool("t", "", {"type": "object"}, handle)
    assert metered_tools([tool], UNMETERED) == [tool]
    (metered,) = metered_tools([tool], meter)
    for n in range(len(answers)):
        await asyncio.gather(metered.handler({"n": n}, PlainCall()), return_exceptions=True)
    reading = parse(meter.text().decode())
    assert reading.by(metric_table.RPC_CALLS, "outcome") == dict.fromkeys(sorted(outcomes), 1)
    codes = {"cancelled": 1, "failed": 2, "not_found": 1, "ok": 1}
    assert reading.by(metric_table.TOOL_CALLS, "code") == codes
    assert reading.total(metric_table.CALLS_IN_FLIGHT) == 0


async def test_metrics_require_the_token() -> None:
    async with (
        serve_metrics(lambda: b"a_number 1\n", LOCAL, 0, token="the-token") as url,
        client() as http,
    ):
        refused = await http.get(url)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        wrong = await http.get(url, headers={"Authorization": "Bearer the-tokem"})
        assert wrong.status_code == 401
        assert "a_number" not in refused.text + wrong.text
        given = await http.get(url, headers={"Authorization": "Bearer the-token"})
        assert given.text == "a_number 1\n"
        assert given.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        elsewhere = url.replace("/metrics", "/secrets")
        assert (await http.get(elsewhere)).status_code == 404


async def test_an_address_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="reachable from other machines") as caught:
        async with serve_metrics(lambda: b"", "0.0.0.0", 0, token=None):
            pass
    assert "SEARCH_METRICS_TOKEN" in caught.value.hint
    async with serve_metrics(lambda: b"", LOCAL, 0, token=None) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            async with serve_metrics(lambda: b"", LOCAL, port, token=None):
                pass
