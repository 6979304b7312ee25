"""Rows of artifacts <-> records of the store, for the modules that still handle rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.collection import Collection
from ability_search.documents import Document
from ability_search.index import preparation
from ability_search.index.preparation import Prepared, chunk_records, links_of
from ability_search.ports import Store
from ability_search.store.arcadedb import rows
from ability_search.store.arcadedb.store import ArcadeStore
from ability_search.store.records import Link, Replaced, Replacement
from ability_search.store.registry import Registry
from ability_search.text.term_statistics import TermStatistics

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contents:
    """The new contents of some sources."""

    records: Sequence[Row]
    rows: Sequence[Sequence[Row]]
    links: Sequence[Row]


class Storage:
    """Write access to one collection."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        name: str,
        message_bytes: int,
        now: Callable[[], int],
    ) -> None:
        self._store = ArcadeStore(store, message_bytes=message_bytes, now=now)
        self._registry = registry
        self.name = name

    async def put(self, collection: Collection, contents: Contents) -> Replaced | None:
        """Replace sources in one transaction; return ``None`` if the generation is gone."""
        chunks = [[rows.chunk_record(row) for row in own] for own in contents.rows]
        counted = [chunk for own in chunks for chunk in own if chunk.of is None]
        statistics = TermStatistics.of_chunks(
            [chunk.terms for chunk in counted], [chunk.lengths for chunk in counted]
        )
        replaced = await self._store.replace(
            collection,
            Replacement(
                sources=[record["source"] for record in contents.records],
                records=[rows.source_record(record) for record in contents.records],
                chunks=chunks,
                links=[Link(**link) for link in contents.links],
                term_statistics=statistics.to_bytes(),
            ),
        )
        if replaced is not None:
            self._registry.learn(self.name, replaced.collection)
        return replaced


def row_bytes(row: Row) -> int:
    """Estimate the bytes of a row in a statement, seldom too low."""
    text = 3 * (len(row["content"]) + len(row["lead"]) + len(row["title"]))
    text += len(str(row["metadata"])) + sum(3 + len(facet) for facet in row["facets"])
    vector = row["embedding"] or row.get("spareEmbedding") or ()
    terms = row["terms"] or row.get("spareTerms") or ()
    return 600 + text + 11 * len(vector) + 18 * len(terms) + 8 * len(row["dates"])


def chunk_rows(prepared: Prepared, collection: Collection, *, now: int) -> list[Row]:
    """Return the rows of the chunks of a document."""
    return list(map(rows.chunk_row, chunk_records(prepared, collection, now=now)))


def source_record(prepared: Prepared, *, now: int) -> Row:
    """Return the row of the record of a document."""
    return rows.source_row(preparation.source_record(prepared, now=now))


def link_rows(document: Document) -> list[Row]:
    """Return the rows of the links of a document."""
    return list(map(rows.link_row, links_of(document)))


def restored_document(record: Mapping[str, Any], chunks: Sequence[Mapping[str, Any]]) -> Document:
    """Restore a document from its row and those of its chunks, in order."""
    return preparation.restored_document(
        rows.source_record(record), list(map(rows.passage, chunks))
    )
