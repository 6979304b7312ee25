from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.extensions.understanding import UnderstandingOptions
from ability_search.extensions.understanding.periods import Period, months, one_day
from ability_search.extensions.understanding.query_understanding import (
    PHRASES_LIMIT,
    Intent,
    Recognized,
    understand,
)

PLAIN_QUERIES = Path(__file__).parents[3] / "data" / "plain_queries.txt"
NOW = (one_day(2026, 3, 25).first or 0) * 86_400_000 + 3_600_000


def read(text: str, **options: Any) -> Intent:
    asked = {"collection": "notes", "query": "words", **options}
    return understand(text, UnderstandingOptions.model_validate(asked), now=NOW)


def test_a_query_without_time_and_exclusions_is_its_own_topic() -> None:
    assert read("how do tokens expire?") == Intent("how do tokens expire?", "how do tokens expire?")


@pytest.mark.parametrize(
    ("query", "topic", "excluded", "period"),
    [
        ("flight costs aside from hotels in March 2026", "flight costs", ("hotels",), (2026, 3)),
        ("what changed in March 2026 besides the outage", "what changed", ("outage",), (2026, 3)),
        ("all in March 2026 except outages", "all in March 2026", ("outages",), (2026, 3)),
        ("besides outages in March 2026", "in March 2026", ("outages",), (2026, 3)),
        ("in January 2026: hiring, not interns", "hiring", ("interns",), (2026, 1)),
        ("last month", "last month", (), (2026, 2)),
        ("notes from last month", "notes from last month", (), (2026, 2)),
    ],
)
def test_time_and_exclusions_are_removed_from_the_topic(
    query: str, topic: str, excluded: tuple[str, ...], period: tuple[int, int]
) -> None:
    intent = read(query)
    assert intent.topic.strip(": ") == topic
    assert not set(intent.words.split()) & set(excluded)
    assert intent.excluded == excluded
    assert intent.period == months(*period)


def test_recognized_spans_are_in_order_of_position() -> None:
    query = "besides Redis, caching in 2025"
    assert read(query).recognized == (
        Recognized("exclusion", 0, 13),
        Recognized("time", query.index("in 2025"), len(query)),
    )


def test_exclusions_of_the_caller_are_added_and_its_period_wins() -> None:
    intent = read(
        "caching in 2025 besides Redis",
        exclude=["redis", " memcached "],
        timeRange={"from": "1970-01-02", "to": "1970-01-03"},
    )
    assert intent.topic == "caching"
    assert intent.excluded == ("Redis", "memcached")
    assert intent.period == Period(1, 2)


def test_exclusions_and_time_can_be_switched_off() -> None:
    query = "caching in 2025 besides Redis"
    assert read(query, understand=False) == Intent(query, query)
    assert read(query, temporal={"weight": 0.0}).topic == "caching in 2025"


def test_the_number_of_excluded_phrases_is_limited() -> None:
    words = [f"word{chr(ord('a') + n)}" for n in range(PHRASES_LIMIT + 1)]
    intent = read(f"notes on caching {' '.join('-' + word for word in words)}")
    assert intent.topic == "notes on caching"
    assert list(intent.excluded) == words[:-1]


WORDS = "besides in 2025 X not last week -foo , before the outage"
words = st.lists(st.sampled_from(WORDS.split())).map(" ".join)


@given(st.text() | words)
def test_any_query_keeps_a_topic_and_ordered_spans(query: str) -> None:
    intent = read(query)
    assert intent.topic.strip() or not query.strip()
    assert intent.words == query or intent.excluded
    assert intent.recognized or intent.topic == query
    ends = [end for each in intent.recognized for end in (each.start, each.end)]
    assert ends == sorted(ends)


def test_a_text_of_several_sentences_is_not_changed() -> None:
    text = "what happened in 2025 besides X. " * 100
    assert read(text) == Intent(text, text)


def test_plain_queries_are_not_changed() -> None:
    lines = PLAIN_QUERIES.read_text(encoding="utf-8").splitlines()
    plain = [line for line in lines if line and not line.startswith("#")]
    assert len(plain) > 200
    read_as = [read(query) for query in plain]
    assert [each for each in read_as if each.period or each.order] == []
    assert len([each for each in read_as if each.excluded]) <= 0.02 * len(plain)


def test_long_texts_are_not_analyzed() -> None:
    short = "notes on caching from last week besides Redis"
    assert read(short).excluded == ("Redis",)
    long = " ".join([short, *["and what else was said there"] * 13])
    assert read(long) == Intent(long, long)
    endless = "notes besides Redis " + "x" * 2000
    assert read(endless) == Intent(endless, endless)
