"""Documents -> chunks -> database rows. Pure: no database, no embedder, no clock."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import numpy as np

from ability_search.analysis import CONTENT, TITLE, Analyzer
from ability_search.catalogue import Collection
from ability_search.chunking import TokenCounter, chunk
from ability_search.documents import Document, Passage, Vector
from ability_search.filters import facets_of
from ability_search.ranking.bm25 import document_vector

LAYOUT = "1"
"""Version of everything in this module that decides what is stored of a text."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How texts of a collection become chunks."""

    chunk_strategy: str
    chunk_size: int
    chunk_overlap: int
    language: str
    """Language of the full-text analysis."""


@dataclass(slots=True)
class Prepared:
    """A document on its way into the database; the vectors arrive later."""

    document: Document
    content_hash: str
    passages: Sequence[Passage]
    title_terms: Sequence[str]
    terms: Sequence[Sequence[str]]
    """Terms of each passage, for the keyword search."""
    texts: Sequence[str]
    """What is embedded of each passage."""
    facets: Sequence[str] = ()
    """What equality filters look up."""
    vectors: list[Vector | None] = field(default_factory=list)
    missing: int = 0
    """How many vectors have not arrived yet."""

    @property
    def tokens(self) -> int:
        """Tokens of all passages."""
        return sum(passage.tokens for passage in self.passages)


def content_hash(document: Document, recipe: Recipe, *, model: str, counter: str) -> str:
    """SHA-256 over everything that decides the chunks of a document and their vectors.

    Args:
        document: The document.
        recipe: How it is cut and analyzed.
        model: What it is embedded with.
        counter: What tokens are counted with.
    """
    parts = (
        LAYOUT,
        document.title,
        document.content,
        document.metadata,
        document.kind,
        document.format,
        document.language,
        document.links,
        recipe.chunk_strategy,
        recipe.chunk_size,
        recipe.chunk_overlap,
        recipe.language,
        model,
        counter,
    )
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=dict)
    return sha256(text.encode()).hexdigest()


def prepare(
    document: Document,
    recipe: Recipe,
    *,
    content_hash: str,
    analyzer: Analyzer,
    count: TokenCounter,
) -> Prepared:
    """Cut a document and analyze its chunks; a blank one has none.

    Raises:
        InvalidInput: if it cannot be cut this way, or its metadata cannot be stored.
    """
    passages = chunk(
        document.content,
        strategy=recipe.chunk_strategy,
        max_tokens=recipe.chunk_size,
        overlap=recipe.chunk_overlap,
        count=count,
        format=document.format,
        language=document.language,
    )
    return Prepared(
        document=document,
        content_hash=content_hash,
        passages=passages,
        title_terms=analyzer.terms(document.title),
        terms=[analyzer.terms(passage.content) for passage in passages],
        texts=[embedded_text(document.title, passage) for passage in passages],
        facets=facets_of(document.metadata),
        vectors=[None] * len(passages),
        missing=len(passages),
    )


def embedded_text(title: str, passage: Passage) -> str:
    """What is embedded of a passage: title, headings and introduction, then the text itself.

    A title that the headings begin with, or the text, is not said twice.
    """
    above = [passage.breadcrumb, passage.context]
    if not (passage.breadcrumb.startswith(title) or passage.content.startswith(title)):
        above.insert(0, title)
    return "\n".join([*filter(None, above), passage.content])


def chunk_rows(
    prepared: Prepared, collection: Collection, *, k1: float, b: float, now: int
) -> list[dict[str, Any]]:
    """One database row for each chunk, embedding included.

    Args:
        prepared: A document whose vectors are complete.
        collection: Where it goes.
        k1: Saturation of a term's frequency.
        b: Weight of a text's length.
        now: Epoch milliseconds.
    """
    document = prepared.document
    shared = {
        "collection": collection.public_name,
        "source": document.source,
        "title": document.title,
        "kind": document.kind,
        "metadata": dict(document.metadata),
        "facets": list(prepared.facets),
        "totalChunks": len(prepared.passages),
        "createdAt": now,
        "averageLength": collection.average_length,
    }
    rows = []
    end = 0
    for index, (passage, terms) in enumerate(zip(prepared.passages, prepared.terms, strict=True)):
        ids, weights = document_vector(
            {TITLE: prepared.title_terms, CONTENT: terms},
            average_length=collection.average_length,
            k1=k1,
            b=b,
        )
        rows.append(
            shared
            | {
                "chunkId": f"{collection.public_name}:{document.source}:{index}",
                "content": passage.content,
                "lead": document.content[end : passage.start],
                "overlap": max(0, end - passage.start),
                "tokens": passage.tokens,
                "chunkIndex": index,
                "breadcrumb": passage.breadcrumb,
                "startLine": passage.start_line,
                "endLine": passage.end_line,
                "startOffset": passage.start,
                "endOffset": passage.end,
                "embedding": _written(prepared.vectors[index]),
                "terms": ids.tolist(),
                "weights": [round(weight, 5) for weight in weights.tolist()],
                "lengths": [len(prepared.title_terms), len(terms)],
            }
        )
        end = max(end, passage.end)
    return rows


def source_record(prepared: Prepared, *, now: int) -> dict[str, Any]:
    """The Source record of a document; ``now`` in epoch milliseconds."""
    tokens = [passage.tokens for passage in prepared.passages]
    end = prepared.passages[-1].end if prepared.passages else 0
    document = prepared.document
    return {
        "source": document.source,
        "title": document.title,
        "contentHash": prepared.content_hash,
        "chunks": len(tokens),
        "tokens": sum(tokens),
        "tokensMin": min(tokens, default=None),
        "tokensMax": max(tokens, default=None),
        "indexedAt": now,
        "kind": document.kind,
        "metadata": dict(document.metadata),
        "format": document.format,
        "language": document.language,
        "links": [dict(link) for link in document.links],
        "file": document.file,
        "tail": document.content[end:],
    }


def restored_document(record: Mapping[str, Any], passages: Sequence[Mapping[str, Any]]) -> Document:
    """The document that a Source record and its chunks, in order, were made from."""
    content = "".join(
        f"{row.get('lead') or ''}{row['content'][row.get('overlap') or 0 :]}" for row in passages
    )
    return Document(
        source=record["source"],
        title=record["title"],
        content=content + (record.get("tail") or ""),
        metadata=record.get("metadata") or {},
        kind=record.get("kind") or "document",
        format=record.get("format"),
        language=record.get("language"),
        links=tuple(record.get("links") or ()),
        file=bool(record.get("file")),
    )


def _written(vector: Vector | None) -> list[float] | None:
    """Seven decimals: half the bytes, and less of a change than float32 itself has.

    Components of unit vectors are at most 1, so a cosine moves by less than 1e-7.
    """
    if vector is None:
        return None
    return [float(value) for value in np.round(vector.astype(np.float64), 7)]
