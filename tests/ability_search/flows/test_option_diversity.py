"""``diversity``: variety among the first hits."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.asking import MODES, Hits, hits_of
from tests.ability_search.flows.conftest import Network, Start, document, down, word_vector
from tests.ability_search.flows.oracle import corpus


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Two hundred chunks; each arm contributes twenty candidates."""
    async with start(SEARCH_CANDIDATES="20") as network:
        await network.call("search-index", collection="docs", documents=corpus(200))
        yield network


async def search(network: Network, **options: Any) -> Hits:
    found = await hits_of(network, QUERY, **options)
    order = [(-hit["score"], hit["chunkId"]) for hit in found]
    assert order == sorted(order)
    return found


QUERY = " ".join(corpus(200)[3]["content"].split()[:4])


def unit(hit: dict[str, Any]) -> np.ndarray:
    title, content = hit["title"], hit["content"]
    vector = word_vector(content if content.startswith(title) else f"{title} {content}")
    vector /= np.linalg.norm(vector)
    return vector


def marginal(plain: Hits, trade_off: float, picks: int) -> list[tuple[str, float]]:
    """The paper's greedy choice, written out: picks and lambda rel - (1 - lambda) max sim."""
    left = list(plain)
    chosen: Hits = []
    scores: list[float] = []
    for pick in range(picks):
        within = [hit for hit in left if plain.index(hit) < max(30, 3 * (pick + 1))]

        def worth(hit: dict[str, Any], before: Sequence[dict[str, Any]] = tuple(chosen)) -> float:
            nearest = max((float(unit(hit) @ unit(each)) for each in before), default=0.0)
            relevance: float = hit["score"]
            return trade_off * relevance - (1 - trade_off) * nearest

        best = min(within, key=lambda hit: (-worth(hit), hit["chunkId"]))
        scores.append(worth(best))
        chosen.append(best)
        left.remove(best)
    return [(hit["chunkId"], score) for hit, score in zip(chosen, scores, strict=True)]


@pytest.mark.slow
async def test_hits_are_picked_by_relevance_and_novelty(library: Network) -> None:
    for mode in MODES:
        plain = await search(library, mode=mode, limit=60)
        for trade_off in (0.9, 0.5, 0.1):
            hits = await search(library, mode=mode, diversity=trade_off, limit=10, explain=True)
            expected = marginal(plain, trade_off, 10)
            assert [hit["chunkId"] for hit in hits] == [chunk_id for chunk_id, _ in expected]
            for hit, (_, criterion) in zip(hits, expected, strict=True):
                assert hit["score"] == pytest.approx(criterion + 1 - trade_off, abs=1e-4)
                assert hit["explain"]["diversity"]["after"] == hit["score"]


async def test_a_repetition_gives_way(library: Network) -> None:
    await library.call(
        "search-index",
        collection="twins",
        documents=[
            document("a", "cats cats cats cats"),
            document("b", "cats cats cats cats cats"),
            document("c", "cats and their dogs"),
        ],
    )
    asked = {"collection": "twins", "query": "cats", "mode": "semantic"}
    assert {hit["source"] for hit in await search(library, **asked, limit=2)} == {"a", "b"}
    hits = await search(library, **asked, diversity=0.3, limit=2, explain=True)
    assert hits[1]["source"] == "c"
    assert hits[0]["explain"]["diversity"]["similarity"] == 0
    assert hits[1]["explain"]["diversity"]["similarity"] == pytest.approx(
        float(unit(hits[0]) @ unit(hits[1])), abs=1e-5
    )


@pytest.mark.slow
@pytest.mark.engine
async def test_relevance_alone_changes_nothing_and_reads_nothing(library: Network) -> None:
    for mode in MODES:
        plain = await search(library, mode=mode, explain=True)
        library.calls.clear()
        assert await search(library, mode=mode, diversity=1, explain=True) == plain
        asked = [given["query"] for tool, given in library.calls if tool == "arcade-query"]
        assert not any("AS rid, embedding" in query for query in asked)


@pytest.mark.slow
async def test_pages_are_cut_from_one_list(library: Network) -> None:
    for options in ({}, {"minScore": 0.2}, {"maxPerSource": 1}):
        asked = {"diversity": 0.5, "mode": "hybrid", **options}
        whole = await search(library, **asked, limit=60)
        pages = [await search(library, **asked, limit=6, offset=n) for n in range(0, 60, 6)]
        assert [hit["chunkId"] for page in pages for hit in page] == [
            hit["chunkId"] for hit in whole
        ]


async def test_all_hits_stay_and_those_excluded_stay_away(library: Network) -> None:
    excluded = {"excludeSources": ["s00*"], "filter": {"metadata.half": 1}}
    plain = await search(library, **excluded, limit=60)
    hits = await search(library, **excluded, limit=60, diversity=0.2)
    assert {hit["chunkId"] for hit in plain} == {hit["chunkId"] for hit in hits}
    assert not any(hit["source"].startswith("s00") for hit in hits)
    assert await search(library, diversity=0.5, filter={"source": "nowhere"}) == []


async def test_without_an_embedder_the_stored_vectors_do(library: Network) -> None:
    library.model.failure = down
    hits = await search(library, diversity=0.5, limit=10)
    plain = await search(library, mode="keyword", limit=60)
    assert [hit["chunkId"] for hit in hits] == [each for each, _ in marginal(plain, 0.5, 10)]


async def test_several_collections_are_diversified_each_by_itself(library: Network) -> None:
    await library.call("search-index", collection="more", documents=corpus(50, seed=8))
    hits = await search(library, collection="*", diversity=0.5, limit=20)
    for name in ("docs", "more"):
        alone = await search(library, collection=name, diversity=0.5, limit=20)
        own = [hit["chunkId"] for hit in hits if hit["collection"] == name]
        assert own == [hit["chunkId"] for hit in alone][: len(own)]


@pytest.mark.slow
@pytest.mark.engine
async def test_where_vectors_cannot_be_read_the_order_stands(library: Network) -> None:
    def fail(tool: str, tool_input: Any) -> Any:
        if tool == "arcade-query" and "spareEmbedding) AS f1" in tool_input["query"]:
            return {"success": False, "error": "no"}
        return None

    plain = await search(library)
    library.faults.append(fail)
    answer = await library.call("search-query", collection="docs", query=QUERY, diversity=0.3)
    assert [hit["chunkId"] for hit in answer["results"]] == [hit["chunkId"] for hit in plain]
    (warning,) = answer["warnings"]
    assert "diversity was not applied" in warning
