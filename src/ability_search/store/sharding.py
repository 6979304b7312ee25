"""A store over several databases: each collection is in one of them, or split over all."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, cast

from ability_search.collection import Collection
from ability_search.errors import GenerationGone
from ability_search.store.port import Store
from ability_search.store.records import Job, TermStatisticsEntry, Use
from ability_search.store.sharded_chunks import ShardedCopies, ShardedIndex, ShardedSearch
from ability_search.store.shards import Shards, complete, grouped, rendezvous

Route = Callable[..., Awaitable[Any]]


def sharded(stores: Mapping[str, Store], split: Sequence[str] = ()) -> Store:
    """Return a store that spreads collections over stores, given by the names of the shards.

    A collection is searched where it is found; a new one is created in the shard that
    :func:`.rendezvous` chooses, or if its name matches one of the globs ``split``, in all shards,
    see :mod:`.shards`. So shards can be added at any time, if all workers have the same.
    """
    return cast(Store, _ShardedStore(stores, split))


class _ShardedCollections(Shards):
    """See :class:`ability_search.store.port.CollectionStore`.

    What changes several parts changes the home last, so that it decides; a deletion begins there.
    """

    async def collection(self, name: str) -> Collection | None:
        return await self.record(name)

    async def collections(self) -> list[Collection]:
        return await self.records()

    async def create_collection(self, collection: Collection) -> Collection:
        home = await self.home(collection.name)
        shards = await self.planned(collection)
        if not shards:
            self._shards[collection.type] = (home,)
            stored = await self._stores[home].create_collection(collection)
            self._homes.setdefault(stored.public_name, home)
            return stored
        existing = await self.record(collection.name)
        if existing is not None:
            return existing
        new = replace(collection, shards=shards)
        for shard in shards[1:]:
            stored = await self._stores[shard].create_collection(new)
            if stored.revision:
                # Documents come after the home: another worker was faster, or it was deleted.
                existing = await self.record(collection.name)
                if existing is not None:
                    return existing
                await self._stores[shard].delete_collection(stored)
                stored = await self._stores[shard].create_collection(new)
            # Another worker may be creating the same one: both complete the first.
            new = stored
        await self._stores[home].create_collection(new)
        self._shards[new.type] = shards
        self._homes.setdefault(new.public_name, home)
        return cast(Collection, await self.record(collection.name))

    async def create_generation(self, collection: Collection) -> None:
        live = await self.record(collection.public_name)
        shards = live.shards if live is not None else ()
        places = shards or (await self.home(collection.name),)
        new = replace(collection, shards=shards)
        await complete({shard: self._stores[shard].create_generation(new) for shard in places})
        self._shards[collection.type] = places

    async def update_collection(self, collection: Collection, fields: Mapping[str, Any]) -> None:
        parts = await self.parts(collection)
        await complete({at.shard: at.store.update_collection(part, fields) for at, part in parts})
        held = self._parts.get(collection.name, {})
        for at, part in parts:
            if at.shard in held and held[at.shard].type == part.type:
                held[at.shard] = replace(held[at.shard], **fields)

    async def delete_collection(self, collection: Collection) -> bool:
        parts = await self.parts(collection)
        home = await self.home(collection.name)
        parts.sort(key=lambda each: each[0].shard != home)
        jobs = await self._stores[home].jobs(collection.name) if len(parts) > 1 else []
        for place, (at, part) in enumerate(parts):
            if not await at.store.delete_collection(part) and place == 0:
                return False
        for job in jobs:
            await self.discard_built(collection, job)
        self._forget(collection)
        return True

    async def switch_generation(
        self,
        old: Collection,
        built: Collection,
        new: Collection,
        *,
        grace: int,
        result: Mapping[str, Any],
    ) -> bool:
        home = await self.home(old.name)
        live, ready = await self._parts_at(old), await self._parts_at(built)
        if live is None or ready is None:
            return False
        for shard in sorted(ready, key=lambda each: each == home):
            part, before = ready[shard], live.get(shard)
            if before is not None and before.type == part.type:
                continue  # An earlier attempt has switched it.
            revision = max(part.revision, before.revision if before else 0) + 1
            after = replace(
                part,
                name=new.name,
                generation=new.generation,
                created_at=new.created_at,
                revision=revision if part.shards else new.revision,
            )
            store = self._stores[shard]
            if not (
                await store.publish_generation(part, after)
                if before is None
                else await store.switch_generation(before, part, after, grace=grace, result=result)
            ):
                return False
        for shard in live.keys() - ready.keys():
            await self._stores[shard].delete_collection(live[shard])
        self._forget(old, built)
        return True

    async def publish_generation(self, built: Collection, new: Collection) -> bool:
        home = await self.home(built.name)
        parts = await self._parts_at(built)
        if parts is None:
            raise GenerationGone(built.type)
        if await self._stores[home].collection(new.name) is not None:
            return False
        for shard in sorted(parts, key=lambda each: each == home):
            part = parts[shard]
            if part.name == new.name:
                continue  # An earlier attempt has published it.
            after = replace(part, name=new.name, created_at=new.created_at)
            after = replace(after, revision=part.revision + 1) if part.shards else new
            if not await self._stores[shard].publish_generation(part, after):
                return False
        self._forget(built)
        return True

    async def due_generations(self) -> list[str]:
        found = await self.everywhere(lambda store: store.due_generations())
        due = []
        for each in dict.fromkeys(chain.from_iterable(found.values())):
            held = [at.shard for at in await self.places(each)]
            own = [shard for shard in held if each in found[shard]]
            due += [each] if own == held else [f"{each}@{shard}" for shard in own]
        return due

    async def generations(self) -> list[str]:
        records = await self.records()
        found = await self.everywhere(lambda store: store.generations())
        left = {(shard, each) for shard, types in found.items() for each in types}
        stored = []
        for generation in dict.fromkeys(each.type for each in records):
            own = {(at.shard, at.type) for at in await self.places(generation)}
            stored += [generation] if own & left else []
            left -= own
        return stored + [
            each if each not in self._shards else f"{each}@{shard}" for shard, each in left
        ]

    async def drop_generation(self, generation: str) -> None:
        await self.each(generation, lambda at: at.store.drop_generation(at.type))

    # Term statistics

    async def term_logs(self, generation: str) -> list[str]:
        places = await self.places(generation)
        return [f"{at.type}@{at.shard}" for at in places] if len(places) > 1 else [generation]

    async def term_statistics(self, log: str, *, after: int) -> list[TermStatisticsEntry]:
        (at,) = await self.places(log)
        return await at.store.term_statistics(at.type, after=after)

    async def fold_term_statistics(self, log: str, **fields: Any) -> bool:
        (at,) = await self.places(log)
        return await at.store.fold_term_statistics(at.type, **fields)

    async def _parts_at(self, collection: Collection) -> dict[str, Collection] | None:
        """Return the stored parts of a collection, if they are as its record says."""
        record = await self.record(collection.name)
        if record is None or (record.type, record.revision) != (
            collection.type,
            collection.revision,
        ):
            return None
        if record.shards:
            return dict(self._parts[collection.name])
        return {await self.home(collection.name): record}

    def _forget(self, *collections: Collection) -> None:
        for each in collections:
            self._parts.pop(each.name, None)


class _ShardedJobs(Shards):
    """See :class:`ability_search.store.port.JobStore`: jobs are at the home of their collection.

    The record that a job builds has parts, too. They are created before the job and renamed after
    it was claimed; what is left behind is found by :meth:`.Shards.records`.
    """

    async def orphaned_jobs(self, kind: str) -> list[Job]:
        found = await self.everywhere(lambda store: store.orphaned_jobs(kind))
        return list(chain.from_iterable(found.values()))

    async def records_under_construction(self) -> set[str]:
        found = await self.everywhere(lambda store: store.records_under_construction())
        return set().union(*found.values())

    async def begin_job(self, job: Job, *, lease: int, built: Collection | None) -> bool:
        home = self._stores[await self.home(job.collection)]
        live = None if built is None else await self.record(job.collection)
        if built is None or live is None or not live.shards:
            return await home.begin_job(job, lease=lease, built=built)
        last = await home.job(job.collection, job.kind)
        new = replace(built, shards=live.shards)
        for shard in live.shards[1:]:
            await self._stores[shard].create_collection(new)
        begun = await home.begin_job(job, lease=lease, built=new)
        await self.discard_built(live, last if begun else job)
        return begun

    async def claim_job(self, job: Job, *, record: str, **fields: Any) -> bool:
        home = self._stores[await self.home(job.collection)]
        claimed = await home.claim_job(job, record=record, **fields)
        live = await self.record(job.collection) if claimed else None
        for shard in live.shards[1:] if live is not None else ():
            part = await self._stores[shard].collection(job.record or "")
            if part is not None:
                renamed = replace(part, name=record)
                await self._stores[shard].publish_generation(part, renamed)
        return claimed

    async def end_job(self, job: Job, **fields: Any) -> bool:
        home = self._stores[await self.home(job.collection)]
        ended = await home.end_job(job, **fields)
        live = await self.record(job.collection) if ended else None
        if live is not None:
            await self.discard_built(live, job)
        return ended


class _ShardedUsage(Shards):
    """See :class:`ability_search.store.port.UsageStore`: use is counted at a collection's home."""

    async def uses(self, agent: str, chunk_ids: Sequence[str]) -> dict[str, Use]:
        by_collection = grouped(chunk_ids, _collection_of)
        found = [
            await (await self._store_of(name)).uses(agent, part)
            for name, part in by_collection.items()
        ]
        return {key: use for part in found for key, use in part.items()}

    async def count_uses(
        self,
        agent: str,
        shown: Sequence[tuple[str, str]],
        *,
        marks: Mapping[str, bool] | None = None,
        now: int,
    ) -> None:
        parts = grouped(shown, lambda each: each[0])
        marked = grouped((marks or {}).items(), lambda mark: _collection_of(mark[0]))
        for name in parts.keys() | marked.keys():
            store = await self._store_of(name)
            own = dict(marked.get(name, ()))
            await store.count_uses(agent, parts.get(name, ()), marks=own, now=now)

    async def uses_of(self, agent: str, collection: str, **page: Any) -> list[Use]:
        return await (await self._store_of(collection)).uses_of(agent, collection, **page)

    async def put_uses(self, uses: Sequence[Use]) -> None:
        for name, part in grouped(uses, lambda use: use.collection).items():
            await (await self._store_of(name)).put_uses(part)

    async def _store_of(self, name: str) -> Store:
        return self._stores[await self.home(name)]


