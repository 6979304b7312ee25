"""A worker's cache of collection records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.contract.stored_records import record_row, record_rows

from ability_search.collection import Collection, checked_name, new_type, type_created_at
from ability_search.errors import DatabaseUnavailable, InvalidInput, NotFound, StatementRefused
from ability_search.store.arcadedb.rows import record_of
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.records import Searched
from ability_search.store.registry import Registry
from ability_search.store.stored_collections import collection_of

DOCS = Collection(
    name="docs",
    type="Chunk_docs_1",
    generation=1,
    model="m",
    dimensions=4,
    language="english",
    average_length=50.0,
    chunk_strategy="auto",
    chunk_size=500,
    chunk_overlap=50,
    revision=3,
)


class Stored:
    """A store that knows nothing but records of collections."""

    def __init__(self, *collections: Collection) -> None:
        self.collections = {each.name: each for each in collections}
        self.reads = 0
        self.failure: Exception | None = None

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        found = self.collections.values()
        names = next((value for value in params.values() if isinstance(value, list)), None)
        return record_rows(*(each for each in found if names is None or each.name in names))

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        return []


def test_a_record_is_read_as_it_was_written() -> None:
    full = replace(DOCS, tokens_min=1, tokens_max=9, graph=True, created_at=1, updated_at=2)
    for stored in (full, DOCS):
        assert collection_of(record_of(record_row(stored))) == stored


def test_a_record_that_is_being_built_has_the_public_name_of_its_collection() -> None:
    assert replace(DOCS, name="docs@1f").public_name == "docs"


def test_a_type_tells_when_it_was_made() -> None:
    now = 1_790_000_000_123
    assert type_created_at(new_type("a_b.c-0", now=now)) == now
    assert type_created_at("Chunk") is None
    assert type_created_at("Chunk_docs_1") is None


def test_no_two_generations_share_a_type() -> None:
    assert (
        len({new_type(name, now=7) for name in ("a.b", "a_b", "a.b", "A.b") for _ in range(50)})
        == 200
    )


@pytest.mark.parametrize("name", ["", "a b", "a:b", "-a", "a" * 65, "a/b", "a\n", "docs@1"])
def test_names_outside_the_alphabet_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="collection"):
        checked_name(name)


async def test_a_known_collection_is_not_asked_for_again() -> None:
    store = Stored(DOCS)
    registry = Registry(ArcadeStore(store))
    assert await registry.find("docs") == await registry.find("docs") == DOCS
    assert store.reads == 1


async def test_a_missing_collection_is_not_found_with_the_nearest_names() -> None:
    registry = Registry(
        ArcadeStore(Stored(DOCS, replace(DOCS, name="dogs"), replace(DOCS, name="xyz")))
    )
    with pytest.raises(NotFound) as caught:
        await registry.get("docgs")
    assert set(caught.value.nearest) == {"docs", "dogs"}


async def test_generations_being_built_are_not_listed() -> None:
    registry = Registry(ArcadeStore(Stored(DOCS, replace(DOCS, name="docs@1f"))))
    assert await registry.all() == [DOCS]


@pytest.mark.parametrize("reason", ["missing_database", "missing_type"])
async def test_without_a_database_there_are_no_collections(reason: str) -> None:
    store = Stored()
    store.failure = StatementRefused(reason, "")
    assert await Registry(ArcadeStore(store)).all() == []
    assert await Registry(ArcadeStore(store)).find("docs") is None


async def test_a_database_that_does_not_answer_is_no_empty_list() -> None:
    store = Stored()
    store.failure = DatabaseUnavailable("gone")
    with pytest.raises(DatabaseUnavailable):
        await Registry(ArcadeStore(store)).all()


async def test_an_answer_that_was_overtaken_does_not_undo_what_is_known() -> None:
    registry = Registry(ArcadeStore(Stored()))
    newer = replace(DOCS, revision=5)
    registry.learn("docs", newer)
    assert registry.learn("docs", DOCS) == newer
    moved = replace(DOCS, type="Chunk_docs_2", revision=1)
    assert registry.learn("docs", moved) == moved
    assert registry.learn("docs", None) is None


async def test_a_question_follows_the_collection_to_its_new_generation() -> None:
    moved = replace(DOCS, type="Chunk_docs_2", generation=2)
    asked: list[str] = []

    async def ask(current: Collection) -> Searched:
        asked.append(current.type)
        return Searched(moved, {current.type: []})

    found = await Registry(ArcadeStore(Stored(moved))).consult(DOCS, ask)
    assert found == (moved, Searched(moved, {"Chunk_docs_2": []}))
    assert asked == ["Chunk_docs_1", "Chunk_docs_2"]


async def test_a_refusal_because_the_generation_is_gone_is_asked_of_the_current_one() -> None:
    moved = replace(DOCS, type="Chunk_docs_2", generation=2)

    async def ask(current: Collection) -> Searched:
        if current.type == DOCS.type:
            raise StatementRefused("other", "no buckets associated")
        return Searched(moved, {})

    found = await Registry(ArcadeStore(Stored(moved))).consult(DOCS, ask)
    assert found == (moved, Searched(moved, {}))
    assert await Registry(ArcadeStore(Stored())).consult(DOCS, ask) is None
    with pytest.raises(StatementRefused, match="refused"):
        await Registry(ArcadeStore(Stored(DOCS))).consult(DOCS, ask)
