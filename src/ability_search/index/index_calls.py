"""Index calls: what they write to, their progress and their reports."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ability_search.collection import Collection, Recipe
from ability_search.config.schema import Settings
from ability_search.documents import KINDS, Document
from ability_search.errors import DatabaseUnavailable, InvalidInput, ModelMismatch, SearchError
from ability_search.index.index_fields import IndexFields
from ability_search.index.index_ports import IndexPorts
from ability_search.index.sequences import CONTEXT
from ability_search.text.analyzer import DEFAULT_LANGUAGE, analyzer_for
from ability_search.text.languages import detect_language, language_of, stemmer_of


def recipe_for(
    options: IndexFields, collection: Collection | None, settings: Settings, *, detected: str = ""
) -> Recipe:
    """Return the recipe of a call: its options, else those of the collection, else the settings.

    The chunk size is limited to the maximum number of tokens of the model, less the context.
    ``detected`` is the language of the texts of a new collection, which is analyzed accordingly.

    Raises:
        InvalidInput: if the overlap is not less than the chunk size, or the language is unknown
            or not that of the collection.
        ModelMismatch: if the collection is embedded with another model than the options name.
    """
    usual: Recipe = collection or configured(options.model, settings, detected=detected)
    if collection is not None and options.model and options.model != collection.model:
        raise ModelMismatch(
            collection.public_name, recorded=collection.model, requested=options.model
        )
    context = usual.context if options.context is None else options.context
    size = options.max_tokens or usual.chunk_size
    if longest := settings.embedding.max_tokens:
        size = min(size, max(longest // 2, longest - CONTEXT) if context else longest)
    overlap = min(usual.chunk_overlap, size // 4) if options.overlap is None else options.overlap
    if overlap >= size:
        raise InvalidInput("overlap", f"must be less than maxTokens ({size}), not {overlap}")
    language = options.language or usual.language
    if collection is not None and language != collection.language:
        raise InvalidInput(
            "language",
            f"collection {collection.public_name!r} is analyzed as {collection.language!r}",
            hint="Omit language, or change it for the whole collection with search-reindex.",
        )
    kinds = usual.kinds if options.kinds is None else options.kinds
    return replace(
        usual,
        chunk_strategy=options.chunk_strategy or usual.chunk_strategy,
        chunk_size=size,
        chunk_overlap=overlap,
        language=analyzer_for(language).language,
        content_language=language_of(options.language or "") or usual.content_language,
        kinds=tuple(kind for kind in KINDS if kind in kinds),
        kinds_by=options.kinds_by or usual.kinds_by,
        context=context,
        dedup_threshold=options.dedup_threshold or usual.dedup_threshold,
    )


def configured(model: str | None, settings: Settings, *, detected: str = "") -> Recipe:
    """Return the recipe of the settings for a model and texts of a detected language."""
    chunking, kinds, ranking = settings.chunking, settings.kinds, settings.ranking
    name = model or settings.embedding.model
    query_prefix, passage_prefix = settings.embedding.prefixes_of(name)
    return Recipe(
        chunk_strategy=chunking.strategy,
        chunk_size=chunking.size,
        chunk_overlap=chunking.overlap,
        language=stemmer_of(detected) if detected else DEFAULT_LANGUAGE,
        model=name,
        content_language=detected,
        kinds=tuple(kinds.kinds),
        kinds_by=kinds.by,
        query_prefix=query_prefix,
        passage_prefix=passage_prefix,
        bm25_k1=ranking.bm25_k1,
        bm25_b=ranking.bm25_b,
    )


async def detected_language(documents: Sequence[Document]) -> str:
    """Return the language of documents, in a thread; code does not count."""
    texts = [document.content for document in documents if document.format != "code"]
    return await asyncio.to_thread(detect_language, texts)


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

    def fail(self, document: Document, error: SearchError) -> None:
        """Record a document that is not indexed; the first reason is kept."""
        _add_first(self.failed, Failure(document.source, error))

    def keep(self, document: Document, error: SearchError) -> None:
        """Record a document that is stored with a refused text; the first reason is kept."""
        _add_first(self.kept, Failure(document.source, error))

    def distinct(self, documents: Sequence[Document]) -> Iterator[Document]:
        """Yield the documents; of several with the same source, all but the last fail."""
        last = {document.source: place for place, document in enumerate(documents)}
        for place, document in enumerate(documents):
            if last[document.source] == place:
                yield document
            else:
                error = InvalidInput(
                    "source", "appears again later in the call", hint="Name it once."
                )
                self.fail(document, error)


def _add_first(failures: list[Failure], failure: Failure) -> None:
    if all(each.source != failure.source for each in failures):
        failures.append(failure)


Report = Callable[[int, int, str], Awaitable[None]]
"""Takes the progress of a call: the documents done, those in total, and the stage."""


@dataclass(slots=True)
class IndexJob:
    """One call, and the generation that it writes to.

    Attributes:
        ports: The ports and settings of indexing.
        record: Record of the generation, which may be new.
        documents: All documents of the call.
        options: The options of the call.
        rebuild: Whether the documents were restored from another generation: all are stored, with
            their stored vectors, and even if the embedder refuses texts of them, see
            :mod:`.partial_vectors`.
        report: The results.
        publish: Takes the progress.
        collection: The generation; ``None`` if it does not exist yet.
        recipe: How documents are chunked and embedded in this generation.
        detected: Language of the texts, if the generation does not say it.
        stored: Sources that were stored by this call.
    """

    ports: IndexPorts
    record: str
    documents: Sequence[Document]
    options: IndexFields
    rebuild: bool
    report: IndexReport
    publish: Report
    recipe: Recipe = field(init=False)
    collection: Collection | None = None
    detected: str = ""
    stored: set[str] = field(default_factory=set)

    async def follow(self, collection: Collection | None) -> None:
        """Write to this generation from now on, as it is chunked and embedded.

        Raises:
            DatabaseUnavailable: if it was being built and is gone.
            InvalidInput: if an option does not fit it.
            ModelMismatch: if it is embedded with another model than the options name.
        """
        if collection is None and (self.rebuild or (self.stored and not self.is_public)):
            # A newly created generation would lack what was stored before.
            raise DatabaseUnavailable(
                "the generation being built no longer exists", hint="Try again."
            )
        if collection is None or not collection.content_language:
            self.detected = self.detected or await detected_language(self.documents)
        self.collection = collection
        self.recipe = recipe_for(
            self.options, collection, self.ports.settings, detected=self.detected
        )
        self.report.model, size = self.recipe.model, self.recipe.chunk_size
        if (self.options.max_tokens or 0) > size:
            self.report.warn(
                f"chunks have at most {size} tokens, not {self.options.max_tokens}:"
                f" {self.recipe.model} reads no more (embedding_max_tokens)"
            )

    @property
    def is_public(self) -> bool:
        """Whether the generation is live, or will be from its first document on."""
        return self.record == self.report.collection

    @property
    def turns(self) -> int:
        """Maximum number of turns that a turn of a conversation is embedded with."""
        context = self.recipe.context
        return context if isinstance(context, int) else self.ports.settings.chunking.context

    async def progress(self, stage: str) -> None:
        """Publish the progress of the call."""
        report = self.report
        await self.publish(report.done, report.documents, stage)
