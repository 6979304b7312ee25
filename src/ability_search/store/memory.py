"""A store in memory: the reference of the store port, for tests and for try-outs.

Searches are exact. Methods do not wait for anything, so each is atomic for the callers of one
event loop. What is stored and what is returned are copies, or cannot be changed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from operator import attrgetter
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import GenerationGone
from ability_search.store import records
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    chosen,
    find,
    item,
    name_of,
    record_in,
    row_of,
    source_copy,
    vector_key,
)
from ability_search.store.records import Represented, moved
from ability_search.store.statistics_cache import TermStatisticsEntry, put_entry
from ability_search.store.stored_collections import (
    COLLECTION,
    change_collection,
    collection_fields,
    collection_of,
)
from ability_search.store.values import (
    MOST_RECORDS,
    Add,
    Change,
    Columns,
    Committed,
    Count,
    Counted,
    Key,
    Links,
    Page,
    Patch,
    Put,
    Read,
    Record,
    Records,
    Require,
    Scalar,
    of_collection,
    of_generation,
)


class MemoryStore:
    """A complete :class:`ability_search.store.port.Store`.

    Args:
        now: The clock of the store, in epoch milliseconds.
        scan_below: Number of chunks from which a generation counts as having a vector graph.
    """

    def __init__(
        self, now: Callable[[], int] = lambda: time.time_ns() // 1_000_000, *, scan_below: int = 1
    ) -> None:
        self._now = now
        self._scan_below = scan_below
        self._table: Table = {}
        self._generations: dict[str, Generation] = {}

    def _generation(self, name: str) -> Generation:
        try:
            return self._generations[name]
        except KeyError:
            raise GenerationGone(name) from None

    def _collection(self, name: str) -> Collection | None:
        """Return the record of a collection."""
        record = self._table.get((COLLECTION, of_collection(name), (name,)))
        return None if record is None else collection_of(record)

    # Records and generations

    async def commit(self, changes: Sequence[Change]) -> Committed:
        self._table, committed = changed(self._table, changes, self._now())
        return committed

    async def create_generation(self, collection: Collection) -> None:
        self._generations.setdefault(collection.type, Generation())

    async def generations(self) -> list[str]:
        return list(self._generations)

    async def drop_generation(self, generation: str) -> None:
        self._generations.pop(generation, None)
        scope = of_generation(generation)
        self._table = {key: record for key, record in self._table.items() if key[1] != scope}

    # Reads

    async def read(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: Read | Count) -> Page | Counted:
        if isinstance(ask.of, Records):
            return record_page(self._table, ask, self._now())
        assert ask.collection is not None
        generation = self._generation(ask.collection.type)
        current = self._collection(ask.collection.name) if ask.current else None
        if isinstance(ask, Count):
            return Counted(_groups(generation, ask), current)
        if isinstance(ask.of, Links):
            ends = set(ask.of.sources)
            links = [each for each in generation.links if ends & {each.source, each.target}]
            return Page(records.strongest(links, ask.limit or len(links)), None, current)
        return replace(_page(generation, ask), current=current)

    async def search(
        self,
        collection: Collection,
        searches: Sequence[records.Search],
        columns: Columns,
        *,
        ahead: records.Ahead | None = None,
        consistent: bool = True,
    ) -> records.Searched:
        generation = self._generation(collection.type)
        found = {each.name: find(generation, each) for each in searches}
        rows = {
            each.name: [row_of(chunk, n, columns, by=each.by) for chunk, n in found[each.name][0]]
            for each in searches
        }
        hops = {name: links for name, (_, links) in found.items() if links is not None}
        return records.Searched(self._collection(collection.name), rows, hops)

    # Documents

    async def replace(
        self, collection: Collection, replacement: records.Replacement
    ) -> records.Replaced | None:
        record = self._collection(collection.name)
        if record is None or record.type != collection.type:
            return None
        if replacement.chunks and record.average_length != collection.average_length:
            return None
        stored = self._generation(record.type)
        for chunk_id, created_at in replacement.stand_ins.items():
            found = stored.chunks.get(chunk_id)
            if found is None or not found.indexed or found.record.created_at != created_at:
                return None
        concerned = set(replacement.sources)
        old = [each for name in concerned if (each := stored.sources.pop(name, None))]
        gone = stored.delete_chunks(concerned, kinds=False)
        stored.delete_chunks(concerned, kinds=True)
        inserted = [chunk for chunks in replacement.chunks for chunk in chunks]
        for source in replacement.records:
            stored.sources[source.source] = source_copy(source)
        for chunk in inserted:
            stored.add_chunk(chunk)
        _renew_stand_ins(stored, gone, concerned)
        kept_links = [link for link in stored.links if link.source not in concerned]
        stored.links = [*kept_links, *replacement.links]
        new = replace(
            record,
            revision=record.revision + 1,
            updated_at=self._now(),
            nested=record.nested or replacement.nested,
            **_totals(stored),
        )
        entry = TermStatisticsEntry(
            revision=new.revision,
            base=False,
            added=replacement.term_statistics,
            removed=[chunk.record.terms for chunk in gone],
            removed_lengths=[chunk.record.lengths for chunk in gone],
        )
        await self.commit(
            [change_collection(record, collection_fields(new)), put_entry(record.type, entry)]
        )
        return records.Replaced(
            collection=new,
            deleted=sum(each.chunks for each in old),
            inserted=len(inserted),
            replaced=sum(each.counted for each in old),
        )

    async def patch(self, collection: Collection, patches: Sequence[Patch]) -> None:
        generation = self._generation(collection.type)
        for each in patches:
            chunk = generation.table(kinds=bool(each.layer)).get(each.chunk_id)
            if chunk and all(getattr(chunk.record, name) == v for name, v in each.where.items()):
                chunk.record = replace(chunk.record, **deepcopy(dict(each.fields)))

    async def settle(self, collection: Collection) -> Collection:
        """Mark the graphs as built: there are none, as searches are exact."""
        self._generation(collection.type)
        flags: dict[str, Any] = {
            "graph": collection.graph or collection.chunks >= self._scan_below,
            "kind_graph": collection.kind_graph or collection.kind_chunks >= self._scan_below,
        }
        await self.commit([change_collection(collection, flags)])
        return replace(collection, **flags)


# Pages and counts


def _page(generation: Generation, ask: Read) -> Page:
    """Return a page of chunks or sources."""
    found = chosen(generation, ask.of)
    key = vector_key if ask.order == "vector_key" else name_of
    if ask.order == "stored":
        found = sorted(found, key=attrgetter("indexed_at"))
    else:
        found = sorted(filter(key, found), key=key)
    if ask.descending:
        found.reverse()
    if (after := ask.after) is not None:
        assert isinstance(after, str)
        down = ask.descending
        found = [each for each in found if (key(each) < after if down else key(each) > after)]
    page = found[: ask.limit]
    more = ask.limit is not None and len(page) == ask.limit and ask.order != "stored"
    items = [item(each, ask.columns) for each in page]
    return Page(items, key(page[-1]) if more else None, None)


def _groups(generation: Generation, ask: Count) -> Mapping[int | None, tuple[int, ...]]:
    found = chosen(generation, ask.of)
    if ask.sample is not None:
        found = sorted(filter(vector_key, found), key=vector_key)[: ask.sample]
    empty = (0,) * (1 + len(ask.sums))
    groups: dict[int | None, tuple[int, ...]] = {} if ask.by else {None: empty}
    for record in map(record_in, found):
        least = getattr(record, ask.by) // ask.width * ask.width if ask.by else None
        more = (1, *(getattr(record, field) for field in ask.sums))
        groups[least] = tuple(map(sum, zip(groups.get(least, empty), more, strict=True)))
    return groups


# Replacement


def _totals(generation: Generation) -> dict[str, Any]:
    """Return the counts of a generation in the collection's record."""
    sources = generation.sources.values()
    return {
        "chunks": sum(source.chunks for source in sources),
        "sources": sum(source.counted for source in sources),
        "tokens": sum(source.tokens for source in sources),
        "tokens_min": min((n for s in sources if (n := s.tokens_min) is not None), default=None),
        "tokens_max": max((n for s in sources if (n := s.tokens_max) is not None), default=None),
        "duplicates": sum(not chunk.indexed for chunk in generation.chunks.values()),
        "links": len(generation.links),
        "kind_chunks": len(generation.kinds),
    }


