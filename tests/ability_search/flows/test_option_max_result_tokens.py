"""``maxResultTokens``: what fits into a budget."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES
from tests.ability_search.flows.conftest import Network

from ability_search.text.token_counter import EstimatedTokens

TEXTS = {
    "best": "Cats cats cats. Cats sit.",
    "long": "Cats cats. " + "The dog runs over the hill and far away. " * 8,
    "short": "Cats and birds.",
    "shorter": "Cats, dogs, cows.",
}


def tokens(text: str) -> int:
    return EstimatedTokens().count(text)


@pytest.fixture
async def library(network: Network) -> AsyncIterator[Network]:
    documents = [{"source": source, "title": "", "content": text} for source, text in TEXTS.items()]
    await network.call("search-index", collection="docs", documents=documents)
    yield network


async def ask(network: Network, **options: Any) -> dict[str, Any]:
    asked = {"collection": "docs", "query": "cats", "mode": "keyword", **options}
    answer: dict[str, Any] = await network.call("search-query", **asked)
    return answer


def used(answer: dict[str, Any]) -> int:
    return sum(
        tokens(hit["content"]) + tokens(hit.get("context", {}).get("content", ""))
        for hit in answer["results"]
    )


@pytest.mark.parametrize("mode", MODES)
async def test_the_budget_holds_and_says_what_was_cut(library: Network, mode: str) -> None:
    plain = await ask(library, mode=mode)
    for most in (1, 3, 8, 12, 20, 40, 80, 100, 200):
        answer = await ask(library, mode=mode, maxResultTokens=most)
        budget = answer["budget"]
        assert budget["maxTokens"] == most
        assert budget["tokens"] == used(answer) <= most
        assert answer["count"] == len(answer["results"]) >= 1
        shown = [hit["chunkId"] for hit in answer["results"]]
        cut = [item["chunkId"] for item in budget["cut"] if item["what"] == "hit"]
        every = [hit["chunkId"] for hit in plain["results"]]
        assert sorted(shown + cut) == sorted(every)
        assert shown == [chunk for chunk in every if chunk in shown]
        assert used(answer) + sum(item["tokens"] for item in budget["cut"]) == used(plain)


async def test_what_fits_takes_the_place_of_what_does_not(library: Network) -> None:
    answer = await ask(library, maxResultTokens=25)
    sources = [hit["source"] for hit in answer["results"]]
    assert sources[0] == "best"
    assert "long" not in sources
    assert set(sources) >= {"short", "shorter"}
    assert answer["budget"] == {
        "maxTokens": 25,
        "tokens": used(answer),
        "cut": [{"chunkId": "docs:long:0", "tokens": tokens(TEXTS["long"].strip()), "what": "hit"}],
        "truncated": False,
    }
    assert all("truncated" not in hit for hit in answer["results"])


async def test_the_first_hit_is_cut_at_a_sentence(library: Network) -> None:
    answer = await ask(library, maxResultTokens=6, highlights=True)
    (hit,) = answer["results"]
    assert hit["content"] == "Cats cats cats."
    assert hit["truncated"] is True
    assert [mark["text"] for mark in hit["highlights"]] == ["Cats cats cats"]
    budget = answer["budget"]
    assert budget["truncated"] is True
    timings = answer["timings"]
    assert timings["total"] >= timings["maxResultTokens"] > 0
    assert budget["cut"][0] == {
        "chunkId": hit["chunkId"],
        "tokens": tokens(TEXTS["best"]) - tokens(hit["content"]),
        "what": "end",
    }


async def test_what_fits_whole_is_whole(library: Network) -> None:
    plain = await ask(library)
    answer = await ask(library, maxResultTokens=10_000)
    assert answer["results"] == plain["results"]
    assert answer["budget"] == {
        "maxTokens": 10_000,
        "tokens": used(plain),
        "cut": [],
        "truncated": False,
    }
    assert "budget" not in plain


async def test_no_hits_use_nothing(library: Network) -> None:
    answer = await ask(library, query="unicorns", maxResultTokens=5)
    assert answer["results"] == []
    assert answer["budget"]["tokens"] == 0


async def test_a_context_counts_and_goes_first(network: Network) -> None:
    content = "\n\n".join(f"Paragraph {n} about the animal{n} in the house." for n in range(9))
    await network.call(
        "search-index",
        collection="docs",
        documents=[{"source": "a", "title": "", "content": content}],
        chunkStrategy="paragraph",
        maxTokens=16,
    )
    asked = {"query": "animal4", "expand": {"window": 2}, "limit": 1}
    (whole,) = (await ask(network, **asked))["results"]
    own, around = tokens(whole["content"]), tokens(whole["context"]["content"])
    answer = await ask(network, **asked, maxResultTokens=own + around)
    assert answer["results"] == [whole]
    assert answer["budget"]["tokens"] == own + around
    answer = await ask(network, **asked, maxResultTokens=own + around - 1)
    (hit,) = answer["results"]
    assert hit["content"] == whole["content"]
    assert "context" not in hit
    assert answer["budget"]["cut"] == [
        {"chunkId": hit["chunkId"], "tokens": around, "what": "context"}
    ]
    answer = await ask(network, **asked, maxResultTokens=own - 1)
    assert answer["results"][0]["truncated"] is True


async def test_one_budget_for_several_collections(library: Network) -> None:
    await library.call(
        "search-index",
        collection="more",
        documents=[{"source": "x", "title": "", "content": "Cats everywhere."}],
    )
    answer = await ask(library, collection="*", maxResultTokens=14)
    assert used(answer) == answer["budget"]["tokens"] <= 14
    chunks = [hit["chunkId"] for hit in answer["results"]]
    chunks += [item["chunkId"] for item in answer["budget"]["cut"]]
    assert len(chunks) == len(set(chunks)) == 5


async def test_it_explains_how_large_each_hit_is(library: Network) -> None:
    answer = await ask(library, maxResultTokens=1000, explain=True)
    for hit in answer["results"]:
        told = hit["explain"]["maxResultTokens"]
        assert told == {"tokens": tokens(hit["content"]), "contextTokens": 0}
