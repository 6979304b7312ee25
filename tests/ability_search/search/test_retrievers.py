"""From the rows of the retrievers to candidates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from tests.ability_search.search.values import candidates_of, query_of
from tests.contract.stored_records import record_row

from ability_search.collection import Collection, Recipe, new_collection
from ability_search.compute_turns import ComputeTurns
from ability_search.errors import DatabaseUnavailable, NotFound, StatementRefused
from ability_search.filters.tree import Exists, Field
from ability_search.search.candidates import Candidate, Candidates
from ability_search.search.retrievers import pooled, retrieve
from ability_search.search.stage import Ports
from ability_search.search.wants import FurtherSearch, SearchRequest
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.records import Row
from ability_search.store.registry import Registry
from ability_search.text.bm25 import QueryTerms

DOCS = new_collection(
    "docs", Recipe("auto", 500, 0, "english", "m"), dimensions=2, average_length=10.0, now=1
)


def row(name: str, **scores: float) -> dict[str, Any]:
    return {"rid": f"#{name}", "chunkId": name, **scores}


def plan(*, vector: bool = True, terms: bool = True) -> SearchRequest:
    return SearchRequest(
        [1.0, 0.0] if vector else None,
        QueryTerms((1,), (1.0,), 1.0) if terms else None,
        depths=(10,),
    )


class Fake:
    """A store that refuses scripts which contain one of some texts."""

    def __init__(self, *refused: str, record: Collection | None = DOCS) -> None:
        self.refused = refused
        self.record = record
        self.scripts: list[str] = []
        self.params: list[Mapping[str, Any]] = []

    async def read(self, script: str, params: Mapping[str, Any]) -> Any:
        self.scripts.append(script)
        self.params.append(params)
        if any(text in script for text in self.refused):
            raise StatementRefused("other", "no")
        records = [record_row(self.record)] if self.record else []
        if "LET" not in script:
            return records
        return {
            "clock": [{"ms": 1}],
            "a0": records,
            "collection": records,
            "unindexed": [],
            "later": records,
            "semantic": [row("a", score=0.9)] if "semantic_v" in params else None,
            "keyword": [row("b", score=3.0)] if "keyword_i" in params else None,
            "dated": [row("c", score=0.7)] if "dated_v" in params else None,
        }

    async def search(self, request: Mapping[str, Any]) -> None:
        """Offer statements only."""

    async def write(self, script: str, params: Mapping[str, Any]) -> Any:
        raise AssertionError("searching writes nothing")


def found_row(name: str, score: float, rid: str | None = None, **columns: Any) -> Row:
    return Row(rid or f"#{name}", name, score, columns)


async def find(database: Fake, wanted: SearchRequest, *, scan_below: int = 100) -> Candidates:
    store = ArcadeStore(database, scan_below=scan_below)
    ports = cast(
        Ports, SimpleNamespace(store=store, registry=Registry(store), turns=ComputeTurns())
    )
    candidates = replace(candidates_of(query_of(), wanted), collection=database.record or DOCS)
    assert await retrieve(candidates, ports)
    return candidates


def pool(**lists: list[Row]) -> list[Candidate]:
    return pooled(lists, DOCS, plan().depths)


def test_each_chunk_occurs_once_with_the_scores_of_both_retrievers() -> None:
    cosines = (("a", 0.9), ("b", 0.5), ("c", 0.5))
    semantic = [found_row(name, cosine, cosine=cosine) for name, cosine in cosines]
    keyword = [found_row("b", 4.0, cosine=0.5), found_row("d", 1.0, cosine=0.1)]
    found = {item.chunk_id: item for item in pool(semantic=semantic, keyword=keyword)}
    assert list(found) == ["a", "b", "c", "d"]
    assert found["a"].ranks == {"semantic": 1}
    assert found["b"].ranks == {"semantic": 2, "keyword": 1}
    assert (found["b"].cosine, found["b"].bm25) == (0.5, 4.0)
    assert found["c"].ranks == {"semantic": 3}
    assert found["d"].ranks == {"keyword": 2}
    assert found["d"].cosine == 0.1


def test_replaced_chunk_counts_as_found_last() -> None:
    old, new = found_row("a", 0.9), found_row("a", 4.0, "#new", cosine=0.3)
    (item,) = pool(semantic=[old], keyword=[new])
    assert (item.handle, item.cosine, item.bm25, item.ranks) == ("#new", 0.3, 4.0, {"keyword": 1})


@given(order=st.permutations(["semantic", "dated", "keyword", "fullText"]), ranks=st.data())
def test_candidate_has_the_columns_of_all_searches_that_found_it(
    order: list[str], ranks: st.DataObject
) -> None:
    """A deeper search must not hide what another told."""
    told: dict[str, dict[str, Any]] = {name: {"cosine": 0.5, name: 1.0} for name in order}
    found = order[: ranks.draw(st.integers(1, 4))]
    lists = {
        name: [
            *(found_row(f"{name}{n}", 9.0) for n in range(ranks.draw(st.integers(0, 30)))),
            Row("#a", "a", 0.5, told[name]),
        ]
        for name in found
    }
    (item,) = (each for each in pooled(lists, DOCS, (10, 20, 40)) if each.chunk_id == "a")
    assert {name: item.columns.get(name) for name in found} == dict.fromkeys(found, 1.0)
    assert (item.cosine, item.values) == (0.5, dict.fromkeys(found, 0.5))


def test_no_rows_give_no_candidates() -> None:
    assert pool(semantic=[], keyword=[]) == []


async def test_both_retrievers_run_in_one_statement() -> None:
    store = Fake()
    found = await find(store, plan())
    assert [item.chunk_id for item in found.found] == ["a", "b"]
    assert found.failed == {}
    assert len(store.scripts) == 1


async def test_vector_is_sent_once() -> None:
    store, wanted = Fake(), plan()
    await find(store, wanted)
    (params,) = store.params
    assert [name for name, value in params.items() if value == wanted.vector] == ["semantic_v"]


@pytest.mark.parametrize(
    ("refused", "lost", "kept"),
    [("sparseNeighbors", "keyword", "a"), ("ORDER BY", "semantic", "b")],
)
async def test_refused_retriever_leaves_the_other(refused: str, lost: str, kept: str) -> None:
    found = await find(Fake(refused), plan())
    assert [item.chunk_id for item in found.found] == [kept]
    assert list(found.failed) == [lost]


async def test_retrievers_that_fail_only_together_are_kept() -> None:
    found = await find(Fake("ORDER BY score DESC LIMIT 10), $keyword = "), plan())
    assert [item.chunk_id for item in found.found] == ["a", "b"]
    assert found.failed == {}


async def test_a_further_search_by_the_vector_has_its_cosine_alone_too() -> None:
    wanted = structs.replace(
        plan(), further=[FurtherSearch("dated", Exists(Field("title")), limit=5)]
    )
    found = await find(Fake("$keyword = "), wanted)
    assert list(found.failed) == ["keyword"]
    cosines = {item.chunk_id: item.cosine for item in found.found}
    assert cosines == {"a": 0.9, "c": 0.7}


async def test_search_fails_if_both_retrievers_are_refused() -> None:
    with pytest.raises(DatabaseUnavailable):
        await find(Fake("SELECT"), plan())


async def test_a_single_retriever_is_not_tried_twice() -> None:
    store = Fake("sparseNeighbors")
    with pytest.raises(StatementRefused):
        await find(store, plan(vector=False))
    assert ["sparseNeighbors" in script for script in store.scripts].count(True) == 1


async def test_deleted_collection_is_not_found() -> None:
    with pytest.raises(NotFound):
        await find(Fake(record=None), plan())


@pytest.mark.parametrize(
    ("chunks", "graph", "scanned"),
    [(2000, False, True), (99, True, True), (100, True, False)],
)
async def test_graph_is_searched_only_if_it_exists_and_the_collection_is_large(
    chunks: int, graph: bool, scanned: bool
) -> None:
    store = Fake(record=replace(DOCS, chunks=chunks, graph=graph))
    await find(store, plan(), scan_below=100)
    assert ["vectorNeighbors" in script for script in store.scripts] == [not scanned]
