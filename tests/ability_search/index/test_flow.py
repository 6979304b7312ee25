"""The indexing pipeline over stages that misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from tests.ability_search.index.ports_of import index_ports, job_of

from ability_search.collection import Recipe
from ability_search.compute_turns import ComputeTurns
from ability_search.documents import Document, Passage, Vector
from ability_search.errors import (
    DatabaseUnavailable,
    EmbeddingUnavailable,
    InvalidInput,
    SearchError,
    TextsRefused,
)
from ability_search.index.flow import Flow
from ability_search.index.index_calls import IndexJob
from ability_search.index.preparation import Prepared
from ability_search.store.memory import MemoryStore

PATIENCE = 10.0
RECIPE = Recipe("auto", 500, 0, "english", "m")


def vector_of(text: str) -> Vector:
    return np.array([len(text), sum(map(ord, text))], dtype=np.float32)


def prepared_of(document: Document, words: list[str]) -> Prepared:
    return Prepared(
        document=document,
        passages=[Passage(word, 0, len(word), 1, 1, 1) for word in words],
        title_terms=[],
        terms=[[word] for word in words],
        context_terms=[[] for _ in words],
        texts=words,
        vectors=[None] * len(words),
        missing=len(words),
    )


@dataclass
class Stages:
    """Stages that keep count; documents are cut at spaces."""

    embedded: list[list[str]] = field(default_factory=list)
    groups: list[list[str]] = field(default_factory=list)
    failed: dict[str, SearchError] = field(default_factory=dict)
    embedding: int = 0
    most_embedding: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    refuse: Callable[[list[str]], None] = lambda _texts: None
    known: set[str] = field(default_factory=set)
    """Texts that were embedded before."""
    looked_up: list[list[str]] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    reused: int = 0

    async def split(self, document: Document) -> Prepared:
        words = document.content.split()
        if "uncut" in words:
            raise InvalidInput("content", "cannot be cut")
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        prepared = prepared_of(document, words)
        if "described" in words:
            prepared.kinds = [prepared_of(document, [f"{word}!" for word in words])]
            prepared.missing *= 2
        return prepared

    async def reuse(self, texts: list[str]) -> dict[str, Vector]:
        self.looked_up.append(texts)
        return {text: vector_of(text) for text in texts if text in self.known}

    async def embed(self, texts: list[str]) -> Vector:
        self.embedding += 1
        self.most_embedding = max(self.most_embedding, self.embedding)
        await asyncio.sleep(0)
        self.embedding -= 1
        rows: list[Vector | TextsRefused] = []
        for text in texts:
            try:
                self.refuse([text])
            except TextsRefused as exc:
                rows.append(exc)
            else:
                rows.append(vector_of(text))
        self.embedded.append(texts)
        if any(isinstance(row, TextsRefused) for row in rows):
            raise TextsRefused("no", rows=rows)
        return np.array(rows)

    async def write(self, group: Sequence[Prepared]) -> None:
        for item in group:
            for part in item.parts:
                for text, vector in zip(part.texts, part.vectors, strict=True):
                    if vector is None:
                        self.left_out.append(text)
                    else:
                        assert vector.tolist() == vector_of(text).tolist()
        self.in_flight -= len(group)
        self.groups.append([item.document.source for item in group])

    async def run(
        self,
        *texts: str,
        batch_texts: int = 4,
        group_chunks: int = 10,
        group_bytes: int = 10**9,
    ) -> None:
        ports = index_ports(MemoryStore(), now=0)
        settings = replace(
            ports.settings,
            embedding=ports.settings.embedding.model_copy(
                update={"batch_texts": batch_texts, "concurrency": 2}
            ),
            database=ports.settings.database.model_copy(
                update={"write_group_chunks": group_chunks, "write_group_bytes": group_bytes}
            ),
        )
        job = job_of(replace(ports, settings=settings), None, RECIPE)
        flow = Misbehaving(job, self)
        documents = [Document(f"d{n}", "", text) for n, text in enumerate(texts)]
        try:
            async with asyncio.timeout(PATIENCE):
                await flow.run(documents)
        finally:
            self.reused = job.report.reused
            self.failed = {each.source: each.error for each in job.report.failed}

    @property
    def stored(self) -> list[str]:
        return sorted(source for group in self.groups for source in group)


class Misbehaving(Flow):
    """A flow through these stages."""

    def __init__(self, job: IndexJob, stages: Stages) -> None:
        super().__init__(job, ComputeTurns())
        self._stages = stages
        self.find_vectors, self.embed, self.write = stages.reuse, stages.embed, stages.write

    async def split(self, document: Document) -> Prepared:
        return await self._stages.split(document)


async def test_every_document_is_stored_with_its_own_vectors() -> None:
    stages = Stages()
    await stages.run(*(f"a{n} b{n} c{n}" for n in range(30)))
    assert len(stages.stored) == 30
    assert {len(batch) for batch in stages.embedded[:-1]} == {4}
    assert stages.most_embedding == 2


async def test_groups_are_closed_by_chunks_and_by_bytes() -> None:
    stages = Stages()
    await stages.run(*["a b c"] * 20, group_chunks=6)
    assert max(map(len, stages.groups)) == 2
    by_bytes = Stages()
    await by_bytes.run(*["a b c"] * 20, group_bytes=300)
    assert {len(group) for group in by_bytes.groups} == {1}


async def test_what_is_finished_during_a_write_is_the_next_group() -> None:
    stages = Stages()
    written = stages.write

    async def slow(group: Sequence[Prepared]) -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        await written(group)

    stages.write = slow  # type: ignore[method-assign]
    await stages.run(*(f"a{n}" for n in range(500)), batch_texts=64, group_chunks=500)
    first, *others = map(len, stages.groups)
    assert 100 <= first < 200
    assert others == [500 - first]


async def test_many_documents_begin_and_end_with_small_batches() -> None:
    stages = Stages()
    await stages.run(*(f"a{n}" for n in range(300)), batch_texts=64, group_chunks=500)
    sizes = [len(batch) for batch in stages.embedded]
    assert sizes == [8, 16, 32, 64, 64, 58, 29, 14, 15]
    assert [len(texts) for texts in stages.looked_up] == [24, 48, 64, 64, 64, 36]
    assert len(stages.stored) == 300


async def test_few_documents_are_one_batch() -> None:
    stages = Stages()
    await stages.run(*(f"a{n}" for n in range(60)), batch_texts=64)
    assert [len(batch) for batch in stages.embedded] == [60]
    assert [len(texts) for texts in stages.looked_up] == [60]


async def test_what_is_under_way_is_bounded_whatever_the_number_of_documents() -> None:
    stages = Stages()
    await stages.run(*(f"word{n}" for n in range(1500)), group_chunks=4)
    assert len(stages.stored) == 1500
    assert stages.most_in_flight < 400


async def test_a_document_that_cannot_be_prepared_fails_alone() -> None:
    stages = Stages()
    await stages.run("a", "uncut", "b")
    assert (stages.stored, list(stages.failed)) == (["d0", "d2"], ["d1"])


async def test_a_document_with_a_refused_text_fails_alone_though_others_share_its_batch() -> None:
    def refuse(texts: list[str]) -> None:
        if "poison" in texts:
            raise TextsRefused("no")

    stages = Stages(refuse=refuse)
    await stages.run("a b", "c poison d e f g", "h", "i j")
    assert stages.stored == ["d0", "d2", "d3"]
    assert str(stages.failed["d1"]) == "chunk 2 of 6: no"
    assert len(stages.embedded) == 3, "the other texts are not embedded again"


async def test_an_embedder_that_gives_out_ends_the_run_after_storing_what_was_complete() -> None:
    def refuse(_texts: list[str]) -> None:
        if len(stages.embedded) >= 3:
            raise EmbeddingUnavailable("down")

    stages = Stages(refuse=refuse)
    with pytest.raises(EmbeddingUnavailable, match="down"):
        await stages.run(*(f"a{n} b{n}" for n in range(40)))
    assert len(stages.embedded) == 3
    assert len(stages.stored) == 6


async def test_a_database_that_gives_out_ends_the_run_at_once() -> None:
    stages = Stages()

    async def broken(group: Sequence[Prepared]) -> None:
        raise DatabaseUnavailable("gone")

    stages.write = broken  # type: ignore[method-assign]
    with pytest.raises(DatabaseUnavailable, match="gone"):
        await stages.run(*(f"a{n}" for n in range(500)), group_chunks=2)
    assert len(stages.embedded) < 50


async def test_what_is_known_is_not_embedded_and_the_rest_fills_its_batches() -> None:
    stages = Stages(known={f"a{n}" for n in range(300)})
    await stages.run(*(f"a{n} b{n}" for n in range(300)))
    assert len(stages.stored) == stages.reused == 300
    assert {text[0] for batch in stages.embedded for text in batch} == {"b"}
    assert {len(batch) for batch in stages.embedded} == {4}
    assert max(map(len, stages.looked_up)) == 64


async def test_where_everything_is_known_the_embedder_is_not_asked_even_if_it_is_down() -> None:
    def refuse(_texts: list[str]) -> None:
        raise EmbeddingUnavailable("down")

    stages = Stages(known={"a", "b"}, refuse=refuse)
    await stages.run("a b", "b")
    assert stages.stored == ["d0", "d1"]


async def test_an_aspect_with_a_refused_text_is_left_out_and_its_document_is_stored() -> None:
    def refuse(texts: list[str]) -> None:
        if "poison!" in texts:
            raise TextsRefused("no")

    stages = Stages(refuse=refuse)
    await stages.run("a described poison b c", "d")
    assert (stages.stored, stages.failed) == (["d0", "d1"], {})
    assert "poison!" in stages.left_out
    assert {"a", "described", "poison", "b", "c"}.isdisjoint(stages.left_out)


async def test_no_documents_do_nothing() -> None:
    stages = Stages()
    await stages.run()
    assert (stages.embedded, stages.groups) == ([], [])
