"""A collection that is split over three stores answers as it does from one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from tests.contract.conftest import memories
from tests.contract.stored_records import HOUR, by_vector, chunk, collection, replacement
from tests.contract.test_equal_stores import COSINE, Change, Replace, Replay, changes

from ability_search.collection import Collection
from ability_search.errors import DatabaseUnavailable
from ability_search.store.memory import MemoryStore
from ability_search.store.port import Store
from ability_search.store.records import REINDEX, Job
from ability_search.store.sharding import sharded
from ability_search.store.shards import rendezvous
from ability_search.store.statistics_cache import StatisticsCache

ONLY_OF_ONE = ("statistics", "checked False", "checked True", "overview")
"""Answers that name revisions, pages and samples of one database."""


def without_duplicates(change: Change) -> Change:
    """The change without near-duplicates, which are found within one database only."""
    if not isinstance(change, Replace):
        return change
    parts = {
        source: [replace(part, stand_in=None) for part in own]
        for source, own in change.parts.items()
    }
    return replace(change, parts=parts)


async def answers(replay: Replay, statistics: StatisticsCache) -> dict[str, Any]:
    found = await replay.answers()
    for label in found.keys() & {"live", "built"}:
        record, contents = found[label]
        kept = {name: value for name, value in contents.items() if name not in ONLY_OF_ONE}
        stored = await replay.store.collection(record.name)
        assert stored is not None
        found[label] = (replace(record, revision=0), kept, await cosines(replay.store, stored))
        found[f"{label} terms"] = await statistics.of(stored)
    return found


async def cosines(store: Store, record: Collection) -> Mapping[str, Any]:
    """Texts of chunks, with the cosines among them."""
    read = await store.search(record, [by_vector(limit=99)], COSINE, first=2)
    rids = [row.rid for row in sorted(read.value["vector"], key=lambda row: row.chunk_id)]
    texts = await store.chunks(record.type, rids, compared=rids)
    return {
        each.chunk_id: (each.content, [round(cosine or 0.0, 5) for cosine in each.cosines])
        for each in texts
    }


@settings(max_examples=40, deadline=None)
@given(changes)
def test_split_collection_answers_as_one_after_any_changes(changed: list[Change]) -> None:
    asyncio.run(_compare([without_duplicates(change) for change in changed]))


async def _compare(changed: list[Change]) -> None:
    first = collection("notes")
    stores = MemoryStore(), sharded(memories(), ["*"])
    replays = [Replay(store, "notes", await store.create_collection(first)) for store in stores]
    caches = [StatisticsCache(store) for store in stores]
    for number, change in enumerate(changed, start=1):
        generation = collection(f"notes@{number}")
        for replay, statistics in zip(replays, caches, strict=True):
            await replay.change(change, generation, number)
            live = await replay.store.collection("notes")
            assert live is not None
            replay.live = live
            await statistics.of(live)
    pairs = zip(replays, caches, strict=True)
    one, split = [await answers(replay, statistics) for replay, statistics in pairs]
    assert split == one


async def filled(store: Store) -> Collection:
    stored = await store.create_collection(collection("notes"))
    replaced = await store.replace(stored, documents())
    assert replaced is not None
    return replaced.collection


def documents() -> Any:
    return replacement(*(chunk(f"s{number}") for number in range(30)))


async def ids(store: Store, record: Collection) -> set[str]:
    read = await store.search(record, [by_vector(limit=99)], COSINE)
    return {row.chunk_id for row in read.value["vector"]}


async def stored(store: Store, name: str = "notes") -> Collection:
    found = await store.collection(name)
    assert found is not None
    return found


async def test_documents_are_spread_over_all_shards() -> None:
    stores = memories()
    split = await filled(sharded(stores, ["n*"]))
    assert (split.chunks, split.sources, set(split.shards)) == (30, 30, set("abc"))
    for name, store in stores.items():
        own = await store.sources(split.type, after="", limit=99)
        assert {rendezvous(source, "abc") for source in own} == {name}
        assert len(own) > 4


async def test_collection_of_another_name_is_in_one_shard() -> None:
    stores = memories()
    assert (await filled(sharded(stores, ["big*"]))).shards == ()
    assert sum([bool(await store.collections()) for store in stores.values()]) == 1


async def test_what_exists_stays_as_it_is_if_the_settings_change() -> None:
    stores = memories()
    split = await filled(sharded(stores, ["*"]))
    other = sharded({"d": MemoryStore(), **stores})
    assert await stored(other) == split
    assert len(await ids(other, split)) == 30


async def test_search_without_one_of_the_databases_names_it() -> None:
    class Gone(MemoryStore):
        async def search(self, *_: Any, **__: Any) -> Any:
            raise DatabaseUnavailable("no answer")

    stores = memories()
    split = await filled(sharded(stores, ["*"]))
    gone = Gone()
    gone.__dict__.update(stores["b"].__dict__)
    with pytest.raises(DatabaseUnavailable, match="database 'b': no answer"):
        await ids(sharded({**stores, "b": gone}), split)
    del stores["b"]
    with pytest.raises(DatabaseUnavailable, match="is in database 'b'"):
        await ids(sharded(stores), split)


async def test_interrupted_switch_is_completed_by_another_worker() -> None:
    stores = memories()
    store = sharded(stores, ["*"])
    first = (await filled(store)).shards[1]
    record = collection("notes@1")
    await store.create_generation(record)
    job = Job("1", REINDEX, "notes", owner="lost", record=record.name)
    assert await store.begin_job(job, lease=-1, built=record)
    assert await store.replace(record, documents())
    part, before = await stored(stores[first], record.name), await stored(stores[first])
    new = replace(part, name="notes", revision=9)
    assert await stores[first].switch_generation(before, part, new, grace=HOUR, result={})

    other = sharded(stores, ["*"])
    mixed = await stored(other)
    assert mixed.type.count("@") == 3
    assert len(await ids(other, mixed)) == 30
    (lost,) = await other.orphaned_jobs(REINDEX)
    assert await other.claim_job(
        lost, owner="next", record="notes@2", lease=HOUR, lost=1, lost_at=0
    )
    built = await stored(other, "notes@2")
    assert await store.replace(record, documents()) is None, "the lost worker writes on"
    assert await other.replace(built, documents())
    built = await stored(other, "notes@2")
    assert (built.chunks, await other.count_sources(built.type)) == (30, (30, 30))
    new = replace(built, name="notes")
    assert await other.switch_generation(await stored(other), built, new, grace=-1, result={})
    (found,) = await other.collections()
    assert (found.name, found.type, found.chunks) == ("notes", record.type, 30)
    assert len(await ids(other, found)) == 30
    for generation in await other.due_generations():
        await other.drop_generation(generation)
    assert await other.delete_collection(found)
    assert await other.collections() == []


async def test_part_that_a_deletion_left_behind_is_listed_to_be_dropped() -> None:
    stores = memories()
    shards = (await filled(sharded(stores, ["*"]))).shards
    home = stores[shards[0]]
    assert await home.delete_collection(await stored(home))
    other = sharded(stores, ["*"])
    assert await other.collection("notes") is None
    left = {each.name: each for each in await other.collections()}
    assert left.keys() == {f"notes@{shard}" for shard in shards[1:]}
    assert await other.delete_collection(left[f"notes@{shards[1]}"])
    again = await other.create_collection(collection("notes"))
    assert (again.chunks, again.type.count("@")) == (0, 0)
    assert [each.name for each in await other.collections()] == ["notes"]


async def moved(store: Store, token: str) -> Collection:
    """The collection, replaced by a copy that was loaded apart, as an import does."""
    copy = await store.create_collection(collection(f"notes@{token}"))
    assert await store.replace(copy, documents())
    copy, live = await stored(store, copy.name), await stored(store)
    new = replace(copy, name="notes", revision=live.revision + copy.revision + 1)
    assert await store.switch_generation(live, copy, new, grace=-1, result={})
    for generation in await store.due_generations():
        await store.drop_generation(generation)
    return await stored(store)


async def test_import_spreads_a_collection_over_the_databases_of_today() -> None:
    stores = memories()
    assert (await filled(sharded(stores))).shards == ()
    three = await moved(sharded(stores, ["*"]), "1")
    assert set(three.shards) == set("abc")
    more = {"d": MemoryStore(), **stores}
    four = await moved(sharded(more, ["*"]), "2")
    assert set(four.shards) == set("abcd")
    assert all([len(await store.generations()) == 1 for store in more.values()])
    one = await moved(sharded(more), "3")
    assert one.shards == ()
    assert sum([len(await store.generations()) for store in more.values()]) == 1
    for record in (three, four, one):
        assert record.chunks == record.sources == 30
    assert len(await ids(sharded(more), one)) == 30
