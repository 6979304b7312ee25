"""Random changes of a store in memory and of ArcadeDB: both give the same answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contract.conftest import arcadedb
from tests.contract.stored_records import (
    by_terms,
    by_vector,
    chunk,
    collection,
    create,
    of,
    outdated,
    replacement,
    sources,
    switch,
    towards,
)
from tests.examples import examples

from ability_search.collection import Collection
from ability_search.filters.tree import Compare, Field, Filter, Not, OneOf
from ability_search.store.memory import MemoryStore
from ability_search.store.pages import count, read_all
from ability_search.store.port import Store
from ability_search.store.records import Linked, Replacement, Search, SourceLink
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import term_log
from ability_search.store.stored_collections import read_collection
from ability_search.store.values import KINDS_LAYER, Chunks, Columns, Count, Patch, Read, Sources

pytestmark = pytest.mark.engine

SOURCES = ("a", "b", "c", "d", "é", "\U0001f600")
KINDS = ("document", "code", "note")
TEAMS = ("red", "blue")
VECTORS = [towards(part) for part in (-0.5, 0.1, 0.6, 0.95)]
COSINE = Columns(("source", "kind", "chunk_index"), {"cosine": towards(1.0)})


@dataclass(frozen=True)
class Part:
    """A chunk, as far as examples vary it."""

    vector: int
    terms: Mapping[int, float]
    kind: str
    team: str
    tokens: int
    stand_in: str | None
    """Source whose first chunk stands for this one, if that is stored and indexed."""
    threshold: float | None
    """Minimum cosine of duplicates; that of the first part counts for the source."""


@dataclass(frozen=True)
class Replace:
    """Replaces sources by these parts, or deletes them."""

    parts: Mapping[str, Sequence[Part]]
    gone: Sequence[str] = ()
    links: Sequence[tuple[str, str, float]] = ()
    titles: Sequence[str] = ()
    """Sources of ``parts`` that also get a title chunk."""
    rebuilt: bool = False
    """Whether it goes to the generation under construction."""


@dataclass(frozen=True)
class Rebuild:
    """Begins to build another generation."""


@dataclass(frozen=True)
class Switch:
    """Switches to the generation that is being built."""


@dataclass(frozen=True)
class Reweigh:
    """Writes new weights for the chunks with outdated ones."""

    factor: int


Change = Replace | Rebuild | Switch | Reweigh

parts = st.builds(
    Part,
    vector=st.integers(0, len(VECTORS) - 1),
    terms=st.dictionaries(
        st.integers(1, 4), st.sampled_from([0.25, 0.5, 1.0, 2.0]), min_size=1, max_size=3
    ),
    kind=st.sampled_from(KINDS),
    team=st.sampled_from(TEAMS),
    tokens=st.integers(1, 40),
    stand_in=st.none() | st.sampled_from(SOURCES),
    threshold=st.none() | st.sampled_from([0.5, 0.9, 1.0]),
)
replacements = st.builds(
    Replace,
    parts=st.dictionaries(
        st.sampled_from(SOURCES), st.lists(parts, min_size=1, max_size=3), max_size=3
    ),
    gone=st.lists(st.sampled_from(SOURCES), max_size=2, unique=True),
    links=st.lists(
        st.tuples(st.sampled_from(SOURCES), st.sampled_from(SOURCES), st.sampled_from([0.5, 1.0])),
        max_size=3,
        unique_by=lambda link: link[:2],
    ),
    titles=st.lists(st.sampled_from(SOURCES), max_size=2, unique=True),
    rebuilt=st.booleans(),
)
changes = st.lists(
    replacements | st.just(Rebuild()) | st.just(Switch()) | st.builds(Reweigh, st.integers(2, 4)),
    min_size=1,
    max_size=5,
)


@dataclass
class Replay:
    """Replays changes on one store."""

    store: Store
    name: str
    live: Collection
    built: Collection | None = None
    log: list[Any] = field(default_factory=list)
    """Outcomes of the changes."""

    async def change(self, change: Change, generation: Collection, number: int) -> None:
        match change:
            case Replace():
                await self.replace(change, number)
            case Rebuild():
                if self.built is None:
                    self.built = await create(self.store, generation)
            case Switch():
                await self.switch()
            case Reweigh(factor):
                await self.reweigh(factor)

    async def replace(self, change: Replace, number: int) -> None:
        into = self.built if change.rebuilt and self.built is not None else self.live
        contents = await self.contents(into, change, number)
        replaced = await self.store.replace(into, contents)
        if replaced is None:
            self.log.append(None)
            return
        self.log.append((replaced.deleted, replaced.inserted, replaced.replaced))
        if into is self.built:
            self.built = replaced.collection
        else:
            self.live = replaced.collection

    async def contents(self, into: Collection, change: Replace, number: int) -> Replacement:
        gone = [source for source in change.gone if source not in change.parts]
        made = [f"{source}/title" for source in (*change.parts, *gone)]
        every = by_vector(towards(1.0), limit=99)
        found = await self.store.search(into, [every], Columns(("source", "created_at")))
        stored = {row.chunk_id: row.columns for row in found.rows[every.name]}
        chunks, stand_ins = [], {}
        for source, own in change.parts.items():
            for index, part in enumerate(own):
                other = f"{self.name}:{part.stand_in}:0"
                stand_in = stored.get(other)
                if stand_in is not None and stand_in["source"] in (*change.parts, *gone):
                    stand_in = None
                if stand_in is not None:
                    stand_ins[other] = stand_in["created_at"]
                chunks.append(
                    chunk(
                        source,
                        index,
                        of_collection=self.name,
                        embedding=VECTORS[part.vector],
                        terms=sorted(part.terms),
                        weights=[part.terms[term] for term in sorted(part.terms)],
                        kind=part.kind,
                        metadata={"team": part.team},
                        tokens=part.tokens,
                        created_at=number,
                        total_chunks=len(own),
                        vector_key=f"{part.vector}{part.kind}",
                        duplicate_of=None if stand_in is None else other,
                    )
                )
        for source in change.titles:
            if source in change.parts:
                title = chunk(
                    f"{source}/title", of_collection=self.name, of=source, kind="title", tokens=3
                )
                chunks.append(title)
                made.remove(f"{source}/title")
        links = [
            SourceLink(source, target, "cites", weight)
            for source, target, weight in change.links
            if source in change.parts and source != target
        ]
        contents = replacement(
            *chunks, gone=[*gone, *made], links=links, stand_ins=stand_ins, indexed_at=number
        )
        generated = [
            replace(
                each,
                generated=each.of is not None,
                dedup_threshold=change.parts[each.source][0].threshold if each.of is None else None,
            )
            for each in contents.records
        ]
        return replace(contents, records=generated)

    async def switch(self) -> None:
        if self.built is None:
            return
        switched = await switch(self.store, self.live, self.built)
        assert switched is not None
        self.live, self.built = switched, None

    async def reweigh(self, factor: int) -> None:
        for layer in ("", KINDS_LAYER):
            before = await outdated(self.store, self.live, float(factor), layer, limit=3)
            patches = [
                Patch(
                    each.chunk_id,
                    {
                        "weights": [factor * weight for weight in each.weights],
                        "average_length": float(factor),
                    },
                    layer,
                    {"duplicate_of": each.duplicate_of, "average_length": each.average_length},
                )
                for each in before
            ]
            await self.store.patch(self.live, patches)

    async def answers(self) -> dict[str, Any]:
        """All answers, without the order of equal scores, as places are reused."""
        found: dict[str, Any] = {"log": self.log}
        for label, each in (("live", self.live), ("built", self.built)):
            if each is not None:
                record = await read_collection(self.store, each.name)
                assert record is not None
                found[label] = (replace(record, updated_at=0), await self.contents_of(record))
        return found

    async def contents_of(self, record: Collection) -> dict[str, Any]:
        store, generation = self.store, record.type
        found: dict[str, Any] = {
            "searches": await self.searches(record),
            "statistics": [
                (each.revision, sorted(list(terms) for terms in each.removed), each.added)
                for each in await term_log(store, generation)
            ],
            "sources": await sources(store, record),
            "records": [
                replace(each, links=[dict(link) for link in each.links])
                for each in await read_all(store, Read(Sources(), record, limit=3))
            ],
            "counted": dict((await count(store, Count(Sources(), record, ["chunks"])))[0].groups),
            "kinds": await sources(store, record, of(*SOURCES)),
        }
        for layer in ("", KINDS_LAYER):
            of_layer = Chunks(layer)
            checked = await count(
                store,
                Count(of_layer, record, by="tokens", width=5, sums=["tokens"]),
                Count(of_layer, record, by="tokens", sample=3),
            )
            found[f"counted {layer}"] = [dict(each.groups) for each in checked[:1]]
            found[f"sampled {layer}"] = sum(n for (n,) in checked[1].groups.values())
            dimensions = Read(of_layer, record, Columns(("dimensions",)))
            found[f"dimensions {layer}"] = await read_all(store, dimensions)
            found[f"weights {layer}"] = [
                (each.chunk_id, each.duplicate_of, list(each.weights))
                for each in await outdated(store, record, -1.0, layer)
            ]
        periods = Count(Sources(), record, ["chunks"], by="indexed_at", width=2)
        found["periods"] = dict((await count(store, periods))[0].groups)
        return found

    async def searches(self, record: Collection) -> dict[str, Any]:
        filters: list[Filter | None] = [
            None,
            OneOf(Field("kind"), ("code", "note")),
            Not(OneOf(Field("metadata", ("team",)), ("red",))),
            Compare(Field("source"), ">", "b"),
        ]
        wanted: list[Search] = []
        for place, filter in enumerate(filters):
            wanted += [
                by_vector(towards(0.6), f"v{place}", limit=99, filter=filter),
                by_terms({1: 1.0, 3: 0.5}, f"t{place}", limit=99, filter=filter),
                by_terms({2: 1.0}, f"u{place}", limit=99, filter=filter),
            ]
        if record.kind_chunks:
            wanted.append(by_vector(towards(0.6), "kinds", kinds=True))
        read = await self.store.search(record, wanted, COSINE)
        found: dict[str, Any] = {
            name: sorted(
                (-_rounded(row.score), row.chunk_id, sorted(_columns(row.columns).items()))
                for row in rows
            )
            for name, rows in read.rows.items()
        }
        within = {
            "best": Chunks(sources=SOURCES),
            "given": Chunks(ids=[f"{self.name}:b:0"]),
            "linked": Linked(["a"], 2),
        }
        wanted = [
            search
            for name, chosen in within.items()
            for search in (
                by_vector(towards(1.0), name, within=chosen, limit=9, least=0.0),
                by_terms({1: 1.0, 3: 0.5}, f"{name}Terms", within=chosen, limit=9),
            )
        ]
        near = await self.store.search(record, wanted, COSINE)
        found["near"] = {
            name: sorted((_rounded(row.score), row.chunk_id) for row in rows)
            for name, rows in near.rows.items()
        }
        found["hops"] = [(list(out), list(into)) for out, into in near.hops["linked"]]
        return found


def _rounded(score: float) -> float:
    return round(score, 5)


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _rounded(value) if isinstance(value, float) else value
        for name, value in columns.items()
    }


@dataclass
class Pair:
    """Both stores, and a loop to ask them in."""

    runner: asyncio.Runner
    arcade: Store
    names: Iterator[int] = field(default_factory=itertools.count)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory = tmp_path_factory.mktemp("databases")
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        arcade = runner.run(stack.enter_async_context(arcadedb(directory)))
        yield Pair(runner, arcade)
        runner.run(stack.aclose())


@settings(max_examples=examples(8))
@pytest.mark.timeout(300)
@given(changes)
def test_both_stores_give_the_same_answers_after_any_changes(
    pair: Pair, changed: list[Change]
) -> None:
    pair.runner.run(_compare(pair, changed))


async def _compare(pair: Pair, changed: list[Change]) -> None:
    name = f"n{next(pair.names)}"
    first = collection(name)
    replays = [
        Replay(store, name, await create(store, first)) for store in (MemoryStore(), pair.arcade)
    ]
    for number, change in enumerate(changed, start=1):
        generation = collection(f"{name}@{number}")
        for replay in replays:
            await replay.change(change, generation, number)
    memory, arcade = [await replay.answers() for replay in replays]
    assert memory == arcade
    for replay in replays:
        registry = Registry(replay.store)
        if replay.built is not None:
            assert await registry.drop(replay.built)
        assert await registry.drop(replay.live)
        await replay.store.drop_generation(first.type)
