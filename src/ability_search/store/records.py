"""Values that cross the store port.

Times are epoch milliseconds. A *generation* is one build of a collection's index, named by an
opaque string (:attr:`ability_search.collection.Collection.type`). Where a method takes ``kinds``,
it chooses between a generation's own chunks and the chunks of the kinds made of its documents,
which are stored and indexed apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from ability_search.collection import Collection
from ability_search.documents import SparseVector, is_kind
from ability_search.filters.tree import Filter
from ability_search.store.values import Chunks, Columns

# What is stored


@dataclass(frozen=True, slots=True)
class ChunkRecord:
    """A chunk as it is stored."""

    chunk_id: str
    collection: str
    source: str
    title: str
    content: str
    kind: str
    metadata: Mapping[str, Any]
    chunk_index: int
    total_chunks: int
    created_at: int
    tokens: int
    breadcrumb: str = ""
    page: int | None = None
    start_line: int | None = None
    end_line: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    lead: str = ""
    """Text between the previous chunk and this one."""
    overlap: int = 0
    """Characters at the beginning that repeat the end of the previous chunk, or are a preface."""
    section: int | None = None
    """Index of the first chunk of the section."""
    of: str | None = None
    """Source of the document that this kind was made of."""
    of_chunk: int | None = None
    """Index of the chunk of that document that this one was made of, if it is one chunk."""
    parent: str | None = None
    """Source of the document that the document of this chunk belongs to, unless it is a kind."""
    facets: Sequence[str] = ()
    """Keys of equality filters, and of the periods that the text mentions."""
    dates: Sequence[int] = ()
    """Periods that the text mentions, see :mod:`.understanding.written_dates`."""
    embedding: Sequence[float] | None = None
    """Unit length."""
    vector_key: str | None = None
    terms: Sequence[int] = ()
    """Term ids, ascending."""
    weights: Sequence[float] = ()
    """BM25 weight of each term."""
    lengths: Sequence[int] = ()
    """Number of terms in the title, and :func:`.bm25.counted_length`."""
    average_length: float = 0.0
    """Average length that the weights were computed with."""
    duplicate_of: str | None = None
    """ChunkId that represents this one in the indexes; ``None`` if the chunk is indexed itself."""
    centrality: float | None = None
    """Share of the other chunks that have a smaller PageRank, 0 to 1; equal ones count half.
    ``None`` if the chunk was not analysed."""
    novelty: float | None = None
    """Share in the directions of the vectors that are not noise, 0 to 1; ``None`` likewise."""


ROUNDING: Final = 1e-6
"""Tolerance for the cosine of equal vectors that are rounded to seven decimals."""


def source_of(chunk_id: str) -> str:
    """Return the source of a chunk."""
    return chunk_id.partition(":")[2].rpartition(":")[0]


def chunk_bytes(chunk: ChunkRecord) -> int:
    """Estimate the bytes of a chunk in a message, seldom too low."""
    text = 3 * (len(chunk.content) + len(chunk.lead) + len(chunk.title))
    text += len(str(chunk.metadata)) + sum(3 + len(facet) for facet in chunk.facets)
    numbers = 11 * len(chunk.embedding or ()) + 18 * len(chunk.terms) + 8 * len(chunk.dates)
    return 600 + text + numbers


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A document as it is stored, without its chunks."""

    source: str
    title: str
    content_hash: str
    chunks: int
    tokens: int
    tokens_min: int | None
    tokens_max: int | None
    indexed_at: int
    kind: str
    metadata: Mapping[str, Any]
    format: str | None = None
    language: str | None = None
    links: Sequence[Mapping[str, Any]] = ()
    of: str | None = None
    file: bool = False
    """Whether the document was read from a file."""
    file_hash: str | None = None
    generated: bool = False
    """Whether the document is a kind that was derived from another one."""
    tail: str = ""
    """Text after the last chunk."""
    origin: str | None = None
    """Content hash of the document that a rebuild restored it from."""
    dedup_threshold: float | None = None
    """Minimum cosine at which its chunks are duplicates of others; ``None`` if never."""

    @property
    def counted(self) -> bool:
        """Return whether it is a source, not a derived kind or a file that only holds documents."""
        return not self.generated and self.chunks > 0


@dataclass(frozen=True, slots=True)
class SourceLink:
    """A link between two documents."""

    source: str
    target: str
    kind: str
    weight: float


LINKS_PER_HOP: Final = 100
"""Links followed at each hop in each direction, the strongest first."""


def strongest(links: Iterable[SourceLink], limit: int = LINKS_PER_HOP) -> list[SourceLink]:
    """Return the links of the greatest weight, in that order; ties by source, target and kind."""
    return sorted(links, key=lambda link: (-link.weight, link.source, link.target, link.kind))[
        :limit
    ]


