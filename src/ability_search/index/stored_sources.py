"""The stored sources of collections: list, delete, compare with files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.collection import Collection
from ability_search.documents import Document
from ability_search.errors import GenerationGone, InvalidInput
from ability_search.filters.tree import Exists, Field, Not, OneOf, combine
from ability_search.index.index_ports import IndexPorts
from ability_search.index.preparation import generated_sources
from ability_search.ops.metrics.metric_table import CHUNKS_DELETED
from ability_search.store.pages import (
    COUNTED,
    HASHES,
    NAMES,
    count,
    read_all,
    read_page,
    read_whole,
    source_names,
)
from ability_search.store.port import Store
from ability_search.store.records import Replacement, metadata_column
from ability_search.store.registry import Registry
from ability_search.store.values import Columns, Count, Page, Read, Sources

_DELETE_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SourcePage:
    """A page of sources in order; ``cursor`` marks the next page, ``None`` on the last one."""

    collection: Collection
    sources: tuple[str, ...]
    cursor: str | None


class StoredSources:
    """The services on stored sources."""

    def __init__(self, ports: IndexPorts) -> None:
        self._store = ports.store
        self._registry = ports.registry
        self._meter = ports.meter

    async def page(
        self, name: str, *, limit: int, cursor: str | None, children: bool = True
    ) -> SourcePage:
        """Return one page of a collection's sources, and the collection as it is now.

        Without ``children``, the sources of documents of other documents are left out.

        Raises:
            NotFound: if there is no such collection.
            InvalidInput: if the cursor was not returned with an earlier page.
        """
        after = "" if cursor is None else _read_cursor(cursor)
        collection = await self._registry.get(name, fresh=True)
        of = Sources(filter=COUNTED if children else combine(COUNTED, Not(Exists(Field("of")))))
        page = await read_page(self._store, Read(of, collection, NAMES, limit + 1, after=after))
        names = tuple(row["source"] for row in page.items[:limit])
        return SourcePage(collection, names, None if page.next is None else _cursor(names[-1]))

    async def delete(self, name: str, sources: Sequence[str] | None = None) -> int:
        """Delete sources, or the whole collection; return the number of deleted chunks.

        The documents of a source, and the kinds derived from it, are deleted with it.

        Raises:
            NotFound: if there is no such collection. A missing source is not an error.
        """
        for _ in range(_DELETE_ATTEMPTS):
            collection = await self._registry.get(name, fresh=sources is None)
            if sources is not None:
                deleted = await self.remove(collection, sources)
                if deleted is not None:
                    return deleted
            elif await self._registry.drop(collection):
                self._meter.add(CHUNKS_DELETED, collection.chunks)
                return collection.chunks
            self._registry.forget(name)
        return 0

    async def stored(self, name: str, sources: Sequence[str]) -> list[str]:
        """Return those of the sources that are stored."""
        collection = await self._registry.find(name) if sources else None
        if collection is None:
            return []
        return list((await stored_hashes(self._store, self._registry, collection, sources))[1])

    async def discard(self, name: str, sources: Sequence[str]) -> int:
        """Delete sources, if they are stored; return how many were."""
        for _ in range(_DELETE_ATTEMPTS if sources else 0):
            known = await self._registry.reload(name)
            if known is None:
                break
            collection, stored = await stored_hashes(self._store, self._registry, known, sources)
            if collection is None or not stored:
                break
            if await self.remove(collection, list(stored)) is not None:
                return len(stored)
        return 0

    async def remove(
        self, collection: Collection, sources: Sequence[str], *, children: bool = True
    ) -> int | None:
        """Delete sources with the kinds derived from them and, in the same transaction, all others.

        Without ``children``, the documents that callers stored as documents of these are kept.

        Returns:
            The number of deleted chunks; ``None`` if the generation is gone.
        """
        try:
            every = await self._with_children(collection, sources) if children else sources
        except GenerationGone:
            return None
        made = generated_sources(sources) if collection.kind_chunks else []
        wanted = list(dict.fromkeys([*every, *made]))
        replaced = await self._store.replace(collection, Replacement(wanted))
        if replaced is None:
            return None
        current, deleted = replaced.collection, replaced.deleted
        self._registry.learn(collection.name, current)
        self._meter.add(CHUNKS_DELETED, deleted)
        if children and current.may_have_children and not collection.may_have_children:
            # Another worker stored the first ones after this record was read.
            deleted += await self.remove(current, sources) or 0
        return deleted

    async def _with_children(self, collection: Collection, sources: Sequence[str]) -> Sequence[str]:
        """Return sources and those of all documents of them, and of these in turn."""
        every, parents = dict.fromkeys(sources), sources
        while parents and collection.may_have_children:
            of = Sources(filter=OneOf(Field("of"), tuple(parents)))
            found = await source_names(self._store, collection, of)
            parents = [each for each in found if each not in every]
            every.update(dict.fromkeys(parents))
            if not collection.nested:
                break
        return list(every)

    async def clear_up(self, collection: Collection, documents: Sequence[Document]) -> list[str]:
        """Delete the stored documents that are no longer in the files of these.

        Returns:
            Warnings for sources of documents in files that are stored as others'.
        """
        holders = [each for each in documents if each.children is not None]
        if holders and collection.nested:
            kept = {child for each in holders for child in each.children or ()}
            left = await self._inside(collection, [each.source for each in holders], kept)
            await self.discard(collection.name, [each["source"] for each in left])
        within = {
            each.source: each.of
            for each in documents
            if each.of is not None
            and each.of == each.metadata.get("path")
            and not each.source.startswith(f"{each.of}#")
        }
        ask = Read(Sources([*within]), collection, Columns(("source", "of")))
        stored = await read_all(self._store, ask) if within else []
        return [
            f"{each['source']!r} was {f'in {of}' if (of := each['of']) else 'another document'} and"
            f" is now in {within[each['source']]}; give each its own source to keep both"
            for each in stored
            if each["of"] != within[each["source"]]
        ]

    async def inside(self, name: str, files: Sequence[str]) -> int:
        """Return the number of documents in stored files, less the files that do not count."""
        collection = await self._registry.find(name)
        if collection is None or not collection.nested or not files:
            return 0
        inside = await self._inside(collection, files)
        holders = Sources(list({each["of"] for each in inside}), Not(COUNTED))
        (counted,) = await count(self._store, Count(holders, collection))
        return len(inside) - counted.groups[None][0]

    async def _inside(
        self, collection: Collection, files: Sequence[str], others: Iterable[str] = ()
    ) -> list[Mapping[str, Any]]:
        """Return ``source`` and ``of`` of the documents in stored files, without ``others``."""
        left = {*others, *generated_sources(files)}
        path = metadata_column("path")
        of = Sources(filter=OneOf(Field("of"), tuple(files)))
        stored = await read_all(self._store, Read(of, collection, Columns(("source", "of", path))))
        return [row for row in stored if row["source"] not in left and row[path] == row["of"]]


async def stored_hashes(
    store: Store, registry: Registry, collection: Collection, sources: Sequence[str]
) -> tuple[Collection | None, Mapping[str, str]]:
    """Return a collection as it is now, and the content hashes of its sources among these."""

    async def ask(current: Collection) -> Page:
        return await read_whole(store, Read(Sources(sources), current, HASHES, current=True))

    found = await registry.consult(collection, ask)
    if found is None:
        return None, {}
    return found[0], {row["source"]: row["content_hash"] for row in found[1].items}


def _cursor(source: str) -> str:
    return base64.urlsafe_b64encode(source.encode()).decode("ascii")


def _read_cursor(cursor: str) -> str:
    try:
        return base64.b64decode(cursor.encode("ascii"), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError) as exc:
        raise InvalidInput(
            "cursor", "not a cursor of this tool", hint="Pass nextCursor of the previous page."
        ) from exc
