"""The options of an index call."""

from __future__ import annotations

from dataclasses import dataclass

from ability_search.collection import Collection
from ability_search.config.schema import Settings
from ability_search.documents import ASPECTS
from ability_search.errors import InvalidInput
from ability_search.indexing.preparing import Recipe
from ability_search.text.analyzer import DEFAULT_LANGUAGE, analyzer_for


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """The options of an index call; ``None`` leaves the choice to the collection."""

    chunk_strategy: str | None = None
    max_tokens: int | None = None
    overlap: int | None = None
    model: str | None = None
    language: str | None = None
    kinds: tuple[str, ...] | None = None
    """Kinds to derive from each document, see :data:`~ability_search.documents.ASPECTS`."""
    kinds_by: str | None = None
    """The method of deriving kinds: ``local`` extraction, or a language model (``chat``)."""
    force: bool = False
    """Index unchanged documents, too."""
    anew: bool = False
    """Do not reuse stored vectors."""
    dedup_threshold: float | None = None
    """Minimum cosine of a near-duplicate, in (0, 1]; ``None`` disables the detection."""


def recipe_for(options: IndexOptions, collection: Collection | None, settings: Settings) -> Recipe:
    """Return the recipe of a call: its options, else those of the collection, else the settings.

    The chunk size is limited to the maximum number of tokens of the model.

    Raises:
        InvalidInput: if the overlap is not less than the chunk size, or the language is unknown
            or not that of the collection.
    """
    chunking = settings.chunking
    size = options.max_tokens or (collection.chunk_size if collection else chunking.size)
    longest = settings.embedding.max_tokens
    size = min(size, longest) if longest else size
    overlap = options.overlap
    if overlap is None:
        usual = collection.chunk_overlap if collection else chunking.overlap
        overlap = min(usual, size // 4)
    elif overlap >= size:
        raise InvalidInput("overlap", f"must be less than maxTokens ({size}), not {overlap}")
    language = options.language or (collection.language if collection else DEFAULT_LANGUAGE)
    if collection is not None and language != collection.language:
        raise InvalidInput(
            "language",
            f"collection {collection.public_name!r} is analyzed as {collection.language!r}",
            hint="Omit language, or change it for the whole collection with search-reindex.",
        )
    return Recipe(
        chunk_strategy=options.chunk_strategy
        or (collection.chunk_strategy if collection else chunking.strategy),
        chunk_size=size,
        chunk_overlap=overlap,
        language=analyzer_for(language).language,
        kinds=_kinds(options, collection, settings),
        kinds_by=options.kinds_by or (collection.kinds_by if collection else settings.aspects.by),
    )


def _kinds(
    options: IndexOptions, collection: Collection | None, settings: Settings
) -> tuple[str, ...]:
    wanted = options.kinds
    if wanted is None:
        wanted = collection.kinds if collection else settings.aspects.kinds
    return tuple(kind for kind in ASPECTS if kind in wanted)
