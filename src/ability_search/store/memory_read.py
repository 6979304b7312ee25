"""Reads of the memory store: selections, pages and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ability_search.collection import Collection
from ability_search.filters.predicate import matches
from ability_search.store.memory_records import record_page
from ability_search.store.memory_tables import (
    Generation,
    StoredChunk,
    StoredSource,
    Tables,
    cosine,
    field_of,
    product,
    properties,
    value_of,
)
from ability_search.store.records import strongest
from ability_search.store.values import (
    Chunks,
    Columns,
    Count,
    Counted,
    Links,
    Page,
    Read,
    Records,
    Sources,
)

Stored = StoredChunk | StoredSource


class MemoryReads(Tables):
    """See :class:`ability_search.store.port.Store`."""

    async def read(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        return [self._answer(ask) for ask in asks]

    def _answer(self, ask: Read | Count) -> Page | Counted:
        if isinstance(ask.of, Records):
            return record_page(self._table, ask, self._now())
        return self._page(ask) if isinstance(ask, Read) else self._counted(ask)

    def _page(self, ask: Read) -> Page:
        collection = _collection(ask)
        generation = self._generation(collection.type)
        current = self._collection(collection.name) if ask.current else None
        if isinstance(ask.of, Links):
            ends = set(ask.of.sources)
            links = [each for each in generation.links if ends & {each.source, each.target}]
            return Page(strongest(links, ask.limit or len(links)), None, current)
        found = _selected(generation, ask.of)
        key = _vector_key if ask.order == "vector_key" else _name
        if ask.order != "stored":
            found = sorted(filter(key, found), key=key)
        if ask.descending:
            found.reverse()
        if (after := ask.after) is not None:
            assert isinstance(after, str)
            down = ask.descending
            found = [each for each in found if (key(each) < after if down else key(each) > after)]
        page = found[: ask.limit]
        more = ask.limit is not None and len(page) == ask.limit and ask.order != "stored"
        items = [_item(each, ask.columns) for each in page]
        return Page(items, key(page[-1]) if more else None, current)

    def _counted(self, ask: Count) -> Counted:
        collection = _collection(ask)
        chosen = _selected(self._generation(collection.type), ask.of)
        if ask.sample is not None:
            chosen = sorted(filter(_vector_key, chosen), key=_vector_key)[: ask.sample]
        empty = (0,) * (1 + len(ask.sums))
        groups: dict[int | None, tuple[int, ...]] = {} if ask.by else {None: empty}
        for record in (each.record for each in chosen):
            least = getattr(record, ask.by) // ask.width * ask.width if ask.by else None
            more = (1, *(getattr(record, field) for field in ask.sums))
            groups[least] = tuple(map(sum, zip(groups.get(least, empty), more, strict=True)))
        current = self._collection(collection.name) if ask.current else None
        return Counted(groups, current)


def _collection(ask: Read | Count) -> Collection:
    assert ask.collection is not None
    return ask.collection


def _selected(generation: Generation, of: object) -> list[Stored]:
    """Return what is selected, in the order of insertion."""
    found: Iterable[Stored]
    if isinstance(of, Sources):
        found = generation.sources.values()
        found = [each for each in found if of.names is None or each.record.source in of.names]
    else:
        assert isinstance(of, Chunks)
        found = _chunks(generation.table(kinds=bool(of.layer)).values(), of)
    filter = of.filter
    return [each for each in found if filter is None or matches(filter, properties(each.record))]


def _chunks(chunks: Iterable[StoredChunk], of: Chunks) -> list[StoredChunk]:
    values = of.handles, of.ids, of.sources, of.vector_keys
    fields: Sequence[Callable[[StoredChunk], str]] = (
        lambda chunk: chunk.rid,
        _name,
        lambda chunk: chunk.record.source,
        _vector_key,
    )
    for wanted, field in zip(values, fields, strict=True):
        if wanted is not None:
            keys = set(wanted)
            chunks = [chunk for chunk in chunks if field(chunk) in keys]
    if of.vector_keys is not None:
        last_first = sorted(chunks, key=_name, reverse=True)
        chunks = {_vector_key(chunk): chunk for chunk in last_first}.values()
    return [
        chunk
        for chunk in chunks
        if of.indexed in (None, chunk.indexed)
        and of.first <= chunk.record.chunk_index
        and (of.end is None or chunk.record.chunk_index < of.end)
    ]


def _name(stored: Stored) -> str:
    if isinstance(stored, StoredChunk):
        return stored.record.chunk_id
    return stored.record.source


def _vector_key(stored: Stored) -> str:
    assert isinstance(stored, StoredChunk)
    return stored.record.vector_key or ""


def _item(stored: Stored, columns: Columns | None) -> Any:
    """Return a copy of the record, or a row of its columns."""
    if isinstance(stored, StoredSource):
        if columns is None:
            return stored.copy()
        return {name: field_of(stored.record, name) for name in columns.fields}
    if columns is None:
        return stored.whole()
    row = {name: value_of(stored, name) for name in columns.fields}
    row |= {name: cosine(stored, vector) for name, vector in columns.cosines.items()}
    row |= {name: product(stored.record, by) or 0.0 for name, by in columns.products.items()}
    return row
