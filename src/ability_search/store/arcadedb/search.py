"""Candidates, hits and neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ability_search.store.arcadedb.commit_visibility import NOTES
from ability_search.store.arcadedb.core import Predicate, Statement, rows_together

HIT_COLUMNS = (
    "chunkId, source, title, content, metadata, kind, chunkIndex, totalChunks,"
    " breadcrumb, page, startLine, endLine, createdAt, tokens"
)

_COLLECTION = "SELECT FROM Collection WHERE name = :name"

# The comparison refuses to be without one, and asking for the embedding itself reads it twice.
_HAS_EMBEDDING = "duplicateOf IS NULL"


@dataclass(frozen=True, slots=True)
class VectorArm:
    """Chunks nearest to a vector; their score is the cosine."""

    name: str
    """A name in code, never a user's."""
    vector: Sequence[float]
    limit: int
    beam: int
    """Width of the beam of the graph search."""
    exact: bool
    """Scan the embeddings instead of asking the graph."""
    predicate: Predicate | None = None
    """Which chunks count at all; applied inside the arm."""
    chunk_type: str | None = None
    """Another type than the generation's chunks."""


@dataclass(frozen=True, slots=True)
class TermsArm:
    """Chunks that weigh most by their terms; their score is the dot product."""

    name: str
    """A name in code, never a user's."""
    ids: Sequence[int]
    """Ascending."""
    weights: Sequence[float]
    limit: int
    predicate: Predicate | None = None
    chunk_type: str | None = None
    """Another type than the generation's chunks."""
    dots: Mapping[str, tuple[Sequence[int], Sequence[float]]] = field(default_factory=dict)
    """As those of :class:`Shown`, of the rows of this arm alone."""


Arm = VectorArm | TermsArm


@dataclass(frozen=True, slots=True)
class Shown:
    """What is wanted of chunks besides their ids."""

    columns: Sequence[str] = ()
    """Names in code."""
    cosines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Vectors by the column that holds a chunk's cosine to them, ``None`` without an embedding."""
    dots: Mapping[str, tuple[Sequence[int], Sequence[float]]] = field(default_factory=dict)
    """Ids and weights of terms by the column that holds a chunk's dot product with them."""
    shared: Mapping[str, str] = field(default_factory=dict)
    """Names of parameters, bound elsewhere, that hold the vectors of these columns."""

    def value(self, column: str) -> str:
        """Return the expression of this column."""
        if column in self.cosines:
            return f"vectorCosineSimilarity(embedding, :{self.shared.get(column, f'{column}_v')})"
        if column in self.dots:
            return (
                "vectorSparseDot(`vector.sparseCreate`(terms, weights),"
                f" `vector.sparseCreate`(:{column}_di, :{column}_dw))"
            )
        return column

    def text(self, *, but: Sequence[float] | None = None) -> str:
        """The columns as they go on after others, without the cosine to the very vector ``but``."""
        computed = [*self.dots, *(name for name, by in self.cosines.items() if by is not but)]
        return "".join(
            [
                *(f", {column}" for column in self.columns),
                *(f", {self.value(column)} AS {column}" for column in computed),
            ]
        )

    @property
    def params(self) -> dict[str, Any]:
        """Return the parameters that the columns bind."""
        bound: dict[str, Any] = {
            f"{name}_v": list(by) for name, by in self.cosines.items() if name not in self.shared
        }
        for name, (ids, weights) in self.dots.items():
            bound |= {f"{name}_di": list(ids), f"{name}_dw": list(weights)}
        return bound


NOTHING = Shown()


