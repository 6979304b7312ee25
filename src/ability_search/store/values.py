"""Values of the verbs of the store: selections, pages, records and changes.

All are data, so that one call can be sent as one message. Times are epoch milliseconds of the
store's clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Literal

from ability_search.collection import Collection, public_name
from ability_search.documents import SparseVector
from ability_search.filters.tree import Filter

Key = tuple[str, ...]
"""Identity of a record in its scope, in order of its parts."""
Scalar = str | int | float | bool
KINDS_LAYER = "kinds"
"""Layer of the chunks that are derived from documents; that of their own chunks is empty."""

# Selections


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of a generation: all, or those with one of the given values of one field."""

    layer: str = ""
    """Chunks of documents (empty), or others that are stored, indexed and counted apart."""
    handles: Sequence[str] | None = None
    ids: Sequence[str] | None = None
    sources: Sequence[str] | None = None
    vector_keys: Sequence[str] | None = None
    """One chunk of each key is selected."""
    first: int = 0
    """Least ``chunk_index``."""
    end: int | None = None
    """The first ``chunk_index`` that is not selected."""
    indexed: bool | None = None
    """Only chunks that are in the indexes, or only duplicates of others."""
    filter: Filter | None = None
    """Over any scalar field of a chunk."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Documents of a generation: all, or those named."""

    names: Sequence[str] | None = None
    filter: Filter | None = None
    """Over any scalar field of a source."""


@dataclass(frozen=True, slots=True)
class Links:
    """The links from and to some sources."""

    sources: Sequence[str]


@dataclass(frozen=True, slots=True)
class Records:
    """Records by kind, scope and key."""

    kind: str | None
    """``None``: of every kind, to be deleted."""
    scope: str | None = None
    """``None``: of every scope, and the scope is the first part of the key of a page."""
    keys: Sequence[Key] | None = None
    prefix: Key = ()
    """The first parts of longer keys."""
    until: Key | None = None
    """The last key."""
    where: Mapping[str, Scalar | None] = field(default_factory=dict)
    """Values of fields; a missing field is ``None``."""
    expired: bool | None = None
    """Only those with a lease that is over, or only others."""
    before: int | None = None
    """Only those that were last changed before this time."""

    def __post_init__(self) -> None:
        _check_names(self.where)


# Reads


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of chunks or sources."""

    fields: Sequence[str] = ()
    """Names of fields, or of :func:`metadata_column`. In a :class:`Read` also ``handle``, which
    another one may ask for; ``dimensions``, those of the vector if it has unit length (1 %), or
    else 0; and ``<text>[:n]``, its first ``n`` characters."""
    cosines: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Vectors, by the column for the cosine to them; ``None`` for a chunk without an embedding."""
    products: Mapping[str, SparseVector] = field(default_factory=dict)
    """Terms, by the column for the dot product with them."""


@dataclass(frozen=True, slots=True)
class Read:
    """A page of what a selection holds."""

    of: Chunks | Sources | Links | Records
    collection: Collection | None = None
    """The collection whose generation is read; ``None`` for records."""
    columns: Columns | None = None
    """Columns of rows, which are mappings by column; ``None`` reads whole values."""
    limit: int | None = None
    """Maximum number of items. Where they do not fit into a message, a page has fewer."""
    order: Literal["id", "vector_key", "stored", "updated_at"] = "id"
    """Without a vector key, chunks are not in its order; of chunks with one key, all but the first
    may be left out after the end of a page. In the order in which they were stored, sources have
    one page; so have links, which are in order of weight, descending, source, target and kind, and
    records in the order of their changes."""
    descending: bool = False
    after: str | Key | None = None
    """The page begins behind this item, as :attr:`Page.next`."""
    current: bool = False
    """Whether to answer with the collection's record, which takes most of a millisecond."""


@dataclass(frozen=True, slots=True)
class Count:
    """The number of items of a selection, in groups."""

    of: Chunks | Sources | Records
    collection: Collection | None = None
    sums: Sequence[str] = ()
    """Fields to sum up."""
    by: str | None = None
    """Field to group by."""
    width: int = 1
    """Width of a group."""
    sample: int | None = None
    """Count so many chunks only, those of the least vector keys."""
    current: bool = False
    """As that of :class:`Read`."""


