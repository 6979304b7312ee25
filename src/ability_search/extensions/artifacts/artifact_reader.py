"""Reads the files of an artifact as checked records, one source at a time."""

from __future__ import annotations

from abc import abstractmethod
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import blake2b, sha256
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ValidationError

from ability_search.collection import Collection
from ability_search.documents import is_kind
from ability_search.extensions.artifacts.artifact_files import CheckedFile, json_object, opened
from ability_search.extensions.artifacts.artifact_format import (
    CHUNK_LINES,
    MANIFEST,
    SOURCE_LINES,
    USE_LINES,
    VERSION,
    ChunksManifest,
    Counts,
    Damaged,
    Manifest,
    SkillsManifest,
    recorded_collection,
    text_hash,
)
from ability_search.extensions.sessions.uses import Use
from ability_search.index.preparation import links_of, restored_document
from ability_search.store.records import ChunkRecord, SourceRecord
from kadi_client.tools import validation_text

_LARGEST_MANIFEST = 1024 * 1024
_UNIT = 1e-3
"""Tolerance for the length of a unit vector."""


@dataclass(frozen=True, slots=True)
class Item:
    """A source: its record, and its chunks in order."""

    record: SourceRecord
    chunks: list[ChunkRecord]


class Importable(Protocol):
    """A collection to import."""

    collection: Collection
    """Its record under its own name, without contents."""
    counts: Counts
    """Numbers of sources, chunks and so on; complete once all items have been read."""
    fingerprint: str
    """Hash of the contents; identifies an interrupted import."""

    def check(self) -> None:
        """Check everything before anything is imported, unless that was done before."""
        return

    @abstractmethod
    def items(self, name: str) -> Iterator[Item]:
        """Yield the sources for a collection ``name``, each checked as it is read."""

    def usage(self) -> Iterator[Use] | None:
        """Return the recorded use of chunks by agents; ``None`` if there is none."""
        return None


class Artifact(Importable):
    """An artifact whose manifest has been read.

    Args:
        directory: Its directory.
        manifest: Its manifest.
    """

    def __init__(self, directory: Path, manifest: ChunksManifest) -> None:
        self.directory = directory
        self.manifest = manifest
        self.collection = recorded_collection(manifest)
        self.counts = manifest.counts
        self.fingerprint = sha256(manifest.model_dump_json().encode()).hexdigest()

    def check(self) -> None:
        """Read and check all files.

        Raises:
            Damaged: naming the file, the line where there is one, and what is wrong.
        """
        name = self.collection.name
        every = (chunk.duplicate_of for item in self.items(name) for chunk in item.chunks)
        targets = {each for each in every if each}
        if targets:
            standing = sum(
                chunk.chunk_id in targets and not chunk.duplicate_of
                for item in self.items(name)
                for chunk in item.chunks
            )
            if standing != len(targets):
                raise Damaged(self.manifest.chunks_file, "duplicateOf names a missing chunk")
        for _ in self.usage() or ():
            pass

    def items(self, name: str) -> Iterator[Item]:
        """Yield the sources in order, and check totals and hashes at the end; as :meth:`check`."""
        manifest = self.manifest
        counted: Counter[str] = Counter()
        names = array("Q")
        with (
            self._opened(manifest.vector_file) as vectors,
            self._opened(manifest.chunks_file) as chunks,
            self._opened(manifest.sources_file) as sources,
        ):
            lines = chunks.rows()
            for place, row in sources.rows():
                source = SOURCE_LINES.decode(row, place)
                digest = blake2b(source.source.encode(), digest_size=8).digest()
                names.append(int.from_bytes(digest))
                embeddings = read_vectors(vectors, manifest, source.chunks, counted["chunks"])
                own = self._chunks(name, source, lines, embeddings)
                count_contents(counted, [source], own)
                yield Item(source, own)
            if next(lines, None) is not None:
                raise Damaged(chunks.name, "has more lines than the sources have chunks")
        if len(np.unique(np.asarray(names))) < len(names):
            raise Damaged(manifest.sources_file, "names a source twice")
        expected = manifest.counts.model_dump(exclude={"usage"})
        if wrong := [name for name, count in expected.items() if counted[name] != count]:
            found = ", ".join(f"{counted[n]} {n} instead of {expected[n]}" for n in wrong)
            raise Damaged(MANIFEST, f"the files contain {found}")

    def usage(self) -> Iterator[Use] | None:
        """Return the recorded use of chunks by agents, checked as :meth:`check` does."""
        name = self.manifest.usage_file
        return None if name is None else self._uses(name)

    def _uses(self, name: str) -> Iterator[Use]:
        collection, count = self.collection.name, 0
        with self._opened(name) as file:
            for place, row in file.rows():
                count += 1
                use = USE_LINES.decode(row, place, collection=collection)
                if not use.chunk_id.startswith(f"{collection}:"):
                    raise Damaged(place, "names a chunk of another collection")
                yield use
        if count != self.counts.usage:
            raise Damaged(name, f"has {count} lines, the manifest says {self.counts.usage}")

    def _opened(self, name: str) -> AbstractContextManager[CheckedFile]:
        return opened(self.directory, name, self.manifest.digests[name])

    def _chunks(
        self,
        name: str,
        source: SourceRecord,
        lines: Iterator[tuple[str, dict[str, Any]]],
        embeddings: Sequence[Sequence[float]],
    ) -> list[ChunkRecord]:
        file = self.manifest.chunks_file
        chunks = [
            self._chunk(row, place, source, index, collection=name, embedding=embeddings[index])
            for index, (place, row) in enumerate(islice(lines, source.chunks))
        ]
        if len(chunks) < source.chunks:
            raise Damaged(file, "has fewer lines than the sources have chunks")
        tokens = [chunk.tokens for chunk in chunks]
        if (sum(tokens), min(tokens, default=None), max(tokens, default=None)) != (
            source.tokens,
            source.tokens_min,
            source.tokens_max,
        ):
            raise Damaged(file, f"the token counts of {source.source!r} differ from its record")
        return chunks

    def _chunk(
        self, row: dict[str, Any], place: str, source: SourceRecord, index: int, **given: Any
    ) -> ChunkRecord:
        of_kind, own = is_kind(source.kind, source.of), f"{self.collection.name}:"
        parent = None if of_kind else source.of
        chunk = CHUNK_LINES.decode(row, place, parent=parent, **given)
        if (chunk.source, chunk.chunk_index, chunk.total_chunks, chunk.of) != (
            source.source,
            index,
            source.chunks,
            source.of if of_kind else None,
        ):
            raise Damaged(place, f"is not chunk {index} of {source.source!r}")
        if chunk.chunk_id != f"{own}{source.source}:{index}":
            raise Damaged(place, "has the wrong chunkId")
        if chunk.duplicate_of is not None and not chunk.duplicate_of.startswith(own):
            raise Damaged(place, "duplicateOf names a chunk of another collection")
        if row.get("text_hash") != text_hash(chunk):
            raise Damaged(place, "has a text_hash that does not match its text")
        if chunk.collection == self.collection.name:
            return chunk
        return replace(
            chunk,
            chunk_id=moved(chunk.chunk_id, chunk.collection),
            duplicate_of=chunk.duplicate_of and moved(chunk.duplicate_of, chunk.collection),
        )


