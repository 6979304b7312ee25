"""Documents and their chunks: replacement, lists, weights and stored vectors."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ability_search.collection import Collection
from ability_search.store.arcadedb.core import (
    COMMIT,
    Statement,
    commit_params,
    kind_type,
    link_type,
    rows_together,
    source_type,
)
from ability_search.store.arcadedb.rows import (
    CHUNK_COLUMNS,
    COUNTED,
    SPARE,
    STORED_COLUMNS,
    chunk_row,
    source_row,
)
from ability_search.store.records import ChunkRecord, Replacement
from ability_search.store.values import Patch, of_generation


@dataclass(slots=True)
class Stored:
    """Chunks to store, given in the statement or staged by :func:`stage`."""

    chunks: list[ChunkRecord] = field(default_factory=list)
    staged: list[str] = field(default_factory=list)
    """Tokens of the staged chunks."""
    staged_count: int = 0
    """Number of staged chunks; if some are missing, nothing is changed."""

    @property
    def count(self) -> int:
        """Return the total number of chunks."""
        return len(self.chunks) + self.staged_count


_COMPARED = 200
"""Stand-ins whose duplicates are compared with what replaces them, if that has another text."""
_TOTALS = (
    f"sum(CASE WHEN {COUNTED} THEN 1 ELSE 0 END) AS sources, sum(chunks) AS chunks,"
    " sum(tokens) AS tokens, min(tokensMin) AS lo, max(tokensMax) AS hi"
)
"""Totals in the collection's record."""


def represented(chunk_type: str, sources: Sequence[str], keys: Sequence[str]) -> Statement:
    """Select the duplicates in other sources of the chunks of some sources.

    Returns one map: ``old`` (rows ``chunkId, vectorKey`` of the indexed chunks of the sources),
    ``kept`` (rows ``duplicateOf, first, copies``, the chunkIds of its duplicates), ``firsts`` (rows
    ``chunkId, source, embedding`` of at most 200 of the first ones, of chunks whose vector key is
    not among ``keys``) and ``rules`` (rows ``source, dedupThreshold`` of their sources).
    """
    queries = {
        "old": f"SELECT chunkId, vectorKey FROM `{chunk_type}` WHERE source IN :sources"
        " AND duplicateOf IS NULL",
        "kept": f"SELECT duplicateOf, min(chunkId) AS first, list(chunkId) AS copies"
        f" FROM `{chunk_type}` WHERE duplicateOf IN $old.chunkId AND source NOT IN :sources"
        " GROUP BY duplicateOf",
        "other": "SELECT chunkId FROM (SELECT expand($old)) WHERE vectorKey IS NULL"
        " OR vectorKey NOT IN :keys",
        "compared": "SELECT first FROM (SELECT expand($kept))"
        f" WHERE duplicateOf IN $other.chunkId LIMIT {_COMPARED:d}",
        "firsts": f"SELECT chunkId, source, spareEmbedding AS embedding FROM `{chunk_type}`"
        " WHERE chunkId IN $compared.first",
        "rules": f"SELECT source, dedupThreshold FROM `{source_type(chunk_type)}`"
        " WHERE source IN $firsts.source",
    }
    answer = ("old", "kept", "firsts", "rules")
    return Statement(rows_together(queries, answer), {"sources": list(sources), "keys": list(keys)})


