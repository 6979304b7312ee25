"""A row of the earlier layout -> a chunk that can be moved, or why it cannot. Pure."""

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
"""Characters from which on the end of a chunk and the beginning of the next are the same text."""
_LONGEST_OVERLAP = 4000
_BETWEEN = "\n\n"
_NO_LINE = 0
"""The lines of the file are not known."""


class Unmovable(ValueError):
    """A row that is no chunk; its text says why, in words that are the same for all such rows."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk as the earlier ability stored it."""

    rid: str
    collection: str
    source: str
    index: int
    total: int
    """Chunks that its source had when it was stored; 0 if it does not say."""
    title: str
    content: str
    metadata: Mapping[str, Any]
    created_at: int
    """Epoch milliseconds; 0 if it does not say."""
    vector: Vector | None
    """Of unit length; ``None`` where what is stored is of no use."""
    flaw: str = ""
    """Why it has no vector."""


def read_piece(row: Mapping[str, Any]) -> Piece:
    """Read a row.

    Raises:
        Unmovable: if it is in no collection or source, has no text, or metadata that cannot be
            stored.
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
    """The document of a source, as far as its chunks tell, and where in it they are.

    Chunks that overlap share their text; between others stands an empty line. The metadata and
    the title are those of the first one.

    Args:
        pieces: All chunks of the source in their order, at least one.
        tokens: Of each.
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
    """Characters at the end of a text that the next one begins with; 0 if they are few."""
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
    """The number of a chunk, else the end of its chunkId."""
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
    """The metadata, which may have been written as JSON text; other text is kept under a key."""
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
    """The embedding with unit length, or why there is none."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.MsgspecError, UnicodeError):
            return None, "no embedding"
    if not isinstance(value, list) or not value:
        return None, "no embedding"
    if any(type(number) not in (int, float) for number in value):
        return None, "an embedding that is not all numbers"
    with np.errstate(over="ignore"):
        vector = np.asarray(value, dtype=np.float32).astype(np.float64)
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length):
        return None, "an embedding that is not finite"
    if length == 0:
        return None, "an embedding of nothing but zeros"
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
