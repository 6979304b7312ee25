"""``maxPerSource``: no source may take more than so many places."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
from tests.ability_search.flows.asking import MODES, hits_of, is_search
from tests.ability_search.flows.conftest import Network, Start

SOURCES = {"a:1": 120, "b": 40, "c": 3, "d": 1, "e": 1}
"""Chunks of each."""


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """A source that takes all of the first places, and others behind it.

    Each arm contributes ten candidates.
    """
    async with start(SEARCH_CANDIDATES="10") as network:
        await index(network, "docs")
        yield network


async def index(network: Network, name: str) -> None:
    documents = [
        {
            "source": source,
            "title": "",
            "content": "\n\n".join(
                f"# Part {n}\n\n{'cats ' * 100}{'dogs ' * (n + 130 * place)}" for n in range(count)
            ),
        }
        for place, (source, count) in enumerate(SOURCES.items())
    ]
    await network.call(
        "search-index",
        collection=name,
        documents=documents,
        chunkStrategy="markdown-headers",
        maxTokens=1000,
    )


async def test_no_source_has_more_and_the_page_is_full(library: Network) -> None:
    for mode in MODES:
        whole = await hits_of(library, mode=mode, limit=200)
        assert Counter(hit["source"] for hit in whole) == SOURCES
        assert {hit["source"] for hit in await hits_of(library, mode=mode)} == {"a:1"}
        for most in (1, 2, 3):
            hits = await hits_of(library, mode=mode, maxPerSource=most)
            expected = {source: min(count, most) for source, count in SOURCES.items()}
            counts = Counter(hit["source"] for hit in hits)
            assert len(hits) == min(10, sum(expected.values()))
            assert all(counts[source] <= most for source in counts)
            assert (
                list(dict.fromkeys(hit["source"] for hit in hits)) == list(SOURCES)[: len(counts)]
            )


async def test_of_each_source_the_best_stay(library: Network) -> None:
    whole = await hits_of(library, limit=200)
    best = [hit["chunkId"] for hit in whole if hit["source"] == "b"][:2]
    hits = await hits_of(library, maxPerSource=2, explain=True)
    assert [hit["chunkId"] for hit in hits if hit["source"] == "b"] == best
    assert [hit["explain"]["maxPerSource"]["ofSource"] for hit in hits] == [1, 2] * 3 + [1, 1]


async def test_pages_are_cut_from_one_list(library: Network) -> None:
    for mode in MODES:
        asked = {"mode": mode, "maxPerSource": 4}
        whole = await hits_of(library, **asked, limit=20)
        assert len(whole) == 4 + 4 + 3 + 1 + 1
        pages = [await hits_of(library, **asked, limit=3, offset=n) for n in range(0, 15, 3)]
        assert [hit["chunkId"] for page in pages for hit in page] == [
            hit["chunkId"] for hit in whole
        ]


async def test_a_source_of_each_collection_counts_by_itself(library: Network) -> None:
    await index(library, "other")
    hits = await hits_of(library, collection="*", maxPerSource=2, limit=30)
    counts = Counter((hit["collection"], hit["source"]) for hit in hits)
    assert counts == {
        (name, source): min(count, 2)
        for name in ("docs", "other")
        for source, count in SOURCES.items()
    }


@pytest.mark.slow
@pytest.mark.engine
async def test_it_searches_deeper_only_where_it_has_to(library: Network) -> None:
    def searches() -> int:
        found = [is_search(*call) for call in library.calls]
        library.calls.clear()
        return sum(found)

    await hits_of(library, mode="semantic")
    searches()
    await hits_of(library, mode="semantic", maxPerSource=10)
    assert searches() == 1
    await hits_of(library, mode="semantic", maxPerSource=5)
    assert searches() == 3
    await hits_of(library, mode="semantic", maxPerSource=1)
    assert searches() == 4
    await hits_of(library, mode="semantic", maxPerSource=1, filter={"source": "c"})
    assert searches() == 1


@pytest.mark.slow
@pytest.mark.engine
async def test_it_does_not_search_below_the_floor(library: Network) -> None:
    for mode in MODES:
        whole = await hits_of(library, mode=mode, limit=200)
        by = "keyword" if mode == "keyword" else "semantic"
        worst = min(hit["scores"][by] for hit in whole if hit["source"] == "b")
        floor = (
            worst
            if by == "semantic"
            else min(hit["score"] for hit in whole if hit["source"] == "b")
        )
        library.calls.clear()
        hits = await hits_of(library, mode=mode, maxPerSource=2, minScore=floor)
        assert [hit["source"] for hit in hits] == ["a:1", "a:1", "b", "b"]
        assert 1 < sum(is_search(*call) for call in library.calls) < 5


async def test_without_it_nothing_changes(library: Network) -> None:
    plain = await hits_of(library, explain=True)
    assert await hits_of(library, explain=True, maxPerSource=10) == [
        {**hit, "explain": {**hit["explain"], "maxPerSource": {"ofSource": n, "most": 10}}}
        for n, hit in enumerate(plain, start=1)
    ]


async def test_excluded_sources_do_not_fill_the_page(library: Network) -> None:
    hits = await hits_of(library, maxPerSource=1, excludeSources=["a*", "c"], minScore=-1)
    assert [hit["source"] for hit in hits] == ["b", "d", "e"]