def replace_sources(
    collection: Collection,
    replacement: Replacement,
    chunks: Stored,
    kinds: Stored,
    copies: Mapping[str, Sequence[str]],
    now: int,
) -> Statement:
    """Replace all stored data of sources by chunks and records, in one transaction.

    Without chunks and records, it deletes the sources. It is idempotent. Duplicates in other
    sources whose stand-in is replaced get another one.

    Args:
        collection: The collection.
        replacement: The new contents; types for its links must exist.
        chunks: Chunks to store.
        kinds: Chunks of derived kinds to store; their type must exist.
        copies: All duplicates in other sources of chunks that are replaced, by their next stand-in,
            which is one of them if they get no other.
        now: Epoch milliseconds.

    Returns one map: ``revision`` (null if the collection was deleted or has another generation, if
    its average length is not the one that the weights assume, if staged chunks or stand-ins are
    missing, or if the duplicates are others; nothing was written then), ``deleted`` and
    ``inserted`` chunks, ``replaced`` sources, ``collection`` (rows of its record after the change).
    """
    chunk_type = collection.type
    source_t = source_type(chunk_type)
    records = f"INSERT INTO `{source_t}` CONTENT :records;" if replacement.records else ""
    links = f"INSERT INTO `{link_type(chunk_type)}` CONTENT :links;" if replacement.links else ""
    weighted = "AND fields.average_length = :averageLength" if replacement.chunks else ""
    text = f"""
        BEGIN;
        {_CHECK_STAGED if chunks.staged or kinds.staged else ""}
        LET c = UPDATE Collection SET fields.revision = fields.revision + 1,
            fields.updated_at = :now, revision = revision + 1,
            updatedAt = `date.currentTimestamp`() RETURN AFTER
            WHERE key = :name AND fields.type = :type {weighted};
        IF ($c.size() = 0) {_NOTHING}
        {_CHECK_STAND_INS.format(chunk_type) + _NOTHING if replacement.stand_ins else ""}
        LET old = SELECT {_TOTALS} FROM `{source_t}` WHERE source IN :sources;
        {_delete_sources(chunk_type)}
        {_insert(chunk_type, chunks, "chunks")}
        {_insert(kind_type(chunk_type), kinds, "aspects")}
        {records}
        {_MOVE_COPIES.format(chunk_type) if copies else ""}
        {links}
        {_update_totals(source_t)}
        {_NESTED if replacement.nested else ""}
        {_TERMS}
        LET now = SELECT FROM Collection WHERE key = :name;
        {COMMIT}
        RETURN {{'revision': $c[0].fields.revision, 'deleted': ifnull($old[0].chunks, 0),
                 'inserted': ifnull($new[0].chunks, 0), 'replaced': ifnull($old[0].sources, 0),
                 'collection': $now}};
        """
    params = _parameters(collection, replacement, chunks, kinds, now)
    return Statement(text, params | _moves(copies))


_NESTED = "UPDATE Collection SET fields.nested = true WHERE key = :name;"
_TERMS = """
        INSERT INTO Terms SET kind = 'terms', scope = :terms,
            key = $c[0].fields.revision.format('%016d'), data = :added, fields = {'base': false,
            'removed': $gone.terms, 'removed_lengths': $gone.lengths}, revision = 1,
            createdAt = `date.currentTimestamp`(), updatedAt = `date.currentTimestamp`();
        """
"""Appends to the log of term statistics, see :mod:`ability_search.store.statistics_cache`."""
_NOTHING = "{ ROLLBACK; RETURN {'revision': null}; }"
_CHECK_STAGED = (
    "LET t = SELECT count(*) AS n FROM Staging WHERE token IN :staged;"
    f" IF ($t[0].n <> :stagedRows) {_NOTHING}"
)
_CHECK_STAND_INS = (
    "LET present = SELECT count(*) AS n FROM `{}` WHERE chunkId IN :standIns"
    " AND createdAt IN :standInTimes AND duplicateOf IS NULL; IF ($present[0].n <> :standInCount) "
)


