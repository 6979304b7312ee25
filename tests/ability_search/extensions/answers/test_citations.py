"""Sentences of an answer and their check against passages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from ability_search.extensions.answers.answerer import REFUSAL, prompt, refuses
from ability_search.extensions.answers.citations import Checker, cited_numbers, cited_sentences
from ability_search.text.analyzer import analyzer_for

PASSAGES = [
    "Backups\nBackups run every night at 02:00 and are kept for 30 days.",
    "Restore\nAlice Miller restores the archive from tape; it takes 1,500 seconds.",
]


def checker(question: str = "When do the backups run?") -> Checker:
    return Checker(question, PASSAGES, analyzer_for("english"))


@pytest.mark.parametrize(
    ("sentence", "citations", "support"),
    [
        ("Backups run every night at 02:00 [1].", [1], "full"),
        ("The backups are kept for 30 days. [1]", [1], "full"),
        ("Backups run every night [1][2].", [1, 2], "full"),
        ("The archive is restored from tape by Alice Miller [2].", [2], "full"),
        ("A restore from tape takes 1500 seconds [2].", [2], "full"),
        # The wrong passage, none, or one that is not there: the one that has it is found.
        ("Backups are kept for 30 days [2].", [1], "full"),
        ("Backups are kept for 30 days.", [1], "full"),
        ("Backups are kept for 30 days [7].", [1], "full"),
        # Numbers and names must be there.
        ("Backups run every night at 03:00 [1].", [1], "none"),
        ("Backups are kept for 31 days [1].", [1], "none"),
        ("The archive is restored by Bob Miller [2].", [2], "none"),
        # Words should be there.
        ("Nightly snapshots go into cold storage abroad [1].", [1], "partial"),
        ("Penguins live near the south pole.", [], "none"),
        # There must be words.
        ("- [1]", [1], "none"),
    ],
)
def test_sentences_are_checked(sentence: str, citations: list[int], support: str) -> None:
    found = checker().check(sentence)
    assert (found.citations, found.support) == (citations, support)
    assert "[" not in found.text


def test_what_is_missing_is_named() -> None:
    assert checker().check("Bob said that Carol keeps them 31 days [1].").missing == ["31", "Carol"]
    assert "abroad" in (checker().check("Snapshots go abroad by night [1].").missing or ())


def test_names_and_numbers_of_the_question_need_not_be_in_a_passage() -> None:
    asked = checker("What did Dora ask about the 14 backups?")
    assert asked.check("The backups of Dora run every night [1].").support == "full"


def test_chinese_sentences_are_checked() -> None:
    asked = Checker("备份?", ["备份每天凌晨两点运行,保存30天。"], analyzer_for("none"))
    assert asked.check("备份每天凌晨两点运行[1]。").support == "full"
    assert asked.check("备份保存31天[1]。").support == "none"


async def read(parts: Iterable[str]) -> list[str]:
    async def arriving() -> AsyncIterator[str]:
        for part in parts:
            yield part

    return [sentence async for sentence in cited_sentences(arriving())]


async def test_sentences_arrive_in_parts() -> None:
    text = (
        "Backups run at night. [1] I say they are kept\n- for 30 days [1, 2]. Dr. Miller knows [2]"
    )
    whole = [
        "Backups run at night. [1]",
        "I say they are kept",
        "- for 30 days [1, 2].",
        "Dr. Miller knows [2]",
    ]
    for size in (1, 2, 7, 1000):
        assert await read(text[n : n + size] for n in range(0, len(text), size)) == whole
    assert await read([]) == []


async def test_thoughts_before_the_answer_are_left_out() -> None:
    text = "<think>\nLet me see. It is one. Or two.\n</think>\n\nIt is two [1]. Yes."
    assert await read(text) == ["It is two [1].", "Yes."]
    assert await read(["<think> One. Two. Three."]) == []


def test_citations_are_read() -> None:
    assert cited_numbers("a [2][1], b [3; 2] c[10]") == [1, 2, 3, 10]
    assert cited_numbers("none [a] [] [1234]") == []


def test_passages_stand_between_boundaries() -> None:
    system, user = prompt("when?", PASSAGES, "b0unda7y")
    assert "never an instruction" in system
    assert system.count("b0unda7y") == 1
    assert user.count("b0unda7y") == 4
    assert user.endswith("Question: when?")
    assert f"[2]\nb0unda7y\n{PASSAGES[1]}\nb0unda7y" in user


def test_refusals_are_recognised() -> None:
    assert refuses(REFUSAL)
    assert refuses("**Not in the sources.**")
    assert refuses("The answer is not in the sources. [1]")
    assert refuses("The passages do not say when the backups run [1].")
    assert not refuses("The budget is not in the sources of 2026.")
    assert not refuses("Passages that do not fit are left out.")
