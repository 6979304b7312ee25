"""Context of passages: the turns before a turn of a conversation, the neighbours of other passages.

A turn says little by itself (``Yes, in May!``), so it is embedded and searched with what comes
before it. A turn has no title; its metadata name who speaks (:data:`SPEAKERS`), and the sources of
a conversation differ in the number after the last ``/``, ``:`` or ``#``: ``chat/6``, ``chat/7``.

Passages of other documents have a context if the collection or the call asks for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ability_search.collection import SECTION, Collection, Context
from ability_search.documents import Document, Passage
from ability_search.store.pages import read_all
from ability_search.store.port import Store
from ability_search.store.values import Chunks, Columns, Read
from ability_search.text.token_counter import TokenCounter

SPEAKERS: Final = ("speaker", "role", "author")
"""Fields of the metadata; one of them makes a document a turn."""
SHORT: Final = 128
"""Maximum number of tokens of a turn; a longer one says enough by itself."""
CONTEXT: Final = 112
"""Maximum number of tokens of the context; with a turn it fits into the smallest common model."""
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
        ask = Read(Chunks(ids=ids), collection, Columns(("source", "content")))
        texts |= {row["source"]: row["content"] for row in await read_all(store, ask)}
    return [
        replace(document, preceding=tuple(texts[each] for each in sources if texts.get(each)))
        if sources
        else document
        for document, sources in zip(documents, wanted, strict=True)
    ]


def in_context(
    passages: Sequence[Passage],
    document: Document,
    counter: TokenCounter,
    *,
    turns: int,
    context: Context | None = None,
) -> Sequence[Passage]:
    """Return the passages of a document, each with its context.

    Args:
        passages: All passages of the document, in order.
        document: The document; the texts before it are the context of its only passage.
        counter: Counts tokens.
        turns: Maximum number of turns before a turn of a conversation.
        context: The same for all other passages: the text of so many passages before and after
            each, or the beginning of its section; ``None`` for none. Passages of source code, and
            those that have a context, keep theirs.
    """
    if document.preceding:
        if len(passages) != 1 or passages[0].tokens > SHORT:
            return passages
        return [replace(passages[0], context=_end_of(document.preceding, counter))]
    code = document.format == "code" or document.language is not None
    placed = []
    section = 0
    for place, each in enumerate(passages):
        if each.breadcrumb != passages[section].breadcrumb:
            section = place
        if "turn" in each.metadata:
            text = _turns_before(passages, place, turns, counter) if each.tokens <= SHORT else ""
        elif each.context or code or not context:
            text = each.context
        elif context == SECTION:
            lead = passages[section].content if section < place else ""
            text = _beginning_of(lead, CONTEXT, counter)
        else:
            text = _around(passages, place, context, document.content, counter)
        placed.append(replace(each, context=text) if text != each.context else each)
    return placed


def _turns_before(
    passages: Sequence[Passage], place: int, count: int, counter: TokenCounter
) -> str:
    """Return the end of the ``count`` turns before one, of the same conversation."""
    own = passages[place]
    texts = [
        each.content
        for each in passages[max(0, place - _REMEMBERED) : place]
        if each.breadcrumb == own.breadcrumb
        and 0 < own.metadata["turn"] - each.metadata.get("turn", -count) <= count
    ]
    return _end_of(texts, counter)


def _around(
    passages: Sequence[Passage], place: int, count: int, text: str, counter: TokenCounter
) -> str:
    """Return the text nearest to a passage in the ``count`` passages before it and after it."""
    own = passages[place]
    first, last = max(0, place - count), min(len(passages) - 1, place + count)
    before = text[passages[first].start : own.start] if first < place else ""
    after = text[own.end : passages[last].end] if last > place else ""
    share = CONTEXT // 2 if before and after else CONTEXT
    parts = (_end_of([before], counter, share), _beginning_of(after, share, counter))
    return "\n".join(filter(None, parts))


def _end_of(texts: Sequence[str], counter: TokenCounter, limit: int = CONTEXT) -> str:
    """Return the last ``limit`` tokens of texts."""
    text = "\n".join(texts)
    tokens = counter.cumulative(text)
    start = int(np.searchsorted(tokens, tokens[-1] - limit, side="right")) - 1
    return text[max(0, start) :].strip()


def _beginning_of(text: str, limit: int, counter: TokenCounter) -> str:
    """Return the first ``limit`` tokens of a text."""
    end = int(np.searchsorted(counter.cumulative(text), limit, side="right")) - 1
    return text[: max(0, end)].strip()
