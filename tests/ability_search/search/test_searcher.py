"""Queries over the store in memory, through the whole pipeline."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from ability_search.config.loader import load_settings
from ability_search.documents import Document, Vector
from ability_search.errors import EmbeddingUnavailable, NotFound
from ability_search.index.index_fields import IndexFields
from ability_search.ports import Chat, RerankerPort
from ability_search.search.response import QueryResult
from ability_search.search.similar import similar
from ability_search.store.memory import MemoryStore
from ability_search.store.values import Count, Counted, Page, Read
from ability_search.tools.calls import Services
from ability_search.tools.inputs import QueryInput
from ability_search.worker import build_services

TEXTS = {
    "apples": "Apples grow on trees in the orchard.",
    "pears": "Pears grow on trees beside the apples.",
    "harbour": "Ships leave the harbour at night.",
    "storm": "The harbour was closed on 2021-03-10 because of a storm.",
}


class Words:
    """An embedder: texts that share words point the same way. It can be told to fail."""

    failing = False

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        if self.failing:
            raise EmbeddingUnavailable("nobody embeds")
        vectors = np.full((len(texts), 32), 0.01, np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                vector[blake2b(word.encode()).digest()[0] % 32] += 1
        unit: Vector = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


async def unreported(*_progress: object) -> None:
    """Nobody listens."""


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
async def services(tmp_path: Path, words: Words) -> Services:
    settings = load_settings({"HOME": str(tmp_path), "SEARCH_EMBEDDING_MODEL": "words"}, tmp_path)
    nobody = cast(Any, None)
    built = build_services(
        settings,
        MemoryStore(),
        words,
        cast(RerankerPort, nobody),
        cast(Chat, nobody),
        base=tmp_path,
    )
    for name in ("docs", "notes"):
        documents = [
            Document(source=source, title=source, content=text) for source, text in TEXTS.items()
        ]
        await built.indexing.index(name, documents, IndexFields(), unreported)
    return built


async def asked(services: Services, text: str, **options: Any) -> QueryResult:
    given = {"collection": "docs", "query": text} | options
    return await services.queries.answer(QueryInput.model_validate(given))


def sources(result: QueryResult) -> list[str]:
    return [hit.source for hit in result.results]


@pytest.mark.parametrize("mode", ["hybrid", "semantic", "keyword"])
async def test_the_text_with_the_words_is_first(services: Services, mode: str) -> None:
    result = await asked(services, "ships leave at night", mode=mode, limit=2)
    assert sources(result)[0] == "harbour"
    assert result.mode == mode
    assert result.results[0].collection is None


async def test_options_change_the_ranking(services: Services) -> None:
    scores = [
        {hit.source: hit.score for hit in (await asked(services, text)).results}
        for text in ("harbour", "harbour besides ships at night")
    ]
    lost = {source: 1 - scores[1][source] / scores[0][source] for source in ("harbour", "storm")}
    assert lost["harbour"] > 0.2
    assert lost["storm"] < 0.1
    dated = await asked(services, "harbour in March 2021", limit=1)
    assert sources(dated) == ["storm"]
    assert dated.understood is not None
    assert dated.understood.start == "2021-03-01"
    rule = {"source": {"weight": 9, "rules": {"priority": "pears"}}}
    assert sources(await asked(services, "apples trees", rerank=rule, limit=1)) == ["pears"]
    diverse = await asked(services, "apples trees", diversity=0.2, graph={}, prf=True, explain=True)
    assert diverse.explain is not None
    assert {"feedback", "diversity"} & diverse.timings.keys() == {"diversity"}


async def test_hits_of_several_collections_are_merged(services: Services) -> None:
    result = await asked(services, "ships at night", collection=["docs", "notes", "none"], limit=2)
    assert {hit.collection for hit in result.results} == {"docs", "notes"}
    assert sources(result) == ["harbour", "harbour"]
    assert result.warnings is not None
    assert result.warnings[0].startswith("none: ")


@pytest.mark.parametrize("collection", ["docs", ["docs", "notes"]])
async def test_search_is_repeated_if_hits_were_replaced_before_they_were_read(
    services: Services, monkeypatch: pytest.MonkeyPatch, collection: str | list[str]
) -> None:
    expected = await asked(services, "ships at night", mode="keyword", collection=collection)
    read, reads = MemoryStore.read, list[int]()

    async def replaced_once(
        store: MemoryStore, asks: Sequence[Read | Count]
    ) -> list[Page | Counted]:
        reads.append(len(asks))
        answers = await read(store, asks)
        if len(reads) > 1:
            return answers
        return [replace(each, items=[]) for each in answers if isinstance(each, Page)]

    monkeypatch.setattr(MemoryStore, "read", replaced_once)
    found = await asked(services, "ships at night", mode="keyword", collection=collection)
    assert found.results == expected.results
    assert len(reads) > 1


async def test_hybrid_query_without_an_embedder_is_degraded(
    services: Services, words: Words
) -> None:
    words.failing = True
    result = await asked(services, "ships at night", limit=1)
    assert sources(result) == ["harbour"]
    assert result.degraded is not None
    assert (result.degraded.mode, result.degraded.code) == ("keyword", "embedding_unavailable")
    with pytest.raises(EmbeddingUnavailable):
        await asked(services, "ships at night", mode="semantic")


async def test_similar_chunks_leave_out_the_chunk_itself(services: Services) -> None:
    result = await similar(services.queries, "docs", "docs:apples:0", limit=2, shown=bool)
    assert result.source_chunk == "docs:apples:0"
    assert [hit.source for hit in result.results][0] == "pears"
    assert result.count == 2
    with pytest.raises(NotFound):
        await similar(services.queries, "docs", "docs:apples:9", shown=bool)


@pytest.mark.parametrize(("limit", "at_once"), [(10, 4), (1000, 1)])
async def test_the_deeper_the_searches_of_a_query_the_fewer_run_at_a_time(
    services: Services, monkeypatch: pytest.MonkeyPatch, limit: int, at_once: int
) -> None:
    search, running, most = MemoryStore.search, 0, 0
    all_begun = asyncio.Event()

    async def counted(*given: Any, **options: Any) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == at_once:
            all_begun.set()
        await all_begun.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        running -= 1
        return await search(*given, **options)

    monkeypatch.setattr(MemoryStore, "search", counted)
    async with asyncio.timeout(60):
        found = await asked(
            services, "apples", collection=["docs", "notes"], queries=["fruit"], limit=limit
        )
    assert found.count == 8
    assert most == at_once