# Retrieval


@dataclass(frozen=True, slots=True)
class Linked:
    """The sources that links connect with some, in both directions, without these."""

    sources: Sequence[str]
    hops: int
    """Links in a row; the next one starts from what the filter of the search leaves."""
    kinds: Sequence[str] | None = None
    """Kinds of links to follow; ``None`` follows all."""


By = Sequence[float] | SparseVector
"""A vector or weighted terms, with which chunks are compared."""


@dataclass(frozen=True, slots=True)
class Search:
    """The best chunks by a vector or by terms."""

    name: str
    by: By
    """A vector, and the score is the cosine to it; or weighted terms, and the score is the dot
    product with them."""
    limit: int
    """Maximum number of chunks."""
    filter: Filter | None = None
    """Of the duplicates whose stand-in it excludes, the first by chunkId that it allows is found,
    unless there is ``within``."""
    kinds: bool = False
    heads: Sequence[int] = ()
    """Lower limits, ascending: the list begins with what a search with only these finds."""
    within: Chunks | Linked | None = None
    """All chunks with these ids are compared, or the best one of each of these or of the linked
    sources is returned; of equal ones the first. Chunks without any of the terms have the score 0.
    Without it the chunks that an index finds."""
    least: float | None = None
    """Minimum score ``within`` these."""


class Share(NamedTuple):
    """The share of a score ``x`` in a sum: ``weight x``, or ``weight x / (x + half)``."""

    weight: float
    half: float | None = None


@dataclass(frozen=True, slots=True)
class Ahead:
    """The chunks whose texts a store reads with a search, if that takes no further round trip."""

    first: int
    """Number of chunks by each of the orders."""
    orders: Sequence[Mapping[str, Share]]
    """By the name of a search: an order is by the sum of the shares of the scores by the searches,
    as far as the columns have them, descending; of equal ones the first by chunkId."""


_METADATA: Final = "metadata."
VALUE_LENGTH: Final = 16_384
"""Characters of the greatest value of metadata that is read with a candidate."""


def metadata_column(key: str) -> str:
    """Return the column of candidates with a key of their metadata.

    Their rows have it as the only member of ``metadata``, besides other keys. A value of more than
    :data:`VALUE_LENGTH` characters as text is ``None``.
    """
    return f"{_METADATA}{key}"


def metadata_key(column: str) -> str | None:
    """Return the key of a :func:`metadata_column`; ``None`` for other columns."""
    return column.removeprefix(_METADATA) if column.startswith(_METADATA) else None


class ChunkText(msgspec.Struct):  # a query makes a hundred, five times as fast as dataclasses
    """A chunk as returned for a query."""

    handle: str
    chunk_id: str
    source: str
    title: str
    content: str
    metadata: Mapping[str, Any]
    kind: str | None
    chunk_index: int
    total_chunks: int
    breadcrumb: str | None
    page: int | None
    start_line: int | None
    end_line: int | None
    created_at: int | None
    tokens: int | None
    parent: str | None = None
    embedding: Sequence[float] | None = None
    """Its vector, if requested."""


class Row(msgspec.Struct):
    """A chunk found by a search."""

    handle: str
    """Passed to reads; it changes when the chunk is replaced."""
    chunk_id: str
    score: float
    columns: Mapping[str, Any] = {}
    """Requested columns by name."""
    text: ChunkText | None = None
    """Itself, if it was read with the search."""


WITH_EMBEDDING: Final = Columns(ChunkText.__struct_fields__)
"""The columns of a :class:`ChunkText`."""
HIT: Final = Columns(tuple(name for name in WITH_EMBEDDING.fields if name != "embedding"))
"""The same without its vector."""


Hops = Sequence[tuple[Sequence[SourceLink], Sequence[SourceLink]]]
"""For each hop the links from and to the sources where it starts, the strongest first."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The answer to the searches of a query."""

    current: Collection | None
    """The collection's record as it was at the answer; ``None`` if the collection is gone."""
    rows: Mapping[str, Sequence[Row]]
    """By the name of the search, best first."""
    hops: Mapping[str, Hops] = field(default_factory=dict)
    """By the name of the search, of those within :class:`Linked`."""


# Indexing


@dataclass(frozen=True, slots=True)
class Replacement:
    """The new contents of some sources, written in one transaction.

    Without records and chunks it is a deletion.
    """

    sources: Sequence[str]
    """All sources concerned; whatever is stored of them is replaced."""
    records: Sequence[SourceRecord] = ()
    chunks: Sequence[Sequence[ChunkRecord]] = ()
    """The chunks of each source."""
    links: Sequence[SourceLink] = ()
    term_statistics: bytes | None = None
    """Term statistics of the chunks, encoded; see :mod:`ability_search.text.term_statistics`."""
    stand_ins: Mapping[str, int] = field(default_factory=dict)
    """Stored chunks that represent duplicates among ``chunks``: ``created_at`` by chunkId. If one
    of them was replaced, nothing is written."""

    @property
    def nested(self) -> bool:
        """Whether a document other than a derived kind is a document of another one."""
        return any(each.of and not is_kind(each.kind, each.of) for each in self.records)


