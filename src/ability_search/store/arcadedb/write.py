"""Documents and their chunks: replacement, lists, weights and stored vectors."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ability_search.collection import Collection, public_name
from ability_search.store.arcadedb.commit_visibility import COMMIT, commit_params
from ability_search.store.arcadedb.core import (
    Statement,
    kind_type,
    link_type,
    rows_together,
    source_type,
)
from ability_search.store.arcadedb.rows import COUNTED, STORED_COLUMNS, link_row, source_row
from ability_search.store.records import ChunkScores, Replacement
from ability_search.store.values import of_generation


@dataclass(frozen=True, slots=True)
class Rows:
    """Chunks to store, given in the statement or staged by :func:`stage_rows`."""

    rows: Sequence[Mapping[str, Any]] = ()
    staged: Sequence[str] = ()
    """Tokens of the staged chunks."""
    staged_rows: int = 0
    """Number of staged chunks; if some are missing, nothing is changed."""

    @property
    def count(self) -> int:
        """Return the total number of chunks."""
        return len(self.rows) + self.staged_rows


_COMPARED = 200
"""Stand-ins whose duplicates are compared with what replaces them, if that has another text."""
_TOTALS = (
    f"sum(CASE WHEN {COUNTED} THEN 1 ELSE 0 END) AS sources, sum(chunks) AS chunks,"
    " sum(tokens) AS tokens, min(tokensMin) AS lo, max(tokensMax) AS hi"
)
"""Totals in the collection's record."""


def source_hashes(name: str, chunk_type: str, sources: Sequence[str]) -> Statement:
    """Select the content hashes of some sources, and the collection's record.

    Returns one map: ``collection`` (rows) and ``sources`` (rows ``source, contentHash``).
    """
    return Statement(
        f"""
        LET c = SELECT FROM Collection WHERE key = :name;
        LET s = SELECT source, contentHash FROM `{source_type(chunk_type)}`
            WHERE source IN :sources;
        RETURN {{'collection': $c, 'sources': $s}};
        """,
        {"name": name, "sources": list(sources)},
    )


def list_sources(
    chunk_type: str, *, after: str, limit: int, files: bool, children: bool
) -> Statement:
    """Select source names greater than ``after``, in order, see :class:`.port.IndexStore`."""
    kept = "file = true" if files else COUNTED
    if not children:
        kept += " AND aspectOf IS NULL"
    return Statement(
        f"SELECT source FROM `{source_type(chunk_type)}` WHERE source > :floor AND {kept}"
        f" ORDER BY source LIMIT {limit:d}",
        {"floor": after},
    )


def source_records(chunk_type: str, *, after: str, limit: int) -> Statement:
    """Select source records after the name ``after``, in order, without generated kinds."""
    return Statement(
        f"SELECT FROM `{source_type(chunk_type)}` WHERE source > :floor"
        f" AND generated IS NULL ORDER BY source LIMIT {limit:d}",
        {"floor": after},
    )


def source_passages(chunk_type: str, source: str) -> Statement:
    """Select the parts of the text of a source, in chunk order."""
    return Statement(
        f"SELECT content, lead, overlap, chunkIndex, createdAt FROM `{chunk_type}`"
        " WHERE source = :source ORDER BY chunkIndex",
        {"source": source},
    )


def child_sources(chunk_type: str, sources: Sequence[str]) -> Statement:
    """Select the sources of the documents of some sources, derived kinds included."""
    return Statement(
        f"SELECT source FROM `{source_type(chunk_type)}` WHERE aspectOf IN :sources",
        {"sources": list(sources)},
    )


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
    *,
    chunks: Rows,
    kinds: Rows,
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
        {_check_stand_ins(chunk_type) if replacement.stand_ins else ""}
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
                 'inserted': $new[0].chunks, 'replaced': ifnull($old[0].sources, 0),
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


