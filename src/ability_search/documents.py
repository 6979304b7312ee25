"""The values that travel between the parts: documents, chunks, hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""One embedding, shape (d,), or a batch of them, shape (n, d)."""

ASPECTS = ("title", "summary", "keywords", "propositions")
"""Kinds of documents that may say something of another one, see :attr:`Document.aspect_of`."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text to index, as its caller names it. ``source`` is unique within a collection."""

    source: str
    title: str
    content: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "document"
    format: str | None = None
    """``markdown``, ``text``, ``code``, ``json``, ...; ``None`` lets the chunker look."""
    language: str | None = None
    """Programming language of a code document (``python``), where known."""
    links: tuple[Mapping[str, Any], ...] = ()
    """Each ``target`` (a source), ``kind`` and ``weight`` in [0, 1]."""
    aspect_of: str | None = None
    """Source of the document whose title, summary, ... it is; searched in that one's stead."""
    file: bool = False
    """Whether it was read from a file that ``source`` names, relative to an allowed root."""
    file_hash: str | None = None
    """Of the bytes that it was read from; it tells whether it is unchanged, and not the text."""
    generated: bool = False
    """Whether it is an aspect that was made of the document it belongs to, and follows that one."""
    origin: str | None = None
    """Of what is restored from a generation: the content hash that it has there."""

    @property
    def unread(self) -> bool:
        """Return whether it is there to be compared with what is stored only, by its hash."""
        return self.file_hash is not None and not self.content


def instant(milliseconds: int) -> str:
    """Write epoch milliseconds as people read them: RFC 3339 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Passage:
    """One chunk of a text as a chunking strategy cuts it.

    ``start`` and ``end`` are offsets into the text in characters, and ``content`` is
    ``text[start:end]``; lines are counted from 1 and inclusive.
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
    """Prose that introduces a code block; embedded with it, not returned as its text."""
    language: str | None = None
    """Info string of a code block (``python``)."""
