"""Prefixes of the texts for the embedding model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, document
from tests.ability_search.flows.stored import record

E5 = "intfloat/multilingual-e5-small"
OWN = {"SEARCH_EMBEDDING_QUERY_PREFIX": "ask:", "SEARCH_EMBEDDING_PASSAGE_PREFIX": "tell:"}


async def index(network: Network, **options: Any) -> None:
    await network.call(
        "search-index", collection="docs", documents=[document("a", "cats")], **options
    )


async def texts_of_query(network: Network, **options: Any) -> list[str]:
    network.model.texts.clear()
    await network.call("search-query", collection="docs", query="cats", **options)
    return network.model.texts


async def test_queries_and_passages_get_the_prefixes_of_the_model(start: Start) -> None:
    async with start(SEARCH_EMBEDDING_MODEL=E5) as network:
        await index(network)
        assert network.model.texts == ["passage: a\ncats"]
        assert await texts_of_query(network) == ["query: cats"]
        assert await texts_of_query(network, hypotheticalAnswer="dogs") == ["passage: dogs"]


@pytest.mark.slow
@pytest.mark.engine
async def test_prefixes_hold_for_the_generation_that_was_built_with_them(start: Start) -> None:
    async with start(database="prefixes") as network:
        await index(network)
        assert network.model.texts == ["a\ncats"]
    async with start(database="prefixes", **OWN) as network:
        await network.call("search-index", collection="docs", documents=[document("b", "dogs")])
        assert network.model.texts == ["b\ndogs"]
        assert await texts_of_query(network) == ["cats"]
        network.model.texts.clear()
        await network.call("search-reindex", collection="docs")
        assert {"tell: a\ncats", "tell: b\ndogs"} <= set(network.model.texts)
        assert await texts_of_query(network) == ["ask: cats"]
        rebuilt = await record(network, "docs")
        assert rebuilt.model_input == (MODEL, "ask: ", "tell: ")
