"""The language of what is indexed: the stemmer, and the model that does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import record
from tests.ability_search.text.test_languages import TEXTS

ENGLISH_MODEL = {"SEARCH_EMBEDDING_MODEL": "all-MiniLM-L6-v2"}


async def index(network: Network, text: str, **options: Any) -> Any:
    documents = [document("a", TEXTS[text] * 2)]
    return await network.call("search-index", collection="docs", documents=documents, **options)


async def test_the_stemmer_is_that_of_the_first_documents(start: Start) -> None:
    async with start() as network:
        answer = await index(network, "de")
        assert "warnings" not in answer
        assert (await record(network, "docs")).language == "german"
        found = await network.call(
            "search-query", collection="docs", query="Sicherung", mode="keyword"
        )
        assert found["count"] == 1
        more = [document("b", TEXTS["fr"])]
        await network.call("search-index", collection="docs", documents=more)
        assert (await record(network, "docs")).language == "german"


async def test_a_language_that_is_given_wins(start: Start) -> None:
    async with start() as network:
        await index(network, "de", language="dutch")
        assert (await record(network, "docs")).language == "dutch"


async def test_a_language_that_was_not_clear_at_first_is_warned_about(start: Start) -> None:
    async with start() as network:
        call = "search-index"
        answer = await network.call(call, collection="docs", documents=[document("a", "Ja!")])
        assert "warnings" not in answer
        more = [document("b", TEXTS["de"] * 2)]
        answer = await network.call(call, collection="docs", documents=more)
        (warning,) = answer["warnings"]
        assert "language german" in warning
        await network.call("search-reindex", collection="docs", language="german")
        more = [document("c", TEXTS["de"] * 3)]
        answer = await network.call(call, collection="docs", documents=more)
        assert "warnings" not in answer


@pytest.mark.engine
async def test_a_model_that_does_not_fit_is_warned_about(start: Start) -> None:
    async with start(**ENGLISH_MODEL) as network:
        answer = await index(network, "zh")
        (warning,) = answer["warnings"]
        assert "all-MiniLM-L6-v2 is a model for English" in warning
        assert "Chinese" in warning
        info = await network.call("search-collection-info", collection="docs")
        assert (info["language"], info["warnings"]) == ("none", [warning])
        (listed,) = (await network.call("search-collections"))["collections"]
        assert listed["warnings"] == [warning]
        await network.call("search-reindex", collection="docs", model="multilingual-e5-small")
        info = await network.call("search-collection-info", collection="docs")
        assert (info["language"], info.get("warnings")) == ("none", None)
        assert (await record(network, "docs")).content_language == "zh"
