"""Values of the query pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ability_search.querying.options import NONE, FusionChoice, Options
from ability_search.store.arcadedb import Predicate
from ability_search.text.highlights import Highlight
from ability_search.understanding.intent import Intent
from ability_search.understanding.named_events import Event
from ability_search.understanding.periods import Period

Mode = Literal["semantic", "keyword", "hybrid"]
Arm = Literal["semantic", "keyword"]


@dataclass(frozen=True, slots=True)
class Query:
    """A query against a collection."""

    text: str
    limit: int = 10
    offset: int = 0
    mode: Mode = "hybrid"
    model: str | None = None
    predicate: Predicate | None = None
    min_score: float | None = None
    hypothetical_answer: str | None = None
    fusion: FusionChoice | None = None
    options: Options = NONE
    as_of: int | None = None
    """Time of the query, in epoch milliseconds; ``None`` is now."""
    intent: Intent | None = None
    """Intent of the text and the options, once determined."""
    wording: tuple[str, ...] = ()
    """Expansion words from a language model."""
    highlights: bool = False
    explain: bool = False

    @property
    def topic(self) -> str:
        """Text to search for: the query without its exclusions and times."""
        return self.intent.topic if self.intent else self.text

    @property
    def words(self) -> str:
        """Text to search for without vectors; dates count as words."""
        return self.intent.words if self.intent else self.text

    @property
    def excluded(self) -> tuple[str, ...]:
        """Phrases that hits should not be about."""
        return self.intent.excluded if self.intent else ()

    @property
    def event(self) -> Event | None:
        """Event before or after which to search, if the query names no date."""
        return self.intent.event if self.intent else None

    @property
    def embedded_text(self) -> str:
        """Text to embed: the hypothetical answer, if there is one (HyDE), else the topic."""
        return self.hypothetical_answer or self.topic


@dataclass(frozen=True, slots=True)
class Path:
    """Path over which a neighbour is reached."""

    start: Candidate
    """The hit it starts from."""
    steps: tuple[str, ...] = ()
    """Kind of each link followed, or ``order``."""
    weights: tuple[float, ...] = ()
    """Weights of these steps."""

    def on(self, step: str, weight: float) -> Path:
        """Return the path extended by one step."""
        return Path(self.start, (*self.steps, step), (*self.weights, weight))


@dataclass(slots=True)
class Candidate:
    """A chunk on its way through the stages."""

    rid: str
    chunk_id: str
    cosine: float | None = None
    """Cosine to the query vector, whichever retriever found it; ``None`` if either is missing."""
    moved: float | None = None
    """Cosine to the vector of the search, if that is not the query's own."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Rank by each retriever that found it, from 1."""
    values: dict[str, float] = field(default_factory=dict)
    """Raw score by each retriever that found it."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns requested by the stages."""
    row: Mapping[str, Any] | None = None
    """Its columns as a hit, once read."""
    fused: float = 0.0
    """Fused score of the retrievers, 0 to 1, before any option changes it."""
    score: float = 0.0
    """Score that orders the candidates, 0 to 1."""
    place: int = 0
    """Place among all candidates by score, from 0."""
    stands_for: Candidate | None = None
    """For an aspect, the chunk that is shown in its stead."""
    aspects: dict[str, float] = field(default_factory=dict)
    """Best raw score of its aspects, by kind."""
    aspect_cosine: float | None = None
    """Best cosine of its aspects."""
    reached: Path | None = None
    """Path from one of the first hits, if it is a neighbour of one."""
    merged: list[Candidate] = field(default_factory=list)
    """Further hits that its context contains."""
    context: HitContext | None = None
    trace: dict[str, Any] = field(default_factory=dict)
    """Effect of each stage, for ``explain``."""

    @property
    def semantic(self) -> float | None:
        """Raw score by the semantic retriever, for candidates of all retrievers."""
        return self.cosine if self.moved is None else self.moved

    @property
    def bm25(self) -> float | None:
        """Raw score by the keyword retriever; ``None`` if it did not find the chunk."""
        return self.values.get("keyword")

    @property
    def source(self) -> str:
        """Source of the document: the part of the chunkId between collection and number."""
        return self.chunk_id.partition(":")[2].rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class HitContext:
    """A part of a document that contains a hit."""

    content: str
    start_line: int | None
    end_line: int | None
    chunks: tuple[str, ...]
    """ChunkIds, in document order."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk returned for a query; ``row`` holds its database columns."""

    collection: str
    row: Mapping[str, Any]
    score: float
    scores: Mapping[str, float]
    matched_via: tuple[str, ...]
    highlights: tuple[Highlight, ...] | None = None
    trace: Mapping[str, Any] | None = None
    context: HitContext | None = None
    merged: tuple[str, ...] = ()
    """ChunkIds of further hits that the context contains."""
    truncated: bool = False
    """Whether its content is cut to the beginning."""

    @property
    def chunk_id(self) -> str:
        """Id of the chunk, unique in the whole database."""
        return str(self.row["chunkId"])


@dataclass(frozen=True, slots=True)
class Degradation:
    """Why an answer is less than what was requested."""

    reason: str
    code: str
    mode: Mode
    """The mode used instead."""


@dataclass(frozen=True, slots=True)
class Understood:
    """The exclusions and the period that counted in a query; at least one of them."""

    excluded: tuple[str, ...]
    period: Period | None


@dataclass(frozen=True, slots=True)
class Cut:
    """A hit, or a part of it, that did not fit into the token budget."""

    chunk_id: str
    tokens: int
    what: Literal["hit", "context", "end"]
    """The whole hit, its context, or the end of its content."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A token budget and its use."""

    most: int
    tokens: int
    cut: tuple[Cut, ...]


@dataclass(slots=True)
class QueryAnswer:
    """Hits, best first; ties by chunkId."""

    hits: list[Hit]
    mode: Mode
    model: str | None = None
    hyde: bool = False
    understood: Understood | None = None
    degraded: Degradation | None = None
    budget: Budget | None = None
    warnings: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    """Milliseconds of each step."""
    explain: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SimilarAnswer:
    """A chunk and its neighbours."""

    source: Hit
    hits: list[Hit]
