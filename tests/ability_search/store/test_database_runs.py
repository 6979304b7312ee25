"""DatabaseRuns: restarts of a database are seen in its answers, by every worker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from ability_search.errors import StatementRefused
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.database_runs import DatabaseRuns


@dataclass
class Engine:
    """Keeps the word of its run, which a client may set, until it is restarted."""

    keeps: bool = True
    refuses: bool = False
    word: str | None = None
    marks: int = 0
    now: float = 100.0
    """The time."""

    async def run(self, statement: Statement, _agent: str | None, _write: bool) -> Any:
        self.marks += 1
        if self.refuses:
            raise StatementRefused("other", "SetGlobal is not allowed")
        word = self.word or str(statement.params["run"])
        self.word = word if self.keeps else None
        return {"mark": word}

    def restart(self) -> None:
        self.word = None


@dataclass
class Worker:
    engine: Engine
    seen: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        engine = self.engine
        self.runs = DatabaseRuns(
            engine.run, lambda: self.seen.append(engine.now), clock=lambda: engine.now
        )

    async def ask(self) -> None:
        self.engine.now += 0.1
        await self.runs.see(self.engine.word, None, asked_at=self.engine.now)


async def test_a_restart_is_seen_by_each_worker_in_its_first_answer() -> None:
    engine = Engine()
    workers = [Worker(engine), Worker(engine)]
    for round_ in (1, 2, 3):
        for worker in workers:
            for _ in range(3):
                await worker.ask()
                assert len(worker.seen) == round_
        assert engine.marks == round_
        engine.restart()


async def test_answers_during_a_mark_tell_of_no_further_restart() -> None:
    released = asyncio.Event()

    class SlowEngine(Engine):
        async def run(self, statement: Statement, agent: str | None, write: bool) -> Any:
            await released.wait()
            return await super().run(statement, agent, write)

    engine = SlowEngine()
    worker = Worker(engine)
    first = asyncio.ensure_future(worker.ask())
    await asyncio.sleep(0)
    for _ in range(3):
        await worker.ask()
    released.set()
    await first
    await worker.ask()
    assert (len(worker.seen), engine.marks) == (1, 1)


async def test_many_restarts_are_seen() -> None:
    engine = Engine()
    worker = Worker(engine)
    for round_ in range(1, 40):
        await worker.ask()
        await worker.ask()
        assert len(worker.seen) == round_
        engine.restart()


async def test_an_answer_from_before_a_mark_is_no_restart() -> None:
    engine = Engine()
    worker = Worker(engine)
    await worker.ask()
    await worker.runs.see(None, None, asked_at=engine.now - 0.01)
    assert (len(worker.seen), engine.marks) == (1, 1)


async def test_a_restart_right_after_a_mark_is_seen() -> None:
    engine = Engine()
    worker = Worker(engine)
    await worker.ask()
    engine.restart()
    await worker.runs.see(None, None, asked_at=engine.now)
    assert (len(worker.seen), engine.marks) == (2, 2)


async def test_replicas_with_words_of_their_own_are_known_after_the_first_answer_of_each() -> None:
    worker = Worker(Engine())
    for _ in range(3):
        for word in ("one", "two"):
            await worker.runs.see(word, None, asked_at=worker.engine.now)
    assert len(worker.seen) == 2


@pytest.mark.parametrize("refuses", [True, False])
async def test_a_database_that_keeps_no_word_is_given_up(
    refuses: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(keeps=False, refuses=refuses)
    worker = Worker(engine)
    for _ in range(30):
        await worker.ask()
        engine.now += 5
    assert engine.marks == len(worker.seen) == (1 if refuses else 8)
    assert "not noticed at once" in caplog.text


async def test_servers_that_share_reads_but_no_memory_are_given_up() -> None:
    engine = Engine()
    worker = Worker(engine)
    for _ in range(30):
        await worker.ask()
        engine.now += 5
        await worker.runs.see(None, None, asked_at=engine.now)
    assert engine.marks <= 10
    assert len(worker.seen) <= 10
