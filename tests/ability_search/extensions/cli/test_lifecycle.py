"""Time an event loop is held, and signs of life of a component."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from pathlib import Path

import pytest
from tests.ability_search.processes import process

from ability_search.extensions.cli.lifecycle import heartbeat
from ability_search.ops.metrics.meter import UNMETERED, Read
from ability_search.ops.metrics.metric_table import LOOP_HELD_SECONDS, Metric

SECONDS = 20.0


class Measurements(asyncio.Queue[float]):
    """A meter that keeps what it is told."""

    def add(self, counter: Metric, value: float, *labels: str) -> None: ...

    def watch(self, metric: Metric, read: Read) -> None: ...

    def observe(self, histogram: Metric, value: float, *labels: str) -> None:
        assert histogram is LOOP_HELD_SECONDS
        self.put_nowait(value)


class Clocks:
    """Puts the clocks of the process forward."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def put_forward(self, name: str, seconds: float) -> None:
        before = getattr(time, name)
        self._monkeypatch.setattr(time, name, lambda: before() + seconds)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


async def test_the_time_for_which_the_event_loop_is_blocked_is_measured(
    caplog: pytest.LogCaptureFixture, clocks: Clocks
) -> None:
    measurements = Measurements()
    caplog.set_level(logging.WARNING)
    async with heartbeat(measurements):
        assert await measurements.get() < 1.0
        clocks.put_forward("monotonic", 100.0)
        clocks.put_forward("thread_time", 40.0)
        while (held := await measurements.get()) < 1.0:
            pass

    assert 99.0 < held < 110.0
    (said,) = re.findall(r"was held for ([0-9.]+) s, ([0-9.]+) s of it by its work", caplog.text)
    assert float(said[0]) == pytest.approx(held, abs=0.1)
    assert 40.0 <= float(said[1]) < 45.0


async def test_a_pause_of_the_event_loop_is_not_its_work(
    caplog: pytest.LogCaptureFixture, clocks: Clocks
) -> None:
    measurements = Measurements()
    caplog.set_level(logging.WARNING)
    async with heartbeat(measurements):
        await measurements.get()
        clocks.put_forward("monotonic", 100.0)
        while await measurements.get() < 1.0:
            pass
    ((held, work),) = re.findall(r"held for ([0-9.]+) s, ([0-9.]+) s of it by its", caplog.text)
    assert float(work) < 5.0 < float(held)


async def test_heartbeats_come_from_the_event_loop_and_end_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ability_search.extensions.cli.lifecycle.BEAT_SECONDS", 0.2)
    beats: asyncio.Queue[float] = asyncio.Queue()
    async with asyncio.timeout(SECONDS):
        async with heartbeat(UNMETERED, lambda: beats.put_nowait(time.monotonic())):
            first, second = await beats.get(), await beats.get()
    assert second - first >= 0.2
    assert not any(task.get_name() == "heartbeat" for task in asyncio.all_tasks())


@pytest.mark.slow
async def test_a_supervised_component_beats_once_it_is_ready(tmp_path: Path) -> None:
    async with process({"HOME": str(tmp_path)}, "broker", "--supervised", "--port", "0") as part:
        assert part.stdout is not None
        assert "ready" in json.loads(await part.stdout.readline())
        assert await part.stdout.readline() == b"\n"
        assert await part.stdout.readline() == b"\n"
