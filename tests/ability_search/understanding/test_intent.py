import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.understanding.intent import PHRASES_LIMIT, Intent, Recognized, understand
from ability_search.understanding.periods import Period, months, one_day

NOW = (one_day(2026, 3, 25).first or 0) * 86_400_000 + 3_600_000


def read(text: str) -> Intent:
    return understand(text, now=NOW)


def test_a_query_without_either_is_its_own_topic() -> None:
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
def test_time_and_exclusion_together(
    query: str, topic: str, excluded: tuple[str, ...], period: tuple[int, int]
) -> None:
    intent = read(query)
    assert intent.topic.strip(": ") == topic
    assert not set(intent.words.split()) & set(excluded)
    assert intent.excluded == excluded
    assert intent.period == months(*period)


def test_what_was_recognized_is_in_order_of_position() -> None:
    query = "besides Redis, caching in 2025"
    assert read(query).recognized == (
        Recognized("exclusion", 0, 13),
        Recognized("time", query.index("in 2025"), len(query)),
    )


def test_what_the_caller_says_is_added_or_wins() -> None:
    intent = understand(
        "caching in 2025 besides Redis",
        now=NOW,
        exclude=["redis", " memcached ", " "],
        period=Period(1, 2),
    )
    assert intent.topic == "caching"
    assert intent.excluded == ("Redis", "memcached")
    assert intent.period == Period(1, 2)


def test_each_half_can_be_left_out() -> None:
    query = "caching in 2025 besides Redis"
    plain = understand(query, now=NOW, exclusion=False, temporal=False)
    assert plain == Intent(query, query)
    assert understand(query, now=NOW, exclusion=False).topic == "caching besides Redis"
    assert understand(query, now=NOW, temporal=False).topic == "caching in 2025"
    assert understand("when was it done", now=NOW, temporal=False).asks_for_date is False


def test_so_many_phrases_are_pushed_down_and_no_more() -> None:
    words = [f"word{chr(ord('a') + n)}" for n in range(PHRASES_LIMIT + 1)]
    intent = understand(f"notes on caching {' '.join('-' + word for word in words)}", now=NOW)
    assert intent.topic == "notes on caching"
    assert list(intent.excluded) == words[:-1]


def test_questions_of_time_without_a_date() -> None:
    event = read("what was set up before the outage")
    assert event.event is not None
    assert event.topic == event.text
    assert read("when was the schema modified").asks_for_date
    assert read("what was done in 2025 before the outage").event is None


def test_which_of_several_events_is_meant_says_nothing_of_what_is_asked_for() -> None:
    event = read("what was done before the last outage")
    assert event.event is not None
    assert (event.event.phrase, event.order) == ("last outage", None)
    assert read("latest decisions made before the last outage").order == "newest"
    assert read("what was the last outage").order == "newest"


WORDS = "besides in 2025 X not last week -foo , before the outage"
words = st.lists(st.sampled_from(WORDS.split())).map(" ".join)


@given(st.text() | words)
def test_any_query_can_be_read(query: str) -> None:
    intent = read(query)
    assert intent.topic.strip() or not query.strip()
    assert intent.words == query or intent.excluded
    assert intent.recognized or intent.topic == query
    ends = [end for each in intent.recognized for end in (each.start, each.end)]
    assert ends == sorted(ends)


def test_a_text_that_is_no_question_stays_as_it_is() -> None:
    text = "what happened in 2025 besides X. " * 100
    assert read(text) == Intent(text, text)
