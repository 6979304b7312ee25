"""Conversations: one passage per turn, with its speaker, time and number as metadata.

The text of a conversation is a list of turns, as :func:`conversation_text` writes it::

    [conversation] Backups
    [2026-05-01T10:30:00Z] Ann: When do they run?
    [-] Bob: At two in the morning.

A line that begins with a bracket begins a turn or a conversation; other lines continue a turn.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from typing import Final

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.chunk_packing import BLOCK, PROSE, Ruler, Unit, pack

CONVERSATION: Final = "conversation"
"""The format of the text of conversations."""
_UNKNOWN = "-"
_LONGEST_SPEAKER = 128
_HEAD = re.compile(
    r"^\[(?:conversation\] (?P<title>[^\n]*+)"
    r"|(?P<time>-|\d{4}-\d\d-\d\dT[0-9:.]{8,12}Z)\] (?P<speaker>[^\n:]{1,128}): )",
    re.MULTILINE,
)
_BREAKS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_NO_SPEAKER = re.compile(r"[\s:]++")


@dataclass(frozen=True, slots=True)
class Turn:
    """A part said by one speaker; ``time`` is RFC 3339 in UTC, ``None`` if unknown."""

    speaker: str
    text: str
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in their order."""

    turns: Sequence[Turn]
    title: str = ""


def conversation_text(conversations: Iterable[Conversation]) -> str:
    """Return the text of conversations; turns without text are omitted."""
    lines = []
    spoken = [
        (each, turns)
        for each in conversations
        if (turns := [turn for turn in each.turns if turn.text.strip()])
    ]
    for number, (each, turns) in enumerate(spoken, start=1):
        if each.title or len(spoken) > 1:
            lines.append(f"[conversation] {' '.join(each.title.split()) or number}")
        for turn in turns:
            speaker = _NO_SPEAKER.sub(" ", turn.speaker).strip()[:_LONGEST_SPEAKER] or "unknown"
            text = _BREAKS.sub("\n", turn.text.strip()).replace("\n[", "\n [")
            lines.append(f"[{turn.time or _UNKNOWN}] {speaker}: {text}")
    return "\n".join(lines)


def is_conversation(text: str) -> bool:
    """Return whether a text is one that :func:`conversation_text` returns."""
    return _HEAD.match(text) is not None


def chunk_conversation(ruler: Ruler, _language: str | None = None) -> list[Passage]:
    """Cut a conversation into its turns, and long turns as prose.

    A passage begins with the name of the speaker. The metadata are ``speaker``, ``turn``, counted
    from 1 in each conversation, and ``time`` if it is known; the title of the conversation is the
    breadcrumb. Text before the first turn has no metadata.
    """
    text = ruler.text
    made: list[Passage] = []
    title, number = "", 0
    head = _HEAD.search(text)
    made += _passages(ruler, 0, head.start() if head else len(text))
    # One by one: a list of all would be made in one step, which no other thread can interrupt.
    for head, following in pairwise(chain(_HEAD.finditer(text), [None])):
        assert head is not None
        end = following.start() if following else len(text)
        if head["title"] is not None:
            title, number = head["title"].strip(), 0
            made += _passages(ruler, head.end(), end, title)
            continue
        number += 1
        about: dict[str, str | int] = {"speaker": head["speaker"], "turn": number}
        if head["time"] != _UNKNOWN:
            about["time"] = head["time"]
        made += [
            replace(each, metadata=about)
            for each in _passages(ruler, head.start("speaker"), end, title)
        ]
    return made


def _passages(ruler: Ruler, start: int, end: int, title: str = "") -> list[Passage]:
    start, end = boundaries.trim(ruler.text, start, end)
    if start >= end:
        return []
    unit = Unit(start, end, BLOCK, PROSE)
    return [ruler.passage(packed, breadcrumb=title) for packed in pack(ruler, [unit])]
