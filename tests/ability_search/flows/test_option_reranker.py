"""``reranker``: a model on the network reads the first hits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from tests.ability_search.flows.asking import Answer, assert_unchanged, search, sources
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.playing import Reader, failing, playing
from tests.ability_search.flows.test_rpc_budget import maintained

unchanged = partial(assert_unchanged, wish={"reranker": {}}, said="not reranked")


def by_number(text: str) -> float:
    """One more than the last word of a text as a share of 100."""
    return (int(text.rsplit(maxsplit=1)[-1]) + 1) / 100


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Twelve chunks about cats, the more often the lower their number; each ends in it."""
    async with start(SEARCH_RERANKER_TIMEOUT="0.5") as network:
        documents = [document(f"d{n:02}", f"{'cats ' * (13 - n)}number {n}") for n in range(12)]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


@pytest.fixture
async def reader(library: Network) -> AsyncIterator[Reader]:
    """The reranker of the network."""
    async with playing(library.url, Reader(score=by_number)) as reading:
        yield reading


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
async def test_the_first_hits_are_in_its_order_and_the_others_behind(
    library: Network, reader: Reader, mode: str
) -> None:
    plain = await search(library, mode=mode)
    answer = await search(library, mode=mode, reranker={"top": 5, "model": "m"}, explain=True)
    assert sources(answer) == sources(plain)[:5][::-1] + sources(plain)[5:]
    assert reader.requests[0]["model"] == "m"
    assert reader.requests[0]["query"] == "cats"
    for place, hit in enumerate(answer["results"]):
        usual = next(each for each in plain["results"] if each["chunkId"] == hit["chunkId"])
        assert hit["matchedVia"] == usual["matchedVia"]
        if place < 5:
            assert hit["score"] == hit["scores"].pop("reranker") == by_number(hit["content"])
        assert hit["scores"] == usual["scores"]
        line = hit["explain"]["reranker"]
        assert (line["before"], line["after"]) == (usual["score"], hit["score"])
    assert "warnings" not in answer
    assert answer["timings"]["reranker"] > 0


async def test_it_reads_title_headings_and_the_whole_chunk(
    library: Network, reader: Reader
) -> None:
    reader.score = len
    reader.answer = lambda answer: {
        "results": [{**row, "relevance_score": row["index"] / 9} for row in answer["results"]]
    }
    text = f"# Zebras\n\n## Stripes\n\n{'Zebras have many stripes indeed. ' * 20}"
    documents = [
        document("z", text, title="Of animals", format="markdown"),
        document("y", "Zebras are no horses", title="Zebras"),
    ]
    await library.call("search-index", collection="zoo", documents=documents)
    await search(library, collection="zoo", query="zebras stripes", reranker={})
    (body,) = {text for text in reader.texts if "indeed" in text}
    assert body.startswith("Of animals\nZebras > Stripes\n")
    assert body.count("Zebras have many stripes indeed.") == 20
    assert "Zebras are no horses" in reader.texts


async def test_pages_are_cut_from_one_list(library: Network, reader: Reader) -> None:
    whole = await search(library, reranker={"top": 4})
    pages = [
        await search(library, reranker={"top": 4}, limit=3, offset=offset)
        for offset in range(0, 12, 3)
    ]
    assert [hit for page in pages for hit in page["results"]] == whole["results"]
    assert {len(request["documents"]) for request in reader.requests} == {4}


async def test_every_page_has_the_same_hits_read(start: Start) -> None:
    async with start(SEARCH_CANDIDATES="10") as network:
        documents = [document(f"d{n:02}", f"{'cats ' * (31 - n)}number {n}") for n in range(30)]
        await network.call("search-index", collection="docs", documents=documents)
        async with playing(network.url, Reader(score=by_number)):
            plain = await search(network, limit=20)
            pages = [
                await search(network, limit=10, offset=offset, reranker={"top": 20})
                for offset in (0, 10, 20)
            ]
    read = sorted(sources(plain))
    assert [source for page in pages[:2] for source in sources(page)] == read[::-1]
    assert not {*sources(pages[2])} & {*read}


