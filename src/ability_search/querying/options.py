"""What a query may ask for beyond the two arms. Each option is off where it is ``None``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ability_search.understanding import Order, Period

Sort = Literal["asc", "desc"]
Scalar = str | float | bool


@dataclass(frozen=True, slots=True)
class FusionChoice:
    """How the arms are fused; what is ``None`` is the default."""

    method: Literal["convex", "rrf"]
    k: float | None = None
    semantic: float | None = None
    keyword: float | None = None


@dataclass(frozen=True, slots=True)
class FullText:
    """A keyword search of its own over chosen fields, blended in by its weight."""

    fields: Sequence[str]
    """``title``, ``content`` or ``metadata.<key>``, each of equal weight."""
    weight: float
    """Share of the final score, 0 to 1."""
    language: str | None = None
    """Must be the collection's own."""


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What a field of a chunk does to its score."""

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
    """A cross-encoder that reads the first hits."""

    top: int
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Feedback:
    """Pseudo-relevance feedback: the query learns from its own first hits."""

    chunks: int = 3
    min_similarity: float = 0.35
    terms: int = 12
    weight: float = 0.5
    """Of the expansion beside the query itself."""


@dataclass(frozen=True, slots=True)
class Temporal:
    """How dates weigh where a time is named."""

    weight: float | None = None
    """Share of the score, 0 to 1; ``None`` lets the query decide."""
    sigma_days: float = 15.0
    order: Order | None = None
    """Which end of time is asked for, whatever the text says."""


@dataclass(frozen=True, slots=True)
class Decay:
    """Older chunks count less; what an agent was shown before counts more."""

    half_life_days: float
    floor: float
    weight: float
    """0 changes nothing, 1 is the whole effect."""
    agent: str | None = None
    """Whose use counts; ``None`` counts none."""


@dataclass(frozen=True, slots=True)
class GraphWalk:
    """Neighbours over links and chunk order."""

    hops: int = 1
    min_similarity: float = 0.55
    kinds: Sequence[str] | None = None
    """Of links; ``None`` walks all, and along the order of chunks too."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """What is shown around a hit."""

    mode: Literal["neighbors", "section"]
    window: int = 1
    """Chunks on each side, of neighbours."""


@dataclass(frozen=True, slots=True)
class QueryExpansion:
    """Words of a language model beside the query's own."""

    method: Literal["terms", "stepBack"]
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """All of them."""

    full_text: FullText | None = None
    rules: Sequence[FieldRule] = ()
    reranker: RerankerChoice | None = None
    extended: Sequence[str] = ()
    soft_feedback: bool = True
    """Whether a hybrid query may learn from its first hits without a further look."""
    feedback: Feedback | None = None
    understand: bool = True
    """Whether exclusions and times in the text count as such; else it is taken literally."""
    exclude: Sequence[str] = ()
    """Phrases that hits should not be about, besides those of the text."""
    period: Period | None = None
    """Days that hits should speak of, whatever the text says."""
    temporal: Temporal = Temporal()
    decay: Decay | None = None
    graph: GraphWalk | None = None
    diversity: float | None = None
    """Lambda of maximal marginal relevance; 1 is relevance alone."""
    max_per_source: int | None = None
    expansion: Expansion | None = None
    max_tokens: int | None = None
    query_expansion: QueryExpansion | None = None


NONE = Options()
