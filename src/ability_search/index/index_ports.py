"""The ports and settings of indexing, and what extensions add to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ability_search.collection import Collection, Recipe
from ability_search.compute_turns import ComputeTurns
from ability_search.config.schema import Settings
from ability_search.documents import Document, Vector
from ability_search.index.preparation import Labelling, Prepared
from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ports import Chat, Embedder
from ability_search.store.port import Store
from ability_search.store.registry import Registry
from ability_search.text.token_counter import TokenCounter

Split = Callable[["IndexPorts", str, ComputeTurns, Document], Awaitable[Sequence[int]]]
"""Returns the offsets at which a document turns, see :data:`~.strategies.Turns`.

It is given the ports, the name of the embedding model and the turns in which callers compute.
"""
ReadDocument = Callable[[Document, bool, str], Document]
"""Reads a document that a caller sent: returns it as it is indexed.

It is given the document, whose title is its source if none was given, whether one was, and the
name of its text in the input. It raises :class:`.InvalidInput` if the text is not of its format.
"""
Carry = Callable[["IndexPorts", Collection, Collection], Awaitable[None]]
"""Gives a new generation what the documents of the live one do not say.

It is given the ports, the collection and the record of the new generation.
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
    """The additions of extensions to indexing, in order; the core stores documents without them.

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

    def __add__(self, other: AddedSteps) -> AddedSteps:
        """Return the steps of both."""
        return AddedSteps(
            read=(*self.read, *other.read),
            split={**self.split, **other.split},
            check_markdown=(*self.check_markdown, *other.check_markdown),
            label=(*self.label, *other.label),
            derive=(*self.derive, *other.derive),
            carry=(*self.carry, *other.carry),
        )


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
        """Embed texts with the timeout of the settings; as :meth:`.Embedder.embed`."""
        timeout = self.settings.embedding.index_timeout
        return await self.embedder.embed(model, texts, timeout=timeout)
