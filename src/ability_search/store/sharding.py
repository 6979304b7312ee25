"""A store over several databases: each collection is in one of them."""

from __future__ import annotations

import asyncio
import inspect
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import chain
from typing import Any, TypeVar, cast

from ability_search.collection import Collection
from ability_search.store.port import Store
from ability_search.store.records import Job, Use, VectorPlaces

Route = Callable[..., Awaitable[Any]]
T = TypeVar("T")


def rendezvous(key: str, shards: Sequence[str]) -> str:
    """Return the shard for a key by rendezvous hashing, or highest random weight.

    Of n shards, a new one takes 1/(n + 1) of the keys, and no key moves between the others. Thaler
    and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
    Networking 6 (1), 1998.
    """
    return max(shards, key=lambda shard: blake2b(f"{shard}\0{key}".encode()).digest())


def sharded(stores: Mapping[str, Store]) -> Store:
    """Return a store that spreads collections over stores, given by the names of the shards.

    A collection is searched where it is found; a new one is created in the shard that
    :func:`rendezvous` chooses. So shards can be added at any time, if all workers have the same.
    """
    return cast(Store, _ShardedStore(stores))


class _ShardedStore:
    """Passes each call to the shard of the collection that it concerns.

    Methods of the port whose first argument tells the collection, or for sessions the agent, are
    passed on as they are, see the end of this module; the others are written out.
    """

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self._stores = dict(stores)
        self._collections: dict[str, Store] = {}
        self._generations: dict[str, Store] = {}
        self._agents: dict[str, Store] = {}

    async def collection(self, name: str) -> Collection | None:
        found = await (await self._store_of(name)).collection(name)
        if found is None and self._collections.pop(_public(name), None) is not None:
            found = await (await self._store_of(name)).collection(name)
        return found

    async def collections(self) -> list[Collection]:
        parts = await self._everywhere("collections")
        found = list(zip(self._stores.values(), parts, strict=True))
        self._collections = {each.public_name: store for store, part in found for each in part}
        self._generations |= {each.type: store for store, part in found for each in part}
        return sorted(chain.from_iterable(parts), key=lambda each: each.name)

    async def generations(self) -> list[str]:
        parts = await self._everywhere("generations")
        found = list(zip(self._stores.values(), parts, strict=True))
        self._generations = {each: store for store, part in found for each in part}
        return list(self._generations)

    async def due_generations(self) -> list[str]:
        return list(chain.from_iterable(await self._everywhere("due_generations")))

    async def discard_staged(self, *, before: int) -> None:
        await self._everywhere("discard_staged", before=before)

    async def orphaned_jobs(self, kind: str) -> list[Job]:
        return list(chain.from_iterable(await self._everywhere("orphaned_jobs", kind)))

    async def records_under_construction(self) -> set[str]:
        return set().union(*await self._everywhere("records_under_construction"))

    async def vector_places(
        self, model: str, record: str, *, dimensions: int | None, limit: int
    ) -> VectorPlaces:
        home = await self._store_of(record)
        found = await self._everywhere(
            "vector_places", model, record, dimensions=dimensions, limit=limit
        )
        own: VectorPlaces = found[list(self._stores.values()).index(home)]
        others = chain.from_iterable(each.others for each in (own, *found) if each is not own)
        return replace(own, others=[*own.others, *others][:limit])

    async def stored_vectors(
        self, places: Sequence[tuple[str, bool]], keys: Sequence[str]
    ) -> list[dict[str, Sequence[float]]]:
        stores = [await self._store_with(generation) for generation, _ in places]
        calls = (
            store.stored_vectors([place], keys) for store, place in zip(stores, places, strict=True)
        )
        return [vectors for (vectors,) in await asyncio.gather(*calls)]

    async def uses(self, agent: str, chunk_ids: Sequence[str]) -> dict[str, Use]:
        by_collection = _grouped(chunk_ids, _collection_of)
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
        parts = _grouped(shown, lambda each: each[0])
        marked = _grouped((marks or {}).items(), lambda mark: _collection_of(mark[0]))
        for name in parts.keys() | marked.keys():
            store = await self._store_of(name)
            own = dict(marked.get(name, ()))
            await store.count_uses(agent, parts.get(name, ()), marks=own, now=now)

    async def uses_of(self, agent: str, collection: str, **page: Any) -> list[Use]:
        return await (await self._store_of(collection)).uses_of(agent, collection, **page)

    async def put_uses(self, uses: Sequence[Use]) -> None:
        for name, part in _grouped(uses, lambda use: use.collection).items():
            await (await self._store_of(name)).put_uses(part)

    async def _store_of(self, name: str) -> Store:
        """Return the store of a collection, given the name of a record of it."""
        name = _public(name)
        if name not in self._collections:
            await self.collections()
        shard = rendezvous(name, tuple(self._stores))
        return self._collections.get(name, self._stores[shard])

    async def _store_with(self, generation: str) -> Store:
        """Return the store of a generation; any store, if none has it."""
        if generation not in self._generations:
            await self.generations()
        return self._generations.get(generation, next(iter(self._stores.values())))

    async def _store_for(self, agent: str) -> Store:
        """Return the store of an agent's sessions."""
        if agent not in self._agents:
            found = await self._everywhere("sessions", agent)
            for store, sessions in zip(self._stores.values(), found, strict=True):
                if sessions:
                    self._agents[agent] = store
        shard = rendezvous(agent, tuple(self._stores))
        return self._agents.get(agent, self._stores[shard])

    async def _everywhere(self, method: str, *args: Any, **options: Any) -> list[Any]:
        """Return the answers of all stores."""
        calls = (getattr(store, method)(*args, **options) for store in self._stores.values())
        return list(await asyncio.gather(*calls))


def _collection_of(chunk_id: str) -> str:
    return chunk_id.partition(":")[0]


def _name_of(collection: Collection | str) -> str:
    return collection if isinstance(collection, str) else collection.name


def _public(name: str) -> str:
    """Return the name of the collection that a record is of."""
    return name.partition("@")[0]


_Find = Callable[[_ShardedStore, Any], Awaitable[Store]]
_FIND: Mapping[str, _Find] = {
    "generation": lambda self, generation: self._store_with(generation),
    "job": lambda self, job: self._store_of(job.collection),
    **dict.fromkeys(
        ("collection", "old", "built"), lambda self, given: self._store_of(_name_of(given))
    ),
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
    if not _name.startswith("_") and _name not in vars(_ShardedStore):
        _first = list(inspect.signature(_method).parameters)[1]
        setattr(_ShardedStore, _name, _passed(_name, _FIND[_first]))


def _grouped(values: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    groups = defaultdict[str, list[T]](list)
    for value in values:
        groups[key(value)].append(value)
    return groups
