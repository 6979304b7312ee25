"""Values of indexing: documents, passages and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Vector = npt.NDArray[np.float32]
"""One embedding, shape (d,), or a batch of them, shape (n, d)."""

KINDS = ("title", "summary", "keywords", "propositions")
"""Kinds that can be derived from a document, see :attr:`Document.of`."""
NO_TEXT = "\n"
"""Content of a file that only holds documents; it has no chunks, only its hash is stored."""
_EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY: Final = date.min.toordinal() - _EPOCH
LAST_DAY: Final = date.max.toordinal() - _EPOCH
"""The first and the last day that a text may name, in days since 1970-01-01: years 1 to 9999."""
GENERATED = "#~"
"""Between the source of a document and the kind that was derived from it."""


def is_kind(kind: str, of: str | None) -> bool:
    """Return whether a document of another one is its title, summary, ..., which is stored apart.

    Any other document of another one, such as an attachment, is stored and found like all others.
    """
    return of is not None and kind in KINDS


@dataclass(frozen=True, slots=True)
class Document:
    """A text to index; ``source`` is its unique name within a collection."""

    source: str
    title: str
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "document"
    format: str | None = None
    """``markdown``, ``text``, ``code``, ``json``, ...; ``None`` to detect it from the text."""
    language: str | None = None
    """Programming language of a code document (``python``), if known."""
    links: tuple[Mapping[str, Any], ...] = ()
    """Links to other sources, each with ``target``, ``kind`` and ``weight`` in [0, 1]."""
    of: str | None = None
    """Source of the document that this one is deleted with. If this one is its title, summary, ...
    (see :func:`is_kind`), hits return chunks of that one."""
    file: bool = False
    """Whether it was read from a file that ``source`` names, relative to an allowed root."""
    file_hash: str | None = None
    """Hash of the bytes of that file; used instead of the text to detect changes."""
    generated: bool = False
    """Whether the indexer derived it from the document :attr:`of` and updates both together."""
    origin: str | None = None
    """Content hash in the generation that it was restored from."""
    content_hash: str = ""
    """Hash of everything that determines its chunks and their vectors."""
    children: tuple[str, ...] | None = None
    """Sources of the documents in the same file, such as attachments. Other stored documents of
    this one that were read from its file (their metadata ``path``) are deleted. ``None``: none is
    deleted."""
    dedup_threshold: float | None = None
    """Minimum cosine at which its chunks are duplicates of others, in (0, 1]; ``None`` if never."""
    created_at: int | None = None
    """When it was indexed first, in epoch milliseconds, if it was restored."""
    preceding: tuple[str, ...] = ()
    """Texts of the documents before it in a sequence, oldest first; see :mod:`.sequences`."""

    @property
    def unread(self) -> bool:
        """Return whether only the hash is known, for comparison with the stored document."""
        return self.file_hash is not None and not self.content

    @property
    def container(self) -> bool:
        """Return whether it is a file that has no text of its own, only documents in it."""
        return self.content == NO_TEXT and self.file_hash is not None

    @property
    def blank(self) -> bool:
        """Return whether there is nothing to store."""
        stored = self.unread or self.container
        return not stored and not self.content.removeprefix("\ufeff").strip()


@lru_cache(maxsize=1 << 12)  # those of texts that were indexed together are equal
def instant(milliseconds: int) -> str:
    """Format epoch milliseconds as RFC 3339 in UTC, with milliseconds."""
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of a text as a chunking strategy cuts it.

    ``start`` and ``end`` are offsets into the text in characters, and ``content`` is
    ``text[start:end]`` after its preface; lines are counted from 1 and inclusive.
    """

    content: str
    start: int
    end: int
    tokens: int
    start_line: int
    end_line: int
    breadcrumb: str = ""
    """Headings above the passage, outermost first, joined by `` > ``; or the symbol's path."""
    context: str = ""
    """Prose that introduces a code block, or the turns before a turn; embedded and searched with
    the passage, not returned as its text."""
    language: str | None = None
    """Info string of a code block (``python``)."""
    of_chunk: int | None = None
    """Index of the chunk that a proposition was made of; ``None`` if it is of a whole document."""
    preface: int = 0
    """Characters at the beginning of ``content`` that are elsewhere in the text: the header of a
    table, or the description in the front matter."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Metadata of the passage, in addition to those of the document."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Properties of a passage beyond its text."""

    facets: Sequence[str] = ()
    """Keys for equality filters."""
    dates: Sequence[int] = ()
    """Periods that it is about: ``[first, last, first, last, ...]``, in days."""


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Weighted terms."""

    ids: Sequence[int]
    """Ascending."""
    weights: Sequence[float]
