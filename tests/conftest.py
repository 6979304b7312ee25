"""Fixtures and checks for every test."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from tests.examples import JUDGED, examples
from tests.java_machine import SHORT_LIVED
from tests.networks import backplane, nats_url

__all__ = ["backplane", "nats_url"]

for name, value in SHORT_LIVED.items():
    os.environ.setdefault(name, value)

# A shell ignores Ctrl-C for what it runs in the background, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the machine, not of the code. Where a change is judged, there
# are more examples, the same each time; elsewhere each run looks at a few new ones.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    max_examples=examples(100),
    derandomize=JUDGED,
)
settings.load_profile("untimed")


# What is imported and collected stays until the end: the garbage collector never looks at it.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let several processes begin with the longest tests."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: item.get_closest_marker("process") is None)


def pytest_collection_finish() -> None:
    """Begin to collect garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A log that a test has set up ends with it, as does the stream to which it may go."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
