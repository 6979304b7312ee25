"""``maxResultTokens``: what fits into a budget."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.ability_search.flows.asking import MODES
from tests.ability_search.flows.conftest import Network

from ability_search.text.token_counter import EstimatedTokens

TEXTS = {
    "best": "Cats cats cats. Cats sit.",
    "long": "Cats cats. " + "The dog runs over the hill and far away. " * 40,
    "short": "Cats and birds.",
    "shorter": "Cats, dogs, cows.",
}
SMALLEST = 400
"""Tokens that hold the first hit without its text."""


def tokens(value: Any) -> int:
    return EstimatedTokens().count(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


@pytest.fixture
async def library(network: Network) -> AsyncIterator[Network]:
    documents = [{"source": source, "title": "", "content": text} for source, text in TEXTS.items()]
    await network.call("search-index", collection="docs", documents=documents)
    yield network


async def ask(network: Network, **options: Any) -> dict[str, Any]:
    asked = {"collection": "docs", "query": "cats", "mode": "keyword", **options}
    answer: dict[str, Any] = await network.call("search-query", **asked)
    return answer


@pytest.mark.parametrize("mode", MODES)
async def test_the_whole_answer_is_within_the_budget(library: Network, mode: str) -> None:
    plain = await ask(library, mode=mode)
    every = [hit["chunkId"] for hit in plain["results"]]
    for details in ({}, {"explain": True, "highlights": True, "expand": "neighbors"}):
        for most in (SMALLEST, 450, 500, 600, 800, 1000, 2000, 4000):
            answer = await ask(library, mode=mode, maxResultTokens=most, **details)
            budget = answer["budget"]
            assert budget["maxTokens"] == most
            assert tokens(answer) <= most
            assert budget["tokens"] == pytest.approx(tokens(answer), abs=12)
            shown = [hit["chunkId"] for hit in answer["results"]]
            assert answer["count"] == len(shown) >= 1
            assert shown == [chunk for chunk in every if chunk in shown]
            left_out = [cut for cut in budget["cut"] if cut["what"] == "hit"]
            assert len(shown) + len(left_out) + budget.get("unnamed", 0) >= len(every)
    assert tokens(await ask(library, mode=mode, maxResultTokens=1)) <= SMALLEST


async def test_what_fits_takes_the_place_of_what_does_not(library: Network) -> None:
    plain = await ask(library, maxResultTokens=100_000)
    long = next(hit for hit in plain["results"] if hit["source"] == "long")
    answer = await ask(library, maxResultTokens=plain["budget"]["tokens"] - 200)
    assert {hit["source"] for hit in answer["results"]} == {"best", "short", "shorter"}
    assert answer["budget"]["cut"] == [
        {"chunkId": "docs:long:0", "tokens": pytest.approx(tokens(long), abs=2), "what": "hit"}
    ]
    assert answer["budget"]["truncated"] is False
    assert all("truncated" not in hit for hit in answer["results"])


async def test_the_first_hit_is_cut_at_a_sentence(library: Network) -> None:
    answer = await ask(library, query="hill", maxResultTokens=500)
    (hit,) = answer["results"]
    assert TEXTS["long"].startswith(hit["content"])
    assert hit["content"].endswith("far away.")
    assert hit["truncated"] is True
    assert answer["budget"]["truncated"] is True
    assert (answer["budget"]["cut"], answer["budget"]["unnamed"]) == ([], 1)


async def test_what_fits_whole_is_whole(library: Network) -> None:
    plain = await ask(library, highlights=True)
    answer = await ask(library, highlights=True, maxResultTokens=10_000)
    assert answer["results"] == plain["results"]
    assert answer["budget"]["cut"] == []
    assert answer["budget"].keys() == {"maxTokens", "tokens", "cut", "truncated"}
    assert answer["timings"]["total"] >= answer["timings"]["maxResultTokens"] > 0
    assert "budget" not in plain


async def test_no_hits_leave_nothing_out(library: Network) -> None:
    answer = await ask(library, query="unicorns", maxResultTokens=5)
    assert answer["results"] == []
    assert answer["budget"]["cut"] == []


async def test_context_and_metadata_go_before_their_hit(network: Network) -> None:
    content = "\n\n".join(f"Paragraph {n} about the animal{n} in the house." for n in range(9))
    await network.call(
        "search-index",
        collection="docs",
        documents=[
            {"source": "a", "title": "", "content": content, "metadata": {"notes": "word " * 99}}
        ],
        chunkStrategy="paragraph",
        maxTokens=16,
    )
    asked = {"query": "animal4", "expand": {"window": 2}, "limit": 1}
    plain = await ask(network, **asked, maxResultTokens=100_000)
    (whole,) = plain["results"]
    size = plain["budget"]["tokens"] + 20
    around, notes = tokens(whole["context"]), tokens(whole["metadata"])
    for most, what, gone in (
        (size, None, set()),
        (size - around // 2 - 60, "context", {"context"}),
        (size - around - notes // 2 - 60, "metadata", {"context", "metadata"}),
    ):
        answer = await ask(network, **asked, maxResultTokens=most)
        assert [cut["what"] for cut in answer["budget"]["cut"]] == [what] * bool(what)
        (hit,) = answer["results"]
        assert {name for name in whole if not hit.get(name) and whole[name]} == gone


async def test_one_budget_for_several_collections(library: Network) -> None:
    await library.call(
        "search-index",
        collection="more",
        documents=[{"source": "x", "title": "", "content": "Cats everywhere."}],
    )
    answer = await ask(library, collection="*", maxResultTokens=500)
    assert tokens(answer) <= 500
    chunks = [hit["chunkId"] for hit in answer["results"]]
    chunks += [item["chunkId"] for item in answer["budget"]["cut"]]
    assert len(chunks) == len(set(chunks)) == 5 - answer["budget"].get("unnamed", 0)


async def test_it_explains_how_large_each_hit_is(library: Network) -> None:
    answer = await ask(library, maxResultTokens=100_000, explain=True)
    for hit in answer["results"]:
        told = hit["explain"].pop("maxResultTokens")
        assert told == {"tokens": pytest.approx(tokens(hit), abs=5)}
