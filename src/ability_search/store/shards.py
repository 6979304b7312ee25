"""Find collections, and the parts of split collections, among several stores.

A split collection has a *part* in each of its shards: a collection of that name with the documents
whose sources :func:`rendezvous` places there. Each part has its own record, revision and term
statistics; what belongs to the collection as a whole (jobs, use) is in its first shard, the home.
Callers see one collection: counts and revisions are added up.

The parts of a generation have one type, which names the generation. While they are switched to
another one, one after the other, the generation is named by all of them: ``type@shard type@shard``.
Each document is then in one generation or the other, never in both.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import NamedTuple, TypeVar

from ability_search.collection import Collection, public_name
from ability_search.documents import GENERATED, KINDS
from ability_search.errors import DatabaseUnavailable
from ability_search.store.port import Store
from ability_search.store.records import ChunkRecord, Job, Read, Replacement, source_of
from ability_search.text.term_statistics import TermStatistics

T = TypeVar("T")
X = TypeVar("X")


def rendezvous(key: str, shards: Sequence[str]) -> str:
    """Return the shard for a key by rendezvous hashing, or highest random weight.

    Of n shards, a new one takes 1/(n + 1) of the keys, and no key moves between the others. Thaler
    and Ravishankar, "Using name-based mappings to increase hit rates", IEEE/ACM Transactions on
    Networking 6 (1), 1998.
    """
    return max(shards, key=lambda shard: blake2b(f"{shard}\0{key}".encode()).digest())


def combined(parts: Mapping[str, Collection]) -> Collection:
    """Return the record of a collection, given its parts by shard, the home first."""
    records = list(parts.values())
    home = records[0]
    if not home.shards:
        return home
    types = {each.type for each in records}
    named = " ".join(f"{each.type}@{shard}" for shard, each in sorted(parts.items()))
    return replace(
        home,
        type=home.type if len(types) == 1 else named,
        revision=sum(each.revision for each in records),
        chunks=sum(each.chunks for each in records),
        sources=sum(each.sources for each in records),
        tokens=sum(each.tokens for each in records),
        tokens_min=min(_known(each.tokens_min for each in records), default=None),
        tokens_max=max(_known(each.tokens_max for each in records), default=None),
        duplicates=sum(each.duplicates for each in records),
        links=sum(each.links for each in records),
        kind_chunks=sum(each.kind_chunks for each in records),
        nested=any(each.nested for each in records),
        graph=all(each.graph for each in records),
        kind_graph=all(each.kind_graph for each in records),
        updated_at=max(each.updated_at for each in records),
    )


class Place(NamedTuple):
    """One of the stores that hold a generation."""

    shard: str
    store: Store
    type: str
    prefix: str
    """Before its record ids; empty if the generation is in one store."""


class Shards:
    """Stores by the names of their shards, and what is known of the places of collections.

    Args:
        stores: The stores.
        split: Globs of the names of collections that are split over all shards when created.
    """

    def __init__(self, stores: Mapping[str, Store], split: Sequence[str] = ()) -> None:
        self._stores = dict(stores)
        self._split = split
        self._homes: dict[str, str] = {}
        """By the names of collections."""
        self._parts: dict[str, dict[str, Collection]] = {}
        """Parts by shard, the home first, by the names of the records."""
        self._shards: dict[str, tuple[str, ...]] = {}
        """By type."""

    # Records

    async def records(self) -> list[Collection]:
        """Read all records.

        A part without a home is what a deletion that was interrupted left behind. It gets the name
        ``collection@shard``, as one under construction.
        """
        listed = await self.everywhere(lambda store: store.collections())
        by_shard = {shard: {each.name: each for each in found} for shard, found in listed.items()}
        every = [(shard, each) for shard, found in listed.items() for each in found]
        homes = [(shard, each) for shard, each in every if shard in (each.shards or (shard,))[:1]]
        self._homes, self._parts = {}, {}
        self._shards = {each.type: each.shards or (shard,) for shard, each in every}
        records, used = [], set[tuple[str, str]]()
        for shard, record in homes:
            if record.name == record.public_name or record.public_name not in self._homes:
                self._homes[record.public_name] = shard
            found = {each: _part_of(record, by_shard.get(each, {})) for each in record.shards[1:]}
            parts = {shard: record} | {each: part for each, part in found.items() if part}
            used |= {(each, part.name) for each, part in parts.items()}
            if len(parts) == len(record.shards):
                self._parts[record.name] = parts
            records.append(combined(parts))
        for shard, record in every:
            if (shard, record.name) not in used:
                name = f"{record.public_name}@{shard}"
                self._parts[name] = {shard: record}
                records.append(replace(record, name=name, type=f"{record.type}@{shard}"))
        return sorted(records, key=lambda each: each.name)

    async def record(self, name: str) -> Collection | None:
        """Read the record of that name."""
        home = await self.home(name)
        record = await self._stores[home].collection(name)
        if record is None and self._homes.pop(public_name(name), None) is not None:
            home = await self.home(name)
            record = await self._stores[home].collection(name)
        if record is None or not record.shards:
            self._parts.pop(name, None)
            return record
        calls = {shard: self._part(shard, record) for shard in record.shards[1:]}
        parts = {home: record, **await complete(calls)}
        self._parts[name] = parts
        return combined(parts)

    async def _part(self, shard: str, home: Collection) -> Collection:
        store = self.store(shard, home.public_name)
        part = await store.collection(home.name)
        if part is None:
            part = _part_of(home, {each.name: each for each in await store.collections()})
        if part is None:
            raise DatabaseUnavailable(
                f"the part of collection {home.public_name!r} in database {shard!r} is missing",
                hint="Restore that database, or import the collection from an artifact.",
            )
        return part

    async def now(
        self, collection: Collection, parts: Mapping[str, Collection | None]
    ) -> Collection | None:
        """Return the record of a collection, given records of its parts as they are now."""
        known = self._parts.get(collection.name)
        if known is None or None in parts.values() or not parts.keys() <= known.keys():
            return await self.record(collection.name)
        for shard, part in parts.items():
            held = known[shard]
            if part is not None and (held.type != part.type or held.revision <= part.revision):
                known[shard] = part
        return combined(known)

    async def discard_built(self, live: Collection, job: Job | None) -> None:
        """Delete the parts of what a job was building, except the home, which discards its own."""
        if job is None or job.record is None:
            return
        for shard in live.shards[1:]:
            part = await self._stores[shard].collection(job.record)
            if part is not None:
                await self._stores[shard].delete_collection(part)

    # Places

    def store(self, shard: str, name: str) -> Store:
        """Return the store of a shard that holds a part of the collection ``name``."""
        try:
            return self._stores[shard]
        except KeyError:
            raise DatabaseUnavailable(
                f"a part of collection {name!r} is in database {shard!r}",
                hint=f"Add {shard!r} to the setting database_shards.",
            ) from None

    async def home(self, name: str) -> str:
        """Return the home of a collection, given the name of a record of it."""
        name = public_name(name)
        if name not in self._homes:
            await self.records()
        return self._homes.get(name) or rendezvous(name, tuple(self._stores))

    async def planned(self, collection: Collection) -> tuple[str, ...]:
        """Return the shards for a new collection, the home first; none if one holds all of it."""
        public = collection.public_name
        if len(self._stores) == 1 or not any(fnmatchcase(public, each) for each in self._split):
            return ()
        home = await self.home(public)
        return (home, *(shard for shard in self._stores if shard != home))

    async def places(self, generation: str) -> list[Place]:
        """Return where a generation is; if nothing is known of it, in any shard."""
        if "@" in generation:
            named = [each.partition("@") for each in generation.split(" ")]
        else:
            if generation not in self._shards:
                await self.records()
            if generation not in self._shards:
                found = await self.everywhere(lambda store: store.generations())
                holders = [shard for shard, types in found.items() if generation in types]
                self._shards[generation] = tuple(holders)
            shards = self._shards[generation] or (next(iter(self._stores)),)
            named = [(generation, "@", shard) for shard in shards]
        several = len(named) > 1
        return [
            Place(shard, self.store(shard, generation), type_, f"{shard}/" if several else "")
            for type_, _, shard in named
        ]

    async def parts(self, collection: Collection) -> list[tuple[Place, Collection]]:
        """Return the parts of a collection, of the generations that it names."""
        known = self._parts.get(collection.name, {})
        parts = []
        for at in await self.places(collection.type):
            part = known.get(at.shard)
            name = part.name if part is not None and part.type == at.type else collection.name
            same = (name, at.type) == (collection.name, collection.type)
            parts.append((at, collection if same else replace(collection, name=name, type=at.type)))
        return parts

    # Calls

    async def everywhere(self, call: Callable[[Store], Awaitable[T]]) -> dict[str, T]:
        """Return the answers of all stores by shard."""
        return await complete({shard: call(store) for shard, store in self._stores.items()})

    async def each(self, generation: str, call: Callable[[Place], Awaitable[T]]) -> list[T]:
        """Return an answer for each place of a generation."""
        places = await self.places(generation)
        return list((await complete({at.shard: call(at) for at in places})).values())

    async def by_source(
        self,
        generation: str,
        items: Iterable[X],
        source: Callable[[X], str],
        call: Callable[[Place, list[X]], Awaitable[T]],
    ) -> list[T]:
        """Return an answer for each place of a generation that has some of the items.

        ``source`` returns the source of an item.
        """
        places = {at.shard: at for at in await self.places(generation)}
        groups = grouped(items, lambda item: shard_of(source(item), tuple(places)))
        calls = {shard: call(places[shard], own) for shard, own in groups.items()}
        return list((await complete(calls)).values())

    async def by_rid(
        self, generation: str, rids: Iterable[str], call: Callable[[Place, list[str]], Awaitable[T]]
    ) -> list[T]:
        """Return an answer for each place of a generation that has some of the record ids."""
        places = {at.prefix: at for at in await self.places(generation)}
        first = next(iter(places))

        def prefix(rid: str) -> str:
            shard, mark, _ = rid.partition("/")
            return shard + mark if shard + mark in places else first

        calls = {
            places[key].shard: call(places[key], [rid.removeprefix(key) for rid in own])
            for key, own in grouped(rids, prefix).items()
        }
        return list((await complete(calls)).values())

    async def read(
        self,
        collection: Collection,
        call: Callable[[Place, Collection], Awaitable[Read[T]]],
        *,
        source: str | None = None,
    ) -> tuple[Collection | None, list[T]]:
        """Return the record of a collection and the answer of each part, or that of one source."""
        parts = await self.parts(collection)
        if source is not None:
            shard = shard_of(source, [at.shard for at, _ in parts])
            parts = [each for each in parts if each[0].shard == shard]
        reads = await complete({at.shard: call(at, part) for at, part in parts})
        values = [each.value for each in reads.values()]
        if not any(at.prefix for at, _ in parts):
            return reads[parts[0][0].shard].collection, values
        now = {shard: each.collection for shard, each in reads.items()}
        return await self.now(collection, now), values


def shard_of(source: str, shards: Sequence[str]) -> str:
    """Return the shard of a document; what was derived from it has the same one."""
    if len(shards) == 1:
        return shards[0]
    stem, mark, kind = source.rpartition(GENERATED)
    return rendezvous(stem if mark and kind in KINDS else source, shards)


def spread(replacement: Replacement, shards: Sequence[str]) -> dict[str, Replacement]:
    """Return the part of each shard of a replacement.

    A near-duplicate of a chunk in another shard is indexed, as nothing would notice the deletion
    of the chunk that represents it.
    """
    parts: dict[str, Replacement] = {}
    sources = grouped(replacement.sources, lambda source: shard_of(source, shards))
    stored = list(zip(replacement.records, replacement.chunks, strict=True))
    for shard, own in sources.items():
        names = set(own)
        kept = [(record, chunks) for record, chunks in stored if record.source in names]
        chunks = [[_represented(chunk, shard, shards) for chunk in each] for _, each in kept]
        counted = [chunk for each in chunks for chunk in each if chunk.of is None]
        statistics = TermStatistics.of_chunks(
            [chunk.terms for chunk in counted], [chunk.lengths for chunk in counted]
        )
        used = {chunk.duplicate_of for chunk in counted}
        parts[shard] = replace(
            replacement,
            sources=own,
            records=[record for record, _ in kept],
            chunks=chunks,
            links=[link for link in replacement.links if link.source in names],
            term_statistics=statistics.to_bytes() if replacement.term_statistics else None,
            stand_ins={key: at for key, at in replacement.stand_ins.items() if key in used},
        )
    return parts


def _represented(chunk: ChunkRecord, shard: str, shards: Sequence[str]) -> ChunkRecord:
    other = chunk.duplicate_of
    if other is None or shard_of(source_of(other), shards) == shard:
        return chunk
    return replace(chunk, duplicate_of=None)


def grouped(values: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Return values by a key."""
    groups = defaultdict[str, list[T]](list)
    for value in values:
        groups[key(value)].append(value)
    return groups


async def complete(calls: Mapping[str, Awaitable[T]]) -> dict[str, T]:
    """Return the results of calls by shard; if some fail, raise one error once all have ended."""
    outcomes = await asyncio.gather(*calls.values(), return_exceptions=True)
    results: dict[str, T] = {}
    for shard, outcome in zip(calls, outcomes, strict=True):
        if type(outcome) is DatabaseUnavailable and len(calls) > 1:
            raise DatabaseUnavailable(
                f"database {shard!r}: {outcome}", hint=outcome.hint
            ) from outcome.__cause__
        if isinstance(outcome, BaseException):
            raise outcome
        results[shard] = outcome
    return results


def _part_of(home: Collection, records: Mapping[str, Collection]) -> Collection | None:
    """Return a part among the records of a shard: by its name, or while it changes, by its type."""
    found = records.get(home.name)
    if found is None or not found.shards:
        found = next((each for each in records.values() if each.type == home.type), None)
    return found


def _known(values: Iterable[int | None]) -> Iterable[int]:
    return (value for value in values if value is not None)
