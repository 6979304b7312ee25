"""IndexDoubts: which collections are in doubt after a restart, and until when."""

from __future__ import annotations

from ability_search.store.index_doubts import INCOMPLETE, UNCHECKED, IndexDoubts


def watched() -> IndexDoubts:
    doubts = IndexDoubts()
    doubts.checking = True
    return doubts


def test_a_restart_puts_all_in_doubt_until_each_is_checked() -> None:
    doubts = watched()
    assert doubts.reason("a") is None
    doubts.restarted()
    assert doubts.raised.is_set()
    assert doubts.reason("a") == doubts.reason("b") == UNCHECKED
    doubts.found("a", complete=True)
    assert (doubts.reason("a"), doubts.reason("b")) == (None, UNCHECKED)
    doubts.found("b", complete=True)
    doubts.settle({"a", "b"}, restarts=doubts.restarts)
    assert doubts.reason("a") is doubts.reason("made later") is None
    assert not doubts.pending


def test_an_incomplete_index_stays_in_doubt_until_its_generation_is_gone() -> None:
    doubts = watched()
    doubts.restarted()
    doubts.found("a", complete=False)
    doubts.settle({"a"}, restarts=doubts.restarts)
    assert doubts.reason("a") == INCOMPLETE
    doubts.settle({"b"}, restarts=doubts.restarts)
    assert doubts.reason("a") is doubts.reason("b") is None


def test_a_restart_during_the_check_makes_it_worthless() -> None:
    doubts = watched()
    doubts.restarted()
    begun = doubts.restarts
    doubts.found("a", complete=True)
    doubts.restarted()
    assert doubts.reason("a") == UNCHECKED
    doubts.settle({"a"}, restarts=begun)
    assert doubts.pending
    assert doubts.reason("a") == UNCHECKED


def test_nothing_is_in_doubt_where_nobody_checks() -> None:
    doubts = IndexDoubts()
    doubts.restarted()
    assert doubts.reason("a") is None
