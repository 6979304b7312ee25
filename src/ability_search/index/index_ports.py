"""The ports and settings of indexing, and what extensions add to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from ability_search.collection import Collection
from ability_search.config.schema import Settings
from ability_search.documents import Document, Vector
from ability_search.index.preparation import Labelling, Prepared, Recipe
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Chat, Embedder
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.text.token_counter import TokenCounter

T = TypeVar("T")


class Compute(Protocol):
    """Runs a computation whose work is that of so many characters, in a thread if it is long."""

    async def __call__(self, compute: Callable[[], T], characters: int) -> T:
        """Return the result of the computation."""


Split = Callable[
    [Document, Callable[[Sequence[str]], Awaitable[Sequence[Vector]]], Compute],
    Awaitable[Sequence[int]],
]
"""Returns the offsets at which a document turns, see :data:`~.strategies.Turns`.

It is given the document, a function that embeds texts, and one that computes.
"""
Carry = Callable[[Collection, Collection], Awaitable[None]]
"""Gives a new generation what the documents of the live one do not say, given both."""


class ReadDocument(Protocol):
    """Reads a document that a caller sent."""

    def __call__(self, document: Document, *, titled: bool, field: str) -> Document:
        """Return the document as it is indexed.

        Args:
            document: The document; its title is the source if none was given.
            titled: Whether its title was given.
            field: Name of its text in the input, for errors.

        Raises:
            InvalidInput: if its text does not have its format.
        """


class Derivation(Protocol):
    """Derives further parts of the documents of one call."""

    @property
    def concurrency(self) -> int:
        """Number of documents to process at the same time."""

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings for the caller, complete when all documents are done."""

    def marks(self, document: Document) -> tuple[object, ...]:
        """Return what the parts of a document depend on besides it; empty if it has none."""

    async def derive(self, prepared: Prepared) -> None:
        """Add the parts to a document, in place."""


@dataclass(frozen=True, slots=True)
class AddedSteps:
    """What extensions add to indexing, each in order; the core stores documents without it.

    Attributes:
        read: Read the documents of ``search-index``.
        split: How a text is cut by strategy, for those that :func:`.chunk` wants to know turns of.
        check_markdown: Returns warnings for a Markdown document, given its source and text.
        label: Returns dates and keys of a passage.
        derive: Begins a derivation of further parts of the documents of a call.
        carry: Called when a new generation has all documents of the live one.
    """

    read: Sequence[ReadDocument] = ()
    split: Mapping[str, Split] = field(default_factory=dict)
    check_markdown: Sequence[Callable[[str, str], Sequence[str]]] = ()
    label: Sequence[Labelling] = ()
    derive: Sequence[Callable[[IndexPorts, Recipe], Derivation]] = ()
    carry: Sequence[Carry] = ()


@dataclass(frozen=True, slots=True)
class IndexPorts:
    """Ports and settings that the services of indexing share."""

    store: Store
    registry: Registry
    embedder: Embedder
    chat: Chat
    """The language model for deriving kinds."""
    settings: Settings
    counter: TokenCounter
    """Counts tokens; when its name changes, texts are chunked again."""
    now: Callable[[], int]
    """Returns the time in epoch milliseconds."""
    meter: Meter = UNMETERED
    added: AddedSteps = AddedSteps()

    async def embed(self, model: str, texts: Sequence[str]) -> Vector:
        """Embed texts with the timeout of the settings; raises as :meth:`.Embedder.embed`."""
        timeout = self.settings.embedding.index_timeout
        return await self.embedder.embed(model, texts, timeout=timeout)
