"""Every cue holds in its example and not in its counterexample."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pytest

from ability_search.understanding import (
    recency,
    relative_dates,
    requested_period,
    written_dates,
)
from ability_search.understanding.cues import Cue
from ability_search.understanding.periods import Period, one_day
from ability_search.understanding.sentence_types import masked

TODAY = one_day(2026, 3, 25).first or 0
WORD = re.compile(r"[a-z]{2,}|\d+")

Span = tuple[int, int]


def order(text: str) -> str | None:
    return recency.find_order(text)


def opening(text: str) -> str | None:
    """Return the relation that the period of a text shows: its open end, or that it is a week."""
    found = requested_period.find_timeframe(text, today=TODAY)
    if found is None:
        return None
    match found.period:
        case Period(first=int(), last=None):
            return "since"
        case Period(first=None, last=int()):
            return "until"
        case Period(first=int(first), last=int(last)) if last == first + 6:
            return "week"
    return "closed"


Reading = Callable[[str], str | None]

MEANINGS: list[tuple[str, Iterable[Cue], Reading, str]] = [
    ("newest", recency.NEWEST, order, "newest"),
    ("oldest", recency.OLDEST, order, "oldest"),
    ("last", recency.LAST, order, "newest"),
    ("first", recency.FIRST, order, "oldest"),
    *(
        (f"period {name}", cues, opening, {"after": "since", "before": "until"}.get(name, name))
        for name, cues in requested_period.RELATIONS.items()
    ),
]
CUES = [
    *(cue for _, cues, _, _ in MEANINGS for cue in cues),
    *(cue for cue, _ in relative_dates.FORMS),
    *(cue for cue, _ in written_dates.FORMS.values()),
]


@pytest.mark.parametrize(
    ("cue", "read", "meaning"),
    [
        pytest.param(cue, read, meaning, id=f"{name}: {cue.example}")
        for name, cues, read, meaning in MEANINGS
        for cue in cues
    ],
)
def test_a_cue_has_its_meaning_in_the_example_only(cue: Cue, read: Reading, meaning: str) -> None:
    assert read(cue.example) == meaning
    assert read(cue.counterexample) is None


@pytest.mark.parametrize(
    ("place", "cue"),
    [(place, cue) for place, (cue, _) in enumerate(relative_dates.FORMS)],
    ids=lambda value: value.example if isinstance(value, Cue) else None,
)
def test_a_relative_date_is_found_in_the_example_only(place: int, cue: Cue) -> None:
    flags = written_dates.FLAGS
    matching = [re.search(other.pattern, cue.example, flags) for other, _ in relative_dates.FORMS]
    assert next(index for index, match in enumerate(matching) if match) == place
    used = matching[place]
    assert used is not None
    found = relative_dates.mentions(cue.example, today=TODAY)
    assert used.span("here") in [(each.start, each.end) for each in found]
    assert relative_dates.mentions(cue.counterexample, today=TODAY) == []


@pytest.mark.parametrize(("name", "form"), written_dates.FORMS.items())
def test_a_written_date_is_found_in_the_example_only(
    name: str, form: tuple[Cue, written_dates.Reader]
) -> None:
    cue, _ = form
    scanned = written_dates._SCAN.search(cue.example)
    assert scanned is not None
    assert scanned.lastgroup == name
    assert len(list(written_dates.single_periods(cue.example))) == 1
    assert list(written_dates.single_periods(cue.counterexample)) == []


@pytest.mark.parametrize("cue", CUES, ids=lambda cue: cue.example)
def test_a_counterexample_has_a_word_of_its_cue(cue: Cue) -> None:
    flags = re.IGNORECASE | re.ASCII
    used = re.search(cue.pattern, masked(cue.example), flags)
    assert used is not None
    words = set(WORD.findall(used[0].lower()))
    assert words & set(WORD.findall(cue.counterexample.lower()))
