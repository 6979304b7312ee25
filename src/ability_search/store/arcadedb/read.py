"""Reads and counts: selections as SQL, rows as values.

All asks of one call are one query, so they cost one round trip. If the answer does not fit into a
message, each ask is run alone, and then with half the items.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ability_search.collection import Collection
from ability_search.errors import TooLarge
from ability_search.store.arcadedb.core import (
    Parameters,
    Statement,
    kind_type,
    link_type,
    rows_together,
    source_type,
)
from ability_search.store.arcadedb.database import ArcadeDatabase
from ability_search.store.arcadedb.filter_sql import to_sql
from ability_search.store.arcadedb.rows import (
    CHUNK_COLUMNS,
    SOURCE_COLUMNS,
    SPARE,
    chunk_record,
    condition_of,
    encoded,
    filled,
    link,
    record_of,
    shorter,
    source_record,
    type_of,
)
from ability_search.store.records import VALUE_LENGTH, ChunkRecord, SourceRecord, metadata_key
from ability_search.store.stored_collections import collection_of
from ability_search.store.values import (
    MOST_RECORDS,
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

Row = Mapping[str, Any]
MakeAnswer = Callable[[Sequence[Row], Collection | None, int], Page | Counted]
"""Makes an answer of the rows of a query, the collection's record and the time."""

_ITEMS = 1024
"""Items that an unlimited read is taken to have if its answer is too large."""
_NOTHING = "chunkId = ''"
"""The condition that no chunk matches."""
_HAS_KEY = "vectorKey > ''"
_STORED = {name: f"ifnull({CHUNK_COLUMNS[name]}, {spare})" for name, spare in SPARE.items()}
"""Columns whose values duplicates have elsewhere -> SQL for both."""
_VECTOR = f"ifnull({_STORED['embedding']}, [0.0])"
_IS_UNIT = f"vectorMagnitude({_VECTOR}) > 0.99 AND vectorMagnitude({_VECTOR}) < 1.01"
_CHUNK_SQL = {
    **CHUNK_COLUMNS,
    **_STORED,
    "handle": "@rid",
    "dimensions": f"CASE WHEN {_IS_UNIT} THEN vectorDimension({_VECTOR}) ELSE 0 END",
}


@dataclass(frozen=True, slots=True)
class AskSql:
    """An ask as queries of one statement; the last one has its rows."""

    queries: Mapping[str, str]
    answer: MakeAnswer