def candidates(
    name: str,
    chunk_type: str,
    arms: Sequence[Arm],
    shown: Shown = NOTHING,
    *,
    first: int = 0,
) -> Statement:
    """All arms in one round trip: identifiers, scores and little else.

    Args:
        name: The collection.
        chunk_type: The generation to search.
        arms: Each with a name of its own.
        shown: What else is wanted of every row; those of an arm by a vector are without the
            cosine to it, which is their score.
        first: Of so many rows of each arm ``rid, terms, weights, embedding`` come too.

    Returns one map: ``collection`` (its record as it was before), ``unindexed`` (a row if a commit
    was being indexed then), ``later`` (its revision after the arms) and, by the name of each arm,
    its rows ``rid, chunkId, score`` and what else was asked for, best first; by ``first_`` and that
    name what comes too.
    """
    queries = {"collection": _COLLECTION, "unindexed": NOTES}
    answer = ["collection", "unindexed"]
    narrower: dict[str, str] = {}
    shown = _sharing(shown, arms)
    params: dict[str, Any] = {"name": name, "type": chunk_type, **shown.params}
    allowed = _allowed(arms, chunk_type)
    for (searched, text), rids in allowed.items():
        queries[rids] = f"SELECT @rid FROM `{searched}` WHERE {text}"
    for arm in arms:
        searched = arm.chunk_type or chunk_type
        params |= arm.predicate.params if arm.predicate else {}
        rids = allowed.get((searched, arm.predicate.text), "") if arm.predicate else ""
        if isinstance(arm, VectorArm):
            params[f"{arm.name}_v"] = list(arm.vector)
            queries[arm.name] = _vector_arm(searched, arm, shown.text(but=arm.vector), rids)
        else:
            params |= {f"{arm.name}_i": list(arm.ids), f"{arm.name}_w": list(arm.weights)}
            own = Shown(dots=arm.dots)
            params |= own.params
            further = shown.text() + own.text()
            queries[arm.name] = _terms_arm(searched, arm, further, *_within(rids))
            if rids:
                narrower[arm.name] = _narrower(searched, arm, further, rids)
        answer.append(arm.name)
        if first:
            queries[f"first_{arm.name}"] = (
                "SELECT @rid AS rid, terms, weights, embedding FROM"
                f" (SELECT expand(rid) FROM (SELECT expand(${arm.name})) LIMIT {first:d})"
            )
            answer.append(f"first_{arm.name}")
    queries["later"] = "SELECT revision FROM Collection WHERE name = :name"
    return Statement(_text(queries, narrower, [*answer, "later"]), params)


def _sharing(shown: Shown, arms: Sequence[Arm]) -> Shown:
    """Vectors that arms bind are not sent twice."""
    shared = {
        column: f"{arm.name}_v"
        for column, vector in shown.cosines.items()
        for arm in arms
        if isinstance(arm, VectorArm) and arm.vector is vector
    }
    return replace(shown, shared=shared)


def _text(queries: Mapping[str, str], narrower: Mapping[str, str], answer: Sequence[str]) -> str:
    """One query, or a script where a list may have to be searched for again."""
    if not narrower:
        return rows_together(queries, answer)
    steps = [f"LET {name} = {query}; {narrower.get(name, '')}" for name, query in queries.items()]
    returned = ", ".join(f"'{name}': ${name}" for name in answer)
    return f"{' '.join(steps)} RETURN {{{returned}}};"


def _allowed(arms: Sequence[Arm], chunk_type: str) -> dict[tuple[str, str], str]:
    """A variable for the rows that an index is searched within, by type and predicate's text.

    A predicate is evaluated once, however many arms it is for.
    """
    searched = [arm for arm in arms if isinstance(arm, TermsArm) or not arm.exact]
    wanted = dict.fromkeys(
        (arm.chunk_type or chunk_type, arm.predicate.text) for arm in searched if arm.predicate
    )
    return {each: f"allowed{place}" for place, each in enumerate(wanted)}


def _vector_arm(chunk_type: str, arm: VectorArm, further: str, allowed: str) -> str:
    columns = "@rid AS rid, chunkId"
    if not arm.exact:
        options = ", ".join([f"efSearch: {max(arm.beam, arm.limit):d}", *_within(allowed)])
        return (
            f"SELECT {columns}, 1 - distance AS score{further} FROM (SELECT"
            f" expand(vectorNeighbors('{chunk_type}[embedding]', :{arm.name}_v, {arm.limit:d},"
            f" {{{options}}})))"
        )
    score = f"vectorCosineSimilarity(embedding, :{arm.name}_v) AS score"
    where = _HAS_EMBEDDING + (f" AND ({arm.predicate.text})" if arm.predicate else "")
    scan = (
        f"SELECT {columns}, {score} FROM `{chunk_type}` WHERE {where}"
        f" ORDER BY score DESC LIMIT {arm.limit:d}"
    )
    if further:
        # What is wanted of the chunks found is not computed for every one that is scanned.
        scan = f"SELECT {columns}, {score}{further} FROM (SELECT expand(rid) FROM ({scan}))"
    return scan


def _terms_arm(chunk_type: str, arm: TermsArm, further: str, *options: str) -> str:
    given = f", {{{', '.join(options)}}}" if options else ""
    return (
        f"SELECT @rid AS rid, chunkId, score{further} FROM (SELECT expand("
        f"`vector.sparseNeighbors`('{chunk_type}[terms,weights]', :{arm.name}_i,"
        f" :{arm.name}_w, {arm.limit:d}{given})))"
    )


