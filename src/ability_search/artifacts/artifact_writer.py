"""Records of a collection -> the files of an artifact. Holds one page at a time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ability_search.artifacts.artifact_files import Writing
from ability_search.artifacts.manifest import CHUNKS, SOURCES, USAGE, VECTORS, Counts, FileDigest
from ability_search.artifacts.stored_rows import link_rows, restored_document

Row = Mapping[str, Any]

ELSEWHERE = ("embedding", "spareEmbedding", "collection")
"""What a line of a chunk leaves out: vectors are in their own file, the name is the artifact's."""

_DESCRIBED = ("source", "title", "kind", "metadata", "links", "aspectOf")
"""What belongs to a source beside its text, whatever it is embedded with and cut into."""


class ArtifactWriter:
    """The data files of an artifact.

    Args:
        directory: Where they are made; they do not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._stack = ExitStack()
        self._directory = directory
        self._files: dict[str, Writing] = {}
        self._counts = Counter(dict.fromkeys(Counts.model_fields, 0))
        self._sources: dict[str, Row] = {}
        self._revision = 0
        self._text = sha256()

    def __enter__(self) -> ArtifactWriter:
        for name in (SOURCES, CHUNKS, VECTORS):
            self._open(name)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def add_sources(self, records: Sequence[Row]) -> None:
        """Append Source records, whose chunks follow in the same order."""
        self._sources = {record["source"]: record for record in records}
        for record in records:
            self._counts["sources"] += not record.get("generated")
            self._counts["tokens"] += record["tokens"]
            self._counts["links"] += len(link_rows(restored_document(record, ())))
            self._write(SOURCES, _plain(record))

    def add_chunks(self, rows: Sequence[Row]) -> None:
        """Append chunks of the sources that were added last."""
        for row in rows:
            self._counts["chunks"] += 1
            self._counts["aspects"] += bool(row.get("aspectOf"))
            self._counts["duplicates"] += bool(row.get("duplicateOf"))
            self._digest(row)
            line = {name: value for name, value in _plain(row).items() if name not in ELSEWHERE}
            self._write(CHUNKS, line | {"text_hash": text_hash(row)})
            vector = row.get("embedding") or row.get("spareEmbedding")
            self._files[VECTORS].write(np.asarray(vector, dtype="<f4").tobytes())

    def add_uses(self, rows: Sequence[Row]) -> None:
        """Append who was shown what; the file is there from the first call on."""
        if USAGE not in self._files:
            self._open(USAGE)
        for row in rows:
            self._counts["usage"] += 1
            line = _plain(row)
            del line["collection"]
            self._write(USAGE, line)

    def finish(self) -> tuple[Counts, dict[str, FileDigest], str]:
        """Return the files written, by name, and the revision of the sources."""
        digests = {name: file.finish() for name, file in self._files.items()}
        return Counts(**self._counts), digests, f"sha256:{self._revision:064x}"

    def _open(self, name: str) -> None:
        self._files[name] = Writing(self._directory / name)
        self._stack.callback(self._files[name].close)

    def _write(self, name: str, value: Row) -> None:
        self._files[name].write(msgspec.json.encode(value, order="sorted") + b"\n")

    def _digest(self, row: Row) -> None:
        """Take a chunk into the revision.

        That is the sum of a hash of each source: the same for the same sources, in whatever order
        they are and however they are cut. What was made of them does not count.
        """
        record = self._sources[row["source"]]
        if record.get("generated"):
            return
        if row["chunkIndex"] == 0:
            described = [record.get(name) for name in _DESCRIBED]
            self._text = sha256(json.dumps(described, sort_keys=True).encode() + b"\0")
        text = f"{row.get('lead') or ''}{row['content'][row.get('overlap') or 0 :]}"
        self._text.update(text.encode())
        if row["chunkIndex"] == record["chunks"] - 1:
            self._text.update((record.get("tail") or "").encode())
            self._revision = (self._revision + int(self._text.hexdigest(), 16)) % 2**256


def text_hash(row: Row) -> str:
    """SHA-256 of what a chunk says: title, headings and text, a line each at least."""
    parts = (row["title"], row.get("breadcrumb") or "", row["content"])
    return sha256("\n".join(parts).encode()).hexdigest()


def _plain(row: Row) -> dict[str, Any]:
    """A row without what the database adds to it."""
    return {name: value for name, value in row.items() if not name.startswith("@")}
