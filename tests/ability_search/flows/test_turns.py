"""Turns of a conversation are found by what was said before them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.asking import sources
from tests.ability_search.flows.conftest import Network, document

TALK = {
    "talk/9": "Where did you spend the holiday with Melanie?",
    "talk/10": "Lisbon, the weather was lovely",
    "talk/11": "Great",
}
OTHERS = {"note/a": "Caroline paints in the evening", "note/b": "The car needs a new tyre"}


async def index(network: Network, texts: dict[str, str]) -> None:
    spoken = {"title": "", "metadata": {"speaker": "Ann"}}
    documents = [document(source, text) | spoken for source, text in texts.items()]
    await network.call("search-index", collection="talks", documents=documents)


async def found(network: Network, query: str, **options: Any) -> list[str]:
    answer = await network.call("search-query", collection="talks", query=query, **options)
    return sources(answer)


@pytest.mark.parametrize("mode", ["semantic", "keyword", "hybrid"])
async def test_an_answer_is_found_by_its_question(network: Network, mode: str) -> None:
    await index(network, OTHERS | TALK)
    hits = await found(network, "holiday with Melanie", mode=mode, limit=3)
    assert (hits[0], set(hits)) == ("talk/9", set(TALK))
    assert await found(network, "Caroline paints", mode="keyword") == ["note/a"]


async def test_a_turn_that_is_added_later_follows_those_that_are_stored(network: Network) -> None:
    await index(network, OTHERS | {"talk/9": TALK["talk/9"]})
    await index(network, {"talk/10": TALK["talk/10"]})
    assert await found(network, "holiday with Melanie", mode="keyword") == ["talk/9", "talk/10"]


async def test_a_reindex_keeps_the_order_of_turns(network: Network) -> None:
    await index(network, OTHERS | TALK)
    await network.call("search-reindex", collection="talks")
    assert set(await found(network, "holiday Melanie", mode="keyword")) == set(TALK)
