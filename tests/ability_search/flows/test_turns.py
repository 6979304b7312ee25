"""Turns of a conversation are found by what was said before them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.ability_search.flows.asking import sources
from tests.ability_search.flows.conftest import Network, document

from kadi_client import ToolError

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


LOG = [
    {"role": "Ann", "content": "Where did you spend the holiday with Melanie?"},
    {"role": "Bob", "content": "Lisbon, the weather was lovely", "time": "2026-05-01T10:30:00Z"},
    {"role": "Ann", "content": "The car needs a new tyre"},
    {"role": "Ann", "content": "Caroline paints in the evening"},
]


async def test_the_turns_of_a_conversation_have_a_speaker_a_time_and_a_context(
    network: Network,
) -> None:
    log = {"source": "chat.jsonl", "title": "Chat", "content": "\n".join(map(json.dumps, LOG))}
    given = {"collection": "talks", "documents": [log | {"format": "conversation"}]}
    indexed = await network.call("search-index", **given)
    assert (indexed["chunks"], indexed["failed"]) == (4, [])
    assert (await network.call("search-index", **given))["unchanged"] == 1
    await network.call("search-reindex", collection="talks")

    async def asked(query: str, **options: Any) -> list[Any]:
        answer = await network.call("search-query", collection="talks", query=query, **options)
        return [hit["metadata"].get("turn") for hit in answer["results"]]

    assert await asked("holiday with Melanie", mode="keyword") == [1, 2, 3]
    assert await asked("weather", filter={"metadata.speaker": "Bob"}) == [2]
    answer = await network.call("search-query", collection="talks", query="Lisbon weather", limit=1)
    (hit,) = answer["results"]
    assert hit["content"] == "Bob: Lisbon, the weather was lovely"
    assert hit["metadata"] == {"speaker": "Bob", "turn": 2, "time": "2026-05-01T10:30:00Z"}
    shorter = {"title": "Chat", "content": json.dumps(LOG[0]), "format": "conversation"}
    await network.call(
        "search-index", collection="talks", documents=[{"source": "chat.jsonl"} | shorter]
    )
    assert await asked("Lisbon weather holiday") == [1]
    wrong = {"source": "x", "title": "", "content": "hello", "format": "conversation"}
    with pytest.raises(ToolError, match="documents.0.content: is not a conversation"):
        await network.call("search-index", collection="talks", documents=[wrong])
