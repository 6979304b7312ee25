"""Sources whose metadata was stored before its limit existed: a page of it fits into no message."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import bound_answers

from ability_search.index import preparation

SOURCES = 6
ROOM = 2_500_000
"""Bytes of the database's largest answer: less than the metadata of three sources."""
QUERIES: tuple[dict[str, Any], ...] = (
    {"limit": 1},
    {"limit": 10},
    {"mode": "keyword"},
    {"mode": "semantic", "expand": {"mode": "neighbors"}},
    {"decay": {"field": "metadata.day"}},
    {"rerank": {"metadata.long": {"rules": {"contains": "x"}}}},
    {"diversity": 0.5},
    {"maxPerSource": 1},
)


async def filled(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store sources with much metadata, and one with a little; then bound the answers."""
    with monkeypatch.context() as earlier:
        for check in ("check_size", "_check_stored"):
            earlier.setattr(preparation, check, lambda *_: None)
        for n in range(SOURCES):
            metadata = {"day": "2026-01-01", "n": n, "long": f"{n}" + "x" * 900_000}
            given = [old(n, metadata)]
            answer = await network.call("search-index", collection="docs", documents=given)
            assert not answer["failed"]
    few = old(SOURCES, {"day": "2026-01-02"})
    await network.call("search-index", collection="docs", documents=[few])
    bound_answers(network, ROOM)


def old(n: int, metadata: dict[str, Any]) -> dict[str, Any]:
    return document(f"d{n}", f"cats and number{n}", metadata=metadata)


@pytest.mark.engine
async def test_what_has_old_metadata_is_found_listed_and_deleted(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as network:
        await filled(network, monkeypatch)
        for options in QUERIES:
            answer = await network.call(
                "search-query", collection="docs", query="cats number1", **options
            )
            assert answer["results"], options
            omitted = [hit for hit in answer["results"] if hit.get("metadataOmitted")]
            assert all(hit["metadata"] == {} for hit in omitted)
            assert bool(omitted) == any(
                "metadata left out" in w for w in answer.get("warnings", ())
            )
        whole = await network.call(
            "search-query", collection="docs", query="cats", limit=20, filter={"metadata.n": 3}
        )
        assert [hit["source"] for hit in whole["results"]] == ["d3"]
        few = await network.call("search-query", collection="docs", query=f"number{SOURCES}")
        (hit,) = (hit for hit in few["results"] if hit["source"] == f"d{SOURCES}")
        assert hit["metadata"] == {"day": "2026-01-02"}
        assert "metadataOmitted" not in hit

        for start_at in ({"chunkId": "docs:d1:0"}, {"source": "d1"}):
            similar = await network.call("search-similar", collection="docs", **start_at, limit=20)
            assert similar["count"] == SOURCES
            assert similar["sourceChunk"] == "docs:d1:0"

        info = await network.call("search-collection-info", collection="docs", limit=100)
        assert len(info["sources"]) == SOURCES + 1
        again = [old(n, {"day": "2026-01-03"}) for n in range(SOURCES)]
        replaced = await network.call("search-index", collection="docs", documents=again[:3])
        assert replaced["updated"] == 3
        names = [each["source"] for each in again[3:]]
        deleted = await network.call("search-delete", collection="docs", sources=names)
        assert deleted["deleted"] == 3
        after = await network.call("search-query", collection="docs", query="cats", limit=20)
        assert after["count"] == 4
        assert "warnings" not in after