def moved(chunk_id: str, name: str) -> str:
    """Return the chunkId of a chunk in a collection ``name``."""
    return f"{name}:{chunk_id.partition(':')[2]}"


def read_manifest(directory: Path) -> ChunksManifest | SkillsManifest:
    """Read the manifest of an artifact.

    Raises:
        Damaged: if it is missing or invalid, or has another version.
    """
    if not (directory / MANIFEST).exists():
        problem = f"has no {MANIFEST}" if directory.is_dir() else "no such directory"
        raise Damaged(str(directory), problem, hint="Name a directory that `export` has written.")
    with opened(directory, MANIFEST) as file:
        if file.size > _LARGEST_MANIFEST:
            raise Damaged(MANIFEST, "is too large for a manifest")
        content = json_object(file.read(file.size), MANIFEST)
    version = content.get("index_version")
    if version != VERSION or isinstance(version, bool):
        raise Damaged(MANIFEST, f"has index_version {version!r}; this program supports {VERSION}")
    skills = "skills_file" in content and "chunks_file" not in content
    try:
        return (SkillsManifest if skills else ChunksManifest).model_validate(content)
    except ValidationError as exc:
        raise Damaged(MANIFEST, validation_text(exc)) from exc


def read_vectors(
    file: CheckedFile, manifest: Manifest, count: int, before: int
) -> list[list[float]]:
    """Return the next ``count`` vectors of a file, with unit length.

    Args:
        file: The file.
        manifest: The manifest with the dimensions of the vectors.
        count: Number of vectors.
        before: Number of vectors before these in the file.

    Raises:
        Damaged: if a vector is not finite, is zero, or should be normalized and is not.
    """
    data = file.read(count * manifest.dim * 4)
    vectors = np.frombuffer(data, dtype="<f4").reshape(count, manifest.dim).astype(np.float64)
    lengths = np.linalg.norm(vectors, axis=1)
    wrong = ~np.isfinite(lengths) | (lengths == 0)
    if manifest.normalize:
        wrong |= np.abs(lengths - 1) > _UNIT
    if wrong.any():
        place = before + int(np.argmax(wrong))
        rule = "finite and of unit length" if manifest.normalize else "finite and nonzero"
        raise Damaged(file.name, f"vector {place + 1} is not {rule}")
    if not manifest.normalize:
        vectors = (vectors / lengths[:, None]).astype(np.float32).astype(np.float64)
    # The same rounding as in preparation; it loses nothing.
    rounded: list[list[float]] = np.round(vectors, 7).tolist()
    return rounded


def count_contents(
    counted: Counter[str], records: Sequence[SourceRecord], chunks: Sequence[ChunkRecord]
) -> None:
    """Add sources and chunks to the counts of an artifact."""
    counted["sources"] += sum(record.counted for record in records)
    counted["tokens"] += sum(record.tokens for record in records)
    counted["links"] += sum(len(links_of(restored_document(record, ()))) for record in records)
    counted["chunks"] += len(chunks)
    counted["kind_chunks"] += sum(bool(chunk.of) for chunk in chunks)
    counted["duplicates"] += sum(bool(chunk.duplicate_of) for chunk in chunks)
