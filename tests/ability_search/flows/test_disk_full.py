"""A database whose disk is full refuses documents, answers queries and deletes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.ability_search.flows.conftest import Network, document

from kadi_localnet.database.disk_space import MIB, DiskSpace

pytestmark = pytest.mark.engine


async def test_a_full_disk_is_named_and_nothing_acknowledged_is_lost(network: Network) -> None:
    first = document("a", "words of the first document")
    await network.call("search-index", collection="docs", documents=[first])
    network.engine._space = DiskSpace(Path(), 100 * MIB, free=lambda: 50 * MIB)

    large = document("b", "many other words " * 40_000)
    with pytest.raises(Exception, match="the disk of the database is full") as refused:
        await network.call("search-index", collection="docs", documents=[large])
    assert "Free disk space" in str(getattr(refused.value, "hint", refused.value))

    found = await network.call("search-query", collection="docs", query="words", mode="keyword")
    assert [hit["source"] for hit in found["results"]] == ["a"]
    deleted = await network.call("search-delete", collection="docs", source="a")
    assert deleted["deleted"] == 1
    info = await network.call("search-collection-info", collection="docs")
    assert info["chunks"] == 0
