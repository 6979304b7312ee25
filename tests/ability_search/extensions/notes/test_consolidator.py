"""Pairs of notes judged by a language model, with its failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from ability_search.config.model_settings import Kinds
from ability_search.errors import ChatUnavailable
from ability_search.extensions.notes import consolidator
from ability_search.extensions.notes.consolidation_report import ContradictingNotes
from ability_search.extensions.notes.consolidator import FAILURES, Judgement, judge_by_model
from ability_search.extensions.notes.graph_analysis import NoteChunk


def note(name: str, number: int, limit: int) -> NoteChunk:
    source = f"{name}{number}"
    return NoteChunk(f"{source}:0", source, "", 0, f"Rate {number} is {limit}.", day=1)


def pair(new: NoteChunk, old: NoteChunk) -> ContradictingNotes:
    return ContradictingNotes(
        source=new.source,
        other=old.source,
        chunk_id=new.chunk_id,
        other_chunk_id=old.chunk_id,
        rule="numbers",
        statement=new.text,
        other_statement=old.text,
        cosine=0.9,
    )


class Model:
    """Answers a pair by its number; ``None`` fails."""

    def __init__(self, says: Callable[[int], str | None]) -> None:
        self.says = says
        self.systems: set[str] = set()
        self.asked = 0

    async def complete(
        self, system: str, user: str, *, model: str | None, timeout: float, enough: int
    ) -> str:
        self.asked += 1
        self.systems.add(system)
        await asyncio.sleep(0)
        said = self.says(int(user.split("Rate ")[1].split()[0]))
        if said is None:
            raise ChatUnavailable("the language model did not answer")
        return said


async def judged(model: Model, pairs: int = 20) -> tuple[Judgement, list[int]]:
    counts: list[int] = []

    async def count(done: int) -> None:
        counts.append(done)

    notes = [(note("new", n, 200), note("old", n, 100)) for n in range(pairs)]
    suspected, chunks = (
        [pair(*both) for both in notes],
        {e.chunk_id: e for both in notes for e in both},
    )
    found = await judge_by_model(suspected, chunks, model, Kinds(), count)
    return found, counts


async def test_a_failure_leaves_one_pair_to_the_rules() -> None:
    model = Model(lambda number: None if number % 4 == 0 else "YES")
    found, counts = await judged(model)
    assert (found.judged, model.asked, counts) == (15, 20, list(range(1, 21)))
    assert [each.judge for each in found.contradictions] == ["rules"] * 5
    assert found.warnings[0].startswith("the rules judged 5 of 20 pairs of notes: the language")


async def test_a_model_that_fails_several_times_in_a_row_is_not_asked_again() -> None:
    model = Model(lambda _number: None)
    found, _ = await judged(model, 100)
    assert FAILURES <= model.asked < 10
    assert (found.judged, len(found.contradictions)) == (0, 100)


async def test_the_rules_judge_what_is_left_when_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consolidator, "SECONDS", 0.2)

    class Halting(Model):
        async def complete(self, system: str, user: str, **options: object) -> str:
            if self.asked >= 12:
                await asyncio.Event().wait()
            return await super().complete(system, user, model=None, timeout=1, enough=1)

    found, _ = await judged(Halting(lambda _number: "NO"))
    assert found.judged == 12
    assert [each.judge for each in found.contradictions].count("chat") == 12
    assert "judged 8 of 20 pairs of notes: 0 s are over" in found.warnings[0]


async def test_all_pairs_have_one_instruction_so_that_servers_can_reuse_it() -> None:
    model = Model(lambda _number: "YES")
    await judged(model)
    assert len(model.systems) == 1


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("NO", True),
        (" **No**, they differ", True),
        ("The answer is: YES.", False),
        ("Answer: no", True),
        ("Nothing is said", None),
        ("The notes agree: yes", None),
        ("```\nYES\n```", False),
    ],
)
async def test_an_answer_is_read_from_its_beginning(answer: str, verdict: bool | None) -> None:
    found, _ = await judged(Model(lambda _number: answer), 1)
    assert found.judged == (verdict is not None)
    judges = [each.judge for each in found.contradictions]
    assert judges == {True: ["chat"], False: [], None: ["rules"]}[verdict]