def _delete_sources(chunk_type: str) -> str:
    """Return SQL that deletes what is stored of the sources, and sets ``$gone``."""
    return f"""
        LET gone = SELECT chunkId, vectorKey, ifnull(terms, spareTerms) AS terms, lengths
            FROM `{chunk_type}` WHERE source IN :sources;
        LET kept = SELECT :copyCount AS n, :copyCount AS known;
        IF ($c[0].fields.duplicates > 0) {{
            LET left = SELECT count(*) AS n FROM `{chunk_type}`
                WHERE source IN :sources AND duplicateOf IS NOT NULL;
            UPDATE Collection SET fields.duplicates = fields.duplicates - $left[0].n
                WHERE key = :name;
            LET kept = SELECT count(*) AS n, sum(CASE WHEN chunkId IN :copies THEN 1 ELSE 0 END)
                AS known FROM `{chunk_type}`
                WHERE duplicateOf IN $gone.chunkId AND source NOT IN :sources;
        }}
        IF ($kept[0].n <> :copyCount OR ifnull($kept[0].known, 0) <> :copyCount) {_NOTHING}
        DELETE FROM `{chunk_type}` WHERE source IN :sources;
        IF ($c[0].fields.kind_chunks > 0) {{
            LET da = DELETE FROM `{kind_type(chunk_type)}` WHERE source IN :sources;
            UPDATE Collection SET fields.kind_chunks = fields.kind_chunks - $da[0].count
                WHERE key = :name;
        }}
        IF ($c[0].fields.links > 0) {{
            LET dl = DELETE FROM `{link_type(chunk_type)}` WHERE source IN :sources;
            UPDATE Collection SET fields.links = fields.links - $dl[0].count WHERE key = :name;
        }}
        DELETE FROM `{source_type(chunk_type)}` WHERE source IN :sources;
        """


_MOVE_COPIES = """
        LET back = UPDATE `{0}` SET embedding = spareEmbedding, terms = spareTerms,
            weights = spareWeights, spareEmbedding = null, spareTerms = null,
            spareWeights = null, duplicateOf = null WHERE chunkId IN :returned;
        FOREACH ($move IN :moves) {{
            UPDATE `{0}` SET duplicateOf = $move.to WHERE chunkId IN $move.copies;
        }}
        UPDATE Collection SET fields.duplicates = fields.duplicates - $back[0].count
            WHERE key = :name;
        """
"""Gives the duplicates of other sources their next stand-ins; the first of some is returned."""


def _update_totals(source_t: str) -> str:
    """Return SQL that adds ``$new``, what was inserted, to the record, and subtracts ``$old``."""
    return f"""
        LET new = SELECT {_TOTALS} FROM `{source_t}` WHERE source IN :sources;
        UPDATE Collection SET
            fields.chunks = fields.chunks - ifnull($old[0].chunks, 0) + ifnull($new[0].chunks, 0),
            fields.sources = fields.sources - ifnull($old[0].sources, 0)
                + ifnull($new[0].sources, 0),
            fields.duplicates = fields.duplicates + :duplicates,
            fields.kind_chunks = fields.kind_chunks + :aspectCount,
            fields.links = fields.links + :linkCount,
            fields.tokens = fields.tokens - ifnull($old[0].tokens, 0) + ifnull($new[0].tokens, 0),
            fields.tokens_min = min(ifnull(fields.tokens_min, $new[0].lo),
                ifnull($new[0].lo, fields.tokens_min)),
            fields.tokens_max = max(ifnull(fields.tokens_max, $new[0].hi),
                ifnull($new[0].hi, fields.tokens_max))
            WHERE key = :name;
        IF ($old[0].lo <= $c[0].fields.tokens_min OR $old[0].hi >= $c[0].fields.tokens_max) {{
            LET all = SELECT min(tokensMin) AS lo, max(tokensMax) AS hi FROM `{source_t}`;
            UPDATE Collection SET fields.tokens_min = $all[0].lo, fields.tokens_max = $all[0].hi
                WHERE key = :name;
        }}
        """


def _parameters(
    collection: Collection, replacement: Replacement, chunks: Stored, kinds: Stored, now: int
) -> dict[str, Any]:
    statistics, stand_ins = replacement.term_statistics, replacement.stand_ins
    stored = (chunk for own in replacement.chunks for chunk in own)
    return {
        **commit_params(collection.type, replacement.sources, now),
        "name": collection.name,
        "type": collection.type,
        "averageLength": collection.average_length,
        "now": now,
        "sources": list(replacement.sources),
        "chunks": list(map(chunk_row, chunks.chunks)),
        "stagedChunks": chunks.staged,
        "aspects": list(map(chunk_row, kinds.chunks)),
        "stagedAspects": kinds.staged,
        "staged": [*chunks.staged, *kinds.staged],
        "stagedRows": chunks.staged_count + kinds.staged_count,
        "aspectCount": kinds.count,
        "records": [source_row(record) for record in replacement.records],
        "links": list(map(asdict, replacement.links)),
        "linkCount": len(replacement.links),
        "terms": of_generation(collection.type),
        "added": None if statistics is None else base64.b64encode(statistics).decode("ascii"),
        "duplicates": sum(chunk.duplicate_of is not None for chunk in stored),
        "standIns": list(stand_ins),
        "standInTimes": list(set(stand_ins.values())),
        "standInCount": len(stand_ins),
    }


