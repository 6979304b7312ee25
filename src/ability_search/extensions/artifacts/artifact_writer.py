"""Writes the records of a collection to the files of an artifact, page by page."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import numpy as np

from ability_search.extensions.artifacts.artifact_files import DigestedFile
from ability_search.extensions.artifacts.artifact_lines import (
    CHUNK_LINES,
    SOURCE_LINES,
    USE_LINES,
    text_hash,
)
from ability_search.extensions.artifacts.artifact_reader import count_contents
from ability_search.extensions.artifacts.manifest import (
    CHUNKS,
    SOURCES,
    USAGE,
    VECTORS,
    Counts,
    FileDigest,
)
from ability_search.store.records import ChunkRecord, SourceRecord
from ability_search.store.usage import Use


class ArtifactWriter:
    """Writes the data files of an artifact.

    Args:
        directory: Directory of the files, which do not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self._directory = directory
        self._files: dict[str, DigestedFile] = {}
        self._counts = Counter(dict.fromkeys(Counts.model_fields, 0))
        self._sources: dict[str, SourceRecord] = {}
        self._revision = 0
        self._text = sha256()

    def __enter__(self) -> ArtifactWriter:
        for name in (SOURCES, CHUNKS, VECTORS):
            self._open(name)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_sources(self, records: Sequence[SourceRecord]) -> None:
        """Append sources, whose chunks follow in the same order."""
        self._sources = {record.source: record for record in records}
        count_contents(self._counts, records, ())
        for record in records:
            self._files[SOURCES].write(SOURCE_LINES.encode(record))

    def add_chunks(self, chunks: Sequence[ChunkRecord]) -> None:
        """Append chunks of the sources that were added last."""
        count_contents(self._counts, (), chunks)
        for chunk in chunks:
            self._digest(chunk)
            self._files[CHUNKS].write(CHUNK_LINES.encode(chunk, text_hash=text_hash(chunk)))
            self._files[VECTORS].write(np.asarray(chunk.embedding, dtype="<f4").tobytes())

    def add_uses(self, uses: Sequence[Use]) -> None:
        """Append uses; the first call creates the file."""
        if USAGE not in self._files:
            self._open(USAGE)
        for use in uses:
            self._counts["usage"] += 1
            self._files[USAGE].write(USE_LINES.encode(use))

    def finish(self) -> tuple[Counts, dict[str, FileDigest], str]:
        """Return the counts, the digests of the files by name, and the revision of the sources."""
        digests = {name: file.finish() for name, file in self._files.items()}
        return Counts(**self._counts), digests, f"sha256:{self._revision:064x}"

    def _open(self, name: str) -> None:
        self._files[name] = DigestedFile(self._directory / name)
        self._stack.callback(self._files[name].close)

    def _digest(self, chunk: ChunkRecord) -> None:
        """Include a chunk in the revision.

        The revision is the sum of a hash of each source, so it depends neither on the order of
        the sources nor on how they are chunked. Derived kinds are left out.
        """
        source = self._sources[chunk.source]
        if source.generated:
            return
        if chunk.chunk_index == 0:
            described = [
                source.source,
                source.title,
                source.kind,
                dict(source.metadata),
                [dict(link) for link in source.links],
                source.of,
            ]
            self._text = sha256(json.dumps(described, sort_keys=True).encode() + b"\0")
        self._text.update(f"{chunk.lead}{chunk.content[chunk.overlap :]}".encode())
        if chunk.chunk_index == source.chunks - 1:
            self._text.update(source.tail.encode())
            self._revision = (self._revision + int(self._text.hexdigest(), 16)) % 2**256