@dataclass(frozen=True, slots=True)
class Page:
    """The answer to a :class:`Read`."""

    items: Sequence[Any]
    """Chunks, sources, links or records; with ``columns`` rows, in which a field without a value
    has its default."""
    next: str | Key | None
    """Mark of the next page, if there may be one."""
    current: Collection | None
    """The collection's record as it was at the answer, if asked for; ``None`` if it is gone."""
    at: int = 0
    """Time of the answer, if records are read."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The answer to a :class:`Count`."""

    groups: Mapping[int | None, tuple[int, ...]]
    """Number and sums, by the least value of a group; ``None`` without groups."""
    current: Collection | None
    at: int = 0


# Changes of chunks


@dataclass(frozen=True, slots=True)
class Patch:
    """New values of fields of a chunk."""

    chunk_id: str
    fields: Mapping[str, Any]
    """``weights``, ``average_length``, ``centrality`` and ``novelty``."""
    layer: str = ""
    where: Mapping[str, Scalar | None] = field(default_factory=dict)
    """Values of fields without which the chunk is left as it is."""


# Records

MOST_RECORDS: Final = 10_000
"""Records of the greatest page."""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def of_collection(name: str) -> str:
    """Return the scope of what belongs to a collection, by the name of any of its records."""
    return f"collection/{public_name(name)}"


def of_generation(generation: str) -> str:
    """Return the scope of what belongs to a generation."""
    return f"generation/{generation}"


def of_agent(agent: str) -> str:
    """Return the scope of what belongs to an agent."""
    return f"agent/{agent}"


@dataclass(frozen=True, slots=True)
class Record:
    """A small document with a kind, a scope and a key."""

    kind: str
    scope: str
    """As :func:`of_collection`, :func:`of_generation` or :func:`of_agent`."""
    key: Key
    fields: Mapping[str, Any]
    """JSON values by identifier."""
    data: bytes | None = None
    revision: int = 0
    """Grows with every change."""
    until: int | None = None
    """End of its lease."""
    expired: bool = False
    created_at: int = 0
    updated_at: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace a record."""

    kind: str
    scope: str
    key: Key
    fields: Mapping[str, Any]
    data: bytes | None = None
    revision: int | None = None
    """``None``: any; 0: the record must not exist; else it must have this revision."""
    where: Mapping[str, Scalar | None] | None = None
    """If given, the record must exist and have these fields."""
    merge: bool = False
    """Keep the data, and the fields that are not named."""
    fresh: bool = False
    """Set ``created_at`` to now."""
    lease: int | None | Literal["keep"] = "keep"
    """Milliseconds from now; a negative one is expired at once, ``None`` is without an end."""

    def __post_init__(self) -> None:
        _check_names(self.fields, self.where or ())

    @property
    def conditional(self) -> bool:
        """Whether it may be refused."""
        return self.revision is not None or self.where is not None


@dataclass(frozen=True, slots=True)
class Add:
    """Add to numbers of a record, which is created with 0. Not idempotent."""

    kind: str
    scope: str
    key: Key
    by: Mapping[str, int]
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields to set besides."""

    def __post_init__(self) -> None:
        _check_names(self.by, self.fields)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete records."""

    of: Records
    count: int | None = None
    """Exactly so many, of one kind, must be deleted."""


@dataclass(frozen=True, slots=True)
class Require:
    """Refuse the commit if fewer or more records are there after the changes before it."""

    of: Records
    at_least: int = 0
    at_most: int | None = None


Change = Put | Add | Delete | Require


@dataclass(frozen=True, slots=True)
class Committed:
    """The outcome of a commit."""

    done: bool
    at: int
    """Time of the commit."""
    refused: int | None = None
    """Index of the change that was refused; then nothing was written."""
    record: Record | None = None
    """The record of the last change, as it is now; or of the refused one, as it is stored.
    ``None`` for a change of several records, or if there is none."""


def _check_names(*names: Iterable[str]) -> None:
    for name in chain(*names):
        if not _NAME.fullmatch(name):
            raise ValueError(f"not the name of a field: {name!r}")