@dataclass(frozen=True, slots=True)
class Replaced:
    """The outcome of a :class:`Replacement`."""

    collection: Collection
    """As it is now."""
    deleted: int
    """Chunks."""
    inserted: int
    """Chunks."""
    replaced: int
    """Sources that count."""


@dataclass(frozen=True, slots=True)
class WeightedChunk:
    """The terms of a chunk that is in the indexes, or waits for the chunk that represents it."""

    chunk_id: str
    terms: Sequence[int]
    weights: Sequence[float]
    lengths: Sequence[int] = ()
    average_length: float = 0.0
    duplicate_of: str | None = None
    embedding: Sequence[float] | None = None


# Jobs

REINDEX = "reindex"
"""Kind of the jobs that rebuild a collection; another worker continues an abandoned one."""
FILES, INDEX = "index-file", "index"
"""Kinds of the jobs that index; their results are stored, and no worker continues them."""
HISTORY = "history"
"""Option of a job that indexes: the outcomes of the jobs of its kind before it, newest first."""


@dataclass(frozen=True, slots=True)
class Job:
    """The record of a long operation. Times are epoch milliseconds of the database's clock."""

    id: str
    kind: str
    collection: str
    owner: str | None = None
    """Id of the worker that owns it, while it runs."""
    record: str | None = None
    """Name of the record of the generation being built, while it runs."""
    builds: str | None = None
    """That generation."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of the call, sufficient to continue the job."""
    state: str = "running"
    """``running``, ``done``, ``failed`` or ``cancelled``."""
    expired: bool = False
    """True if the job is running but its lease has expired."""
    stage: str = ""
    done: int = 0
    total: int = 0
    lost: int = 0
    """Number of workers in a row that were lost without making progress."""
    lost_at: int = -1
    """The value of ``done`` when the last of them was lost."""
    started_at: int = 0
    updated_at: int = 0
    revision: int = 0
    """Of its record."""
    error: Mapping[str, Any] | None = None
    """``code``, ``message`` and ``hint`` if the job failed."""
    result: Mapping[str, Any] | None = None
    """The result if the job is done, unless it has a record of its own."""

    @property
    def running(self) -> bool:
        """True if the job has not ended, even if no worker owns it at the moment."""
        return self.state == "running"

    @property
    def losses(self) -> int:
        """The number ``lost``, including the current owner if it did not release the job."""
        if self.owner is None:
            return self.lost
        return 1 + (self.lost if self.done <= self.lost_at else 0)


@dataclass(frozen=True, slots=True)
class Represented:
    """Duplicates in other sources of a chunk that is replaced.

    Attributes:
        vector_key: Its vector key.
        copies: The chunkIds of the duplicates.
        threshold: Minimum cosine of the first of them and a stand-in, ``None`` without one.
        embedding: The embedding of the first of them; ``None`` if it is not to be compared.
    """

    vector_key: str | None
    copies: Sequence[str]
    threshold: float | None = None
    embedding: Sequence[float] | None = None


def moved(groups: Sequence[Represented], new: Sequence[ChunkRecord]) -> Mapping[str, Sequence[str]]:
    """Return the duplicates of all groups by their next stand-in.

    It is the new chunk of the same vector key, or else the one nearest to the first duplicate if
    that is as near as its threshold requires; if that chunk is a duplicate itself, its stand-in.
    If there is none, it is the first duplicate.

    Args:
        groups: The duplicates.
        new: All chunks that replace their stand-ins, and have embeddings.
    """
    if not groups:
        return {}
    by_key = {chunk.vector_key: chunk for chunk in reversed(new) if chunk.vector_key}
    vectors = np.array([chunk.embedding or () for chunk in new], dtype=np.float32)
    found: dict[str, list[str]] = {}
    for group in groups:
        chunk = by_key.get(group.vector_key or "")
        if chunk is None and new and group.threshold is not None and group.embedding is not None:
            cosines = vectors @ np.array(group.embedding, dtype=np.float32)
            nearest = int(np.argmax(cosines))
            if cosines[nearest] >= group.threshold - ROUNDING:
                chunk = new[nearest]
        standing = group.copies[0] if chunk is None else chunk.duplicate_of or chunk.chunk_id
        found.setdefault(standing, []).extend(group.copies)
    return found
