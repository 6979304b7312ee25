"""The values of the query pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ability_search.highlights import Highlight
from ability_search.querying.options import NONE, FusionChoice, Options
from ability_search.statements import Predicate
from ability_search.understanding import Event, Intent, Period

Mode = Literal["semantic", "keyword", "hybrid"]
Arm = Literal["semantic", "keyword"]


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
    options: Options = NONE
    as_of: int | None = None
    """When it is asked, in epoch milliseconds; ``None`` is now."""
    intent: Intent | None = None
    """What the text and the options mean, once that is known."""
    wording: tuple[str, ...] = ()
    """Further words of a language model."""
    highlights: bool = False
    explain: bool = False

    @property
    def topic(self) -> str:
        """What to search for: the text without its exclusions and times."""
        return self.intent.topic if self.intent else self.text

    @property
    def words(self) -> str:
        """What to search for where there are no vectors: dates are words too."""
        return self.intent.words if self.intent else self.text

    @property
    def excluded(self) -> tuple[str, ...]:
        """What hits should not be about."""
        return self.intent.excluded if self.intent else ()

    @property
    def event(self) -> Event | None:
        """What took place before or after what is asked for, where no day says so."""
        return self.intent.event if self.intent else None

    @property
    def embedded_text(self) -> str:
        """What is embedded: the imagined answer where there is one (HyDE)."""
        return self.hypothetical_answer or self.topic


@dataclass(frozen=True, slots=True)
class Path:
    """How a neighbour is reached."""

    start: Candidate
    """The hit it begins at."""
    steps: tuple[str, ...] = ()
    """Kinds of the links walked, or ``order``."""
    weights: tuple[float, ...] = ()
    """Of these steps."""

    def on(self, step: str, weight: float) -> Path:
        """The path one step further."""
        return Path(self.start, (*self.steps, step), (*self.weights, weight))


@dataclass(slots=True)
class Candidate:
    """A chunk on its way through the stages."""

    rid: str
    chunk_id: str
    cosine: float | None = None
    """To the query's vector, whichever arm found it; ``None`` without a vector or an embedding."""
    moved: float | None = None
    """Cosine to the vector that was searched by, where that is not the query's own."""
    ranks: dict[str, int] = field(default_factory=dict)
    """Place in the list of each arm that found it, from 1."""
    values: dict[str, float] = field(default_factory=dict)
    """Raw score in the list of each arm that found it."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """What the stages asked to know of it."""
    row: Mapping[str, Any] | None = None
    """Its columns as a hit, where they are read already."""
    fused: float = 0.0
    """0 to 1; what the arms together say of it, which no option changes."""
    score: float = 0.0
    """0 to 1; what the candidates are ordered by."""
    place: int = 0
    """From 0, among all candidates in the order of their scores."""
    stands_for: Candidate | None = None
    """Of an aspect the chunk that is shown in its stead."""
    aspects: dict[str, float] = field(default_factory=dict)
    """Best raw score of the aspects that stand for it, by their kind."""
    aspect_cosine: float | None = None
    """Best cosine of these."""
    reached: Path | None = None
    """From one of the first hits, where it is a neighbour of one."""
    merged: list[Candidate] = field(default_factory=list)
    """Further hits that its context holds."""
    context: HitContext | None = None
    trace: dict[str, Any] = field(default_factory=dict)
    """What each stage did to it, for ``explain``."""

    @property
    def semantic(self) -> float | None:
        """Raw score in the semantic arm, whichever arm found it."""
        return self.cosine if self.moved is None else self.moved

    @property
    def bm25(self) -> float | None:
        """Raw score in the keyword arm; ``None`` if that did not find it."""
        return self.values.get("keyword")

    @property
    def source(self) -> str:
        """Of the document: what stands between collection and number in its id."""
        return self.chunk_id.partition(":")[2].rpartition(":")[0]


@dataclass(frozen=True, slots=True)
class HitContext:
    """A part of a document with a hit in it."""

    content: str
    start_line: int | None
    end_line: int | None
    chunks: tuple[str, ...]
    """ChunkIds, in the order of the text."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk that was found; ``row`` holds the columns of the database."""

    collection: str
    row: Mapping[str, Any]
    score: float
    scores: Mapping[str, float]
    matched_via: tuple[str, ...]
    highlights: tuple[Highlight, ...] | None = None
    trace: Mapping[str, Any] | None = None
    context: HitContext | None = None
    merged: tuple[str, ...] = ()
    """ChunkIds of further hits that the context holds."""
    truncated: bool = False
    """Whether only the beginning of its content is there."""

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


@dataclass(frozen=True, slots=True)
class Understood:
    """What counted of a query besides its topic: something of both, or of one."""

    excluded: tuple[str, ...]
    period: Period | None


@dataclass(frozen=True, slots=True)
class Cut:
    """What did not fit into a budget of tokens."""

    chunk_id: str
    tokens: int
    what: Literal["hit", "context", "end"]
    """The whole hit, what is around it, or the end of its content."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget of tokens, and what became of it."""

    most: int
    tokens: int
    cut: tuple[Cut, ...]


@dataclass(slots=True)
class QueryAnswer:
    """Hits, best first; equal scores in the order of their chunkIds."""

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
    """The neighbours of a chunk, and the chunk itself."""

    source: Hit
    hits: list[Hit]