def _renew_stand_ins(
    generation: Generation, gone: Sequence[StoredChunk], replaced: Container[str]
) -> None:
    """Give the duplicates of chunks that are gone another stand-in, or index the first of them."""
    new: list[records.ChunkRecord] = []
    left: dict[str, list[StoredChunk]] = {}
    for chunk in sorted(generation.chunks.values(), key=name_of):
        if chunk.record.source in replaced:
            new.append(chunk.whole())
        elif chunk.record.duplicate_of:
            left.setdefault(chunk.record.duplicate_of, []).append(chunk)
    groups = [
        Represented(
            before.vector_key,
            [each.record.chunk_id for each in left[before.chunk_id]],
            generation.sources[left[before.chunk_id][0].record.source].dedup_threshold,
            left[before.chunk_id][0].embedding,
        )
        for before in (chunk.record for chunk in gone)
        if before.chunk_id in left
    ]
    for standing, copies in moved(groups, new).items():
        for chunk in (generation.chunks[each] for each in copies):
            other = None if chunk.record.chunk_id == standing else standing
            chunk.record = replace(chunk.record, duplicate_of=other)


Identity = tuple[str, str, Key]
"""Kind, scope and key of a record."""
Table = dict[Identity, Record]


class _Refused(Exception):
    """A condition of a change does not hold.

    Args:
        record: The record that is stored.
    """

    def __init__(self, record: Record | None = None) -> None:
        super().__init__()
        self.record = record


