"""The files of an artifact -> checked records, a source at a time."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b, sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ability_search.artifacts.artifact_files import Reading, opened
from ability_search.artifacts.artifact_writer import ELSEWHERE, text_hash
from ability_search.artifacts.manifest import (
    MANIFEST,
    ChunksManifest,
    Counts,
    Damaged,
    Origin,
    SkillsManifest,
    parsed_manifest,
)
from ability_search.artifacts.stored_rows import link_rows, restored_document
from ability_search.documents import Vector

Row = dict[str, Any]

_LARGEST_MANIFEST = 1024 * 1024
_PROPERTY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_NOT_PROPERTIES = {*ELSEWHERE, "token"}
_UNIT = 1e-3
"""How far the length of a vector may be from 1."""

_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_TermId = Annotated[int, Meta(ge=0, lt=2**31)]
_Weight = Annotated[float, Meta(ge=0)]


class SourceLine(msgspec.Struct, rename="camel"):
    """What a line of a source must have at least."""

    source: _Text
    title: str
    content_hash: _Text
    chunks: Annotated[int, Meta(ge=1)]
    tokens: _Count
    tokens_min: _Count
    tokens_max: _Count
    indexed_at: _Count
    metadata: dict[str, Any] | None = None
    aspect_of: str | None = None
    tail: str | None = None
    links: list[LinkLine] | None = None
    generated: bool | None = None


class LinkLine(msgspec.Struct):
    """A link of a source to another one."""

    target: str
    kind: str
    weight: Annotated[float, Meta(ge=0, le=1)]


class ChunkLine(msgspec.Struct, rename="camel"):
    """What a line of a chunk must have at least."""

    chunk_id: str
    source: str
    title: str
    content: str
    tokens: _Count
    chunk_index: _Count
    total_chunks: _Count
    created_at: _Count
    facets: list[str]
    lengths: Annotated[list[_Count], Meta(min_length=2, max_length=2)]
    average_length: Annotated[float, Meta(gt=0)]
    text_hash: str = msgspec.field(name="text_hash")
    lead: str | None = None
    overlap: int | None = None
    breadcrumb: str | None = None
    metadata: dict[str, Any] | None = None
    aspect_of: str | None = None
    duplicate_of: str | None = None
    vector_key: Annotated[str, Meta(max_length=64)] | None = None
    terms: list[_TermId] | None = None
    weights: list[_Weight] | None = None
    spare_terms: list[_TermId] | None = None
    spare_weights: list[_Weight] | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A source: its record, its chunks in order, and their vectors, shape (chunks, d).

    The rows are as the database holds them, without what the files leave out.
    """

    record: Row
    rows: list[Row]
    vectors: Vector


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact whose manifest has been read."""

    directory: Path
    manifest: ChunksManifest

    @property
    def origin(self) -> Origin:
        """The collection that it was."""
        return self.manifest.collection

    @property
    def counts(self) -> Counts:
        """Return the numbers of sources, chunks and so on."""
        return self.manifest.counts

    @property
    def fingerprint(self) -> str:
        """Of all files: the manifest names their hashes."""
        return digest(self.directory)

    def check(self) -> None:
        """Read all of it, and see that every file is as it should be.

        Raises:
            Damaged: naming the file, the line where there is one, and what is wrong.
        """
        targets = {row["duplicateOf"] for item in self.items() for row in _duplicates(item)}
        if targets:
            standing = sum(
                row["chunkId"] in targets and not row.get("duplicateOf")
                for item in self.items()
                for row in item.rows
            )
            if standing != len(targets):
                raise Damaged(self.manifest.chunks_file, "duplicateOf names what is no chunk")
        for _ in self.usage() or ():
            pass

    def items(self) -> Iterator[Item]:
        """The sources in order, each checked before it is given away, the whole at the end.

        Raises:
            Damaged: as :meth:`check`.
        """
        manifest = self.manifest
        with ExitStack() as stack:
            sources, chunks, vectors = (
                self._open(stack, name)
                for name in (manifest.sources_file, manifest.chunks_file, manifest.vector_file)
            )
            counted: Counter[str] = Counter()
            names = array("Q")
            while (line := sources.line()) is not None:
                place = f"{sources.name}:{len(names) + 1}"
                record, known = parsed(line, SourceLine, place)
                names.append(int.from_bytes(blake2b(known.source.encode(), digest_size=8).digest()))
                item = self._item(record, known, chunks, vectors, counted["chunks"])
                _count(counted, item)
                yield item
            if chunks.line() is not None:
                raise Damaged(chunks.name, "has more lines than the sources have chunks")
            for file in (sources, chunks, vectors):
                file.finish()
        if len(np.unique(np.asarray(names))) < len(names):
            raise Damaged(manifest.sources_file, "names a source twice")
        expected = manifest.counts.model_dump(exclude={"usage"})
        if wrong := [name for name, count in expected.items() if counted[name] != count]:
            told = ", ".join(f"{counted[n]} {n} instead of {expected[n]}" for n in wrong)
            raise Damaged(MANIFEST, f"the files hold {told}")

    def usage(self) -> Iterator[Row] | None:
        """Return the recorded use of chunks by agents; ``None`` if the artifact has none.

        Raises:
            Damaged: as :meth:`check`.
        """
        name = self.manifest.usage_file
        return None if name is None else self._uses(name)

    def _uses(self, name: str) -> Iterator[Row]:
        prefix = f"{self.origin.name}:"
        count = 0
        with ExitStack() as stack:
            file = self._open(stack, name)
            while (line := file.line()) is not None:
                count += 1
                place = f"{name}:{count}"
                row, use = parsed(line, UseLine, place)
                if not use.chunk_id.startswith(prefix):
                    raise Damaged(place, "names a chunk of another collection")
                yield row
            file.finish()
        if count != self.counts.usage:
            raise Damaged(name, f"has {count} lines, the manifest says {self.counts.usage}")

    def _open(self, stack: ExitStack, name: str) -> Reading:
        file = stack.enter_context(opened(self.directory, name))
        return Reading(file, name, self.manifest.digests[name])

    def _item(
        self, record: Row, known: SourceLine, chunks: Reading, vectors: Reading, before: int
    ) -> Item:
        rows = []
        for index in range(known.chunks):
            place = f"{chunks.name}:{before + index + 1}"
            line = chunks.line()
            if line is None:
                raise Damaged(chunks.name, "has fewer lines than the sources have chunks")
            row, chunk = parsed(line, ChunkLine, place)
            self._check_chunk(place, row, chunk, known, index)
            del row["text_hash"]
            rows.append(row)
        tokens = [row["tokens"] for row in rows]
        if (sum(tokens), min(tokens), max(tokens)) != (
            known.tokens,
            known.tokens_min,
            known.tokens_max,
        ):
            raise Damaged(chunks.name, f"the tokens of {known.source!r} are not its record's")
        return Item(record, rows, self._vectors(vectors, len(rows), before))

    def _check_chunk(
        self, place: str, row: Row, chunk: ChunkLine, source: SourceLine, index: int
    ) -> None:
        prefix = f"{self.origin.name}:"
        if (chunk.source, chunk.chunk_index, chunk.total_chunks, chunk.aspect_of) != (
            source.source,
            index,
            source.chunks,
            source.aspect_of,
        ):
            raise Damaged(place, f"is not chunk {index} of {source.source!r}")
        if chunk.chunk_id != f"{prefix}{source.source}:{index}":
            raise Damaged(place, "has a chunkId that is not its own")
        if chunk.duplicate_of is not None and not chunk.duplicate_of.startswith(prefix):
            raise Damaged(place, "duplicateOf names a chunk of another collection")
        if chunk.text_hash != text_hash(row):
            raise Damaged(place, "has another text_hash than its text")
        used, spared = (chunk.terms, chunk.weights), (chunk.spare_terms, chunk.spare_weights)
        if chunk.duplicate_of is not None:
            used, spared = spared, used
        if spared != (None, None) or not _are_terms(*used):
            raise Damaged(place, "has no terms, or some that are not ascending or not weighed")

    def _vectors(self, file: Reading, count: int, before: int) -> Vector:
        dimensions = self.manifest.dim
        data = file.read(count * dimensions * 4)
        vectors = np.frombuffer(data, dtype="<f4").reshape(count, dimensions)
        return unit_vectors(vectors, file.name, before, normalized=self.manifest.normalize)


class UseLine(msgspec.Struct, rename="camel"):
    """What a line of a use must have at least."""

    agent: _Text
    chunk_id: _Text
    uses: _Count
    last_at: _Count


def read_manifest(directory: Path) -> ChunksManifest | SkillsManifest:
    """Read the manifest of an artifact.

    Raises:
        Damaged: if it is missing, or is not as it should be.
    """
    return parsed_manifest(_json(manifest_bytes(directory), MANIFEST))


def manifest_bytes(directory: Path) -> bytes:
    """The manifest as it stands there.

    Raises:
        Damaged: if it cannot be read.
    """
    with opened(directory, MANIFEST) as file:
        data = file.read(_LARGEST_MANIFEST + 1)
    if len(data) > _LARGEST_MANIFEST:
        raise Damaged(MANIFEST, "is too large for a manifest")
    return data


def digest(directory: Path) -> str:
    """Names the very artifact that is there, as its manifest names the hashes of its files."""
    return sha256(manifest_bytes(directory)).hexdigest()


def unit_vectors(vectors: Vector, name: str, before: int, *, normalized: bool) -> Vector:
    """The vectors, of unit length.

    Args:
        vectors: Shape (n, d).
        name: Of their file.
        before: How many the file has before these.
        normalized: Whether they have to be of unit length already.

    Raises:
        Damaged: if they are not finite, of no length, or not of unit length and should be.
    """
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    wrong = ~np.isfinite(lengths) | (lengths == 0)
    if normalized:
        wrong |= np.abs(lengths - 1) > _UNIT
    if wrong.any():
        place = before + int(np.argmax(wrong))
        said = "finite and of unit length" if normalized else "finite and of some length"
        raise Damaged(name, f"vector {place + 1} is not {said}")
    if normalized:
        return vectors
    return np.asarray(vectors / lengths[:, None], dtype=np.float32)


def _are_terms(terms: list[int] | None, weights: list[float] | None) -> bool:
    if terms is None or weights is None or len(terms) != len(weights):
        return False
    return all(one < other for one, other in zip(terms, terms[1:], strict=False))


def _duplicates(item: Item) -> Iterator[Row]:
    return (row for row in item.rows if row.get("duplicateOf"))


def _count(counted: Counter[str], item: Item) -> None:
    counted["sources"] += not item.record.get("generated")
    counted["chunks"] += len(item.rows)
    counted["tokens"] += item.record["tokens"]
    counted["aspects"] += sum(bool(row.get("aspectOf")) for row in item.rows)
    counted["duplicates"] += sum(1 for _ in _duplicates(item))
    counted["links"] += len(link_rows(restored_document(item.record, ())))


def parsed(line: bytes, kind: type[Any], place: str) -> tuple[Row, Any]:
    """A line as it stands there, and what has to be in it.

    Raises:
        Damaged: if that is not there, or something that is no property of a record.
    """
    row = _json(line, place)
    for name in row:
        if not _PROPERTY.fullmatch(name) or name in _NOT_PROPERTIES:
            raise Damaged(place, f"has {name[:100]!r}, which is no property of it")
    try:
        return row, msgspec.convert(row, kind)
    except msgspec.ValidationError as exc:
        raise Damaged(place, str(exc)) from exc


def _json(data: bytes, place: str) -> Row:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as exc:
        raise Damaged(place, f"is no JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise Damaged(place, "is no JSON object")
    return value