class ReadSql(ArcadeDatabase):
    """Reads, see :meth:`.Store.read`."""

    async def read(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        if not asks:
            return []
        try:
            return await self._answers(asks)
        except TooLarge:
            if len(asks) == 1:
                half = _halved(asks[0])
                if half is None:
                    raise
                return await self.read([half])
        return [answer for ask in asks for answer in await self.read([ask])]

    async def _answers(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        statement, asked = asked_of(asks)
        types = [ask.collection.type for ask in asks if ask.collection]
        found = await self.fetch(statement, *types)
        if isinstance(found, list):
            found = dict.fromkeys(asked, found)
        records = (collection_of(record_of(row)) for row in found.get("collections", ()))
        current = {record.name: record for record in records}
        now = found["clock"][0]["ms"] if "clock" in found else 0
        return [
            each.answer(
                found[name] if found else (),
                current.get(_collection(ask).name) if ask.current else None,
                now,
            )
            for (name, each), ask in zip(asked.items(), asks, strict=True)
        ]


def asked_of(asks: Sequence[Read | Count]) -> tuple[Statement, Mapping[str, AskSql]]:
    """Return the statement that answers asks in one round trip, and each by the name of its rows.

    The rows of ``collections`` are the records that were asked for, that of ``clock`` is the time
    if records are read.
    """
    params = Parameters()
    asked: dict[str, AskSql] = {}
    for place, ask in enumerate(asks):
        name = f"a{place}"
        if isinstance(ask.of, Records):
            asked[name] = _recording(ask, ask.of, name, params)
        elif isinstance(ask, Count):
            asked[name] = _counting(ask, name, params)
        elif isinstance(ask.of, Links):
            asked[name] = _linking(ask, ask.of, name, params)
        else:
            asked[name] = _reading(ask, name, params)
    queries: dict[str, str] = {}
    if any(isinstance(ask.of, Records) for ask in asks):
        queries["clock"] = "SELECT `date.currentTimestamp`() AS ms"
    if wanted := [_collection(ask).name for ask in asks if ask.current]:
        queries["collections"] = f"SELECT FROM Collection WHERE key IN {params.bind(wanted)}"
    names = [*queries, *asked]
    for each in asked.values():
        queries |= each.queries
    # The rows of one query alone come sooner without a map.
    text = rows_together(queries, names) if len(queries) > 1 else queries[names[0]]
    return Statement(text, params), asked


def _collection(ask: Read | Count) -> Collection:
    assert ask.collection is not None
    return ask.collection


def _halved(ask: Read | Count) -> Read | None:
    """Return an ask for half the items; ``None`` if there is none."""
    of = ask.of
    if isinstance(ask, Count) or isinstance(of, Links):
        return None
    if isinstance(of, Records):
        return None if ask.limit == 1 else replace(ask, limit=(ask.limit or MOST_RECORDS) // 2)
    keys = of.names if isinstance(of, Sources) else of.handles or of.ids or of.vector_keys
    most = min(filter(None, (ask.limit, len(keys or ()))), default=_ITEMS)
    return replace(ask, limit=most // 2) if most > 1 else None


# Selections


def _selected(
    ask: Read | Count, name: str, params: Parameters
) -> tuple[str, list[str], dict[str, str]]:
    """Return the type of the selected chunks or sources, the conditions, and what they need."""
    collection, of = _collection(ask), ask.of
    before: dict[str, str] = {}
    if isinstance(of, Sources):
        chosen, columns = source_type(collection.type), SOURCE_COLUMNS
        conditions = _among(params, source=of.names)
    else:
        assert isinstance(of, Chunks)
        chosen, columns = kind_type(collection.type) if of.layer else collection.type, CHUNK_COLUMNS
        conditions = _among(params, **{"@rid": of.handles, "chunkId": of.ids, "source": of.sources})
        if of.layer and not collection.kind_chunks:
            chosen, conditions = collection.type, [_NOTHING]
        if of.vector_keys is not None:
            before[f"{name}_first"] = (
                f"SELECT vectorKey, min(chunkId) AS chunkId FROM `{chosen}`"
                f" WHERE vectorKey IN {params.bind(list(of.vector_keys))} GROUP BY vectorKey"
            )
            conditions.append(f"chunkId IN ${name}_first.chunkId")
        if of.indexed is not None:
            conditions.append("duplicateOf IS NULL" if of.indexed else "duplicateOf > ''")
        conditions += [f"chunkIndex >= {of.first:d}"] if of.first else []
        conditions += [] if of.end is None else [f"chunkIndex < {of.end:d}"]
    if of.filter is not None:
        conditions.append(f"({to_sql(of.filter, params, columns=columns)})")
    return f"`{chosen}`", conditions, before


def _among(params: Parameters, **wanted: Sequence[str] | None) -> list[str]:
    """Return the conditions that columns have one of the wanted values."""
    return [
        f"{column} IN {params.bind(list(values))}"
        for column, values in wanted.items()
        if values is not None
    ]


def _where(conditions: Sequence[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _limited(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {limit:d}"


# Records and links


def _recording(ask: Read | Count, of: Records, name: str, params: Parameters) -> AskSql:
    """Return the query for a page of records, one row more than its limit, or for their number."""
    target = f"FROM {type_of(of.kind)} WHERE {condition_of(of, params)}"
    if isinstance(ask, Count):
        return AskSql(
            {name: f"SELECT count(*) AS n {target}"},
            lambda rows, _, now: Counted({None: (rows[0]["n"] if rows else 0,)}, None, now),
        )
    limit, by_time = ask.limit or MOST_RECORDS, ask.order == "updated_at"
    order = f"updatedAt{' DESC' if ask.descending else ''}" if by_time else "scope, key"
    behind = ""
    if ask.after is not None and of.scope is not None:
        behind = f" AND key > {params.bind(encoded(tuple(ask.after)))}"
    elif ask.after is not None:
        scope, key = params.bind(ask.after[0]), params.bind(encoded(tuple(ask.after[1:])))
        behind = f" AND scope >= {scope} AND (scope > {scope} OR key > {key})"

    def page(rows: Sequence[Row], _: Collection | None, now: int) -> Page:
        items = [record_of(row, now) for row in rows[:limit]]
        if len(rows) <= limit or by_time:
            return Page(items, None, None, now)
        last = items[-1]
        return Page(items, last.key if of.scope else (last.scope, *last.key), None, now)

    text = f"SELECT {target}{behind} ORDER BY {order}{_limited(limit + 1)}"
    return AskSql({name: text}, page)


def _linking(ask: Read, of: Links, name: str, params: Parameters) -> AskSql:
    """Return the query for links; a generation without any has no type for them."""
    collection = _collection(ask)
    text = f"SELECT chunkId FROM `{collection.type}` WHERE {_NOTHING}"
    if collection.links:
        sources = params.bind(list(of.sources))
        text = (
            f"SELECT source, target, kind, weight FROM `{link_type(collection.type)}`"
            f" WHERE source IN {sources} OR target IN {sources}"
            f" ORDER BY weight DESC, source, target, kind{_limited(ask.limit)}"
        )
    return AskSql({name: text}, lambda rows, current, _: Page(list(map(link, rows)), None, current))


# Pages


def _reading(ask: Read, name: str, params: Parameters) -> AskSql:
    """Return the query for a page of chunks or sources.

    Without a limit the rows are sorted here: an order would make the engine prefer its index.
    """
    chosen, conditions, before = _selected(ask, name, params)
    key = {"vector_key": "vectorKey", "stored": "indexedAt"}.get(ask.order)
    key = key or ("source" if isinstance(ask.of, Sources) else "chunkId")
    ordered = ask.limit is not None or ask.after is not None or ask.order != "id"
    if ordered and ask.order != "stored" and not (ask.descending and ask.after is None):
        conditions.append(f"{key} {'<' if ask.descending else '>'} {params.bind(ask.after or '')}")
    down = " DESC" if ask.descending else ""
    order = f" ORDER BY {key}{down}" if ordered else ""
    columns, place = "", key
    if ask.columns is not None:
        shown = _columns(ask.columns, params, of_chunks=isinstance(ask.of, Chunks))
        columns, place = "".join(f"{sql} AS f{n}, " for n, sql in enumerate(shown)), "place"
        columns += f"{key} AS place "
        if ask.order == "stored":
            # Sources of one call have one time. The engine sorts by the name of a column only.
            columns += ", @rid AS rid "
            order += f", rid{down}"
    text = f"SELECT {columns}FROM {chosen}{_where(conditions)}{order}{_limited(ask.limit)}"

    def items(rows: Sequence[Row]) -> list[Any]:
        of_chunks, columns = isinstance(ask.of, Chunks), ask.columns
        if columns is None:
            return list(map(chunk_record if of_chunks else source_record, rows))
        names = [*columns.fields, *columns.cosines, *columns.products]
        record, places = ChunkRecord if of_chunks else SourceRecord, range(len(names))
        values = (filled(record, names, (row.get(f"f{n}") for n in places)) for row in rows)
        return [dict(zip(names, row, strict=True)) for row in values]

    def answer(rows: Sequence[Row], current: Collection | None, _now: int) -> Page:
        rows = rows if ordered else sorted(rows, key=lambda row: row[place])
        more = ask.limit is not None and len(rows) == ask.limit and ask.order != "stored"
        return Page(items(rows), rows[-1][place] if more else None, current)

    return AskSql({**before, name: text}, answer)


def _columns(columns: Columns, params: Parameters, *, of_chunks: bool) -> list[str]:
    """Return columns as SQL, in the order of the rows."""
    shown: list[str] = []
    known = _CHUNK_SQL if of_chunks else SOURCE_COLUMNS
    for field in columns.fields:
        key, (text, cut, length) = metadata_key(field), field.partition("[:")
        if key is not None:
            shown.append(shorter(f"metadata[{params.bind(key)}]", VALUE_LENGTH))
        else:
            shown.append(f"{known[text]}.left({int(length[:-1]):d})" if cut else known[text])
    own = _STORED["embedding"]
    for vector in columns.cosines.values():
        # The engine refuses to compare without a vector.
        cosine = f"vectorCosineSimilarity({own}, {params.bind(list(vector))})"
        shown.append(f"CASE WHEN {own} IS NULL THEN null ELSE {cosine} END")
    stored = f"`vector.sparseCreate`({_STORED['terms']}, {_STORED['weights']})"
    for terms in columns.products.values():
        ids, weights = params.bind(list(terms.ids)), params.bind(list(terms.weights))
        shown.append(f"vectorSparseDot({stored}, `vector.sparseCreate`({ids}, {weights}))")
    return shown


# Counts


def _counting(ask: Count, name: str, params: Parameters) -> AskSql:
    """Return the query for the number of chunks or sources, and sums, in groups."""
    target, conditions, before = _selected(ask, name, params)
    columns = SOURCE_COLUMNS if isinstance(ask.of, Sources) else CHUNK_COLUMNS
    if ask.sample is not None:
        # An order by what no index has would sort all chunks.
        before[f"{name}_sample"] = (
            f"SELECT @rid AS rid FROM {target}{_where([*conditions, _HAS_KEY])}"
            f" ORDER BY vectorKey LIMIT {ask.sample:d}"
        )
        target, conditions = f"(SELECT expand(rid) FROM (SELECT expand(${name}_sample)))", []
    shown = ["count(*) AS n"]
    shown += [f"sum({columns[field]}) AS s{place}" for place, field in enumerate(ask.sums)]
    group = ""
    if ask.by is not None:
        by = columns[ask.by]
        shown.append(f"{by} - {by} % {ask.width:d} AS least")
        group = " GROUP BY least"

    def answer(rows: Sequence[Row], current: Collection | None, _now: int) -> Counted:
        groups = {
            None if ask.by is None else int(row["least"]): (
                int(row["n"]),
                *(int(row[f"s{place}"] or 0) for place in range(len(ask.sums))),
            )
            for row in rows
        }
        return Counted(groups, current)

    text = f"SELECT {', '.join(shown)} FROM {target}{_where(conditions)}{group}"
    return AskSql({**before, name: text}, answer)
