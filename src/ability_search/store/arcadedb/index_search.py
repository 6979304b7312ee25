"""Searches over the tool of a database ability that searches its indexes without SQL.

Its answers are those of :mod:`.search`, for a fraction of the work: it takes what the indexes find
and reads only the wanted columns.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from operator import neg
from typing import Any

import numpy as np

from ability_search.collection import Collection
from ability_search.documents import SparseVector
from ability_search.store.arcadedb.core import PATIENCE, Parameters, kind_type
from ability_search.store.arcadedb.filter_sql import to_sql
from ability_search.store.arcadedb.rows import (
    CHUNK_COLUMNS,
    TEXT_COLUMNS,
    chunk_text,
    collection_in,
)
from ability_search.store.arcadedb.search import is_scan
from ability_search.store.records import Ahead, By, Row, Search, Searched, metadata_key
from ability_search.store.values import Columns

_TERMS, _VECTORS = ["terms", "weights"], ["embedding"]
_RECORD = ["kind", "scope", "key", "fields", "data", "until", "createdAt", "updatedAt", "revision"]


class IndexRequest:
    """The searches of a query as the input of the tool, and the values of its answer.

    Args:
        collection: The collection; its generation is searched.
        searches: Of indexes only, see :func:`finds_all`.
        columns: Columns of every row, without metadata.
        ahead: The chunks whose text is wanted.
        beam: Minimum beam width of searches of a graph.
    """

    def __init__(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        ahead: Ahead | None,
        *,
        beam: int,
    ) -> None:
        self._collection = collection
        self._all = searches
        self._searches = [each for each in searches if collection.kind_chunks or not each.kinds]
        self._columns = columns
        compared: dict[str, By] = {**columns.cosines, **columns.products}
        names = {id(by): name for name, by in compared.items()}
        self._by = {each.name: names.setdefault(id(each.by), each.name) for each in self._searches}
        compared |= {self._by[each.name]: each.by for each in self._searches}
        self._params = Parameters()
        filters = dict.fromkeys(each.filter for each in self._searches)
        conditions = {
            each: None if each is None else to_sql(each, self._params) for each in filters
        }
        record = {"type": "Collection", "where": {"key": collection.name}}
        same = {"unless": {"revision": collection.record}}
        note = {"type": "Unindexed", "where": {"type": collection.type}, "columns": ["at"]}
        self.input: dict[str, Any] = {
            "compared": {name: _compared(by) for name, by in compared.items()},
            "searches": {
                each.name: {
                    "type": kind_type(collection.type) if each.kinds else collection.type,
                    "by": self._by[each.name],
                    "limits": [*each.heads, each.limit],
                    "beam": beam,
                    "where": each.filter and conditions[each.filter],
                }
                for each in self._searches
            },
            "params": self._params,
            "columns": [CHUNK_COLUMNS[name] for name in ("chunk_id", *columns.fields)],
            "before": [{**record, **same, "columns": _RECORD}, note],
            "after": [{**record, **same, "columns": ["revision"]}],
        }
        if ahead is not None:
            self.input |= {"ahead": TEXT_COLUMNS, "first": ahead.first}
            self.input["orders"] = [
                {self._by[name]: share for name, share in order.items() if name in self._by}
                for order in ahead.orders
            ]

    def complete(self, answer: Mapping[str, Any]) -> bool:
        """Return whether no commit was in progress, of which the searches may have seen half."""
        record, notes = answer["before"]
        if any(at >= answer["now"] - PATIENCE for (at,) in notes):
            return False
        return [row[-1:] for row in record or ()] == (answer["after"][0] or [])

    def searched(self, answer: Mapping[str, Any]) -> Searched:
        """Return the values of an answer."""
        rids, rows = answer["rids"], answer["rows"]
        scores = {
            name: np.frombuffer(base64.b64decode(block), "<f4").tolist()
            for name, block in answer["scores"].items()
        }
        chunk_ids, *fields = zip(*rows, strict=True) if rows else [()]
        further = [*self._columns.cosines, *self._columns.products]
        names = [*self._columns.fields, *further]
        # NaN is the only number that is not itself.
        compared = [[one if one == one else None for one in scores[name]] for name in further]
        columns = zip(chunk_ids, *fields, *compared, strict=True)
        values = [dict(zip(names, own, strict=True)) for _, *own in columns]
        ahead = answer["ahead"]
        texts = {
            place: chunk_text(rids[place], row)
            for place, row in zip(ahead["places"], ahead["rows"], strict=True)
        }
        found: dict[str, list[Row]] = {}
        for search in self._all:
            ranked: dict[int, None] = {}
            by = scores[self._by[search.name]] if search.name in self._by else []
            keys = [*zip(map(neg, by), chunk_ids, strict=False)]
            for places in answer["lists"].get(search.name, ()):
                places.sort(key=keys.__getitem__)
                ranked |= dict.fromkeys(places)
            own = (map(each.__getitem__, ranked) for each in (rids, chunk_ids, by, values))
            found[search.name] = [*map(Row, *own, map(texts.get, ranked))]
        current: Collection | None = self._collection
        read = answer["before"][0]
        if read is not None:  # it has changed
            current = collection_in([dict(zip(_RECORD, row, strict=True)) for row in read])
        return Searched(current, found)


def finds_all(
    collection: Collection, searches: Sequence[Search], columns: Columns, *, scan_below: int
) -> bool:
    """Return whether the indexes find what is looked for, and rows need no values of metadata.

    They do not find given chunks, what is compared with all chunks, and the duplicates that a
    filter lets in.
    """
    return all(metadata_key(name) is None for name in columns.fields) and not any(
        each.within is not None
        or is_scan(each, collection, scan_below)
        or (each.filter is not None and collection.duplicates and not each.kinds)
        for each in searches
    )


def _compared(by: By) -> dict[str, Any]:
    if isinstance(by, SparseVector):
        return {"properties": _TERMS, "ids": by.ids, "weights": by.weights}
    block = np.asarray(by, "<f4").tobytes()
    return {"properties": _VECTORS, "vector": base64.b64encode(block).decode()}
