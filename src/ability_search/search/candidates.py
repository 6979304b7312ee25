"""The candidates of a query, from the store to the response. Pure but for the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from ability_search.collection import Collection
from ability_search.config.schema import Ranking
from ability_search.errors import SearchError
from ability_search.search.query import Query
from ability_search.search.response import Degraded, Hit, HitContext, QueryResult
from ability_search.search.wants import NOTHING, SearchRequest, Vectors, Wants
from ability_search.store.records import ChunkText
from ability_search.text.term_statistics import TermStatistics
from kadi_client.tracing import span


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


class Candidate(msgspec.Struct):
    """A chunk on its way through the stages."""

    handle: str
    chunk_id: str
    depth: int
    """The least depth of the request at which a retriever found it."""
    collection: Collection
    cosine: float | None = None
    """Cosine to the query vector, whichever retriever found it; ``None`` if either is missing."""
    moved: float | None = None
    """Cosine to the vector of the search, if that is not the query's own."""
    ranks: dict[str, int] = {}
    """Rank by each retriever that found it, from 1."""
    values: dict[str, float] = {}
    """Raw score by each retriever that found it."""
    columns: Mapping[str, Any] = {}
    """Columns requested by the stages."""
    row: ChunkText | None = None
    """The chunk as a hit, once read."""
    fused: float = 0.0
    """Fused score of the retrievers, 0 to 1, before any option changes it."""
    score: float = 0.0
    """Score that orders the candidates, 0 to 1."""
    place: int = 0
    """Place among all candidates by score, from 0."""
    stands_for: Candidate | None = None
    """For a chunk of a kind, the chunk of the document that is returned instead."""
    kinds: dict[str, float] = {}
    """Best raw score of the kinds by which it was found."""
    kind_cosine: float | None = None
    """Best cosine of these."""
    reached: Path | None = None
    """Path from one of the first hits, if it is a neighbour of one."""
    merged: list[Candidate] = []
    """Further hits that its context contains."""
    context: HitContext | None = None
    trace: dict[str, Any] = {}
    """Effect of each stage, for ``explain``."""

    def reach(self, other: Candidate) -> None:
        """Take what another search tells of the same chunk: columns that were missing.

        If it was shallower, also the depth and the cosines, which differ in their last digits with
        the search that returns them.
        """
        self.columns = {**other.columns, **self.columns}
        if other.depth < self.depth:
            self.depth, self.cosine, self.moved = other.depth, other.cosine, other.moved

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


class Learned(NamedTuple):
    """Searches that replace those of the query, with what a stage learned from its first hits."""

    request: SearchRequest
    explained: Mapping[str, Any]
    """Its part of ``explain``."""
    failure: str
    """Warning if the searches fail; then those of the query count."""


@dataclass(slots=True)
class Candidates:
    """The candidates of a phrasing of a query in one collection."""

    query: Query
    ranking: Ranking
    collection: Collection
    """As the store answered."""
    wants: Wants = NOTHING
    """The wants of all stages, added up."""
    depth: int = 0
    """Minimum number of candidates per retriever."""
    selected_from: int = 0
    """Number of ranked candidates that the hits of the page are selected from."""
    reranked: bool = False
    """Whether the order of the first candidates may change before the hits are selected."""
    vectors: Vectors | None = None
    """The vectors of the query; ``None`` without."""
    statistics: TermStatistics | None = None
    """Term statistics of the collection, if they are needed."""
    request: SearchRequest = SearchRequest()
    """The searches that found them."""
    learned: Learned | None = None
    """Set by a stage to let other searches replace the candidates, once."""
    found: list[Candidate] = field(default_factory=list)
    """The chunks that the retrievers found, each once."""
    failed: dict[str, str] = field(default_factory=dict)
    """Retrievers that failed, with the reasons."""
    unfinished: Sequence[str] = ()
    """Searches that would find more if they were deeper."""
    exhausted: bool = False
    """Whether a stage makes deeper searches useless."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of the retrievers in the fused scores."""
    relevance: float | None = None
    """Best fused score, unless it is by ranks only."""
    blocks: list[list[Candidate]] = field(default_factory=list)
    """The scored candidates that each depth adds, see :func:`.fusion.fuse`."""
    ranked: list[Candidate] = field(default_factory=list)
    """The candidates that may be returned, best first; ties by chunkId."""
    provisional: Callable[[Candidates], Awaitable[list[Candidate]]] | None = None
    """Ranks the first block as if no further stage searched, for stages that need first hits."""
    degraded: Degraded | None = None
    warnings: list[str] = field(default_factory=list)
    explained: dict[str, Any] = field(default_factory=dict)
    """The part of the stages in ``explain``."""
    clock: Timings = field(default_factory=lambda: Timings())

    @property
    def work(self) -> int:
        """Estimated work of a stage, in candidates."""
        return len(self.found)

    @property
    def complete(self) -> bool:
        """Return whether a deeper search would add no hit."""
        return self.exhausted or not any(self.weights.get(name, 1.0) for name in self.unfinished)

    @property
    def chunks(self) -> list[Candidate]:
        """The chunks to return, each once; a chunk of a kind is replaced by the one it represents.

        This is before ranking.
        """
        chunks = {(item.stands_for or item).chunk_id: item for item in self.found}
        return [item.stands_for or item for item in chunks.values()]

    @property
    def mode(self) -> str:
        """The mode that was used: another one than requested if the answer is degraded."""
        return self.degraded.mode if self.degraded else self.query.asked.mode

    @property
    def now(self) -> int:
        """Time of the query, in epoch milliseconds."""
        return self.query.as_of or 0

    def warn(self, text: str) -> None:
        """Add a warning, once."""
        if text not in self.warnings:
            self.warnings.append(text)

    async def first_hits(self) -> list[Candidate]:
        """Return the provisional ranking."""
        assert self.provisional is not None
        return await self.provisional(self)


