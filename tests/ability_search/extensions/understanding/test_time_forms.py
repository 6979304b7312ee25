"""Every form of a time holds in the example that it is named after."""

import pytest

from ability_search.extensions.understanding import time_forms
from ability_search.extensions.understanding.periods import one_day
from ability_search.extensions.understanding.time_words import WORDS, tokens_of

TODAY = one_day(2026, 3, 25).first or 0


@pytest.mark.parametrize("example", time_forms.WRITTEN)
def test_a_date_with_its_year_is_found_in_its_example(example: str) -> None:
    tokens = tokens_of(example)
    match = time_forms._WRITTEN.search(tokens.kinds)
    assert match is not None
    assert list(time_forms.WRITTEN)[int((match.lastgroup or "").removeprefix("form"))] == example
    assert len(list(time_forms.written(tokens))) == 1


@pytest.mark.parametrize("example", time_forms.RELATIVE)
def test_a_relative_time_is_found_in_its_example(example: str) -> None:
    tokens = tokens_of(example)
    forms = [name for name, each in time_forms._RELATIVE.items() if each.search(tokens.kinds)]
    assert forms[0] == example
    assert len(time_forms.mentions(tokens, today=TODAY)) == 1


def test_no_word_has_two_meanings() -> None:
    words = [word for values in WORDS.values() for each in values.values() for word in each.split()]
    assert sorted(words) == sorted(set(words))
