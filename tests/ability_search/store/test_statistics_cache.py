"""Term statistics from their log."""

from __future__ import annotations

import random

from ability_search.store.statistics_cache import EMPTY, TermStatisticsEntry, advanced
from ability_search.text.term_statistics import TermStatistics

Chunk = tuple[list[int], list[int]]


def counted(chunks: list[Chunk]) -> TermStatistics:
    return TermStatistics.of_chunks([ids for ids, _ in chunks], [length for _, length in chunks])


def random_log(chance: random.Random, length: int) -> tuple[list[TermStatisticsEntry], list[Chunk]]:
    """A log of replacements, and the chunks that are left after it."""
    live: list[Chunk] = []
    log = []
    for seq in range(1, length + 1):
        gone = [live.pop(chance.randrange(len(live))) for _ in range(min(len(live), 2))]
        new = [
            (sorted(chance.sample(range(40), 5)), [1, chance.randint(1, 30)])
            for _ in range(chance.randint(0, 4))
        ]
        live += new
        log.append(
            TermStatisticsEntry(
                revision=seq,
                base=False,
                added=counted(new).to_bytes() if new else None,
                removed=[ids for ids, _ in gone],
                removed_lengths=[lengths for _, lengths in gone],
            )
        )
    return log, live


def test_a_log_read_at_once_or_step_by_step_equals_a_recount() -> None:
    log, live = random_log(random.Random(1), 80)
    assert advanced(EMPTY, log, 80).statistics == counted(live)
    known = EMPTY
    for entry in log:
        known = advanced(known, [entry], entry.revision)
    assert known.statistics == counted(live)
    assert known.revision == 80


def test_a_base_record_stands_for_everything_before_it_whatever_was_known() -> None:
    log, live = random_log(random.Random(2), 60)
    folded = advanced(EMPTY, log[:40], 40).statistics
    base = TermStatisticsEntry(40, True, folded.to_bytes(), [], [])
    early = advanced(EMPTY, log[:10], 10)
    assert advanced(early, [base, *log[40:]], 60).statistics == counted(live)
    assert advanced(EMPTY, [base, *log[40:]], 60).statistics == counted(live)


def test_without_news_only_the_revision_moves_on() -> None:
    known = advanced(EMPTY, [], 7)
    assert (known.revision, known.statistics) == (7, EMPTY.statistics)
