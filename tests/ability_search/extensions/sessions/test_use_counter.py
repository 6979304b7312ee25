"""Counts of use, written in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ability_search.errors import StatementRefused
from ability_search.extensions.sessions import Decay, decay
from ability_search.extensions.sessions.decay import UseCounter
from ability_search.store.arcadedb.store import ArcadeStore

HITS = [f"docs:{n}:0" for n in range(2)]


class Fake:
    """A database that keeps what is written, and may fail or wait."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.written: list[Mapping[str, Any]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.written.append(params)
        return {"refused": None, "at": 1, "record": []}

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        raise AssertionError("counting reads nothing")


def rows_of(params: Mapping[str, Any]) -> list[Any]:
    """The rows that a loop of a statement is over."""
    return next(each for each in params.values() if isinstance(each, list) and "scope" in each[0])


def counting(database: Fake) -> UseCounter:
    return UseCounter(ArcadeStore(database), now=lambda: 7)


async def count(use: UseCounter, agent: str, shown: Sequence[str]) -> None:
    hits = [SimpleNamespace(chunk_id=chunk_id) for chunk_id in shown]
    answer: Any = SimpleNamespace(result=SimpleNamespace(results=hits))
    nothing: Any = None
    await use.count(Decay(agent_id=agent), answer, nothing)


async def test_each_answer_is_one_statement() -> None:
    database = Fake()
    use = counting(database)
    await count(use, "a", HITS)
    await count(use, "b", HITS[:1])
    await count(use, "b", [])
    await use.close()
    first, second = (rows_of(each) for each in database.written)
    assert [row["key"].split("\x1f") for row in first] == [["a", hit] for hit in HITS]
    assert [row["key"].split("\x1f") for row in second] == [["b", HITS[0]]]
    assert {row["scope"] for row in first} == {"collection/docs"}


@pytest.mark.parametrize("reason", ["conflict", "duplicate"])
async def test_conflicting_counts_are_retried(reason: str) -> None:
    database = Fake(StatementRefused(reason, "x"), StatementRefused(reason, "x"))
    use = counting(database)
    await count(use, "a", HITS)
    await use.close()
    assert len(database.written) == 1


async def test_failed_count_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    database = Fake(StatementRefused("other", "secret"))
    use = counting(database)
    with caplog.at_level(logging.WARNING):
        await count(use, "agent", HITS)
        await use.close()
    assert database.written == []
    assert "2 hits" in caplog.text


async def test_counts_beyond_the_limits_are_dropped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(decay, "_PENDING", 3)
    monkeypatch.setattr(decay, "_PATIENCE", 0.0)
    database = Fake()
    database.gate.clear()
    use = counting(database)
    for _ in range(5):
        await count(use, "a", HITS)
    assert caplog.text.count("2 hits not counted: too many writes pending") == 2
    await use.close()
    assert "use of 3 answers not counted" in caplog.text
    database.gate.set()
    await use.close()
    assert database.written == []
