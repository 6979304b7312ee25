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
    Statement,
    kind_type,
    link_type,
    rows_together,
    source_type,
)
from ability_search.store.arcadedb.database import Database
from ability_search.store.arcadedb.filter_sql import to_sql
from ability_search.store.arcadedb.record_rows import record_of, record_query
from ability_search.store.arcadedb.rows import (
    CHUNK_COLUMNS,
    SOURCE_COLUMNS,
    SPARE,
    chunk_record,
    defaults,
    link,
    shorter,
    source_record,
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
_CHECKED = 2000
"""Chunks whose vectors are checked at once."""
_NOTHING = "chunkId = ''"
"""The condition that no chunk matches."""
_STORED = {name: f"ifnull({CHUNK_COLUMNS[name]}, {spare})" for name, spare in SPARE.items()}
"""Columns whose values duplicates have elsewhere -> SQL for both."""
_CHUNK_SQL = {**CHUNK_COLUMNS, **_STORED, "handle": "@rid"}
_EMPTY = "''"


@dataclass(frozen=True, slots=True)
class AskSql:
    """An ask as queries of one statement; the last one has its rows."""

    queries: Mapping[str, str]
    params: Mapping[str, Any]
    answer: MakeAnswer


@dataclass(frozen=True, slots=True)
class _Selected:
    """The selected type, with conditions, the parameters they bind, and queries they need."""

    type: str
    conditions: Sequence[str]
    params: Mapping[str, Any]
    before: Mapping[str, str]

    def target(self, *further: str) -> str:
        """Return the target of a query, with further conditions."""
        every = " AND ".join([*self.conditions, *further])
        return f"`{self.type}` WHERE {every}" if every else f"`{self.type}`"


class ReadSql(Database):
    """See :class:`ability_search.store.port.ReadStore`."""

    async def read(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        apart = [isinstance(ask, Count) and ask.unfit is not None for ask in asks]
        others = [ask for ask, alone in zip(asks, apart, strict=True) if not alone]
        answers = iter(await self._together(others) if others else [])
        return [
            await self._unfit(ask) if alone and isinstance(ask, Count) else next(answers)
            for ask, alone in zip(asks, apart, strict=True)
        ]

    async def _together(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        """Run asks in one round trip, or in several if their answer is too large."""
        try:
            return await self._answers(asks)
        except TooLarge:
            if len(asks) == 1:
                half = _halved(asks[0])
                if half is None:
                    raise
                return await self._together([half])
        return [answer for ask in asks for answer in await self._together([ask])]

    async def _answers(self, asks: Sequence[Read | Count]) -> list[Page | Counted]:
        asked, queries, params = _asked(asks)
        found, current, now = await self._run(queries, [*asked], params, asks)
        return [
            each.answer(
                found[name] if found else (),
                current.get(_collection(ask).name) if ask.current else None,
                now,
            )
            for (name, each), ask in zip(asked.items(), asks, strict=True)
        ]

    async def _run(
        self,
        queries: Mapping[str, str],
        names: Sequence[str],
        params: Mapping[str, Any],
        asks: Sequence[Read | Count],
    ) -> tuple[Mapping[str, Any], Mapping[str, Collection], int]:
        """Return the rows of queries by name, the records that were asked for, and the time.

        The time is 0 unless records are read.
        """
        statement, together = _statement(queries, names, params, asks)
        types = [ask.collection.type for ask in asks if ask.collection]
        if types:
            answer = await self.generation_read(types[0], statement, *types[1:])
        else:
            answer = await self.map(statement)
        found = answer if together or not answer else {names[0]: answer}
        rows = found["collections"] if found and any(ask.current for ask in asks) else ()
        records = (collection_of(record_of(row)) for row in rows)
        now = found["clock"][0]["ms"] if found and _timed(asks) else 0
        return found, {record.name: record for record in records}, now

    async def _unfit(self, ask: Count) -> Counted:
        """Count the chunks with unusable vectors, page by page."""
        vector = f"ifnull({_STORED['embedding']}, [0.0])"
        chosen = _selected(ask, "a")
        queries = {
            "page": f"SELECT chunkId, vectorDimension({vector}) AS size,"
            f" vectorMagnitude({vector}) AS norm FROM {chosen.target('chunkId > :floor')}"
            f" ORDER BY chunkId LIMIT {_CHECKED:d}",
            "fit": "SELECT count(*) AS n FROM (SELECT expand($page))"
            " WHERE size = :size AND norm > 0.99 AND norm < 1.01",
            "last": "SELECT max(chunkId) AS id, count(*) AS n FROM (SELECT expand($page))",
        }
        floor, unfit = "", 0
        while True:
            params = {**chosen.params, "size": ask.unfit, "floor": floor}
            found, current, _ = await self._run(queries, ["fit", "last"], params, [ask])
            (fit,), (last,) = found["fit"], found["last"]
            unfit += last["n"] - fit["n"]
            if last["n"] < _CHECKED:
                break
            floor = last["id"]
        return Counted({None: (unfit,)}, current.get(_collection(ask).name))


def read_statement(asks: Sequence[Read | Count]) -> Statement:
    """Return the statement that answers asks in one round trip."""
    asked, queries, params = _asked(asks)
    return _statement(queries, [*asked], params, asks)[0]


def _asked(
    asks: Sequence[Read | Count],
) -> tuple[Mapping[str, AskSql], Mapping[str, str], Mapping[str, Any]]:
    """Return asks as SQL by the names of their queries, with all queries and parameters."""
    asked = {f"a{place}": _query(ask, f"a{place}") for place, ask in enumerate(asks)}
    queries = {name: sql for each in asked.values() for name, sql in each.queries.items()}
    params = {name: value for each in asked.values() for name, value in each.params.items()}
    return asked, queries, params


def _statement(
    queries: Mapping[str, str],
    names: Sequence[str],
    params: Mapping[str, Any],
    asks: Sequence[Read | Count],
) -> tuple[Statement, bool]:
    """Return a statement with what asks need besides, and whether its answer is a map."""
    wanted = [_collection(ask).name for ask in asks if ask.current]
    if wanted:
        queries = {"collections": "SELECT FROM Collection WHERE key IN :names", **queries}
        params, names = {**params, "names": wanted}, ["collections", *names]
    if _timed(asks):
        queries = {"clock": "SELECT `date.currentTimestamp`() AS ms", **queries}
        names = ["clock", *names]
    together = len(queries) > 1
    text = rows_together(queries, names) if together else queries[names[0]]
    return Statement(text, dict(params)), together


def _timed(asks: Sequence[Read | Count]) -> bool:
    """Return whether the answers have a time: if records are read."""
    return any(isinstance(ask.of, Records) for ask in asks)


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


def _query(ask: Read | Count, name: str) -> AskSql:
    """Return an ask as SQL; ``name`` is that of its query, and begins those of its parameters."""
    if isinstance(ask.of, Records):
        text, params, record_answer = record_query(ask, name)
        return AskSql({name: text}, params, lambda rows, _, now: record_answer(rows, now))
    if isinstance(ask, Count):
        return _counting(ask, name)
    return _linking(ask, name) if isinstance(ask.of, Links) else _reading(ask, name)


# Selections


def _selected(ask: Read | Count, name: str) -> _Selected:
    """Return the chunks or sources that an ask selects."""
    collection, of = _collection(ask), ask.of
    params: dict[str, Any] = {}
    conditions: list[str] = []
    before: dict[str, str] = {}

    def among(column: str, values: Sequence[str] | None) -> None:
        if values is not None:
            params[f"{name}_{column}"] = list(values)
            conditions.append(f"{'@rid' if column == 'rid' else column} IN :{name}_{column}")

    if isinstance(of, Sources):
        chosen, columns = source_type(collection.type), SOURCE_COLUMNS
        among("source", of.names)
    else:
        assert isinstance(of, Chunks)
        chosen, columns = kind_type(collection.type) if of.layer else collection.type, CHUNK_COLUMNS
        if of.layer and not collection.kind_chunks:
            chosen, conditions = collection.type, [_NOTHING]
        among("rid", of.handles)
        among("chunkId", of.ids)
        among("source", of.sources)
        if of.vector_keys is not None:
            params[f"{name}_keys"] = list(of.vector_keys)
            before[f"{name}_first"] = (
                f"SELECT vectorKey, min(chunkId) AS chunkId FROM `{chosen}`"
                f" WHERE vectorKey IN :{name}_keys GROUP BY vectorKey"
            )
            conditions.append(f"chunkId IN ${name}_first.chunkId")
        if of.indexed is not None:
            conditions.append("duplicateOf IS NULL" if of.indexed else "duplicateOf > ''")
        conditions += [f"chunkIndex >= {of.first:d}"] if of.first else []
        conditions += [] if of.end is None else [f"chunkIndex < {of.end:d}"]
    if of.filter is not None:
        text, bound = to_sql(of.filter, prefix=f"{name}_f", columns=columns)
        conditions.append(f"({text})")
        params |= bound
    return _Selected(chosen, conditions, params, before)


def _linking(ask: Read, name: str) -> AskSql:
    """Return the query for links; a generation without any has no type for them."""
    collection, of = _collection(ask), ask.of
    assert isinstance(of, Links)
    text = f"SELECT chunkId FROM `{collection.type}` WHERE {_NOTHING}"
    if collection.links:
        text = (
            f"SELECT source, target, kind, weight FROM `{link_type(collection.type)}`"
            f" WHERE source IN :{name} OR target IN :{name}"
            f" ORDER BY weight DESC, source, target, kind{_limited(ask.limit)}"
        )
    return AskSql(
        {name: text},
        {name: list(of.sources)},
        lambda rows, current, _: Page(list(map(link, rows)), None, current),
    )


def _limited(limit: int | None) -> str:
    return "" if limit is None else f" LIMIT {limit:d}"


# Pages


def _reading(ask: Read, name: str) -> AskSql:
    """Return the query for a page of chunks or sources.

    Without a limit the rows are sorted here: an order would make the engine prefer its index.
    """
    chosen = _selected(ask, name)
    key = {"vector_key": "vectorKey", "stored": "@rid"}.get(ask.order)
    key = key or ("source" if isinstance(ask.of, Sources) else "chunkId")
    params, further = dict(chosen.params), []
    ordered = ask.limit is not None or ask.after is not None or ask.order != "id"
    if ordered and ask.order != "stored" and not (ask.descending and ask.after is None):
        params[f"{name}_floor"] = ask.after or ""
        further.append(f"{key} {'<' if ask.descending else '>'} :{name}_floor")
    order = f" ORDER BY {key}{' DESC' if ask.descending else ''}" if ordered else ""
    columns = ""
    if ask.columns is not None:
        shown, bound = _columns(ask.columns, name, of_chunks=isinstance(ask.of, Chunks))
        params |= bound
        columns = f"{''.join(f'{sql} AS f{n}, ' for n, sql in enumerate(shown))}{key} AS place "
    text = f"SELECT {columns}FROM {chosen.target(*further)}{order}{_limited(ask.limit)}"

    def answer(rows: Sequence[Row], current: Collection | None, _now: int) -> Page:
        place = key if ask.columns is None else "place"
        rows = rows if ordered else sorted(rows, key=lambda row: row[place])
        more = ask.limit is not None and len(rows) == ask.limit and ask.order != "stored"
        return Page(_items(ask, rows), rows[-1][place] if more else None, current)

    return AskSql({**chosen.before, name: text}, params, answer)


def _columns(columns: Columns, name: str, *, of_chunks: bool) -> tuple[list[str], dict[str, Any]]:
    """Return columns as SQL, in the order of the rows, and what they bind."""
    shown: list[str] = []
    params: dict[str, Any] = {}
    known = _CHUNK_SQL if of_chunks else SOURCE_COLUMNS
    for place, field in enumerate(columns.fields):
        key, (text, cut, length) = metadata_key(field), field.partition("[:")
        if key is not None:
            params[f"{name}_k{place}"] = key
            shown.append(shorter(f"metadata[:{name}_k{place}]", VALUE_LENGTH))
        else:
            shown.append(f"{known[text]}.left({int(length[:-1]):d})" if cut else known[text])
    own = _STORED["embedding"]
    for place, vector in enumerate(columns.cosines.values()):
        params[f"{name}_v{place}"] = list(vector)
        # The engine refuses to compare without a vector.
        cosine = f"vectorCosineSimilarity({own}, :{name}_v{place})"
        shown.append(f"CASE WHEN {own} IS NULL THEN null ELSE {cosine} END")
    for place, terms in enumerate(columns.products.values()):
        params |= {f"{name}_i{place}": list(terms.ids), f"{name}_w{place}": list(terms.weights)}
        stored = f"`vector.sparseCreate`({_STORED['terms']}, {_STORED['weights']})"
        other = f"`vector.sparseCreate`(:{name}_i{place}, :{name}_w{place})"
        shown.append(f"vectorSparseDot({stored}, {other})")
    return shown, params


def _items(ask: Read, rows: Sequence[Row]) -> list[Any]:
    """Return the values of rows."""
    of_chunks, columns = isinstance(ask.of, Chunks), ask.columns
    if columns is None:
        return list(map(chunk_record if of_chunks else source_record, rows))
    names = [*columns.fields, *columns.cosines, *columns.products]
    empty = defaults(ChunkRecord if of_chunks else SourceRecord)
    items = []
    for row in rows:
        values = (row.get(f"f{place}") for place in range(len(names)))
        item = {
            name: empty.get(name) if value is None else value
            for name, value in zip(names, values, strict=True)
        }
        items.append(item)
    return items


# Counts


def _counting(ask: Count, name: str) -> AskSql:
    """Return the query for the number of chunks or sources, and sums, in groups."""
    chosen = _selected(ask, name)
    columns = SOURCE_COLUMNS if isinstance(ask.of, Sources) else CHUNK_COLUMNS
    target, before = chosen.target(), dict(chosen.before)
    if ask.sample is not None:
        # An order by what no index has would sort all chunks.
        before[f"{name}_sample"] = (
            f"SELECT @rid AS rid FROM {chosen.target(f'vectorKey > {_EMPTY}')}"
            f" ORDER BY vectorKey LIMIT {ask.sample:d}"
        )
        target = f"(SELECT expand(rid) FROM (SELECT expand(${name}_sample)))"
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

    text = f"SELECT {', '.join(shown)} FROM {target}{group}"
    return AskSql({**before, name: text}, chosen.params, answer)
