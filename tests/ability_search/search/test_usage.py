"""Counting what agents were shown."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from ability_search.querying import usage
from ability_search.querying.model import Hit
from ability_search.querying.usage import Usage

from ability_search.errors import StatementRefused
from ability_search.store.arcadedb import Statement

HITS = [
    Hit("docs", {"chunkId": f"docs:{n}:0", "collection": "docs"}, 1.0, {}, ()) for n in range(2)
]


class Fake:
    """A registry that keeps what is written, and may fail or wait."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.written: list[dict[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, statement: Statement) -> None:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(statement.params)


def counting(registry: Any) -> Usage:
    return Usage(registry, now=lambda: 7)


async def test_each_answer_is_one_statement() -> None:
    registry = Fake()
    use = counting(registry)
    use.count("a", HITS)
    use.count("b", HITS[:1])
    use.count("b", [])
    await use.close()
    assert [(each["agent"], each["now"]) for each in registry.written] == [("a", 7), ("b", 7)]
    assert [shown["chunkId"] for shown in registry.written[0]["shown"]] == ["docs:0:0", "docs:1:0"]
    assert registry.written[0]["collections"] == ["docs"]


@pytest.mark.parametrize("reason", ["conflict", "duplicate"])
async def test_two_that_count_the_same_take_turns(reason: str) -> None:
    registry = Fake(StatementRefused(reason, "x"), StatementRefused(reason, "x"))
    use = counting(registry)
    use.count("a", HITS)
    await use.close()
    assert len(registry.written) == 1


async def test_what_fails_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    registry = Fake(StatementRefused("other", "secret"))
    use = counting(registry)
    with caplog.at_level(logging.WARNING):
        use.count("agent", HITS)
        await use.close()
    assert registry.written == []
    assert "2 hits" in caplog.text


async def test_what_the_database_cannot_take_in_time_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(usage, "_PENDING", 3)
    monkeypatch.setattr(usage, "_PATIENCE", 0.0)
    registry = Fake()
    registry.gate.clear()
    use = counting(registry)
    for _ in range(5):
        use.count("a", HITS)
    assert caplog.text.count("2 hits not counted: too many writes pending") == 2
    await use.close()
    assert "use of 3 answers not counted" in caplog.text
    registry.gate.set()
    await use.close()
    assert registry.written == []