@pytest.mark.engine
async def test_what_is_read_for_it_is_not_read_again(library: Network, reader: Reader) -> None:
    await search(library)
    await maintained(library)
    for mode, hops in (
        ("hybrid", ["create-embedding", "arcade-query"]),
        ("keyword", ["arcade-index-search"]),
    ):
        await search(library, mode=mode, reranker={"top": 20})
        asked = library.hops()
        # The texts to read are more than those of a page, which came with the candidates.
        assert asked[: len(hops)] == hops
        assert asked[len(hops) :] in ([], ["arcade-query"])


async def test_scores_of_nothing_leave_room_behind_them(library: Network, reader: Reader) -> None:
    reader.score = lambda text: 1.0 if text.endswith("3") else 0.0
    plain = await search(library)
    answer = await search(library, reranker={"top": 6})
    assert sources(answer)[0] == "d03"
    assert sorted(sources(answer)[1:6]) == ["d00", "d01", "d02", "d04", "d05"]
    assert sources(answer)[6:] == sources(plain)[6:]
    scores = [hit["score"] for hit in answer["results"]]
    assert scores[5] > scores[6] > scores[7] > 0


async def test_several_collections_are_read_together(library: Network, reader: Reader) -> None:
    documents = [document(f"e{n}", f"{'cats ' * (n % 7)}word {n}") for n in range(50, 54)]
    await library.call("search-index", collection="more", documents=documents)
    answer = await search(library, collection=["docs", "more"], reranker={"top": 16}, limit=16)
    (request,) = reader.requests
    assert len(request["documents"]) == 16
    assert sources(answer)[:5] == ["e53", "e52", "e51", "e50", "d11"]
    assert [hit["collection"] for hit in answer["results"][3:5]] == ["more", "docs"]
    top = await search(library, collection="*", reranker={"top": 3}, limit=16)
    assert [len(request["documents"]) for request in reader.requests] == [16, 3]
    assert [("reranker" in hit["scores"]) for hit in top["results"]] == [True] * 3 + [False] * 13


async def test_what_is_filtered_or_excluded_is_never_sent(library: Network, reader: Reader) -> None:
    answer = await search(
        library,
        reranker={"top": 50},
        excludeSources=["d0[0-4]"],
        filter={"source": {"$ne": "d11"}},
    )
    assert sources(answer) == ["d10", "d09", "d08", "d07", "d06", "d05"]
    assert len(reader.texts) == 6


async def test_the_floor_on_the_cosine_comes_first(library: Network, reader: Reader) -> None:
    plain = await search(library, minScore=0.9)
    answer = await search(library, minScore=0.9, reranker={})
    assert 0 < len(reader.texts) == len(plain["results"]) < 12
    assert sorted(sources(answer)) == sorted(sources(plain))


async def test_without_hits_nobody_is_asked(library: Network, reader: Reader) -> None:
    answer = await search(library, query="unheardof", mode="keyword", reranker={})
    assert answer["results"] == []
    assert reader.requests == []


def no_scores(_answer: Answer) -> Any:
    return {"results": []}


def alike(answer: Answer) -> Any:
    return {"results": [{**row, "relevance_score": 0.5} for row in answer["results"]]}


@pytest.mark.parametrize("broken", [no_scores, alike, failing])
@pytest.mark.parametrize("collection", ["docs", ["docs"]])
async def test_a_reranker_of_no_use_leaves_everything_as_it_was(
    library: Network, reader: Reader, broken: Callable[[Answer], Any], collection: Any
) -> None:
    reader.answer = broken
    await unchanged(library, collection=collection)


async def test_a_slow_reranker_is_not_waited_for(library: Network, reader: Reader) -> None:
    reader.gate = asyncio.Event()
    warning = await unchanged(library)
    assert "0.5 s" in warning
    reader.gate.set()


async def test_without_a_reranker_on_the_network(library: Network) -> None:
    warning = await unchanged(library)
    assert "serves a reranker" in warning
