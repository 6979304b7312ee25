import pytest

from ability_search.understanding.named_events import asks_for_date, find_event
from ability_search.understanding.periods import Period


@pytest.mark.parametrize(
    ("query", "relation", "clause", "phrase"),
    [
        ("what was set up before the outage", "before", "before the outage", "outage"),
        (
            "what changed after our move to Berlin?",
            "after",
            "after our move to Berlin",
            "move to Berlin",
        ),
        ("what's new since the merger", "after", "since the merger", "merger"),
        ("everything since our move", "after", "since our move", "move"),
        ("who joined after the merger", "after", "after the merger", "merger"),
        ("decisions since the board meeting", "after", "since the board meeting", "board meeting"),
        ("events leading up to the merger.", "before", "leading up to the merger", "merger"),
        (
            "who was hired prior to that reorganisation",
            "before",
            "prior to that reorganisation",
            "reorganisation",
        ),
    ],
)
def test_an_event_is_found(query: str, relation: str, clause: str, phrase: str) -> None:
    event = find_event(query)
    assert event is not None
    assert (event.relation, event.phrase) == (relation, phrase)
    assert query[event.start : event.end] == clause


@pytest.mark.parametrize(
    "query",
    [
        "",
        "checklist before the deployment",
        "error after the upgrade",
        "what to do after an outage",
        "what was done before lunch",
        "Mice were healthy after the treatment",
        "The server was restarted before the outage.",
        "new column after the first",
        'changes with "before the outage" in their title',
    ],
)
def test_queries_without_an_event(query: str) -> None:
    assert find_event(query) is None


def test_the_period_before_or_after_an_event() -> None:
    before, after = (
        find_event("what was done before the move"),
        find_event("changes after the move"),
    )
    assert before is not None
    assert after is not None
    assert before.period(Period(1000, 1010)) == Period(820, 999)
    assert after.period(Period(1000, 1010)) == Period(1011, 1190)
    for event, open_end in ((before, Period(None, 1)), (after, Period(1, None))):
        with pytest.raises(ValueError, match="first and a last day"):
            event.period(open_end)


@pytest.mark.parametrize(
    ("query", "asks"),
    [
        ("when was the schema last modified", True),
        ("which year did we move", True),
        ("v1 API sunset date", True),
        ("date of the audit?", True),
        ("how long ago did it break", True),
        ("when does the team plan sprints", False),
        ("when to use an index", False),
        ("update the date column", False),
        ("when is the release", True),
        ("when is it better to rent", False),
        ("when are indexes used", False),
        ("ls -l sort by date", False),
        ("days between two dates", False),
        ("The file has a release date.", False),
        ('"when was" in the logs', False),
    ],
)
def test_questions_for_a_date_are_recognized(query: str, asks: bool) -> None:
    assert asks_for_date(query) is asks