def _narrower(chunk_type: str, arm: TermsArm, further: str, allowed: str) -> str:
    # The engine takes some times the limit from the whole index and leaves out what does not
    # fit, which are all of them where few fit. In groups, here of one chunk each, it searches
    # among those that fit; that costs more, and is not needed where the list is full.
    groups = "groupBy: 'chunkId'", "groupSize: 1"
    again = _terms_arm(chunk_type, arm, further, *groups, *_within(allowed))
    return f"IF (${arm.name}.size() < {arm.limit:d}) {{ LET {arm.name} = {again}; }}"


def _within(allowed: str) -> list[str]:
    return [f"filter: ${allowed}"] if allowed else []


def nearest(
    chunk_type: str, vectors: Sequence[Sequence[float]], *, limit: int, beam: int, exact: bool
) -> Statement:
    """The nearest neighbours of each vector, among the chunks that are in the vector index.

    Args:
        chunk_type: The generation to search.
        vectors: What to look for.
        limit: Neighbours of each.
        beam: Width of the beam of the graph search.
        exact: Scan the embeddings instead of asking the graph.

    Returns one map: ``n0``, ``n1``, ... for each vector in turn, rows ``chunkId, source,
    createdAt, cosine``, nearest first.
    """
    columns = "chunkId, source, createdAt"
    queries = {}
    for place in range(len(vectors)):
        if exact:
            queries[f"n{place}"] = (
                f"SELECT {columns}, vectorCosineSimilarity(embedding, :v{place}) AS cosine"
                f" FROM `{chunk_type}` WHERE {_HAS_EMBEDDING}"
                f" ORDER BY cosine DESC LIMIT {limit:d}"
            )
        else:
            queries[f"n{place}"] = (
                f"SELECT {columns}, 1 - distance AS cosine FROM (SELECT expand(vectorNeighbors("
                f"'{chunk_type}[embedding]', :v{place}, {limit:d},"
                f" {{efSearch: {max(beam, limit):d}}})))"
            )
    return Statement(
        rows_together(queries, queries),
        {f"v{place}": list(vector) for place, vector in enumerate(vectors)},
    )


def hit_rows(chunk_type: str, rids: Sequence[str], *, compared: Sequence[str] = ()) -> Statement:
    """The chunks with these record ids, in any order; those that are gone are left out.

    Args:
        chunk_type: Their generation.
        rids: Which chunks.
        compared: Record ids among these: each row has its cosine to them in ``like0``, ``like1``,
            ..., which means nothing if that chunk is left out.

    Returns the rows, or with ``compared`` a map with them under ``rows``.
    """
    if not compared:
        text = f"SELECT @rid AS rid, {HIT_COLUMNS} FROM `{chunk_type}` WHERE @rid IN :rids"
        return Statement(text, {"rids": list(rids)})
    queries, likeness = {}, []
    for place in range(len(compared)):
        queries[f"e{place}"] = f"SELECT embedding FROM `{chunk_type}` WHERE @rid = :compared{place}"
        # The comparison refuses to be without one; if that chunk is gone, its row is missing too.
        other = f"ifnull($e{place}[0].embedding, embedding)"
        likeness.append(f"vectorCosineSimilarity(embedding, {other}) AS like{place}")
    queries["rows"] = (
        f"SELECT @rid AS rid, {HIT_COLUMNS}, {', '.join(likeness)}"
        f" FROM `{chunk_type}` WHERE @rid IN :rids"
    )
    return Statement(
        rows_together(queries, ["rows"]),
        {"rids": list(rids), **{f"compared{place}": rid for place, rid in enumerate(compared)}},
    )


def chunk_embedding(name: str, chunk_type: str, chunk_id: str) -> Statement:
    """One chunk with its embedding, beside the collection's record as it is now."""
    columns = f"@rid AS rid, {HIT_COLUMNS}, ifnull(embedding, spareEmbedding) AS embedding"
    queries = {
        "collection": _COLLECTION,
        "chunk": f"SELECT {columns} FROM `{chunk_type}` WHERE chunkId = :chunkId",
    }
    return Statement(rows_together(queries, queries), {"name": name, "chunkId": chunk_id})


def embeddings(chunk_type: str, rids: Sequence[str]) -> Statement:
    """The vectors of the chunks with these record ids: rows ``rid, embedding``, in any order."""
    return Statement(
        f"SELECT @rid AS rid, embedding FROM `{chunk_type}` WHERE @rid IN :rids",
        {"rids": list(rids)},
    )


def build_graph(chunk_type: str, vector: Sequence[float]) -> Statement:
    """A search for one neighbour, which makes the engine build the vector graph and wait for it."""
    return Statement(
        f"SELECT chunkId FROM (SELECT expand(vectorNeighbors('{chunk_type}[embedding]', :vector,"
        " 1)))",
        {"vector": list(vector)},
    )
