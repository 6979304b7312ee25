"""What becomes of the documents of a call, and how its progress is told."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ability_search.documents import Document
from ability_search.errors import InvalidInput, SearchError
from ability_search.indexing.storing import Written


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that was left out, and why."""

    source: str
    error: SearchError


@dataclass(slots=True)
class IndexReport:
    """What became of the documents of a call."""

    collection: str
    documents: int
    model: str
    dimensions: int = 0
    chunks: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deduplicated: int = 0
    """Of the chunks, those that another one stands for."""
    reused: int = 0
    """Of the chunks, those whose vectors were stored before."""
    wanted: list[str] = field(default_factory=list)
    """Sources that are not stored as they are, and whose text is not known."""
    failed: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """Documents that need nothing more."""
        return self.added + self.updated + self.unchanged + len(self.failed)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call has come, in documents."""

    collection: str
    done: int
    total: int
    stage: str


Report = Callable[[Progress], Awaitable[None]]


class Job:
    """Keeps count of one call and tells its progress."""

    def __init__(self, result: IndexReport, report: Report) -> None:
        self._result = result
        self._report = report

    def distinct(self, documents: Sequence[Document]) -> Iterator[Document]:
        """The documents, of several with one source the last; the others have failed."""
        last = {document.source: place for place, document in enumerate(documents)}
        for place, document in enumerate(documents):
            if last[document.source] == place:
                yield document
            else:
                self.failed(
                    document,
                    InvalidInput("source", "appears again later in the call", hint="Name it once."),
                )

    def failed(self, document: Document, error: SearchError) -> None:
        """Note a document that is left out; the first reason counts."""
        if all(failure.source != document.source for failure in self._result.failed):
            self._result.failed.append(Failure(document.source, error))

    async def stored(self, written: Written) -> None:
        """Note what a transaction did."""
        self._result.updated += written.replaced
        self._result.added += written.sources - written.replaced
        self._result.chunks += written.chunks
        self._result.deduplicated += written.deduplicated
        await self.publish("indexing")

    def told(self, *, reused: int, warnings: Sequence[str]) -> None:
        """Note where vectors and aspects came from."""
        self._result.reused += reused
        self._result.warnings += warnings

    async def publish(self, stage: str) -> None:
        """Tell how far the call has come."""
        result = self._result
        await self._report(Progress(result.collection, result.done, result.documents, stage))
