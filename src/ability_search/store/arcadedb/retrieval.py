"""Retrieval of candidates and of what surrounds them: statements run, rows read as values."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ability_search.collection import Collection
from ability_search.filters.tree import Filter
from ability_search.store.arcadedb.database import Database
from ability_search.store.arcadedb.graph import best_chunks, walk
from ability_search.store.arcadedb.record_rows import collection_in
from ability_search.store.arcadedb.rows import CHUNK_FIELDS, link
from ability_search.store.arcadedb.search import COPIES, candidates, metadata_names, steps
from ability_search.store.records import GraphAnswer, GraphRequest, Link, Row, Search, Searched
from ability_search.store.values import Columns

_PAUSES = (0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
"""Seconds to wait before each repeated search after a commit in progress was seen."""

_OWN = ("rid", "chunkId", "score")
"""Columns of every row, in addition to the requested ones."""
_RENAMED = {column: name for column, name in CHUNK_FIELDS.items() if column != name}
"""Columns -> fields of a chunk, where they differ."""


class SearchSql(Database):
    """Retrieval, see :class:`ability_search.store.port.SearchStore`."""

    async def search(
        self,
        collection: Collection,
        searches: Sequence[Search],
        columns: Columns,
        *,
        first: int = 0,
    ) -> Searched[Mapping[str, Sequence[Row]]]:
        statement = candidates(
            collection.name,
            collection.type,
            [
                each if collection.duplicates else replace(each, copies=False)
                for each in searches
                if collection.kind_chunks or not each.kinds
            ],
            columns,
            first=first,
        )
        for pause in (*_PAUSES, None):
            answer = await self.generation_read(collection.type, statement)
            if pause is None or _complete(answer):
                break
            await asyncio.sleep(pause)
        return Searched(
            collection_in(answer["collection"]),
            _lists(answer, searches, metadata_names(columns)),
        )

    async def best_chunks(
        self,
        generation: str,
        sources: Sequence[str],
        columns: Columns,
        filter: Filter | None,
        *,
        by: str,
        chunk_ids: Sequence[str] = (),
    ) -> tuple[dict[str, Row], dict[str, Row]]:
        answer = await self.generation_read(
            generation,
            best_chunks(generation, sources, columns, filter, by=by, chunk_ids=chunk_ids),
        )
        keys = metadata_names(columns)
        best, given = (
            {row[key]: _row(row, row.get(by), keys) for row in answer[name]}
            for name, key in (("best", "source"), ("given", "chunkId"))
        )
        return best, given

    async def graph(self, generation: str, request: GraphRequest) -> GraphAnswer:
        answer = await self.generation_read(
            generation,
            walk(generation, request),
        )
        hops = range(1, request.hops + 1) if request.links else ()
        keys = metadata_names(request.columns)
        return GraphAnswer(
            rows=[_row(row, row.get(request.by), keys) for row in answer["found"]],
            hops=[(_links(answer, f"out{hop}"), _links(answer, f"in{hop}")) for hop in hops],
        )


def _complete(answer: Mapping[str, Any]) -> bool:
    """Return whether no commit was in progress, of which the searches may have seen only half."""
    before, after = ({row["revision"] for row in answer[name]} for name in ("collection", "later"))
    return not answer["unindexed"] and before <= after


def _lists(
    answer: Mapping[str, Any], searches: Sequence[Search], keys: Mapping[str, str]
) -> dict[str, Sequence[Row]]:
    """Return the rows of each search, with the further columns of its first rows."""
    lists = {each.name: _ranked(answer, each) for each in searches}
    names = (name + copies for name in lists for copies in ("", COPIES))
    first = {row["rid"]: row for name in names for row in answer.get(f"first_{name}") or ()}
    return {
        name: [
            _row({**row, **first.get(row["rid"], {})} if first else row, row["score"], keys)
            for row in rows
        ]
        for name, rows in lists.items()
    }


def _ranked(answer: Mapping[str, Any], search: Search) -> Sequence[Mapping[str, Any]]:
    """Return the rows of a search, best first in each of its steps, each chunk once.

    Duplicates that it finds rank among those of each step.
    """
    copies = answer.get(search.name + COPIES) or []
    ranked: dict[str, Mapping[str, Any]] = {}
    for name, limit in steps(search).items():
        rows = [*(answer.get(name) or ()), *copies]
        rows.sort(key=lambda row: (-(row["score"] or 0.0), row["chunkId"]))
        for row in rows[:limit]:
            ranked.setdefault(row["chunkId"], row)
    return list(ranked.values())


def _row(row: Mapping[str, Any], score: float | None, keys: Mapping[str, str]) -> Row:
    columns = {_RENAMED.get(name, name): value for name, value in row.items() if name not in _OWN}
    if keys:
        columns["metadata"] = {key: columns.pop(name, None) for name, key in keys.items()}
    return Row(row["rid"], row["chunkId"], 0.0 if score is None else score, columns)


def _links(answer: Mapping[str, Any], name: str) -> list[Link]:
    return [link(row) for row in answer[name]]