@dataclass(slots=True)
class Lane:
    """One phrasing of a query in one collection."""

    name: str
    """Name of the collection."""
    query: Query
    wants: Wants
    depth: int
    """Minimum number of candidates per retriever."""
    candidates: Candidates | None = None
    ready: bool = False
    """Whether the candidates are ranked."""
    clock: Timings = field(default_factory=lambda: Timings())


@dataclass(slots=True)
class Answer:
    """The answer to a query, from all its collections."""

    query: Query
    vector: Sequence[float] | None = None
    """The vector to search by, if there is no text to embed."""
    phrasings: list[tuple[Query, Wants]] = field(default_factory=list)
    """The phrasings of the query with what they want from retrieval."""
    lanes: dict[str, list[Lane]] = field(default_factory=dict)
    """The phrasings by collection, without collections that failed."""
    failures: dict[str, SearchError] = field(default_factory=dict)
    """Why collections failed, by name, until it is a warning."""
    searched: dict[str, Candidates] = field(default_factory=dict)
    """The candidates of each collection, those of its phrasings fused."""
    ranked: list[Candidate] = field(default_factory=list)
    """The candidates of all collections, best first."""
    page: list[Candidate] = field(default_factory=list)
    """Those to return."""
    hits: list[Hit] = field(default_factory=list)
    """The page as callers see it."""
    result: QueryResult | None = None
    reopened: bool = False
    """Set by a stage that changed the query after it was searched."""
    warnings: list[str] = field(default_factory=list)
    clock: Timings = field(default_factory=lambda: Timings())

    @property
    def relevance(self) -> float | None:
        """Return the greatest relevance of the collections; ``None`` if it is not known."""
        known = (own.relevance for own in self.searched.values() if own.relevance is not None)
        return max(known, default=None)

    @property
    def work(self) -> int:
        """Estimated work of a stage, in candidates; to analyze a text takes as long as some ten."""
        marked = 10 * len(self.page) + self.query.work if self.query.asked.highlights else 0
        return max(len(self.page), marked)


class Timings:
    """A stopwatch for the steps of a query."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Measure the block as (part of) step ``name``."""
        started = time.perf_counter()
        try:
            with span(name):
                yield
        finally:
            self.add(name, time.perf_counter() - started)

    def add(self, name: str, seconds: float) -> None:
        """Add a time measured elsewhere to step ``name``."""
        self.milliseconds[name] = self.milliseconds.get(name, 0.0) + seconds * 1e3

    def at_least(self, other: Timings) -> None:
        """Raise each step to that of another stopwatch, which ran concurrently."""
        for name, took in other.milliseconds.items():
            self.milliseconds[name] = max(took, self.milliseconds.get(name, 0.0))

    def finished(self) -> dict[str, float]:
        """Return all timings in milliseconds, rounded, with the ``total`` since the start."""
        total = (time.perf_counter() - self._started) * 1e3
        return {
            step: round(took, 3) for step, took in {**self.milliseconds, "total": total}.items()
        }


def blend(item: Candidate, stage: str, value: float, weight: float, **detail: Any) -> None:
    """Make ``value`` a share of the score: ``(1 - weight) score + weight value``, all in [0, 1]."""
    adjust(item, stage, (1 - weight) * item.score + weight * value, **detail)


def scale(item: Candidate, stage: str, factor: float, **detail: Any) -> None:
    """Multiply the score by a factor in [0, 1]."""
    adjust(item, stage, item.score * factor, **detail)


def adjust(item: Candidate, stage: str, score: float, **detail: Any) -> None:
    """Set the score, and record the previous one for ``explain``."""
    item.trace[stage] = {"before": item.score, "after": score, **detail}
    item.score = score


def rank_key(item: Candidate) -> tuple[float, float, str]:
    """Return a sort key for the best score first; scores of 0 by cosine; ties by chunkId."""
    if item.score:
        return -item.score, 0.0, item.chunk_id
    cosine = item.semantic
    return 0.0, 0.0 if cosine is None or math.isnan(cosine) else -cosine, item.chunk_id


def best_first(items: Iterable[Candidate]) -> list[Candidate]:
    """Sort candidates by :func:`rank_key`."""
    return sorted(items, key=rank_key)


def put_behind(items: Sequence[Candidate], first: Sequence[Candidate], stage: str) -> None:
    """Scale the scores of ``items`` by one factor so that all are below those of ``first``.

    Scores cannot fall below 0.
    """
    if not items or not first:
        return
    best = max(item.score for item in items)
    below = math.nextafter(min(item.score for item in first), 0.0)
    for item in items:
        score = min(below, item.score * below / best) if best > below else item.score
        adjust(item, stage, score)
