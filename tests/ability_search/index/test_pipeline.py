"""The whole of indexing, over the store in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from ability_search.collection import Recipe
from ability_search.config.loader import load_settings
from ability_search.documents import NO_TEXT, Document, Labels, Passage, Vector
from ability_search.errors import ModelMismatch, TextsRefused
from ability_search.index.index_calls import IndexReport
from ability_search.index.index_fields import IndexFields, RebuildFields
from ability_search.index.index_ports import AddedSteps, IndexPorts
from ability_search.index.pipeline import IndexPipeline
from ability_search.index.preparation import Prepared, analyzed
from ability_search.index.stored_sources import StoredSources
from ability_search.store.memory import MemoryStore
from ability_search.store.pages import read_all
from ability_search.store.values import Chunks, Read
from ability_search.text.token_counter import EstimatedTokens
from ability_search.tools.calls import Services
from ability_search.worker import build_services


class Words:
    """An embedder that refuses what it is told to; something may happen while it is asked."""

    refused: str = ""
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        vector = np.array([0.6, 0.8, *[0.0] * len(model)], np.float32)
        rows: list[Vector | TextsRefused] = [
            TextsRefused("no") if self.refused and self.refused in text else vector
            for text in texts
        ]
        if any(isinstance(row, TextsRefused) for row in rows):
            raise TextsRefused("no", rows=rows)
        return np.array(rows)


async def unreported(*_progress: object) -> None:
    """Nobody listens."""


@pytest.fixture
def words() -> Words:
    return Words()


@pytest.fixture
def services(tmp_path: Path, words: Words) -> Services:
    settings = load_settings({"HOME": str(tmp_path), "SEARCH_EMBEDDING_MODEL": "m"}, tmp_path)
    nobody = cast(Any, None)
    return build_services(settings, MemoryStore(), words, nobody, nobody, base=tmp_path)


def documents(*sources: str) -> list[Document]:
    return [Document(source, source, f"The text of {source}.") for source in sources]


async def index(services: Services, *given: Document, **options: Any) -> IndexReport:
    return await services.indexing.index("docs", given, IndexFields(**options), unreported)


async def stored(services: Services) -> list[str]:
    page = await services.sources.page("docs", limit=100, cursor=None)
    return list(page.sources)


async def test_documents_follow_a_collection_that_is_replaced_meanwhile(
    services: Services, words: Words
) -> None:
    await index(services, *documents("old"))
    words.meanwhile = lambda: services.reindexing.clear("docs")
    report = await index(services, *documents("a", "b"))
    assert (report.added, report.failed) == (2, [])
    assert await stored(services) == ["a", "b"]


async def test_documents_are_embedded_with_the_model_of_a_generation_that_took_over(
    services: Services, words: Words
) -> None:
    async def rebuild() -> None:
        run = await services.reindexing.start("docs", RebuildFields(model="larger"))
        await run.finished()

    await index(services, *documents("old"))
    words.meanwhile = rebuild
    report = await index(services, *documents("a"))
    assert (report.model, report.dimensions, report.added) == ("larger", 8, 1)
    assert await stored(services) == ["a", "old"]
    words.meanwhile = lambda: services.reindexing.clear("docs")
    with pytest.raises(ModelMismatch):
        await index(services, *documents("b"), model="m")


def holder(source: str, *children: str, content: str = "A letter.") -> Document:
    return Document(
        source, source, content, file=True, file_hash=source.rjust(64, "0"), children=children
    )


def inside(source: str, of: str, content: str) -> Document:
    return Document(source, source, content, {"path": of}, of=of)


@pytest.mark.parametrize("content", ["A letter.", NO_TEXT])
async def test_a_file_is_stored_after_the_documents_in_it_in_whatever_order_they_are_sent(
    services: Services, content: str
) -> None:
    letter = holder("mail", "mail#1", "mail#2", content=content)
    parts = [inside(f"mail#{n}", "mail", f"Attachment {n}.") for n in (1, 2)]
    report = await index(services, letter, *parts)
    assert (report.added, report.failed) == (3 - (content == NO_TEXT), [])
    again = await index(services, letter, *parts)
    assert again.added + again.updated == 0


async def test_a_file_is_read_again_if_a_document_in_it_failed(
    services: Services, words: Words
) -> None:
    letter, part = holder("mail", "mail#1"), inside("mail#1", "mail", "A poisoned attachment.")
    words.refused = "poisoned"
    report = await index(services, letter, part)
    assert [each.source for each in report.failed] == ["mail#1"]
    assert await stored(services) == ["mail"]
    words.refused = ""
    report = await index(services, letter, part)
    assert (report.added, report.updated) == (1, 1)


class Shouting:
    """A step of an extension: each document has a part in capitals."""

    concurrency = 1
    warnings = ("shouted",)

    def __init__(self, _ports: IndexPorts, _recipe: Recipe) -> None:
        pass

    def marks(self, document: Document) -> tuple[object, ...]:
        return ("shouted", len(document.title))

    async def derive(self, prepared: Prepared) -> None:
        passage = Passage(prepared.document.content.upper(), 0, 1, 1, 1, 1)
        whole = prepared.document
        document = Document(
            "loud", "loud", passage.content, of=whole.source, content_hash=whole.content_hash
        )
        part = analyzed(document, [passage], Recipe("auto", 500, 0, "english", "m"))
        prepared.kinds = [part]
        prepared.missing += part.missing


async def test_extensions_add_steps_and_without_them_there_are_none(services: Services) -> None:
    def labelled(document: Document, _passage: Passage) -> Labels:
        return Labels([f"title={document.title}"], [1, 2])

    ports = services.ports
    chosen = AddedSteps(
        check_markdown=[lambda source, _text: [f"{source} is Markdown"]],
        label=[labelled],
        derive=[Shouting],
    )
    text = Document("a.md", "a", "# A title\n\nSome text.", format="markdown")
    for added, warnings in ((AddedSteps(), []), (chosen, ["a.md is Markdown", "shouted"])):
        more = IndexPorts(
            ports.store,
            ports.registry,
            ports.embedder,
            ports.chat,
            ports.settings,
            EstimatedTokens(),
            ports.now,
            added=added,
        )
        indexing = IndexPipeline(more, StoredSources(more))
        report = await indexing.index("docs", [text], IndexFields(), unreported)
        assert report.warnings == warnings
        assert not report.unchanged, "what steps depend on is part of the hash"
    assert await stored(services) == ["a.md", "loud"]
    collection = await services.ports.registry.get("docs")
    (chunk,) = await read_all(ports.store, Read(Chunks(sources=["a.md"]), collection))
    assert ("title=a" in chunk.facets, list(chunk.dates)) == (True, [1, 2])
