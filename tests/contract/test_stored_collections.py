"""Records of collections and their generations."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.contract.stored_records import (
    HOUR,
    NOTHING,
    by_vector,
    change,
    chunk,
    collection,
    create,
    filled,
    found_ids,
    gone,
    put,
    replacement,
    sources,
    switch,
)

from ability_search.collection import Collection
from ability_search.index.jobs import Jobs, jobs_of, records_under_construction
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.records import Job, Linked, SourceLink
from ability_search.store.registry import Registry
from ability_search.store.statistics_cache import StatisticsCache, term_log
from ability_search.store.stored_collections import (
    due_generations,
    read_collection,
    read_collections,
)
from ability_search.store.values import Chunks, Put, Read, Records, of_collection


async def test_new_store_answers_as_if_empty(store: Store) -> None:
    jobs = Jobs(store, lease=HOUR)
    assert await read_collection(store, "notes") is None
    assert await read_collections(store) == []
    assert await due_generations(store) == []
    assert await store.generations() == []
    assert await read_all(store, Read(jobs_of("notes"))) == []
    assert await jobs.find("notes", "reindex") is None
    assert await jobs.orphaned("reindex") == []
    assert await records_under_construction(store) == set()
    assert await term_log(store, "Chunk_x") == []


async def test_created_collection_is_empty(store: Store) -> None:
    new = collection("notes", kinds=("title", "summary"), tokens_min=3, bm25_k1=1.5)
    assert await create(store, new) == new
    assert await read_collection(store, "notes") == new
    assert await store.generations() == [new.type]


async def test_records_are_in_order_of_their_names(store: Store) -> None:
    for name in ("b", "a@1", "B", "a", "a-1"):
        await create(store, collection(name))
    assert [each.name for each in await read_collections(store)] == ["B", "a", "a-1", "a@1", "b"]


async def test_creating_an_existing_collection_returns_the_stored_one(store: Store) -> None:
    first = await create(store, collection())
    assert await create(store, collection(model="other")) == first
    assert await read_collection(store, "notes") == first
    assert await store.generations() == [first.type]


async def test_created_generation_has_no_record(store: Store) -> None:
    new = collection()
    await store.create_generation(new)
    await store.create_generation(new)
    assert await store.generations() == [new.type]
    assert await read_collections(store) == []
    assert await sources(store, new, None) == []


async def test_fields_of_a_record_are_changed(store: Store) -> None:
    stored = await filled(store)
    await change(store, stored, graph=True, average_length=7.5, kinds=("title",))
    changed = await read_collection(store, "notes")
    assert changed == replace(stored, graph=True, average_length=7.5, kinds=("title",))


async def test_fields_of_another_generation_are_not_changed(store: Store) -> None:
    stored = await filled(store)
    await change(store, collection(), graph=True)
    await change(store, collection("unknown"), graph=True)
    assert await read_collections(store) == [stored]


async def begun(store: Store) -> tuple[Jobs, Job, Collection]:
    """A job that rebuilds the collection, and the record that it builds."""
    jobs = Jobs(store, lease=HOUR)
    built = collection("notes@1")
    await store.create_generation(built)
    job = await jobs.begin(Job("1", "reindex", "notes", record=built.name), built)
    assert job is not None
    return jobs, job, built


async def test_deleted_collection_is_gone_with_all_that_belongs_to_it(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    other = await filled(store, chunk("a", of_collection="other"), name="other")
    jobs, _, _ = await begun(store)
    of = [Records("note", of_collection(name)) for name in ("notes", "other")]
    await store.commit([Put("note", each.scope or "", (), {}) for each in of])
    assert await Registry(store).drop(stored)
    assert await read_collections(store) == [other]
    assert await store.generations() == [other.type]
    assert await due_generations(store) == []
    assert await read_all(store, Read(jobs_of("notes"))) == []
    assert [len(await read_all(store, Read(each))) for each in of] == [0, 1]
    assert not await Registry(store).drop(stored)


async def test_deleted_record_of_a_build_leaves_the_collection_alone(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    jobs, job, built = await begun(store)
    assert await Registry(store).drop(built)
    assert await read_collections(store) == [stored]
    assert await store.generations() == [stored.type]
    assert [each.fields["id"] for each in await read_all(store, Read(jobs_of("notes")))] == [job.id]


async def test_collection_on_another_generation_is_not_deleted(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    assert not await Registry(store).drop(collection())
    assert await read_collections(store) == [stored]
    assert await found_ids(store, stored, by_vector()) == ["notes:a:0"]


async def _rebuilt(store: Store) -> tuple[Collection, Collection, Jobs, Job]:
    """A collection, what it is rebuilt as, and the job."""
    old = await filled(store, chunk("a"))
    jobs, job, built = await begun(store)
    built = (await put(store, built, chunk("a"), chunk("b"))).collection
    return old, built, jobs, job


async def test_switched_collection_is_on_the_generation_that_was_built(store: Store) -> None:
    old, built, jobs, job = await _rebuilt(store)
    ended = jobs.ended(job, "done", stage="done", done=2, total=2, result={"sources": 2})
    new = await switch(store, old, built, grace=-1, ended=ended)
    assert new is not None
    assert (new.type, new.name, new.generation) == (built.type, "notes", 2)
    assert (new.revision, new.created_at) == (2, old.created_at)
    assert await read_collections(store) == [new]
    assert await found_ids(store, new, by_vector()) == ["notes:a:0", "notes:b:0"]
    assert await due_generations(store) == [old.type]
    done = await jobs.find("notes", "reindex")
    assert done is not None
    assert (done.state, done.stage, done.done, done.total) == ("done", "done", 2, 2)
    assert (done.owner, done.record, done.expired) == (None, None, False)
    assert done.result == {"sources": 2}


async def test_old_generation_stays_readable_until_its_grace_is_over(store: Store) -> None:
    old, built, _, _ = await _rebuilt(store)
    new = await switch(store, old, built)
    assert await due_generations(store) == []
    read = await store.search(old, [by_vector()], NOTHING)
    assert read.current == new
    assert [row.chunk_id for row in read.rows["vector"]] == ["notes:a:0"]
    await store.drop_generation(old.type)
    with gone(old.type):
        await store.search(old, [by_vector()], NOTHING)


async def test_a_collection_that_was_switched_since_is_not_deleted(store: Store) -> None:
    old, built, _, _ = await _rebuilt(store)
    assert await switch(store, old, built)
    before = await read_collections(store)
    assert not await Registry(store).drop(old)
    assert await read_collections(store) == before
    assert await Registry(store).drop(before[0])
    assert await read_collections(store) == []


@pytest.mark.parametrize("moved", ["old", "built", "job"])
async def test_nothing_is_switched_if_a_record_has_changed(store: Store, moved: str) -> None:
    old, built, jobs, job = await _rebuilt(store)
    ended = jobs.ended(job, "done")
    if moved == "job":
        ended = Jobs(store, lease=HOUR).ended(job, "done")
    else:
        await put(store, old if moved == "old" else built, chunk("later"))
    before = await read_collections(store)
    assert await switch(store, old, built, grace=-1, ended=ended) is None
    assert await read_collections(store) == before
    assert await due_generations(store) == []
    running = await jobs.find("notes", "reindex")
    assert running is not None
    assert (running.state, running.record, running.owner) == ("running", built.name, job.owner)


async def test_generation_becomes_a_new_collection(store: Store) -> None:
    built = await filled(store, chunk("a"), name="notes@1")
    new = await switch(store, None, replace(built, created_at=5))
    assert new == replace(built, name="notes", revision=built.revision + 1, created_at=5)
    assert await read_collections(store) == [new]
    assert await found_ids(store, new, by_vector()) == ["notes:a:0"]
    assert await switch(store, None, built) is None


async def test_generation_does_not_become_a_collection_of_a_taken_name(store: Store) -> None:
    stored = await filled(store)
    built = await filled(store, chunk("a"), name="notes@1")
    assert await switch(store, None, built) is None
    assert await read_collections(store) == [stored, built]


async def test_dropping_a_generation_twice_is_harmless(store: Store) -> None:
    stored = await filled(store, chunk("a"))
    await store.drop_generation(stored.type)
    await store.drop_generation(stored.type)
    assert await store.generations() == []
    assert await read_collections(store) == [stored]
    assert await term_log(store, stored.type) == []
    assert not await StatisticsCache(store).fold(stored)


async def test_generations_hold_their_own_chunks_only(store: Store) -> None:
    one = await filled(store, chunk("a", of_collection="one"), name="one")
    two = await filled(store, chunk("b", of_collection="two"), name="two")
    assert await found_ids(store, one, by_vector()) == ["one:a:0"]
    await store.drop_generation(one.type)
    assert await found_ids(store, two, by_vector()) == ["two:b:0"]


@pytest.mark.parametrize("within", [None, Chunks(sources=["a"]), Linked(["b"], 1)])
async def test_searching_a_dropped_generation_raises(
    store: Store, within: Chunks | Linked | None
) -> None:
    stored = await filled(store, chunk("a"), links=[SourceLink("b", "a", "cites", 1.0)])
    await store.drop_generation(stored.type)
    with gone(stored.type):
        await store.search(stored, [by_vector(within=within)], NOTHING)


async def test_nothing_is_written_to_a_generation_that_was_switched(store: Store) -> None:
    old, built, _, _ = await _rebuilt(store)
    new = await switch(store, old, built)
    assert new is not None
    assert await store.replace(old, replacement(chunk("late"))) is None
    assert await store.replace(built, replacement(chunk("late"))) is None
    assert await read_collections(store) == [new]
    assert await found_ids(store, new, by_vector()) == ["notes:a:0", "notes:b:0"]
