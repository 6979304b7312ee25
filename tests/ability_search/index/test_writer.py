"""The writer over a store that answers as it is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tenacity import wait_none
from tests.ability_search.index.ports_of import index_ports, job_of
from tests.contract.stored_records import record_row, record_rows

from ability_search.collection import Collection, Recipe, new_collection
from ability_search.documents import Document
from ability_search.errors import (
    DatabaseUnavailable,
    DimensionMismatch,
    GenerationGone,
    SearchError,
    StatementRefused,
)
from ability_search.index.index_calls import IndexReport
from ability_search.index.preparation import Prepared, chunk_records, prepare
from ability_search.index.writer import expected_length, prepared_bytes, write
from ability_search.store.arcadedb import database, rows
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.records import chunk_bytes
from ability_search.text.token_counter import EstimatedTokens
from kadi_client.messages import encode

RECIPE = Recipe("paragraph", 32, 8, "english", "m")
DOCS = new_collection("docs", RECIPE, dimensions=4, average_length=50.0, now=1)


def prepared_of(text: str, *, dimensions: int = 4, **fields: Any) -> Prepared:
    document = Document("s", "t", text, content_hash="h", **fields)
    item = prepare(document, RECIPE, count=EstimatedTokens())
    item.vectors = [np.ones(dimensions, dtype=np.float32) for _ in item.passages]
    return item


class Scripted:
    """A store whose writes fail or answer as given, or, with ``None``, do all."""

    def __init__(
        self, record: Collection | None, *outcomes: SearchError | Mapping[str, Any] | None
    ) -> None:
        self.record = record
        self.outcomes = list(outcomes)
        self.written: list[Mapping[str, Any]] = []
        self.after_failure: Callable[[], None] = lambda: None

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        return record_rows(*([self.record] if self.record else []))

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        self.written.append(params)
        if self.outcomes and (outcome := self.outcomes.pop(0)):
            if not isinstance(outcome, SearchError):
                return outcome
            self.after_failure()
            raise outcome
        if "sources" not in params:
            return {"refused": None, "at": 1, "record": []}
        if self.record is None or params["type"] != self.record.type:
            return {"revision": None}
        return {
            "revision": 1,
            "deleted": 0,
            "inserted": len(params["chunks"]) + params["stagedRows"],
            "replaced": 0,
            "collection": [record_row(self.record)],
        }


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LONG_PAUSE", wait_none())


async def written(
    store: Scripted,
    *group: Prepared,
    into: Collection | None = DOCS,
    message_bytes: int = 10**6,
) -> IndexReport:
    ports = index_ports(ArcadeStore(store, message_bytes=message_bytes, now=lambda: 1), now=1)
    job = job_of(ports, into, RECIPE)
    await write(job, group)
    return job.report


@pytest.mark.parametrize(
    "failure",
    [
        DatabaseUnavailable("gone"),
        StatementRefused("conflict", "lost"),
        StatementRefused("duplicate", "a concurrent writer was faster"),
    ],
    ids=str,
)
async def test_a_transaction_is_tried_again_after_a_passing_failure(failure: SearchError) -> None:
    store = Scripted(DOCS, failure, failure)
    report = await written(store, prepared_of("words"))
    assert (report.added, report.chunks) == (1, 1)
    assert len(store.written) == 3


async def test_a_refusal_of_the_live_generation_is_not_tried_again() -> None:
    store = Scripted(DOCS, StatementRefused("other", "no"))
    with pytest.raises(StatementRefused):
        await written(store, prepared_of("words"))
    assert len(store.written) == 1


@pytest.mark.parametrize("failures", [[], [StatementRefused("other", "no buckets associated")]])
async def test_what_is_for_another_generation_is_not_stored(failures: list[SearchError]) -> None:
    moved = replace(DOCS, type="Chunk_docs_2")
    store = Scripted(DOCS if failures else moved, *failures)
    store.after_failure = lambda: setattr(store, "record", moved)
    with pytest.raises(GenerationGone):
        await written(store, prepared_of("words"))
    assert [params["type"] for params in store.written] == [DOCS.type]


@pytest.mark.parametrize("change", [{"model": "other"}, {"language": "german"}], ids=str)
async def test_a_collection_that_another_worker_created_otherwise_is_not_written_to(
    change: dict[str, str],
) -> None:
    created = replace(DOCS, **change)  # type: ignore[arg-type]
    taken = {"refused": 0, "at": 1, "record": [record_row(created)]}
    store = Scripted(created, None, taken)
    with pytest.raises(GenerationGone):
        await written(store, prepared_of("words"), into=None)
    assert all("sources" not in params for params in store.written)


async def test_one_vector_of_another_length_refuses_the_group() -> None:
    store = Scripted(DOCS)
    with pytest.raises(DimensionMismatch) as caught:
        await written(store, prepared_of("words"), prepared_of("more", dimensions=3))
    assert caught.value.received == 3
    assert store.written == []


async def test_what_does_not_fit_into_the_message_is_staged_in_parts_that_do() -> None:
    text = "\n\n".join(f"paragraph {n} " + "word " * 20 for n in range(40))
    store = Scripted(DOCS)
    report = await written(store, prepared_of(text), message_bytes=8000)
    *parts, last = store.written
    assert len(parts) > 3
    assert all(len(encode(part)) <= 8000 for part in parts)
    assert last["chunks"] == []
    assert last["stagedRows"] == sum(len(part["rows"]) for part in parts) == report.chunks
    assert {row["token"] for part in parts for row in part["rows"]} == set(last["staged"])


@pytest.mark.parametrize(
    ("text", "metadata"),
    [
        ("word " * 200, {}),
        ("漢字" * 200, {"k": "v" * 5000}),
        ("a\n" * 300, {"list": list(range(300))}),
        ("x", {}),
        (" ".join(f"2026-{n % 12 + 1:02}-{n % 28 + 1:02}" for n in range(300)), {}),
        (" ".join(f"in {1900 + n}-{1920 + n}," for n in range(60)), {}),
    ],
    ids=["prose", "cjk", "lines", "tiny", "days", "years"],
)
def test_estimated_bytes_are_no_less_than_the_real_ones(text: str, metadata: Any) -> None:
    item = prepared_of(text, dimensions=64, metadata=metadata)
    chunks = chunk_records(item, replace(DOCS, dimensions=64), now=10**12)
    stored = list(map(rows.chunk_row, chunks))
    for chunk, row in zip(chunks, stored, strict=True):
        assert chunk_bytes(chunk) >= len(encode(row))
    assert prepared_bytes(item) >= len(encode(stored))


def test_the_expected_length_leans_on_a_typical_one_while_little_is_known() -> None:
    few = expected_length([prepared_of("fox")])
    many = expected_length([prepared_of("\n\n".join(["fox " * 25] * 200))])
    assert 90 < few < 100
    assert many < 40
