"""Artifacts made without a database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ability_search.collection import Recipe, new_collection
from ability_search.documents import Document
from ability_search.extensions.artifacts.artifact_format import MANIFEST, ChunksManifest
from ability_search.extensions.artifacts.exporter import ArtifactWriter
from ability_search.index.preparation import chunk_records, prepare, source_record
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.text.token_counter import EstimatedTokens

DIMENSIONS = 4
RECIPE = Recipe("paragraph", 16, 0, "english", "m")
COLLECTION = new_collection("docs", RECIPE, dimensions=DIMENSIONS, average_length=9.5, now=7)
TEXTS = {
    "a": "Foxes run through the wood at night, as every hunter knows.\n\nHares stay at home.",
    "b": "Whales sing.",
    "c": "Whales sing.",
}


def made(directory: Path, texts: dict[str, str] = TEXTS, **recipe: Any) -> ChunksManifest:
    """Write an artifact; the last source repeats what the one before it says."""
    directory.mkdir(parents=True)
    records, chunks = [], []
    for source in texts:
        record, own = stored(source, texts[source], **recipe)
        records.append(record)
        chunks += own
    if texts is TEXTS:
        chunks[-1] = replace(chunks[-1], duplicate_of="docs:b:0")
    with ArtifactWriter(directory) as writer:
        writer.add_sources(records)
        writer.add_chunks(chunks)
        return writer.finish(COLLECTION, "estimate")


def stored(source: str, text: str, **recipe: Any) -> tuple[SourceRecord, list[ChunkRecord]]:
    """A document as a store holds it."""
    links = ({"target": "b", "kind": "k", "weight": 1.0},)
    prepared = prepare(
        Document(source, source.upper(), text, links=links, content_hash="h"),
        replace(RECIPE, **recipe),
        count=EstimatedTokens(),
    )
    chance = np.random.default_rng(len(text))
    vectors = chance.normal(size=(len(prepared.passages), DIMENSIONS))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    prepared.vectors = list(vectors.astype(np.float32))
    return source_record(prepared, now=7), chunk_records(prepared, COLLECTION, now=7)


def changed(directory: Path, file: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file and have the manifest agree with it."""
    data = change((directory / file).read_bytes())
    (directory / file).write_bytes(data)
    manifest = json.loads((directory / MANIFEST).read_text())
    manifest["digests"][file] = {
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    (directory / MANIFEST).write_text(json.dumps(manifest))


def edited(directory: Path, **fields: Any) -> None:
    """Change fields of the manifest; ``None`` takes one out."""
    manifest = json.loads((directory / MANIFEST).read_text()) | fields
    kept = {name: value for name, value in manifest.items() if value is not None}
    (directory / MANIFEST).write_text(json.dumps(kept))


def line_changed(place: int, **fields: Any) -> Callable[[bytes], bytes]:
    """A change of one line of JSON."""

    def change(data: bytes) -> bytes:
        lines = data.splitlines()
        lines[place] = json.dumps(json.loads(lines[place]) | fields).encode()
        return b"\n".join(lines) + b"\n"

    return change