def changed(table: Table, changes: Sequence[Change], now: int) -> tuple[Table, Committed]:
    """Return the table after all changes, or as it is if one is refused; and the outcome."""
    new = dict(table)
    record: Record | None = None
    for place, change in enumerate(changes):
        try:
            record = _changed(new, change, now)
        except _Refused as exc:
            return table, Committed(False, now, place, _copy(exc.record, now))
    return new, Committed(True, now, record=_copy(record, now))


def record_page(table: Table, ask: Read | Count, now: int) -> Page | Counted:
    """Return a page of records, or their number."""
    assert isinstance(ask.of, Records)
    found = _selected(table, ask.of, now)
    if isinstance(ask, Count):
        return Counted({None: (len(found),)}, None, now)
    by_time = ask.order == "updated_at"
    items = sorted(found, key=lambda record: _position(ask.of, record))
    if by_time:
        items.sort(key=lambda record: record.updated_at, reverse=ask.descending)
    if ask.after is not None:
        items = [record for record in items if _position(ask.of, record) > tuple(ask.after)]
    limit = ask.limit or MOST_RECORDS
    page = [deepcopy(_seen(record, now)) for record in items[:limit]]
    more = len(items) > limit and not by_time
    return Page(page, _position(ask.of, page[-1]) if more else None, None, now)


def _position(of: Any, record: Record) -> Key:
    return record.key if of.scope is not None else (record.scope, *record.key)


def _selected(table: Table, of: Records, now: int) -> list[Record]:
    keys = None if of.keys is None else set(of.keys)
    return [
        record
        for (kind, scope, key), record in table.items()
        if of.kind in (None, kind)
        and of.scope in (None, scope)
        and (keys is None or key in keys)
        and (not of.prefix or key[: len(of.prefix)] == of.prefix != key)
        and (of.until is None or key <= of.until)
        and (of.expired is None or of.expired is _seen(record, now).expired)
        and (of.before is None or record.updated_at < of.before)
        and _has(record, of.where)
    ]


def _copy(record: Record | None, now: int) -> Record | None:
    return None if record is None else deepcopy(_seen(record, now))


def _seen(record: Record, now: int) -> Record:
    return replace(record, expired=record.until is not None and record.until <= now)


def _has(record: Record, fields: Mapping[str, Scalar | None]) -> bool:
    return all(record.fields.get(name) == value for name, value in fields.items())


def _changed(table: Table, change: Change, now: int) -> Record | None:
    """Change the table; return the record of the change.

    Raises:
        _Refused: if a condition does not hold.
    """
    if isinstance(change, Put):
        return _put(table, change, now)
    if isinstance(change, Add):
        old = table.get((change.kind, change.scope, change.key))
        counts = {} if old is None else old.fields
        sums = {name: counts.get(name, 0) + by for name, by in change.by.items()}
        fields = {**change.fields, **sums}
        return _put(table, Put(change.kind, change.scope, change.key, fields, merge=True), now)
    found = _selected(table, change.of, now)
    if isinstance(change, Require):
        most = len(found) if change.at_most is None else change.at_most
        if not change.at_least <= len(found) <= most:
            raise _Refused
        return None
    if change.count not in (None, len(found)):
        raise _Refused
    for record in found:
        del table[record.kind, record.scope, record.key]
    return None


def _put(table: Table, put: Put, now: int) -> Record:
    identity = (put.kind, put.scope, put.key)
    old = table.get(identity)
    if put.revision not in (None, 0 if old is None else old.revision):
        raise _Refused(old)
    if put.where is not None and (old is None or not _has(old, put.where)):
        raise _Refused(old)
    known = old or Record(*identity, {})
    until = known.until if put.lease == "keep" else None
    if isinstance(put.lease, int):
        until = now + put.lease
    table[identity] = replace(
        known,
        fields={**(known.fields if put.merge else {}), **deepcopy(dict(put.fields))},
        data=known.data if put.merge and put.data is None else put.data,
        revision=known.revision + 1,
        until=until,
        created_at=now if old is None or put.fresh else known.created_at,
        updated_at=now,
    )
    return table[identity]
