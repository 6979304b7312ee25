"""The strategy ``semantic``: chunks end where the embedding of the text turns.

Before and after each gap between sentences, two sentences are embedded. The text turns at a gap if
the cosine distance of both sides is above the mean of the document by a standard deviation, and the
greatest of the gaps near it. The sides must not overlap: windows around adjacent sentences, which
share all sentences but two, differ least where the text turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from ability_search.compute_turns import ComputeTurns
from ability_search.documents import Document, Vector
from ability_search.errors import TextsRefused
from ability_search.extensions.formats.escapes import looks_like_json
from ability_search.extensions.formats.front_matter import read_front_matter
from ability_search.index.index_ports import IndexPorts
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import Unstructured
from ability_search.text.chunkers.markdown_blocks import VERBATIM_KINDS, read_blocks
from ability_search.text.chunkers.strategies import is_markdown, looks_like_markdown
from ability_search.text.formats import TEXT

_CHARACTERS = 10
"""Characters that are read in the time of a candidate of a query."""
_SIDE = 2
"""Sentences on each side of a gap."""
_NEAR = 2
"""Gaps on each side among which a turn has the greatest distance."""
_DEVIATIONS = 1.0
_LEAST = 0.02
"""Minimum of a distance above the mean; less is rounding."""


async def turning_points(
    ports: IndexPorts, model: str, computing: ComputeTurns, document: Document
) -> list[int]:
    """Return the offsets at which a document turns; none if the embedder refuses its texts.

    Raises:
        EmbeddingUnavailable: if the embedder failed.
    """
    windows = await computing.run(
        partial(SentenceWindows, document.content, document.format, document.language),
        work=len(document.content) // _CHARACTERS,
    )
    size = ports.settings.embedding.batch_texts
    try:
        vectors = [
            await ports.embed(model, windows.texts[start : start + size])
            for start in range(0, len(windows.texts), size)
        ]
    except TextsRefused:
        return []
    return windows.turns(np.concatenate(vectors)) if vectors else []


class SentenceWindows:
    """The sentences of a document, and the windows of sentences to embed.

    Headings separate the sentences into sections; code and tables have none, and neither have
    documents that are not prose.
    """

    def __init__(self, text: str, format: str | None, language: str | None) -> None:
        self._sections = [
            [
                sentence
                for span in spans
                for paragraph in boundaries.paragraphs(text, *span)
                for sentence in boundaries.sentences(text, *paragraph)
            ]
            for spans in _sections(text, (format or "").lower().lstrip("."), language)
        ]
        self._sections = [each for each in self._sections if len(each) >= 2 * _SIDE]
        self.texts = [
            " ".join(text[begin:end] for begin, end in section[start : start + _SIDE])
            for section in self._sections
            for start in range(len(section) - _SIDE + 1)
        ]
        """The sentences from each sentence on; none for a document of short sections."""

    def turns(self, vectors: Vector) -> list[int]:
        """Return the offsets at which the text turns, from the embeddings of :attr:`texts`."""
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        gaps: list[tuple[Sequence[Span], Vector]] = []
        at = 0
        for section in self._sections:
            windows = unit[at : at + len(section) - _SIDE + 1]
            at += len(windows)
            gaps.append((section, 1 - np.sum(windows[:-_SIDE] * windows[_SIDE:], axis=1)))
        every = np.concatenate([distances for _, distances in gaps])
        least = every.mean() + max(_LEAST, _DEVIATIONS * every.std())
        return [
            section[place + _SIDE][0]
            for section, distances in gaps
            for place, distance in enumerate(distances)
            if distance > least
            and distance == distances[max(0, place - _NEAR) : place + _NEAR + 1].max()
        ]


def _sections(text: str, format: str, language: str | None) -> Iterator[list[Span]]:
    """Yield the spans of prose of each section; nothing for other texts."""
    unknown = not (format or language or looks_like_json(text))
    if is_markdown(text, format, language) or (unknown and looks_like_markdown(text)):
        start = read_front_matter(text).end
        try:
            blocks, _ = read_blocks(text[start:])
        except Unstructured:
            return
        section: list[Span] = []
        for block in blocks:
            if block.level:
                yield section
                section = []
            elif block.kind not in VERBATIM_KINDS:
                section.append((start + block.start, start + block.end))
        yield section
    elif format in (TEXT.name, *TEXT.others) or unknown:
        yield [(0, len(text))]
