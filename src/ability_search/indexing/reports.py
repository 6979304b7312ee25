"""The report of an index call, and its progress."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ability_search.documents import Document
from ability_search.errors import InvalidInput, SearchError
from ability_search.indexing.storing import Written


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that was not indexed, and the reason."""

    source: str
    error: SearchError


@dataclass(slots=True)
class IndexReport:
    """The result of an index call."""

    collection: str
    documents: int
    model: str
    dimensions: int = 0
    chunks: int = 0
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    deduplicated: int = 0
    """Number of chunks that are near-duplicates of another chunk."""
    reused: int = 0
    """Number of chunks whose vectors were reused."""
    wanted: list[str] = field(default_factory=list)
    """Sources that are new or changed, but came without text (:attr:`Document.unread`)."""
    failed: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """Number of documents that are finished."""
        return self.added + self.updated + self.unchanged + len(self.failed)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call, in documents."""

    collection: str
    done: int
    total: int
    stage: str


Report = Callable[[Progress], Awaitable[None]]


class Job:
    """A counter that fills the report of one call and publishes its progress."""

    def __init__(self, result: IndexReport, report: Report) -> None:
        self._result = result
        self._report = report

    def distinct(self, documents: Sequence[Document]) -> Iterator[Document]:
        """Yield the documents; of several with the same source, all but the last fail."""
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
        """Record a document that is not indexed; the first reason is kept."""
        if all(failure.source != document.source for failure in self._result.failed):
            self._result.failed.append(Failure(document.source, error))

    async def stored(self, written: Written) -> None:
        """Record the result of a transaction and publish the progress."""
        self._result.updated += written.replaced
        self._result.added += written.sources - written.replaced
        self._result.chunks += written.chunks
        self._result.deduplicated += written.deduplicated
        await self.publish("indexing")

    def told(self, *, reused: int, warnings: Sequence[str]) -> None:
        """Record the number of reused vectors and the warnings."""
        self._result.reused += reused
        self._result.warnings += warnings

    async def publish(self, stage: str) -> None:
        """Publish the progress of the call."""
        result = self._result
        await self._report(Progress(result.collection, result.done, result.documents, stage))