def _check_stand_ins(chunk_type: str) -> str:
    return (
        f"LET present = SELECT count(*) AS n FROM `{chunk_type}` WHERE chunkId IN :standIns"
        " AND createdAt IN :standInTimes AND duplicateOf IS NULL;"
        f" IF ($present[0].n <> :standInCount) {_NOTHING}"
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
    collection: Collection, replacement: Replacement, chunks: Rows, kinds: Rows, now: int
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
        "chunks": list(chunks.rows),
        "stagedChunks": list(chunks.staged),
        "aspects": list(kinds.rows),
        "stagedAspects": list(kinds.staged),
        "staged": [*chunks.staged, *kinds.staged],
        "stagedRows": chunks.staged_rows + kinds.staged_rows,
        "aspectCount": kinds.count,
        "records": [source_row(record) for record in replacement.records],
        "links": [link_row(link) for link in replacement.links],
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


def _insert(chunk_type: str, rows: Rows, name: str) -> str:
    """Return SQL that inserts the chunks of the parameter ``name`` and moves staged ones."""
    inline = f"INSERT INTO `{chunk_type}` CONTENT :{name};" if rows.rows else ""
    if not rows.staged:
        return inline
    parameter = f":staged{name.capitalize()}"
    return (
        f"{inline} INSERT INTO `{chunk_type}` FROM (SELECT {STORED_COLUMNS} FROM Staging"
        f" WHERE token IN {parameter}); DELETE FROM Staging WHERE token IN {parameter};"
    )


def stage_rows(token: str, rows: Sequence[Mapping[str, Any]]) -> Statement:
    """Store chunks outside the indexes until :func:`replace_sources` moves them.

    Needed for sources whose chunks exceed one message.
    """
    return Statement(
        "BEGIN; INSERT INTO Staging CONTENT :rows; COMMIT;",
        {"rows": [{**row, "token": token} for row in rows]},
    )


def discard_staged(*, before: int) -> Statement:
    """Delete chunks that were staged before ``before`` (epoch milliseconds)."""
    return Statement(
        "BEGIN; DELETE FROM Staging WHERE createdAt < :cutoff; COMMIT;", {"cutoff": before}
    )


# Renewing weights


def outdated_weights(
    chunk_type: str, *, average_length: float, after: str, limit: int
) -> Statement:
    """Select chunks behind ``after`` whose BM25 weights assume another average length."""
    return Statement(
        "SELECT chunkId, duplicateOf, ifnull(terms, spareTerms) AS terms,"
        " ifnull(weights, spareWeights) AS weights, lengths, averageLength"
        f" FROM `{chunk_type}`"
        " WHERE chunkId > :floor AND averageLength <> :average"
        f" ORDER BY chunkId LIMIT {limit:d}",
        {"average": average_length, "floor": after},
    )


def set_weights(
    chunk_type: str, *, average_length: float, changes: Sequence[Mapping[str, Any]]
) -> Statement:
    """Write new weights; each change has ``chunkId``, ``duplicateOf`` and ``weights``.

    A chunk that became a duplicate, or no longer is one, is skipped.
    """
    return Statement(
        f"""
        BEGIN;
        FOREACH ($change IN :changes) {{
            UPDATE `{chunk_type}` SET weights = $change.weights, averageLength = :average
                WHERE chunkId = $change.chunkId AND duplicateOf IS NULL;
        }}
        FOREACH ($spare IN :spares) {{
            UPDATE `{chunk_type}` SET spareWeights = $spare.weights, averageLength = :average
                WHERE chunkId = $spare.chunkId AND duplicateOf IS NOT NULL;
        }}
        {COMMIT}
        """,
        {
            **commit_params(chunk_type, [change["chunkId"] for change in changes]),
            "type": chunk_type,
            "average": average_length,
            "changes": [change for change in changes if change["duplicateOf"] is None],
            "spares": [change for change in changes if change["duplicateOf"] is not None],
        },
    )


def set_scores(chunk_type: str, scores: Sequence[ChunkScores]) -> Statement:
    """Write scores of chunks. No index has them, so no search waits for the commit."""
    return Statement(
        f"""
        BEGIN;
        FOREACH ($each IN :scores) {{
            UPDATE `{chunk_type}` SET centrality = $each.centrality, novelty = $each.novelty
                WHERE chunkId = $each.chunkId;
        }}
        COMMIT;
        """,
        {
            "scores": [
                {"chunkId": each.chunk_id, "centrality": each.centrality, "novelty": each.novelty}
                for each in scores
            ]
        },
    )


# Stored vectors

_PLACES = "fields.type AS type, fields.kind_chunks AS aspects, fields.dimensions AS dimensions"


def vector_places(model: str, record: str, *, limit: int) -> Statement:
    """Select collections whose vectors can be reused.

    Args:
        model: The model of the vectors.
        record: Name of the record that needs vectors; it may be under construction.
        limit: Maximum number of other collections, the last changed first.

    Returns one map: ``own``, ``live`` (if another generation is being built) and ``others``,
    rows ``type, aspects, dimensions``.
    """
    wanted = f"SELECT {_PLACES} FROM Collection WHERE fields.model = :model"
    queries = {
        "own": f"{wanted} AND key = :record",
        "live": f"{wanted} AND key = :live AND key <> :record",
        "others": f"{wanted} AND key NOT IN [:record, :live] AND fields.chunks > 0"
        f" ORDER BY fields.updated_at DESC LIMIT {limit:d}",
    }
    return Statement(
        rows_together(queries, queries),
        {"model": model, "record": record, "live": public_name(record)},
    )


def known_vectors(chunk_types: Sequence[str], keys: Sequence[str]) -> Statement:
    """Select one vector for each key, from each type.

    Returns one map: ``v0``, ``v1``, ..., for each type rows ``vectorKey, vector``.
    """
    queries = {}
    for place, chunk_type in enumerate(chunk_types):
        queries[f"k{place}"] = (
            f"SELECT vectorKey, min(chunkId) AS chunkId FROM `{chunk_type}`"
            " WHERE vectorKey IN :keys GROUP BY vectorKey"
        )
        queries[f"v{place}"] = (
            "SELECT vectorKey, ifnull(embedding, spareEmbedding) AS vector"
            f" FROM `{chunk_type}` WHERE chunkId IN $k{place}.chunkId"
        )
    found = [f"v{place}" for place in range(len(chunk_types))]
    return Statement(rows_together(queries, found), {"keys": list(keys)})
