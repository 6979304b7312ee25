"""Migration of data that the earlier TypeScript ability stored."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.conftest import (
    DIMENSIONS,
    MODEL,
    Network,
    document,
    word_vector,
)
from tests.ability_search.flows.legacy import chunk, command, migration_of, source, write_legacy
from tests.ability_search.flows.stored import assert_consistent, chunks, rows

from ability_search.errors import (
    DatabaseUnavailable,
    EarlierLayout,
    EmbeddingUnavailable,
    NotFound,
)
from ability_search.extensions.migration import migration
from ability_search.extensions.migration.legacy_data import check_migrated
from ability_search.extensions.migration.migration import Migration
from ability_search.extensions.migration.survey import State, Survey
from kadi_client import RemoteError

pytestmark = pytest.mark.engine

TEXTS = {
    "guide.md": ("The otter swims in the river.", "A badger sleeps under the hill.\n\nSoundly."),
    "http://host:80/a:b": ("Pelicans carry fish.",),
    "O'Brien \\ notes.txt": ("Walrus and whale.", "The whale sings.", "The walrus does not."),
}
HIDDEN = {"SEARCH_DATABASE_GRACE_PERIOD": "0"}


def stored(collection: str) -> list[dict[str, Any]]:
    return [row for name, texts in TEXTS.items() for row in source(collection, name, *texts)]


async def migrate(migration: Migration) -> Survey:
    """Do what the command does, without being asked."""
    return await migration.perform(lambda _old: None)


@pytest.fixture(autouse=True)
def _served(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """The models of the network can be listed."""

    async def served(_ports: object) -> set[str]:
        return set(network.model.models)

    monkeypatch.setattr(migration, "served_models", served)


async def legacy_rows(network: Network, kind: str) -> int:
    (row,) = await rows(network, f"SELECT count(*) AS n FROM {kind}")
    return int(row["n"])


async def test_a_worker_that_meets_the_earlier_layout_names_the_command(network: Network) -> None:
    await write_legacy(network, stored("docs"))
    for tool, given in (
        ("search-collections", {}),
        ("search-query", {"collection": "docs", "query": "otter"}),
        ("search-index", {"collection": "docs", "documents": [document("a", "Text.")]}),
    ):
        refusal = await network.refused(tool, **given)
        assert (refusal["code"], refusal["retryable"]) == ("database_unavailable", False), tool
        assert "TypeScript" in refusal["error"]
        assert "ability-search migrate" in refusal["hint"]
    assert await legacy_rows(network, "Chunk") == 6
    kinds = await rows(network, "SELECT name, type FROM schema:types")
    assert [(row["name"], row["type"]) for row in kinds] == [("Chunk", "document")]


@pytest.mark.slow
async def test_its_collections_answer_in_all_modes_with_their_own_embeddings(
    network: Network, tmp_path: Path
) -> None:
    await write_legacy(network, [*stored("docs"), *source("notes", "n", "A single note.")])
    survey = await migrate(migration_of(network, tmp_path))
    outcomes: list[tuple[str, State, Any]] = [
        ("docs", State.MOVED, pytest.approx(1.0, abs=1e-5)),
        ("notes", State.MOVED, pytest.approx(1.0, abs=1e-5)),
    ]
    assert [(each.name, each.state, each.similarity) for each in survey.collections] == outcomes
    assert len(network.model.texts) == 5, "nothing but four chunks of docs and one of notes"
    moved = await assert_consistent(network, "docs")
    assert (moved.chunks, moved.sources, moved.model, moved.dimensions) == (6, 3, MODEL, DIMENSIONS)
    for row in await chunks(network, "docs"):
        expected = word_vector(row["content"])
        assert np.allclose(row["embedding"], expected / np.linalg.norm(expected), atol=1e-5)
        assert row["content"] == TEXTS[row["source"]][row["chunkIndex"]]
        assert (row["title"], row["metadata"]) == (f"Title of {row['source']}", {"lang": "en"})
    for mode in ("hybrid", "semantic", "keyword"):
        found = await network.call(
            "search-query",
            collection="docs",
            query="pelicans fish",
            mode=mode,
            filter={"metadata.lang": "en"},
        )
        (hit, *_) = found["results"]
        assert hit["chunkId"] == "docs:http://host:80/a:b:0", mode
        assert hit["createdAt"].startswith("2025-03-04T05:06:07")
    listed = await network.call("search-collections")
    assert [each["name"] for each in listed["collections"]] == ["docs", "notes"]


async def test_doctor_names_data_that_is_not_migrated_or_still_kept(
    network: Network, tmp_path: Path
) -> None:
    client: Any = SimpleNamespace(connection=network.client, settings=network.settings)
    assert await check_migrated(client) == ""
    await write_legacy(network, stored("docs"))
    with pytest.raises(EarlierLayout):
        await check_migrated(client)
    await migrate(migration_of(network, tmp_path))
    assert "kept as LegacyChunk" in await check_migrated(client)


async def test_rows_that_do_not_fit_into_a_message_are_read_in_parts(
    network: Network, tmp_path: Path
) -> None:
    def narrow(_tool: str, given: Mapping[str, Any]) -> None:
        if "totalChunks" in given.get("query", "") and len(given["params"]["rids"]) > 1:
            raise RemoteError("the answer is too large")

    await write_legacy(network, stored("docs"))
    network.faults.append(narrow)
    await migrate(migration_of(network, tmp_path))
    assert (await assert_consistent(network, "docs")).chunks == 6


@pytest.mark.slow
async def test_what_was_moved_is_reindexed_and_indexed_like_anything_else(
    network: Network, tmp_path: Path
) -> None:
    await write_legacy(network, stored("docs"))
    await migrate(migration_of(network, tmp_path))
    answer = await network.call("search-reindex", collection="docs")
    assert answer["documents"] == 3
    await assert_consistent(network, "docs")
    texts = {row["source"]: row["content"] for row in await chunks(network, "docs")}
    assert texts["guide.md"] == "\n\n".join(TEXTS["guide.md"])
    same = [document(name, "\n\n".join(parts)) for name, parts in TEXTS.items()]
    first = await network.call("search-index", collection="docs", documents=same)
    again = await network.call("search-index", collection="docs", documents=same)
    assert (first["updated"], again["unchanged"]) == (3, 3)
    await assert_consistent(network, "docs")


@pytest.mark.slow
async def test_a_survey_changes_nothing_and_says_what_cannot_be_moved_and_why(
    network: Network, tmp_path: Path
) -> None:
    def wrong(name: str, **other: Any) -> dict[str, Any]:
        return chunk("docs", name, 0, f"Text of {name}.", **other)

    nulls = [None, *([0.5] * (DIMENSIONS - 1))]
    odd = [
        wrong("none", embedding=None),
        wrong("nulls", embedding=nulls),
        wrong("zeros", embedding=[0.0] * DIMENSIONS),
        wrong("short", embedding=[0.5, 0.5]),
        wrong("blank", content=" \n"),
        wrong("again", chunkId="docs:again:0"),
        wrong("again", chunkId="docs:again:0b"),
        wrong("gap", chunkIndex=3, totalChunks=5),
        wrong("", chunkId="x"),
        chunk("my docs/ä", "s", 0, "Some text.", metadata={"n": 1}),
        chunk("my docs/ö", "s", 0, "Other text."),
        chunk("only-bad", "s", 0, "Bad text.", embedding=None),
        {"chunkId": "lost", "content": "Of no collection."},
    ]
    await write_legacy(network, [*stored("docs"), *odd], strict=False)
    old = migration_of(network, tmp_path, prefix="old.")
    before = await rows(network, "SELECT name FROM schema:types")
    survey = await old.plan()
    assert survey.rows == len(stored("docs")) + len(odd)
    assert await rows(network, "SELECT name FROM schema:types") == before
    assert survey.unassigned == {"no collection": 1}
    by_name = {each.name: each for each in survey.collections}
    docs = by_name["docs"]
    assert (docs.becomes, docs.chunks, docs.sources, docs.incomplete) == ("old.docs", 8, 5, 1)
    assert docs.left_out == {
        "no embedding": 1,
        "an embedding with values that are not numbers": 1,
        "an embedding of zeros": 1,
        f"an embedding of 2 dimensions instead of {DIMENSIONS}": 1,
        "no text": 1,
        "no source": 1,
        "a chunk index that another chunk of its source has": 1,
    }
    assert {by_name[name].becomes for name in ("my docs/ä", "my docs/ö")} == {
        "old.my-docs-ä",
        "old.my-docs-ö",
    }
    bad = by_name["only-bad"]
    assert (bad.state, bad.chunks, bad.left_out) == (State.REFUSED, 0, {"no embedding": 1})
    await migrate(old)
    assert (await assert_consistent(network, "old.docs")).chunks == 8
    assert (await assert_consistent(network, "old.my-docs-ä")).chunks == 1


async def test_chunks_without_a_usable_embedding_get_one_when_asked(
    network: Network, tmp_path: Path
) -> None:
    await write_legacy(
        network,
        [
            *stored("docs"),
            chunk("docs", "none", 0, "Flamingo.", embedding=None),
            chunk("docs", "short", 0, "Ostrich.", embedding=[0.5, 0.5]),
            chunk("bare", "s", 0, "Lynx.", embedding=None),
        ],
        strict=False,
    )
    old = migration_of(network, tmp_path, embed=True)

    def fail(_asked: dict[str, Any]) -> None:
        raise RemoteError("away")

    network.model.failure = fail
    with pytest.raises(EmbeddingUnavailable):
        await old.plan()
    network.model.failure = None
    network.model.texts.clear()
    survey = await migrate(migration_of(network, tmp_path, embed=True))
    assert [(each.name, each.embedded_again, each.state) for each in survey.collections] == [
        ("bare", 1, State.MOVED),
        ("docs", 2, State.MOVED),
    ]
    assert {"Flamingo.", "Ostrich.", "Lynx."} <= set(network.model.texts)
    for name, word, place in (("docs", "ostrich", "short"), ("bare", "lynx", "s")):
        await assert_consistent(network, name)
        found = await network.call(
            "search-query", collection=name, query=word, mode="semantic", limit=1
        )
        assert found["results"][0]["source"] == place


async def test_another_model_than_the_one_that_made_the_embeddings_is_noticed(
    network: Network, tmp_path: Path
) -> None:
    network.model.models["small"] = 8
    await write_legacy(network, stored("docs"))
    survey = await migration_of(network, tmp_path, model="small").plan()
    (docs,) = survey.collections
    assert docs.state is State.REFUSED
    assert docs.reason == (
        f"the model of its embeddings of {DIMENSIONS} dimensions is not small (8 dimensions):"
        " serve it, or name it with --model"
    )


def rolled(answer: dict[str, Any]) -> dict[str, Any]:
    """Turn the vectors of the model ``twin``."""
    if answer["model"] == "twin":
        for each in answer["data"]:
            vector = np.frombuffer(base64.b64decode(each["embedding"]), "<f4")
            each["embedding"] = base64.b64encode(np.roll(vector, 1).tobytes()).decode()
    return answer


@pytest.mark.slow
async def test_each_collection_gets_the_model_that_made_its_embeddings(
    network: Network, tmp_path: Path
) -> None:
    """The configured model is one of several; the vectors decide, and what fits none stays."""
    network.model.models |= {"small": 8, "twin": DIMENSIONS}
    network.model.rewrite = rolled
    texts = ("The otter swims in the river.", "Pelicans carry fish.", "The whale sings.")
    made: dict[str, Callable[[str], np.ndarray]] = {
        "by-small": lambda text: word_vector(text)[:8],
        "by-twin": lambda text: np.roll(word_vector(text), 1),
        "lost": lambda text: np.array([1.0, len(text), 2.0]),
    }
    written = [
        chunk(name, "s", n, text, embedding=embed(text).tolist())
        for name, embed in made.items()
        for n, text in enumerate(texts)
    ]
    await write_legacy(network, [*stored("docs"), *written], strict=False)
    survey = await migrate(migration_of(network, tmp_path))
    assert {each.name: (each.state, each.model) for each in survey.collections} == {
        "docs": (State.MOVED, MODEL),
        "by-small": (State.MOVED, "small"),
        "by-twin": (State.MOVED, "twin"),
        "lost": (State.REFUSED, ""),
    }
    (lost,) = (each for each in survey.collections if each.name == "lost")
    assert "small (8 dimensions)" in lost.reason
    for name in ("docs", "by-small", "by-twin"):
        await assert_consistent(network, name)
        found = await network.call("search-query", collection=name, query="whale", mode="semantic")
        assert found["results"]


async def test_another_database_is_read_only_and_a_taken_name_is_left_alone(
    network: Network, tmp_path: Path
) -> None:
    old = f"{network.settings.database.name}_old"
    await write_legacy(network, stored("docs"), database=old)
    await network.call("search-index", collection="docs", documents=[document("a", "Mine.")])
    survey = await migrate(migration_of(network, tmp_path, database=old))
    (docs,) = survey.collections
    assert (docs.state, docs.reason) == (
        State.TAKEN,
        "a collection 'docs' exists and lacks 3 of its sources",
    )
    prefixed = migration_of(network, tmp_path, database=old, prefix="ts-")
    survey = await migrate(prefixed)
    assert (await assert_consistent(network, "ts-docs")).chunks == 6
    again = await migrate(prefixed)
    assert [each.state for each in again.collections] == [State.MOVED]
    assert [row["source"] for row in await chunks(network, "docs")] == ["a"]


async def test_nothing_is_dropped_while_the_earlier_ability_still_writes(
    network: Network, tmp_path: Path
) -> None:
    database = network.settings.database.name
    await write_legacy(network, stored("docs"))

    async def delete(*_progress: object) -> None:
        await command(network, database, "DELETE FROM Chunk WHERE source = 'guide.md'")

    with pytest.raises(DatabaseUnavailable, match="does not hold the same 4 chunks"):
        await migrate(migration_of(network, tmp_path, during=delete))
    assert (await legacy_rows(network, "Chunk"), await legacy_rows(network, "LegacyChunk")) == (
        4,
        6,
    )
    await command(network, database, "DROP TYPE LegacyChunk UNSAFE")
    old = migration_of(network, tmp_path)
    await migrate(old)
    assert (await assert_consistent(network, "docs")).chunks == 4
    assert await legacy_rows(network, "LegacyChunk") == 4
    await old.drop()
    with pytest.raises(NotFound):
        await old.plan()
    assert (await assert_consistent(network, "docs")).chunks == 4


@pytest.mark.slow
async def test_a_text_that_the_model_refuses_is_moved_and_named(
    network: Network, tmp_path: Path
) -> None:
    """As a probe of the model it counts for nothing; to be embedded, it is by its parts."""
    poison = "A poison that no model reads, and a unicorn."
    await write_legacy(
        network,
        [
            *source("docs", "first", *(f"{poison} {n}" for n in range(3)), "Pelicans carry fish."),
            chunk("docs", "bad", 0, poison, embedding=None),
            chunk("docs", "none", 0, "Flamingo.", embedding=None),
            chunk("bare", "s", 0, poison, embedding=None),
        ],
        strict=False,
    )

    def refuse(asked: dict[str, Any]) -> None:
        if any("poison" in text for text in asked["input"]):
            raise RemoteError("json: unsupported value: NaN")

    network.model.failure = refuse
    survey = await migrate(migration_of(network, tmp_path, embed=True))
    moved = {each.name: each for each in survey.collections}
    assert {name: (each.state, each.model) for name, each in moved.items()} == {
        "docs": (State.MOVED, MODEL),
        "bare": (State.MOVED, MODEL),
    }
    assert moved["docs"].similarity == pytest.approx(1.0)
    assert moved["docs"].refused.keys() == {"bad"}
    assert moved["bare"].refused.keys() == {"s"}
    assert "unsupported value" in moved["bare"].refused["s"]
    for name, place in (("docs", "bad"), ("bare", "s")):
        await assert_consistent(network, name)
        for mode in ("keyword", "hybrid"):
            found = await network.call(
                "search-query",
                collection=name,
                query="unicorn",
                mode=mode,
                filter={"source": place},
            )
            assert [hit["source"] for hit in found["results"]] == [place]
