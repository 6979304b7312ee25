"""The checks of `doctor` that ask the components of a stack."""

from __future__ import annotations

from pathlib import Path

import pytest

from ability_search.client.running_stack import RunningComponent, RunningStack
from ability_search.client.tool_client import Target
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.extensions.cli.prometheus_meter import PrometheusMeter, serve_metrics
from ability_search.extensions.localstack.health_checks import Check, Checks, check_network
from kadi_localnet.broker import serve_broker

LOCAL = "127.0.0.1"


async def made(settings: Settings, target: Target) -> list[Check]:
    checks = Checks()
    await check_network(checks, settings, target)
    return checks.made


@pytest.mark.parametrize(
    ("token", "up", "state", "text"),
    [
        ("t", True, "ok", "of 1 component"),
        ("other", True, "warn", "no metrics from worker-1"),
        ("t", False, "warn", "no metrics from worker-1"),
    ],
)
async def test_metrics_are_served_refused_or_gone(
    tmp_path: Path, token: str, up: bool, state: str, text: str
) -> None:
    settings = load_settings(
        {"SEARCH_DATA_DIR": str(tmp_path), "SEARCH_METRICS_TOKEN": token}, tmp_path
    )
    meter = PrometheusMeter("worker", "1")
    async with serve_broker(LOCAL, 0) as broker:
        async with serve_metrics(meter.text, LOCAL, 0, token="t") as url:
            part = RunningComponent("worker-1", 1, metrics=url)
            stack = RunningStack(1, broker.url, ("global",), "now", parts=(part,))
            target = Target(broker.url, ("global",), "test", stack)
            if up:
                checks = await made(settings, target)
        if not up:
            checks = await made(settings, target)
    (found,) = [each for each in checks if each.name == "metrics"]
    assert (found.state, found.text) == (state, text)
    assert ("SEARCH_METRICS_TOKEN" in found.remedy) is (token == "other")
