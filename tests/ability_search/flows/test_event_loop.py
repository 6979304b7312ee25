"""Long texts and large answers do not hold the event loop."""

from __future__ import annotations

from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network
from tests.loop_watch import LONG, loop_watched

MOST_STEPS = 40_000
"""Calls of functions in some twenty milliseconds."""
BRIEF = {
    "bounded_batches.py:batches",
    "bounded_batches.py:text_bytes",
    "embedder.py:_RefusedTexts.get",
    "exclusions.py:without",
    "intent.py:_outside",
    "pipeline.py:QueryPipeline.parse.<locals>.<genexpr>",
    "query.py:phrased",
    "wire.py:_not_blank",
}
"""Functions that take a millisecond for the longest text of a query, or hand it on."""
TEXTS = {
    "words": "word and other " * 10_000,
    "one word": "x" * 150_000,
    "accents": "a" + "\u0301\u0323" * 60_000,
    "headings": "\n".join(f"# Heading {n} " + "of words " * 4 for n in range(2_500)),
    "chat": "\n".join(f"[-] Ann: I said {n}" for n in range(8_000)),
    "JSON": "[" + ",".join(f'{{"a": {n}}}' for n in range(12_000)) + "]",
    "code": "\n".join(f"def f{n}():\n    return {n}\n" for n in range(6_000)),
}
MORE = [
    pytest.param(name, marks=pytest.mark.process)
    for name in ("one word", "accents", "headings", "chat")
]
STRATEGIES = [
    "auto",
    pytest.param("sliding-window", marks=pytest.mark.process),
    pytest.param("semantic", marks=pytest.mark.process),
]


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", ["words", "JSON", "code", *MORE])
async def test_a_long_document_is_read_in_a_thread(
    network: Network, name: str, strategy: str
) -> None:
    text = TEXTS[name]
    assert len(text) > LONG
    asked = {"collection": "docs", "chunkStrategy": strategy}
    given = {"source": "a", "title": "t", "content": text}
    with loop_watched() as watch:
        answer = await network.call("search-index", documents=[given], **asked)
        assert answer["added"] == 1
        again = await network.call("search-index", documents=[given], **asked)
        assert again["unchanged"] == 1
    assert watch.readers == set()
    assert watch.steps < MOST_STEPS, watch.where


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize(
    "options",
    [
        {"explain": True},
        *(
            pytest.param(options, marks=pytest.mark.process)
            for options in (
                {"queries": [f"said {n}" for n in range(7)], "explain": True},
                {"highlights": True, "expand": "neighbors"},
                {"maxResultTokens": 100_000, "diversity": 0.5},
                {"mode": "keyword", "decay": {"halfLifeDays": 1}, "understand": False},
            )
        ),
    ],
)
async def test_a_large_answer_is_built_in_a_thread(
    network: Network, options: dict[str, Any]
) -> None:
    said = "\n".join(f"[-] Ann{n % 7}: I said {n} to him" for n in range(1_500))
    documents = [{"source": "chat", "title": "t", "content": said, "format": "conversation"}]
    await network.call("search-index", collection="docs", documents=documents)
    asked = {"collection": "docs", "query": "what did I say to him", "limit": 1000, **options}
    with loop_watched() as watch:
        answer = await network.call("search-query", **asked)
    assert answer["count"] > 300
    assert watch.steps < MOST_STEPS, watch.where


@pytest.mark.slow
@pytest.mark.engine
async def test_a_long_query_is_read_in_a_thread(network: Network) -> None:
    documents = [{"source": f"a{n}", "title": "t", "content": f"word {n}"} for n in range(30)]
    await network.call("search-index", collection="docs", documents=documents)
    text = "word and other besides last March " * 3_000
    assert len(text) > LONG
    asked = {"collection": "docs", "query": text, "queries": [text + "1"], "highlights": True}
    with loop_watched() as watch:
        await network.call("search-query", **asked)
    assert watch.readers <= BRIEF
    assert watch.steps < MOST_STEPS, watch.where
