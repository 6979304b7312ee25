"""Fixtures and checks for every test."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.java_machine import SHORT_LIVED
from tests.networks import backplane, nats_url

__all__ = ["backplane", "nats_url"]

for name, value in SHORT_LIVED.items():
    os.environ.setdefault(name, value)

# A shell ignores Ctrl-C for what it runs in the background, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes tells of the machine, not of the code. Where a change is judged, the
# examples are the same each time; elsewhere each run looks at new ones.
settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("untimed")

TESTS = Path(__file__).parent
LONGEST = (
    "snippets/test_snippets.py",
    "ability_search/extensions/localstack/test_up.py",
    "ability_search/flows/test_crash.py",
    "ability_search/flows/test_filters_exact.py",
    "ability_search/flows/test_paging.py",
    "ability_search/flows/test_artifacts_killed.py",
    "ability_search/flows/test_duplicate_sequences.py",
    "ability_search/extensions/gateway/test_console.py",
    "ability_search/flows/test_jobs_killed.py",
    "ability_search/extensions/mcp/test_mcp_stack.py",
    "test_patterns.py",
    "kadi_localnet/test_broker_memory.py",
    "interop/test_real_search.py",
    "interop/test_real_stdio.py",
    "ability_search/text/chunkers/test_strategies.py",
    "ability_search/flows/test_indexing_values.py",
    "ability_search/flows/test_migration_killed.py",
    "ability_search/flows/test_artifacts_mutated.py",
    "ability_search/extensions/evaluation/test_eval_stack.py",
    "ability_search/providers/test_refused_texts.py",
    "snippets/test_docstrings.py",
)
"""Files of about half a minute and more, the longest first."""
COVERING = tuple(
    f"ability_search/{part}/" for part in ("filters", "index", "text", "understanding")
)
"""Tests of the pure parts whose coverage is measured; measuring doubles the time of a test."""


# What is imported and collected stays until the end: the garbage collector never looks at it.
gc.disable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let several processes begin with the longest files, and measure coverage where it counts."""
    places = {item: item.path.relative_to(TESTS).as_posix() for item in items}
    for item, place in places.items():
        if not place.startswith(COVERING):
            item.add_marker("no_cover")
    if hasattr(config, "workerinput"):
        ranks = {place: rank for rank, place in enumerate(LONGEST)}
        items.sort(key=lambda item: ranks.get(places[item], len(LONGEST)))


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
