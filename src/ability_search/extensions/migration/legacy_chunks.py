"""Converts rows of the earlier layout to chunks that can be migrated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from ability_search.documents import Document, Passage, Vector
from ability_search.errors import InvalidInput
from ability_search.filters.facets import facets_of

_SHORTEST_OVERLAP = 20
"""Fewest characters that count as an overlap of two chunks."""
_LONGEST_OVERLAP = 4000
_BETWEEN = "\n\n"
_NO_LINE = 0
"""Stands for an unknown line."""


class Unmovable(ValueError):
    """A row that cannot be migrated; its text names the reason and nothing of the row."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk as the earlier ability stored it."""

    rid: str
    collection: str
    source: str
    index: int
    total: int
    """Number of chunks of its source when it was stored; 0 if unknown."""
    title: str
    content: str
    metadata: Mapping[str, Any]
    created_at: int
    """Epoch milliseconds; 0 if unknown."""
    vector: Vector | None
    """The embedding, normalized; ``None`` if it is unusable."""
    flaw: str = ""
    """Why it has no vector."""


def read_piece(row: Mapping[str, Any]) -> Piece:
    """Read a row.

    Raises:
        Unmovable: if it has no collection, source or text, or metadata that cannot be stored.
    """
    collection, source = _text(row, "collection"), _text(row, "source")
    content = row.get("content")
    if not isinstance(content, str) or not content.strip():
        raise Unmovable("no text")
    vector, flaw = _vector(row.get("embedding"))
    title = row.get("title")
    return Piece(
        rid=row["rid"],
        collection=collection,
        source=source,
        index=_index(row),
        total=_whole(row.get("totalChunks")) or 0,
        title=title if isinstance(title, str) and title.strip() else source,
        content=content,
        metadata=_metadata(row.get("metadata")),
        created_at=_instant(row.get("createdAt")),
        vector=vector,
        flaw=flaw,
    )


def assembled(pieces: Sequence[Piece], tokens: Sequence[int]) -> tuple[Document, list[Passage]]:
    """Return the document of a source, reconstructed from its chunks, and their passages.

    Overlapping chunks share their text; other chunks are separated by an empty line. The metadata
    and the title are those of the first chunk.

    Args:
        pieces: All chunks of the source in order, at least one.
        tokens: Number of tokens of each.
    """
    parts: list[str] = []
    passages: list[Passage] = []
    end = 0
    for piece, count in zip(pieces, tokens, strict=True):
        shared = _overlap(passages[-1].content, piece.content) if passages else 0
        if passages and not shared:
            parts.append(_BETWEEN)
            end += len(_BETWEEN)
        start = end - shared
        parts.append(piece.content[shared:])
        end = start + len(piece.content)
        passages.append(Passage(piece.content, start, end, count, _NO_LINE, _NO_LINE))
    first = pieces[0]
    document = Document(first.source, first.title, "".join(parts), metadata=first.metadata)
    return document, passages


def _overlap(before: str, after: str) -> int:
    """Return the length of the overlap of two texts; 0 if it is short."""
    longest = min(len(before), len(after), _LONGEST_OVERLAP)
    head = after[:_SHORTEST_OVERLAP]
    at = before.find(head, len(before) - longest) if len(head) == _SHORTEST_OVERLAP else -1
    while at >= 0:
        if after.startswith(before[at:]):
            return len(before) - at
        at = before.find(head, at + 1)
    return 0


def _text(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unmovable(f"no {name}")
    return value


def _index(row: Mapping[str, Any]) -> int:
    """Return the index of a chunk, if necessary from the end of its chunkId."""
    index = _whole(row.get("chunkIndex"))
    if index is None:
        end = str(row.get("chunkId") or "").rpartition(":")[2]
        index = int(end) if end.isascii() and end.isdigit() and len(end) < 10 else None
    if index is None:
        raise Unmovable("no chunkIndex")
    return index


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None


def _metadata(value: Any) -> dict[str, Any]:
    """Return the metadata, parsed if it is JSON text; other text becomes a field."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value) if value.strip() else None
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            value = {"metadata": value}
    if value is None:
        return {}
    found = dict(value) if isinstance(value, Mapping) else {"metadata": value}
    kept = {key: inner for key, inner in found.items() if not key.startswith("@")}
    try:
        facets_of(kept)
    except InvalidInput as exc:
        raise Unmovable("metadata that cannot be stored") from exc
    return kept


def _vector(value: Any) -> tuple[Vector | None, str]:
    """Return the normalized embedding, or ``None`` and the reason."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError):
            return None, "no embedding"
    if not isinstance(value, list) or not value:
        return None, "no embedding"
    if any(type(number) not in (int, float) for number in value):
        return None, "an embedding with values that are not numbers"
    with np.errstate(over="ignore"):
        vector = np.asarray(value, dtype=np.float32).astype(np.float64)
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length):
        return None, "an embedding that is not finite"
    if length == 0:
        return None, "an embedding of zeros"
    return np.asarray(vector / length, dtype=np.float32), ""


def _instant(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return max(0, value)
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return 0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, int(moment.timestamp() * 1000))
