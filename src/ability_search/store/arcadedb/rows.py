"""Rows of the database <-> values of the store port, and selections of records.

A duplicate keeps its embedding, terms and weights in *spare* columns, which have no index. Records
of collections and of term statistics have types of their own, since :mod:`.write` changes them with
the chunks; all others are rows of the type ``Record``.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from itertools import chain
from typing import Any

from pydantic.alias_generators import to_camel

from ability_search.collection import Collection
from ability_search.store.arcadedb.core import Parameters
from ability_search.store.records import HIT, ChunkRecord, ChunkText, SourceLink, SourceRecord
from ability_search.store.stored_collections import collection_of
from ability_search.store.values import Key, Record, Records

Row = Mapping[str, Any]


def _columns(record: type) -> dict[str, str]:
    """Return the names of the fields of a record -> columns."""
    return {each.name: _NAMED.get(each.name, to_camel(each.name)) for each in fields(record)}


_NAMED = {"of": "aspectOf"}
CHUNK_COLUMNS = _columns(ChunkRecord)
CHUNK_FIELDS = {column: name for name, column in CHUNK_COLUMNS.items()}
SPARE = {"embedding": "spareEmbedding", "terms": "spareTerms", "weights": "spareWeights"}
"""Columns of indexed chunks -> those in which a duplicate has the same."""
NUMBERS = dict.fromkeys(("embedding", "weights", "spareEmbedding", "spareWeights"), "float")
NUMBERS |= dict.fromkeys(("terms", "spareTerms"), "integer")
"""Columns of numbers and their types."""
STORED_COLUMNS = ", ".join([*CHUNK_COLUMNS.values(), *SPARE.values()])
"""All columns of a stored chunk."""


def shorter(expression: str, length: int) -> str:
    """Return the SQL of a value, which is null if it has more than ``length`` characters."""
    return (
        f"CASE WHEN {expression}.asString().length() > {length:d} THEN null ELSE {expression} END"
    )


_LISTS = ("facets", "dates", "embedding", "terms", "weights", "lengths")
SOURCE_COLUMNS = _columns(SourceRecord)
COUNTED = "generated IS NULL AND chunks > 0"
"""The property of a :class:`SourceRecord` in SQL."""


def chunk_row(record: ChunkRecord) -> dict[str, Any]:
    """Return the row of a chunk to store."""
    row = {column: getattr(record, name) for name, column in CHUNK_COLUMNS.items()}
    row |= {name: list(row[name]) for name in _LISTS if row[name] is not None}
    row["metadata"] = dict(record.metadata)
    for name in ("ofChunk", "parent", "centrality", "novelty", "duplicateOf"):
        if row[name] is None:
            del row[name]
    if record.duplicate_of is not None:
        row |= {spare: row[name] for name, spare in SPARE.items()}
        row |= dict.fromkeys(SPARE)
    return row


def packed(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the columns of numbers of their rows as blocks of four bytes each."""
    plain: dict[str, Any] = dict(params)
    blocks: dict[str, dict[str, Any]] = {}
    for name, rows in params.items():
        if not (isinstance(rows, list) and rows and isinstance(rows[0], dict)):
            continue
        for column, type_ in NUMBERS.items():
            lists = [row.get(column) for row in rows]
            if numbers := [*chain.from_iterable(filter(None, lists))]:
                block = struct.pack(f"<{len(numbers)}{type_[0]}", *numbers)
                blocks.setdefault(name, {})[column] = {
                    "type": type_,
                    "block": base64.b64encode(block).decode("ascii"),
                    "lengths": [len(each) if each else None for each in lists],
                }
        if name in blocks:
            plain[name] = [
                {key: value for key, value in row.items() if not (value and key in NUMBERS)}
                for row in rows
            ]
    return {"params": plain, "numbers": blocks} if blocks else {"params": plain}


def chunk_record(row: Row) -> ChunkRecord:
    """Convert a whole row of a chunk."""
    spare = {name: row.get(other) for name, other in SPARE.items() if row.get(name) is None}
    return ChunkRecord(**_fields({**row, **spare}, CHUNK_COLUMNS))


_TEXT = [name for name in HIT.fields if name != "handle"]
TEXT_COLUMNS = [CHUNK_COLUMNS[name] for name in _TEXT]
"""Columns of a :class:`ChunkText`, in their order there, behind its handle."""


def chunk_text(handle: str, values: Iterable[Any]) -> ChunkText:
    """Return the text of a chunk, given the values of its columns."""
    return ChunkText(handle, *filled(ChunkRecord, _TEXT, values))