def _moves(copies: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    every = [each for group in copies.values() for each in group]
    return {
        "copies": every,
        "copyCount": len(every),
        "returned": [to for to, group in copies.items() if to in group],
        "moves": [
            {"to": to, "copies": [each for each in group if each != to]}
            for to, group in copies.items()
        ],
    }


def _insert(chunk_type: str, stored: Stored, name: str) -> str:
    """Return SQL that inserts the chunks of the parameter ``name`` and moves staged ones."""
    inline = f"INSERT INTO `{chunk_type}` CONTENT :{name};" if stored.chunks else ""
    if not stored.staged:
        return inline
    parameter = f":staged{name.capitalize()}"
    return (
        f"{inline} INSERT INTO `{chunk_type}` FROM (SELECT {STORED_COLUMNS} FROM Staging"
        f" WHERE token IN {parameter}); DELETE FROM Staging WHERE token IN {parameter};"
    )


def stage(token: str, chunks: Sequence[ChunkRecord]) -> Statement:
    """Store chunks outside the indexes until :func:`replace_sources` moves them.

    Needed for sources whose chunks exceed one message.
    """
    rows = [{**chunk_row(chunk), "token": token} for chunk in chunks]
    return Statement("BEGIN; INSERT INTO Staging CONTENT :rows; COMMIT;", {"rows": rows})


# Patches

_INDEXED = frozenset({"weights"})
"""Fields that the indexes have, so that searches wait for the commit."""


def patch(chunk_type: str, patches: Sequence[Patch]) -> Statement:
    """Change fields of chunks that have the values that the patches require."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for each in patches:
        row: dict[str, Any] = {"chunkId": each.chunk_id}
        row |= {f"set_{name}": value for name, value in each.fields.items()}
        row |= {f"if_{name}": value for name, value in each.where.items()}
        groups.setdefault(" ".join(_updates(chunk_type, each)), []).append(row)
    steps = [f"FOREACH ($p IN :rows{n}) {{ {updates} }}" for n, updates in enumerate(groups)]
    params: dict[str, Any] = {f"rows{n}": rows for n, rows in enumerate(groups.values())}
    if any(_INDEXED & each.fields.keys() for each in patches):
        params |= commit_params(chunk_type, [each.chunk_id for each in patches])
        return Statement(f"BEGIN; {' '.join(steps)} {COMMIT}", {**params, "type": chunk_type})
    return Statement(f"BEGIN; {' '.join(steps)} COMMIT;", params)


def _updates(chunk_type: str, patch: Patch) -> Iterator[str]:
    """Yield the updates of a patch ``$p``; some fields of duplicates have columns of their own."""
    target = kind_type(chunk_type) if patch.layer else chunk_type
    required = [
        f"{CHUNK_COLUMNS[name]} {'IS NULL' if value is None else f'= $p.if_{name}'}"
        for name, value in patch.where.items()
    ]
    if not SPARE.keys() & patch.fields.keys():
        states = {"": CHUNK_COLUMNS}
    else:
        states = {
            "duplicateOf IS NULL": CHUNK_COLUMNS,
            "duplicateOf IS NOT NULL": CHUNK_COLUMNS | SPARE,
        }
    for state, columns in states.items():
        sets = ", ".join(f"{columns[name]} = $p.set_{name}" for name in patch.fields)
        where = " AND ".join(filter(None, ["chunkId = $p.chunkId", state, *required]))
        yield f"UPDATE `{target}` SET {sets} WHERE {where};"
