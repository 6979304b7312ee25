"""Index calls: their options, their progress and their reports."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ability_search.collection import Collection, ModelInput
from ability_search.config.schema import Settings
from ability_search.documents import KINDS, Document
from ability_search.errors import InvalidInput, ModelMismatch, SearchError
from ability_search.index.index_fields import IndexFields
from ability_search.index.preparation import Recipe
from ability_search.index.sequences import CONTEXT
from ability_search.text.analyzer import DEFAULT_LANGUAGE, analyzer_for
from ability_search.text.languages import language_of, stemmer_of


def recipe_for(
    options: IndexFields, collection: Collection | None, settings: Settings, *, detected: str = ""
) -> Recipe:
    """Return the recipe of a call: its options, else those of the collection, else the settings.

    The chunk size is limited to the maximum number of tokens of the model, less the context.
    ``detected`` is the language of the texts of a new collection, which is analyzed accordingly.

    Raises:
        InvalidInput: if the overlap is not less than the chunk size, or the language is unknown
            or not that of the collection.
    """
    chunking = settings.chunking
    size = options.max_tokens or (collection.chunk_size if collection else chunking.size)
    longest = settings.embedding.max_tokens
    context = options.context
    if context is None and collection is not None:
        context = collection.context
    if longest:
        size = min(size, max(longest // 2, longest - CONTEXT) if context else longest)
    overlap = options.overlap
    if overlap is None:
        usual = collection.chunk_overlap if collection else chunking.overlap
        overlap = min(usual, size // 4)
    elif overlap >= size:
        raise InvalidInput("overlap", f"must be less than maxTokens ({size}), not {overlap}")
    first = stemmer_of(detected) if detected else DEFAULT_LANGUAGE
    language = options.language or (collection.language if collection else first)
    if collection is not None and language != collection.language:
        raise InvalidInput(
            "language",
            f"collection {collection.public_name!r} is analyzed as {collection.language!r}",
            hint="Omit language, or change it for the whole collection with search-reindex.",
        )
    model = collection.model_input if collection else None
    _, query_prefix, passage_prefix = model or model_input(options.model, settings)
    return Recipe(
        chunk_strategy=options.chunk_strategy
        or (collection.chunk_strategy if collection else chunking.strategy),
        chunk_size=size,
        chunk_overlap=overlap,
        language=analyzer_for(language).language,
        content_language=language_of(options.language or "")
        or (collection.content_language if collection else detected),
        kinds=_kinds(options, collection, settings),
        kinds_by=options.kinds_by or (collection.kinds_by if collection else settings.kinds.by),
        turns=context if isinstance(context, int) else chunking.context,
        context=context,
        dedup_threshold=options.dedup_threshold
        or (collection.dedup_threshold if collection else None),
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
    )


def model_input(model: str | None, settings: Settings) -> ModelInput:
    """Return the model of a new generation, the configured one by default, and its prefixes."""
    name = model or settings.embedding.model
    return ModelInput(name, *settings.embedding.prefixes_of(name))


def chosen_model(options: IndexFields, collection: Collection | None, settings: Settings) -> str:
    """Return the model to embed with: that of the collection, or of the call for a new one.

    Raises:
        ModelMismatch: if the call names another one than that of the collection.
    """
    if collection is None:
        return options.model or settings.embedding.model
    if options.model and options.model != collection.model:
        raise ModelMismatch(
            collection.public_name, recorded=collection.model, requested=options.model
        )
    return collection.model


def _kinds(
    options: IndexFields, collection: Collection | None, settings: Settings
) -> tuple[str, ...]:
    chosen: Sequence[str] | None = options.kinds
    if chosen is None:
        chosen = collection.kinds if collection else settings.kinds.kinds
    return tuple(kind for kind in KINDS if kind in chosen)


@dataclass(frozen=True, slots=True)
class WrittenGroup:
    """The result of one transaction."""

    sources: int
    """Number of sources, without derived kinds; ``replaced`` counts likewise."""
    chunks: int
    replaced: int
    deduplicated: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A document that was not indexed, or not completely, and the reason."""

    source: str
    error: SearchError

    def recorded(self) -> dict[str, str]:
        """Return the failure as it is reported."""
        return {"source": self.source, "error": str(self.error), "code": self.error.code}


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
    kept: list[Failure] = field(default_factory=list)
    """Documents that were stored although the embedder refuses a text of them."""
    warnings: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def done(self) -> int:
        """Number of documents that are finished."""
        return self.added + self.updated + self.unchanged + len(self.failed)

    def add(self, part: IndexReport) -> None:
        """Add the results of a part of the call."""
        self.model, self.dimensions = part.model, part.dimensions
        self.chunks += part.chunks
        self.added += part.added
        self.updated += part.updated
        self.unchanged += part.unchanged
        self.deduplicated += part.deduplicated
        self.reused += part.reused
        self.failed += part.failed
        self.kept += part.kept
        self.seconds += part.seconds
        for warning in part.warnings:
            self.warn(warning)

    def warn(self, warning: str) -> None:
        """Add a warning, once."""
        if warning not in self.warnings:
            self.warnings.append(warning)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call, in documents."""

    collection: str
    done: int
    total: int
    stage: str


Report = Callable[[Progress], Awaitable[None]]


class IndexCall:
    """A running call: fills its report and publishes its progress."""

    def __init__(self, result: IndexReport, report: Report) -> None:
        self.result = result
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
        _add_first(self.result.failed, Failure(document.source, error))

    def kept(self, document: Document, error: SearchError) -> None:
        """Record a document that is stored with a refused text; the first reason is kept."""
        _add_first(self.result.kept, Failure(document.source, error))

    async def stored(self, written: WrittenGroup) -> None:
        """Record the result of a transaction and publish the progress."""
        self.result.updated += written.replaced
        self.result.added += written.sources - written.replaced
        self.result.chunks += written.chunks
        self.result.deduplicated += written.deduplicated
        await self.publish("indexing")

    async def publish(self, stage: str) -> None:
        """Publish the progress of the call."""
        result = self.result
        await self._report(Progress(result.collection, result.done, result.documents, stage))


def _add_first(failures: list[Failure], failure: Failure) -> None:
    if all(each.source != failure.source for each in failures):
        failures.append(failure)