def filled(record: type, names: Iterable[str], values: Iterable[Any]) -> list[Any]:
    """Return values of fields of a record, in their order; instead of ``None`` the defaults."""
    empty, given = defaults(record).get, zip(names, values, strict=True)
    return [empty(name) if value is None else value for name, value in given]


def source_row(record: SourceRecord) -> dict[str, Any]:
    """Return the row of a source record to store."""
    row = {column: getattr(record, name) for name, column in SOURCE_COLUMNS.items()}
    return row | {
        "metadata": dict(record.metadata),
        "links": [dict(link) for link in record.links],
        "generated": record.generated or None,
    }


def source_record(row: Row) -> SourceRecord:
    """Convert a whole row of a source."""
    return SourceRecord(**{"tokens_min": None, "tokens_max": None, **_fields(row, SOURCE_COLUMNS)})


def link(row: Row) -> SourceLink:
    """Convert a row of a link."""
    return SourceLink(row["source"], row["target"], row["kind"], row["weight"])


@cache
def defaults(record: type) -> Mapping[str, Any]:
    """Return the defaults of the fields of a record."""
    return {each.name: each.default for each in fields(record) if each.default is not MISSING}


def _fields(row: Row, columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the values that a row has, by field."""
    return {name: row[column] for name, column in columns.items() if row.get(column) is not None}


# Records

_TYPES = {"collection": "Collection", "terms": "Terms"}
"""Types of the kinds that have their own."""
_SEPARATOR, _ESCAPE = "\x1f", "\x1e"
_AFTER_SEPARATOR = "\x20"


def encoded(key: Key) -> str:
    """Return a key as a string; keys keep their order, but for control characters in them."""
    return _SEPARATOR.join(
        part.replace(_ESCAPE, f"{_ESCAPE}e").replace(_SEPARATOR, f"{_ESCAPE}s") or f"{_ESCAPE}0"
        for part in key
    )


def record_of(row: Mapping[str, Any], now: int = 0) -> Record:
    """Convert a row, read at the time ``now``."""
    until, data = row.get("until"), row.get("data")
    return Record(
        kind=row["kind"],
        scope=row["scope"],
        key=tuple(
            part.removeprefix(f"{_ESCAPE}0")
            .replace(f"{_ESCAPE}s", _SEPARATOR)
            .replace(f"{_ESCAPE}e", _ESCAPE)
            for part in (row["key"].split(_SEPARATOR) if row["key"] else ())
        ),
        fields=row.get("fields") or {},
        data=None if data is None else base64.b64decode(data),
        revision=row["revision"],
        until=until,
        expired=until is not None and until <= now,
        created_at=row["createdAt"],
        updated_at=row["updatedAt"],
    )


def collection_in(rows: Sequence[Mapping[str, Any]]) -> Collection | None:
    """Return the collection in the row of its record, if there is one."""
    return collection_of(record_of(rows[0])) if rows else None


def type_of(kind: str | None) -> str:
    """Return the type of the records of a kind."""
    return _TYPES.get(kind or "", "Record")


def condition_of(of: Records, params: Parameters) -> str:
    """Return the condition of a selection."""
    conditions = [
        f"{name} = {params.bind(value)}"
        for name, value in (("kind", of.kind), ("scope", of.scope))
        if value is not None
    ]
    if of.keys is not None:
        conditions.append(f"key IN {params.bind([encoded(key) for key in of.keys])}")
    if of.prefix:
        prefix = encoded(of.prefix)
        conditions.append(f"key >= {params.bind(prefix + _SEPARATOR)}")
        conditions.append(f"key < {params.bind(prefix + _AFTER_SEPARATOR)}")
    if of.until is not None:
        conditions.append(f"key <= {params.bind(encoded(of.until))}")
    if of.before is not None:
        conditions.append(f"updatedAt < {params.bind(of.before)}")
    if of.expired is not None:
        over = "until IS NOT NULL AND until <= `date.currentTimestamp`()"
        conditions.append(over if of.expired else f"NOT ({over})")
    return " AND ".join([*conditions, *equal_to(of.where, params)])


def equal_to(fields: Mapping[str, Any], params: Parameters) -> Iterable[str]:
    """Yield the conditions that fields have these values."""
    for name, value in fields.items():
        yield f"fields.{name} IS NULL" if value is None else f"fields.{name} = {params.bind(value)}"
