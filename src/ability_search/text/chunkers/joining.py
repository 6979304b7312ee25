"""Chunks of a text -> the text again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def joined(chunks: Sequence[Mapping[str, Any]]) -> str:
    """The text from the beginning of the first chunk to the end of the last.

    Args:
        chunks: Neighbours in their order, each with its ``content``, its ``lead`` (what stands
            between it and the text before) and its ``overlap`` (how many characters of it the
            text before has already). None give the empty text.
    """
    return "".join(
        row["content"] if not place else f"{row.get('lead') or ''}{row['content'][_overlap(row) :]}"
        for place, row in enumerate(chunks)
    )


def _overlap(row: Mapping[str, Any]) -> int:
    return row.get("overlap") or 0
