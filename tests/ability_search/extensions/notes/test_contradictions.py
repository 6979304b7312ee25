"""Contradictions by rules: what each finds, and what none may take for one."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from ability_search.extensions.notes.contradictions import find_contradiction, same_facts


@pytest.mark.parametrize(
    ("one", "other", "rule", "differing"),
    [
        (
            "The rate limit is 100 requests per minute.",
            "The rate limit is 200 requests per minute.",
            "numbers",
            ("100 requests", "200 requests"),
        ),
        (
            "The staging database is encrypted at rest.",
            "The staging database is not encrypted at rest.",
            "negation",
            ("encrypt", "not encrypt"),
        ),
        (
            "MFA is required for all employees.",
            "MFA is optional for all employees.",
            "antonyms",
            ("requir", "option"),
        ),
        (
            "The beta starts on 2026-04-01.",
            "The beta starts on 15 June 2026.",
            "dates",
            ("2026-04-01", "15 June 2026"),
        ),
        (
            "The team lead of payments is Anna.",
            "The team lead of payments is Robert.",
            "values",
            ("Anna", "Robert"),
        ),
    ],
)
def test_each_rule_finds_its_contradiction(
    one: str, other: str, rule: str, differing: tuple[str, str]
) -> None:
    found = find_contradiction(one, other)
    assert found is not None
    assert found == (rule, one, other, differing)
    assert find_contradiction(one, one) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Kafka topic orders has 12 partitions.", "Kafka topic payments has 24 partitions."),
        ("The mobile app supports offline mode.", "The web app does not support offline mode."),
        ("Sprint 14 delivered 23 points.", "Sprint 15 delivered 31 points."),
        ("p99 latency is below 400 ms.", "p50 latency is below 100 ms."),
        ("The billing database is PostgreSQL.", "The billing database is large."),
        ("Do not deploy on Fridays.", "Never deploy on Fridays."),
        ("", "Never deploy on Fridays."),
        # Speakers are no attributes.
        ("Caroline: Yay!", "Caroline: Thanks, Melanie!"),
        ("Melanie: It was fun.", "Melanie: Here it is."),
        # Questions, headings, rows of tables and code state nothing.
        ("Is the staging database encrypted?", "The staging database is not encrypted."),
        ("# Takes 10 seconds", "# Takes 20 seconds"),
        ("| rate limit | 100 requests |", "| rate limit | 200 requests |"),
        ("```\nsleep 10 seconds\n```", "```\nsleep 20 seconds\n```"),
    ],
)
def test_other_topics_and_other_words_are_no_contradiction(one: str, other: str) -> None:
    assert find_contradiction(one, other) is None
    assert find_contradiction(other, one) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The nightly backup lacks encryption.", "The nightly backup has encryption."),
        ("The export is free of personal data.", "The export has personal data."),
        (
            "Lactose-free milk is served in the canteen.",
            "Milk with lactose is served in the canteen.",
        ),
    ],
)
def test_what_is_denied_without_a_word_for_not_is_a_contradiction(one: str, other: str) -> None:
    assert find_contradiction(one, other)
    assert find_contradiction(other, one)


def test_few_look_alikes_are_taken_for_contradictions() -> None:
    path = Path(__file__).parents[3] / "data" / "note_pairs.tsv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    found = [row for row in rows if find_contradiction(row["first"], row["second"])]
    right = sum(row["contradict"] == "1" for row in found)
    assert len(rows) == 112
    assert right >= 48
    assert len(found) - right <= 3


def test_texts_that_differ_in_a_fact_are_not_the_same_note() -> None:
    assert same_facts("It costs $5 a month.", "It costs $5 per month")
    assert not same_facts("It costs $5 a month.", "It costs $6 a month.")
    assert not same_facts("It runs on db-1.", "It runs on db-2.")
    assert not same_facts("It is cached.", "It is not cached.")


def test_facts_behind_many_sentences_count() -> None:
    text = "Nothing is said here. " * 20
    assert same_facts(f"{text}It has 12 rooms.", f"{text}It has 12 rooms.")
    assert not same_facts(f"{text}It has 12 rooms.", f"{text}It has 13 rooms.")


def test_separated_thousands_are_the_same_number() -> None:
    assert same_facts("It has 1,500 rooms.", "It has 1500 rooms.")
    assert not same_facts("It costs 1,5 euros.", "It costs 15 euros.")
