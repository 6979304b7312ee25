"""Documents to stored records, and back: content hashes, chunking and analysis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ability_search.bounded_batches import text_bytes
from ability_search.collection import Collection, Recipe
from ability_search.config.schema import Limits
from ability_search.documents import GENERATED, KINDS, Document, Labels, Passage, Vector, is_kind
from ability_search.errors import InvalidInput, TooLarge
from ability_search.filters.facets import check_size, facets_of
from ability_search.index.sequences import in_context
from ability_search.store.pages import StoredText
from ability_search.store.records import ChunkRecord, SourceLink, SourceRecord
from ability_search.text.analyzer import Analyzer, analyzer_for
from ability_search.text.bm25 import counted_length, document_vector
from ability_search.text.chunkers.strategies import Turns, chunk
from ability_search.text.model_traits import embedded_text
from ability_search.text.term_ids import CONTENT, CONTEXT, TITLE, metadata_field
from ability_search.text.token_counter import TokenCounter

Labelling = Callable[[Document, Passage], Labels]

LAYOUT = "1"
"""Version of the stored representation; increase it when this module stores texts differently."""

TERMS_OF_A_FIELD = 128
TERMS_OF_A_DOCUMENT = 256
"""Limited because every chunk of the document stores them."""
_RECORDED = (
    {each.name for each in fields(Document)} & {each.name for each in fields(SourceRecord)}
) - {"content_hash", "origin"}
"""Fields of a document that its record has unchanged, and gives back."""
_FIELD_CHARACTERS = 4096
_FIELD_DEPTH = 16
_encoded = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=dict).encode


@dataclass(slots=True)
class Prepared:
    """A chunked and analyzed document; its vectors are added later."""

    document: Document
    passages: Sequence[Passage]
    title_terms: Sequence[str]
    terms: Sequence[Sequence[str]]
    """Terms of each passage, for keyword search."""
    context_terms: Sequence[Sequence[str]]
    """Terms of the context of each passage."""
    texts: Sequence[str]
    """Text to embed for each passage."""
    metadata_terms: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own_terms: Sequence[Mapping[str, Sequence[str]]] = ()
    """Terms of the metadata by field, for keyword search in these fields."""
    facets: Sequence[str] = ()
    """Keys for equality filters."""
    labels: Sequence[Labels] = ()
    """Labels of each passage from extensions."""
    vectors: list[Vector | None] = field(default_factory=list)
    partial: set[int] = field(default_factory=set)
    """Passages that the embedder refuses, with vectors as of :mod:`.partial_vectors`."""
    missing: int = 0
    """Number of vectors not yet added, including those of derived kinds."""
    kinds: Sequence[Prepared] = ()
    """The derived kinds, which are stored with the document."""

    @property
    def parts(self) -> Sequence[Prepared]:
        """The document itself and its derived kinds."""
        return (self, *self.kinds)

    @property
    def complete(self) -> bool:
        """True if every passage has its vector."""
        return all(vector is not None for vector in self.vectors)

    @property
    def chunks(self) -> int:
        """Number of passages of all parts."""
        return sum(len(part.passages) for part in self.parts)


def content_hash(
    document: Document, recipe: Recipe, *, counter: str, marks: tuple[object, ...] = ()
) -> str:
    """Return the SHA-256 of everything that determines a document's chunks and their vectors.

    Args:
        document: The document.
        recipe: How the document is chunked and embedded.
        counter: Name of the token counter.
        marks: What its derived parts depend on besides it.
    """
    said = (document.title, document.content, document.metadata, document.format, document.language)
    parts: tuple[object, ...] = (
        LAYOUT,
        said if document.file_hash is None else document.file_hash,
        document.kind,
        document.links,
        document.of,
        recipe.chunk_strategy,
        recipe.chunk_size,
        recipe.chunk_overlap,
        recipe.language,
        recipe.model,
        counter,
        *marks,
    )
    if recipe.context is not None:
        parts += ("context", recipe.context)
    return sha256(_encoded(parts).encode()).hexdigest()


def text_length(document: Document) -> int:
    """Return the characters of the text and, roughly, of the metadata."""
    return len(document.content) + sum(len(str(value)) for value in document.metadata.values())


def prepare(
    document: Document,
    recipe: Recipe,
    *,
    count: TokenCounter,
    limits: Limits | None = None,
    cuts: Turns | None = None,
    turns: int = 2,
    label: Sequence[Labelling] = (),
) -> Prepared:
    """Chunk a document and analyze its chunks; a blank document has none.

    Args:
        document: The document.
        recipe: How it is chunked and analyzed.
        count: Counts tokens.
        limits: Limits of a document; ``None`` for none.
        cuts: Where the strategy ``semantic`` cuts; without them it is ``auto``.
        turns: Maximum number of turns that a turn of a conversation is embedded with.
        label: Functions that say more about a passage.

    Raises:
        InvalidInput: if the document cannot be chunked this way, its metadata cannot be stored,
            or its kind or source is not valid for a document of another one.
        TooLarge: if it has too many chunks, or they would be too large.
    """
    check_kind(document.source, document.of)
    passages = chunk(
        document.content,
        strategy=recipe.chunk_strategy if cuts is None else cuts,
        max_tokens=recipe.chunk_size,
        overlap=recipe.chunk_overlap,
        count=count,
        format=document.format,
        language=document.language,
        max_passages=limits.document_chunks if limits else None,
    )
    if limits:
        if document.origin is None:
            # A document that was migrated may exceed the limit, and is not lost.
            check_size(document.metadata)
        _check_stored(document, passages, limits.stored_bytes)
    placed = in_context(passages, document, count, turns=turns, context=recipe.context)
    return analyzed(document, placed, recipe, label=label)


def analyzed(
    document: Document,
    passages: Sequence[Passage],
    recipe: Recipe,
    *,
    label: Sequence[Labelling] = (),
) -> Prepared:
    """Return a chunked document with everything that is stored except the vectors.

    Args:
        document: The document.
        passages: Its passages.
        recipe: How they are analyzed and embedded.
        label: Functions that say more about a passage.

    Raises:
        InvalidInput: if the metadata cannot be stored.
    """
    analyzer = analyzer_for(recipe.language)
    return Prepared(
        document=document,
        passages=passages,
        title_terms=analyzer.terms(document.title),
        terms=[analyzer.terms(passage.content) for passage in passages],
        context_terms=[
            analyzer.terms(f"{passage.breadcrumb}\n{passage.context}") for passage in passages
        ],
        texts=[
            recipe.passage_prefix
            + embedded_text(
                document.title,
                passage.content,
                breadcrumb=passage.breadcrumb,
                context=passage.context,
            )
            for passage in passages
        ],
        metadata_terms=metadata_terms(document.metadata, analyzer),
        own_terms=[metadata_terms(passage.metadata, analyzer) for passage in passages],
        facets=facets_of(document.metadata),
        labels=[_labels(document, passage, label) for passage in passages],
        vectors=[None] * len(passages),
        missing=len(passages),
    )


def vector_key(model: str, text: str) -> str:
    """Return the key of the vector of ``text`` by ``model``: 128 bits of SHA-256 in hexadecimal."""
    return sha256(f"{model}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def chunk_records(prepared: Prepared, collection: Collection, *, now: int) -> list[ChunkRecord]:
    """Return the chunks of a prepared document, as they are stored.

    Args:
        prepared: A document with all its vectors.
        collection: The collection to store it in.
        now: Time in epoch milliseconds.
    """
    document = prepared.document
    records = []
    end = section = 0
    pages = pages_of(document, prepared.passages)
    for index, passage in enumerate(prepared.passages):
        terms, labels = prepared.terms[index], prepared.labels[index]
        if passage.breadcrumb != prepared.passages[section].breadcrumb:
            section = index
        ids, weights = document_vector(
            {
                TITLE: prepared.title_terms,
                CONTENT: terms,
                CONTEXT: prepared.context_terms[index],
                **prepared.metadata_terms,
                **prepared.own_terms[index],
            },
            average_length=collection.average_length,
            k1=collection.bm25_k1,
            b=collection.bm25_b,
        )
        records.append(
            ChunkRecord(
                chunk_id=f"{collection.public_name}:{document.source}:{index}",
                collection=collection.public_name,
                source=document.source,
                title=document.title,
                content=passage.content,
                kind=document.kind,
                metadata={**document.metadata, **passage.metadata},
                chunk_index=index,
                total_chunks=len(prepared.passages),
                created_at=document.created_at or now,
                tokens=passage.tokens,
                breadcrumb=passage.breadcrumb,
                page=pages[index],
                start_line=passage.start_line,
                end_line=passage.end_line,
                start_offset=passage.start,
                end_offset=passage.end,
                lead=document.content[end : passage.start],
                overlap=passage.preface + max(0, end - passage.start),
                section=section,
                of=document.of if is_kind(document.kind, document.of) else None,
                of_chunk=passage.of_chunk,
                parent=None if is_kind(document.kind, document.of) else document.of,
                facets=[*prepared.facets, *facets_of(passage.metadata), *labels.facets],
                dates=list(labels.dates),
                embedding=_rounded(prepared.vectors[index], 7),
                vector_key=None
                if index in prepared.partial
                else vector_key(collection.model, prepared.texts[index]),
                terms=ids.tolist(),
                weights=_rounded(weights, 5) or [],
                lengths=[
                    len(prepared.title_terms),
                    counted_length(title=len(prepared.title_terms), content=len(terms)),
                ],
                average_length=collection.average_length,
            )
        )
        end = max(end, passage.end)
    return records


def pages_of(document: Document, passages: Sequence[Passage]) -> list[int | None]:
    """Return the page, from 1, on which each passage begins; ``None`` without pages.

    A form feed ends a page, except in source code, where it separates sections.
    """
    text = document.content
    if "\f" not in text or document.format == "code" or document.language:
        return [None] * len(passages)
    pages: list[int | None] = []
    page, seen = 1, 0
    for passage in passages:
        page += text.count("\f", seen, passage.start)
        seen = passage.start
        pages.append(page)
    return pages


def source_record(prepared: Prepared, *, now: int) -> SourceRecord:
    """Return the record of a prepared document; ``now`` is in epoch milliseconds."""
    tokens = [passage.tokens for passage in prepared.passages]
    end = prepared.passages[-1].end if prepared.passages else 0
    document = prepared.document
    return SourceRecord(
        **{name: getattr(document, name) for name in _RECORDED},
        content_hash=document.content_hash,
        chunks=len(tokens),
        tokens=sum(tokens),
        tokens_min=min(tokens, default=None),
        tokens_max=max(tokens, default=None),
        indexed_at=now,
        tail=document.content[end:],
        origin=document.origin,
    )


def links_of(document: Document) -> list[SourceLink]:
    """Return the links of a document, one per linked source and kind of link.

    Of equal links the one with the highest weight is kept. Links without weight and links to the
    document itself are omitted.
    """
    strongest: dict[tuple[str, str], float] = {}
    for link in document.links:
        key = link["target"], link["kind"]
        if link["weight"] > 0 and link["target"] != document.source:
            strongest[key] = max(link["weight"], strongest.get(key, 0.0))
    return [
        SourceLink(document.source, target, kind, weight)
        for (target, kind), weight in strongest.items()
    ]


def restored_document(record: SourceRecord, texts: Sequence[StoredText | ChunkRecord]) -> Document:
    """Restore a document from its record and its chunks, in order."""
    parts = [f"{each.lead}{each.content[each.overlap :]}" for each in texts]
    kept = {name: getattr(record, name) for name in _RECORDED}
    return Document(
        **kept | {"links": tuple(record.links)},
        content="".join(parts) + record.tail,
        origin=record.content_hash,
        created_at=min((each.created_at for each in texts if each.created_at), default=None),
    )


def metadata_terms(metadata: Mapping[str, Any], analyzer: Analyzer) -> dict[str, list[str]]:
    """Return the terms of the texts in metadata, by field.

    Args:
        metadata: Any JSON object.
        analyzer: Analyzer of the collection's language.

    Returns:
        The terms of a text, or of the texts in a list, by field name
        (:func:`.term_ids.metadata_field`). A field gives its first 128 terms, taken from its first
        4,096 characters; a document gives its first 256 terms, in the order of its metadata. Keys
        nested deeper than 16 levels and fields without terms are left out.
    """
    fields: dict[str, list[str]] = {}
    left = TERMS_OF_A_DOCUMENT
    for path, text in _field_texts((), metadata):
        terms = list(islice(analyzer.terms(text), min(left, TERMS_OF_A_FIELD)))
        left -= len(terms)
        if terms:
            fields[metadata_field(path)] = terms
        if not left:
            break
    return fields


def generated_source(source: str, kind: str) -> str:
    """Return the source name of a kind derived from a document."""
    return f"{source}{GENERATED}{kind}"


def generated_sources(sources: Iterable[str]) -> list[str]:
    """Return the source names of all kinds that may have been derived from documents."""
    return [generated_source(source, kind) for source in sources for kind in KINDS]


def _check_stored(document: Document, passages: Sequence[Passage], most: int) -> None:
    metadata = json.dumps(document.metadata, separators=(",", ":"), default=dict)
    every = text_bytes(document.title) + len(metadata)
    size = text_bytes(document.content) + every * len(passages)
    size += sum(
        text_bytes(passage.breadcrumb) + text_bytes(passage.context) for passage in passages
    )
    if size > most:
        raise TooLarge(
            f"content: {size} bytes with title and metadata ({every} bytes) on each of"
            f" {len(passages)} chunks, at most {most} are allowed (max_stored_bytes)",
            hint="Shorten the metadata or split the document.",
        )


def check_kind(source: str, of: str | None) -> None:
    """Check the source of a document, and the document that it belongs to.

    Args:
        source: Source of the document.
        of: Source of the other document; ``None`` if there is none.

    Raises:
        InvalidInput: if they do not fit together.
    """
    if source.endswith(tuple(f"{GENERATED}{each}" for each in KINDS)):
        raise InvalidInput(
            "source",
            f"ends with {GENERATED} and a kind, which is reserved for derived documents",
            hint="Choose another name.",
        )
    if of == source:
        raise InvalidInput("of", "is the document itself", hint="Name another document's source.")


def _labels(document: Document, passage: Passage, label: Sequence[Labelling]) -> Labels:
    every = [each(document, passage) for each in label]
    return Labels(
        [facet for each in every for facet in each.facets],
        [date for each in every for date in each.dates],
    )


def _rounded(values: npt.NDArray[np.float32] | None, decimals: int) -> list[float] | None:
    """Round numbers; to seven decimals those of a unit vector, whose cosines change by 1e-7."""
    return None if values is None else [*values.astype(np.float64).round(decimals).tolist()]


def _field_texts(path: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the texts in a value, each with its path of keys."""
    if isinstance(value, Mapping):
        if len(path) < _FIELD_DEPTH:
            for key, inner in value.items():
                yield from _field_texts((*path, key), inner)
    elif isinstance(value, str):
        yield path, value[:_FIELD_CHARACTERS]
    elif isinstance(value, list | tuple):
        texts = [each[:_FIELD_CHARACTERS] for each in value if isinstance(each, str)]
        yield path, "\n".join(texts)[:_FIELD_CHARACTERS]
