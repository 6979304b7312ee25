"""Term statistics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ability_search.text.term_statistics import TermStatistics


def counted(chunks: list[tuple[list[int], int]]) -> TermStatistics:
    return TermStatistics.of_chunks([ids for ids, _ in chunks], [(3, n) for _, n in chunks])


def test_counts_are_of_chunks_and_lengths_of_contents() -> None:
    statistics = counted([([1, 5], 10), ([5, 9], 20), ([], 0)])
    assert statistics.chunks == 3
    assert statistics.length == 30
    assert statistics.average_length == 10.0
    assert statistics.ids.tolist() == [1, 5, 9]
    asked = np.array([9, 0, 5, 2**30 - 1, 5, 1], np.int32)
    assert statistics.document_frequencies(asked).tolist() == [1, 0, 2, 0, 2, 1]


def test_no_chunks_have_empty_statistics() -> None:
    empty = TermStatistics.empty()
    assert counted([]) == empty
    assert empty.average_length == 0.0
    assert empty.document_frequencies(np.array([1], np.int32)).tolist() == [0]
    assert empty.document_frequencies(np.empty(0, np.int32)).shape == (0,)
    assert empty != "statistics"


CHUNKS = st.lists(
    st.tuples(st.sets(st.integers(0, 2**30 - 1), max_size=8).map(sorted), st.integers(0, 5000)),
    max_size=8,
)


@given(CHUNKS, CHUNKS, CHUNKS)
def test_merging_adds_counts_and_less_is_its_inverse(
    a: list[tuple[list[int], int]],
    b: list[tuple[list[int], int]],
    c: list[tuple[list[int], int]],
) -> None:
    together = counted(a).merged([counted(b), counted(c)])
    assert together == counted(a + b + c)
    assert together.less([counted(b), counted(c)]) == counted(a)
    assert together.less([together]) == TermStatistics.empty()
    assert together.merged([]) == together


def test_counts_never_fall_below_zero() -> None:
    left = counted([([1, 2], 10)]).less([counted([([2, 3], 4), ([2, 3], 40)])])
    assert left.ids.tolist() == [1]
    assert left.chunks == left.length == 0


@given(CHUNKS)
def test_bytes_round_trip(chunks: list[tuple[list[int], int]]) -> None:
    statistics = counted(chunks)
    data = statistics.to_bytes()
    assert TermStatistics.from_bytes(data) == statistics
    assert TermStatistics.from_bytes(data).to_bytes() == data


def test_the_encoding_is_fixed() -> None:
    data = counted([([1, 258], 7), ([258], 5)]).to_bytes()
    assert data[:24].hex() == "4b5453310200000000000000" + "0c00000000000000" + "02000000"


def test_large_statistics_are_compact() -> None:
    rng = np.random.default_rng(1)
    ids = np.unique(rng.integers(0, 2**30, 50_000)).tolist()
    statistics = TermStatistics.of_chunks([ids, ids[:100]], [(0, 1), (0, 1)])
    data = statistics.to_bytes()
    assert len(data) < 3.5 * len(ids)
    assert TermStatistics.from_bytes(data) == statistics


@pytest.mark.parametrize("cut", [0, 3, 20, 30, -1])
def test_damaged_bytes_are_rejected(cut: int) -> None:
    data = counted([([1, 2, 3], 4)]).to_bytes()
    with pytest.raises(ValueError, match="not term statistics"):
        TermStatistics.from_bytes(data[:cut])


def test_another_version_and_another_size_are_rejected() -> None:
    data = counted([([1, 2, 3], 4)]).to_bytes()
    for wrong in (
        b"KTS2" + data[4:],
        data[:20] + b"\x02" + data[21:],
        data[:20] + b"\x09" + data[21:],
    ):
        with pytest.raises(ValueError, match="not term statistics"):
            TermStatistics.from_bytes(wrong)
