"""How a call wants its documents indexed."""

from __future__ import annotations

from dataclasses import dataclass

from ability_search.analysis import DEFAULT_LANGUAGE, analyzer_for
from ability_search.collection import Collection
from ability_search.configuration import Settings
from ability_search.documents import ASPECTS
from ability_search.errors import InvalidInput
from ability_search.indexing.preparing import Recipe


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """How a call wants its documents indexed; what is ``None`` is the collection's own way."""

    chunk_strategy: str | None = None
    max_tokens: int | None = None
    overlap: int | None = None
    model: str | None = None
    language: str | None = None
    kinds: tuple[str, ...] | None = None
    """Aspects that are made of each document, see :data:`~ability_search.documents.ASPECTS`."""
    kinds_by: str | None = None
    """Who makes them: ``local`` extraction, or a language model (``chat``)."""
    force: bool = False
    """Index even what is unchanged."""
    anew: bool = False
    """Embed even what was embedded before."""
    dedup_threshold: float | None = None
    """Least cosine of a near-duplicate, in (0, 1]; ``None`` looks for none."""


def recipe_for(options: IndexOptions, collection: Collection | None, settings: Settings) -> Recipe:
    """How to cut: as the call says, else as the collection was begun, else by the settings.

    A chunk never is longer than the model reads.

    Raises:
        InvalidInput: if the overlap is no less than a chunk, or the language is not known or
            not the collection's.
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
            hint="Leave language out, or search-reindex the collection with another one.",
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
