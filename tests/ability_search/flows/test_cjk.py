"""Chinese, Japanese and mixed texts are found by their words alone, without an embedding model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import fmean

import pytest
from tests.ability_search.flows.conftest import Network, Start, down

from ability_search.extensions.evaluation.evaluator import per_query
from ability_search.extensions.evaluation.judged_sets import Dataset, read_dataset

DIRECTORY = Path(__file__).resolve().parents[2] / "data" / "cjk"
LIMIT = 10


@pytest.fixture
async def library(start: Start) -> AsyncIterator[tuple[Network, Dataset]]:
    """The set of ``tests/data/cjk`` in a collection ``cjk``; the embedder fails from then on."""
    dataset = read_dataset(DIRECTORY)
    async with start(SEARCH_EMBEDDING_ATTEMPTS="1") as network:
        await network.call("search-index", collection="cjk", documents=[*dataset.documents()])
        network.model.failure = down
        yield network, dataset


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
async def test_the_right_document_comes_first(library: tuple[Network, Dataset], mode: str) -> None:
    network, dataset = library
    rankings = {}
    for query in dataset.queries:
        answer = await network.call(
            "search-query", collection="cjk", query=query.text, mode=mode, limit=LIMIT
        )
        assert ("degraded" in answer) == (mode == "hybrid")
        rankings[query.id] = [hit["source"] for hit in answer["results"]]
    metrics = per_query(dataset.qrels, rankings, limit=LIMIT)
    first: dict[str | None, list[float]] = defaultdict(list)
    for query in dataset.queries:
        first[query.category].append(metrics[query.id]["Hit@1"])
    # Measured: .969, .987 and at worst .875 (one of eight traditional spellings). What is missed is
    # found among the first three.
    assert fmean(value["Hit@1"] for value in metrics.values()) >= 0.965
    assert fmean(value["nDCG@10"] for value in metrics.values()) >= 0.985
    assert {category for category, values in first.items() if fmean(values) < 0.87} == set()
    assert all(value["Hit@3"] for value in metrics.values())