class _ShardedStore(
    _ShardedCollections,
    ShardedSearch,
    ShardedIndex,
    ShardedCopies,
    _ShardedJobs,
    _ShardedUsage,
):
    """All methods of the port.

    Those whose first argument tells the collection, or for sessions the agent, and that concern one
    store are passed on as they are, see the end of this module.
    """

    def __init__(self, stores: Mapping[str, Store], split: Sequence[str]) -> None:
        super().__init__(stores, split)
        self._agents: dict[str, Store] = {}

    async def _store_for(self, agent: str) -> Store:
        """Return the store of an agent's sessions."""
        if agent not in self._agents:
            found = await self.everywhere(lambda store: store.sessions(agent))
            for shard, sessions in found.items():
                if sessions:
                    self._agents[agent] = self._stores[shard]
        shard = rendezvous(agent, tuple(self._stores))
        return self._agents.get(agent, self._stores[shard])


def _begun(stored: Collection, new: Collection) -> bool:
    """Return whether a part that exists can be of the collection that is being created."""
    return stored.revision == 0 and (stored.model_input, stored.dimensions) == (
        new.model_input,
        new.dimensions,
    )


def _collection_of(chunk_id: str) -> str:
    return chunk_id.partition(":")[0]


_Find = Callable[[_ShardedStore, Any], Awaitable[Store]]
_FIND: Mapping[str, _Find] = {
    "job": lambda self, job: self._store_of(job.collection),
    "collection": lambda self, name: self._store_of(name),
    "agent": lambda self, agent: self._store_for(agent),
    "selection": lambda self, selection: self._store_for(selection.agent),
    "records": lambda self, records: self._store_for(records[0].agent),
}
"""Ways to find the store, by the name of a method's first argument."""


def _passed(method: str, find: _Find) -> Route:
    async def route(self: _ShardedStore, concerned: Any, *args: Any, **options: Any) -> Any:
        return await getattr(await find(self, concerned), method)(concerned, *args, **options)

    return route


for _name, _method in inspect.getmembers(Store, inspect.isfunction):
    if not _name.startswith("_") and not hasattr(_ShardedStore, _name):
        _first = list(inspect.signature(_method).parameters)[1]
        setattr(_ShardedStore, _name, _passed(_name, _FIND[_first]))
