"""Sequences of short documents: the turns of a conversation.

A turn says little by itself (``Yes, in May!``), so it is embedded and searched with what comes
before it. A turn has no title; its metadata name who speaks (:data:`SPEAKERS`), and the sources of
a conversation differ in the number after the last ``/``, ``:`` or ``#``: ``chat/6``, ``chat/7``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ability_search.collection import Collection
from ability_search.documents import Document, Passage
from ability_search.store.port import Store
from ability_search.text.token_counter import TokenCounter

SPEAKERS: Final = ("speaker", "role", "author")
"""Fields of the metadata; one of them makes a document a turn."""
SHORT: Final = 128
"""Maximum number of tokens of a turn; a longer one says enough by itself."""
CONTEXT: Final = 112
"""Maximum number of tokens of the turns before it; both fit into the smallest common model."""
_CHARACTERS: Final = 8
"""Maximum average number of characters per token, to skip long documents at once."""
_REMEMBERED: Final = 32
"""Passages before a turn among which its context is searched."""
_NUMBERED = re.compile(r"(?P<stem>.+[/:#])(?P<number>\d{1,9})", re.DOTALL)


def preceding_sources(document: Document, count: int) -> list[str]:
    """Return the sources of the turns before a document, in their order; empty if it is no turn.

    Args:
        document: The document.
        count: Maximum number of sources.
    """
    match = _NUMBERED.fullmatch(document.source)
    other = document.title or document.of or document.file or document.unread
    spoken = any(document.metadata.get(field) for field in SPEAKERS)
    if match is None or other or not spoken or len(document.content) > SHORT * _CHARACTERS:
        return []
    number = int(match["number"])
    width = len(match["number"]) if match["number"].startswith("0") else 0
    return [f"{match['stem']}{each:0{width}d}" for each in range(max(0, number - count), number)]


async def with_preceding(
    documents: Sequence[Document],
    collection: Collection | None,
    store: Store,
    *,
    count: int,
    others: Sequence[Document] = (),
) -> list[Document]:
    """Return the documents, turns with the texts of the ``count`` turns before them.

    Args:
        documents: The documents to index.
        collection: The collection with the turns that were indexed before; ``None`` without any.
        store: The store.
        count: Maximum number of turns; 0 returns the documents unchanged.
        others: Further documents of the call, which need not be indexed.
    """
    wanted = [() if each.preceding else preceding_sources(each, count) for each in documents]
    texts = {each.source: each.content for each in (*others, *documents)}
    missing = {source for sources in wanted for source in sources} - texts.keys()
    if missing and collection is not None:
        ids = [f"{collection.public_name}:{source}:0" for source in sorted(missing)]
        for found in await store.passages(collection.type, ids, None):
            texts[found.source] = found.content
    return [
        replace(document, preceding=tuple(texts[each] for each in sources if texts.get(each)))
        if sources
        else document
        for document, sources in zip(documents, wanted, strict=True)
    ]


def in_context(
    passages: Sequence[Passage], preceding: Sequence[str], counter: TokenCounter
) -> Sequence[Passage]:
    """Return the only passage of a turn with the end of the texts before it as its context.

    Passages of anything else are returned unchanged.
    """
    if not preceding or len(passages) != 1 or passages[0].tokens > SHORT:
        return passages
    return [replace(passages[0], context=_end_of(preceding, counter))]


def turns_in_context(
    passages: Sequence[Passage], count: int, counter: TokenCounter
) -> Sequence[Passage]:
    """Return passages of conversations, short turns with the ``count`` turns before them.

    Passages of anything else are returned unchanged.
    """
    placed = []
    before: list[tuple[str, Any, str]] = []
    for each in passages:
        turn = each.metadata.get("turn")
        if turn is None:
            placed.append(each)
            continue
        texts = [
            text
            for conversation, number, text in before
            if conversation == each.breadcrumb and turn - count <= number < turn
        ]
        short = each.tokens <= SHORT and texts
        placed.append(replace(each, context=_end_of(texts, counter)) if short else each)
        before = [*before[-_REMEMBERED:], (each.breadcrumb, turn, each.content)]
    return placed


def _end_of(texts: Sequence[str], counter: TokenCounter) -> str:
    """Return the last :data:`CONTEXT` tokens of texts."""
    text = "\n".join(texts)
    tokens = counter.cumulative(text)
    start = int(np.searchsorted(tokens, tokens[-1] - CONTEXT, side="right")) - 1
    return text[max(0, start) :].strip()
