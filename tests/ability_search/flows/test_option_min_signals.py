"""``minSignals`` and ``minScore``: what is left out because too little speaks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
from tests.ability_search.flows.asking import ask, hits_of, search
from tests.ability_search.flows.conftest import DIMENSIONS, Network, Start, document, down

TEXTS = [f"cats {'and dogs ' * n}number{n}" for n in range(30)]


@pytest.fixture
async def library(start: Start) -> AsyncIterator[Network]:
    """Thirty chunks, of which each retriever returns ten."""
    async with start(SEARCH_CANDIDATES="10") as network:
        documents = [document(f"d{n}", text, title="") for n, text in enumerate(TEXTS)]
        await network.call("search-index", collection="docs", documents=documents)
        yield network


async def test_hits_of_too_few_retrievers_are_left_out(library: Network) -> None:
    query = "cats dogs number3"
    plain = await hits_of(library, query, limit=30)
    first = await hits_of(library, query, limit=10)
    both = {hit["source"] for hit in first if len(hit["matchedVia"]) == 2}
    assert 0 < len(both) < len(plain)
    hits = await hits_of(library, query, limit=10, minSignals=2)
    assert both <= {hit["source"] for hit in hits}
    assert all(hit["matchedVia"] == ["semantic", "keyword"] for hit in hits)
    deeper = await hits_of(library, query, limit=30, minSignals=2)
    assert [hit["source"] for hit in deeper] == [hit["source"] for hit in hits]
    assert await hits_of(library, query, limit=10, minSignals=1) == first
    assert await hits_of(library, query, minSignals=3) == []


async def test_floor_of_a_degraded_answer_is_named(library: Network) -> None:
    assert "warnings" not in await ask(library, "cats", minScore=0.1)
    library.model.failure = down
    answer = await ask(library, "cats", minScore=0.1)
    assert answer["degraded"]["mode"] == "keyword"
    (warning,) = answer["warnings"]
    assert warning.startswith("minScore: 0.1 was compared with normalized keyword scores")
    assert all(hit["score"] >= 0.1 for hit in answer["results"])
    assert "warnings" not in await ask(library, "cats", mode="keyword", minScore=0.1)
    assert "warnings" not in await ask(library, "cats")


async def test_hits_of_negative_cosine_keep_their_order(network: Network) -> None:
    rows = np.eye(DIMENSIONS, dtype=np.float32)
    vectors = {f"t{n}": (n - 4) * rows[0] + 3 * rows[1] for n in range(9)} | {"ask": rows[0]}
    network.model.vectors = vectors
    documents = [document("abcdefghi"[n], f"t{n}", title="") for n in (3, 0, 8, 1, 6, 2, 4, 7, 5)]
    await network.call("search-index", collection="docs", documents=documents)
    answer = await search(network, query="ask", mode="semantic")
    assert [hit["source"] for hit in answer["results"]] == list("ihgfedcba")
    scores = [hit["score"] for hit in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert 0 < scores[-1] < scores[4] < 0.2
    cosines = [hit["scores"]["semantic"] for hit in answer["results"]]
    assert cosines == sorted(cosines, reverse=True)
    assert cosines[-1] == pytest.approx(-0.8)
