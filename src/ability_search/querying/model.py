"""The values of the query pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ability_search.highlights import Highlight
from ability_search.statements import Predicate

Mode = Literal["semantic", "keyword", "hybrid"]
Arm = Literal["semantic", "keyword"]


@dataclass(frozen=True, slots=True)
class FusionChoice:
    """How the arms are fused; what is ``None`` is the default."""

    method: Literal["convex", "rrf"]
    k: float | None = None
    semantic: float | None = None
    keyword: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked of a collection."""

    text: str
    limit: int = 10
    offset: int = 0
    mode: Mode = "hybrid"
    model: str | None = None
    predicate: Predicate | None = None
    min_score: float | None = None
    hypothetical_answer: str | None = None
    fusion: FusionChoice | None = None
    highlights: bool = False
    explain: bool = False

    @property
    def embedded_text(self) -> str:
        """What is embedded: the imagined answer where there is one (HyDE)."""
        return self.hypothetical_answer or self.text


@dataclass(slots=True)
class Candidate:
    """A chunk on its way through the stages."""

    rid: str
    chunk_id: str
    cosine: float | None = None
    bm25: float | None = None
    ranks: dict[Arm, int] = field(default_factory=dict)
    """Place in the list of each arm that found it, from 1."""
    score: float = 0.0
    trace: dict[str, Any] = field(default_factory=dict)
    """What each stage did to it, for ``explain``."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found; ``row`` holds the columns of the database."""

    collection: str
    row: Mapping[str, Any]
    score: float
    scores: Mapping[str, float]
    matched_via: tuple[Arm, ...]
    highlights: tuple[Highlight, ...] | None = None
    trace: Mapping[str, Any] | None = None

    @property
    def chunk_id(self) -> str:
        """Identifies the chunk in the whole database."""
        return str(self.row["chunkId"])


@dataclass(frozen=True, slots=True)
class Degradation:
    """Why an answer is less than was asked for."""

    reason: str
    code: str
    mode: Mode
    """What was searched instead."""


@dataclass(slots=True)
class QueryAnswer:
    """Hits, best first; equal scores in the order of their chunkIds."""

    hits: list[Hit]
    mode: Mode
    model: str | None = None
    hyde: bool = False
    degraded: Degradation | None = None
    warnings: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each step."""
    explain: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimilarAnswer:
    """The neighbours of a chunk, and the chunk itself."""

    source: Hit
    hits: list[Hit]
