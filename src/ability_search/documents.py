"""The values that travel between the parts: documents, chunks, hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float32]
"""One embedding, shape (d,), or a batch of them, shape (n, d)."""


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
    file: bool = False
    """Whether it was read from a file that ``source`` names, relative to an allowed root."""


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
