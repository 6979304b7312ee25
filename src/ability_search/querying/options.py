"""Options of a query beyond retrieval. Each option is off if ``None``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ability_search.understanding.periods import Period
from ability_search.understanding.recency import Order

Sort = Literal["asc", "desc"]
Scalar = str | float | bool


@dataclass(frozen=True, slots=True)
class FusionChoice:
    """Fusion method and weights; ``None`` fields mean the default."""

    method: Literal["convex", "rrf"]
    k: float | None = None
    semantic: float | None = None
    keyword: float | None = None


@dataclass(frozen=True, slots=True)
class FullText:
    """A separate full-text search over chosen fields, blended in by weight."""

    fields: Sequence[str]
    """``title``, ``content`` or ``metadata.<key>``, each of equal weight."""
    weight: float
    """Share of the final score, 0 to 1."""
    language: str | None = None
    """Must be the collection's language."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """A rule on a field of a chunk that changes its score."""

    field: str
    """``source``, ``title``, ``kind``, ``createdAt`` or ``metadata.<key>``."""
    weight: float
    path: tuple[str, ...] = ()
    """Keys within the metadata, outermost first."""
    contains: str | None = None
    priority: Scalar | None = None
    sort: Sort | None = None


@dataclass(frozen=True, slots=True)
class RerankerChoice:
    """A cross-encoder that reranks the first hits."""

    top: int
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """Pseudo-relevance feedback: the query learns from its own first hits."""

    chunks: int = 3
    min_similarity: float = 0.35
    terms: int = 12
    weight: float = 0.5
    """Weight of the expansion relative to the query itself."""


@dataclass(frozen=True, slots=True)
class Temporal:
    """Weight of dates in queries that ask for a time."""

    weight: float | None = None
    """Share of the score, 0 to 1; ``None`` lets the query decide."""
    sigma_days: float = 15.0
    order: Order | None = None
    """Newest or oldest first; overrides the text."""


@dataclass(frozen=True, slots=True)
class Decay:
    """Older chunks count less; chunks shown to the agent before count more."""

    half_life_days: float
    floor: float
    weight: float
    """0 has no effect, 1 the full effect."""
    agent: str | None = None
    """Agent whose use counts; ``None`` ignores use."""


@dataclass(frozen=True, slots=True)
class GraphWalk:
    """Graph expansion: neighbours over links and chunk order."""

    hops: int = 1
    min_similarity: float = 0.55
    kinds: Sequence[str] | None = None
    """Kinds of links to follow; ``None`` follows all, and the order of chunks."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """Context expansion: the text shown around a hit."""

    mode: Literal["neighbors", "section"]
    window: int = 1
    """Chunks on each side, in mode ``neighbors``."""


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """Query expansion: words from a language model."""

    method: Literal["terms", "stepBack"]
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a query."""

    full_text: FullText | None = None
    rules: Sequence[FieldRule] = ()
    reranker: RerankerChoice | None = None
    extended: Sequence[str] = ()
    soft_feedback: bool = True
    """Whether a hybrid query uses implicit feedback, without a second search."""
    feedback: Feedback | None = None
    understand: bool = True
    """Whether exclusions and times in the text are recognised; else it is taken literally."""
    exclude: Sequence[str] = ()
    """Phrases that hits should not be about, in addition to those of the text."""
    period: Period | None = None
    """Days that hits should be about; overrides the text."""
    temporal: Temporal = Temporal()
    decay: Decay | None = None
    graph: GraphWalk | None = None
    diversity: float | None = None
    """Lambda of maximal marginal relevance; 1 is relevance only."""
    max_per_source: int | None = None
    expansion: Expansion | None = None
    max_tokens: int | None = None
    query_expansion: QueryExpansion | None = None


NONE = Options()
