"""Documents of the campaign: every text names its source and its version in words of its own."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Sequence
from typing import Any

VERSIONS = 5
"""Number of versions of a source."""

_LETTERS = "bcdfghjklmnpqrtvwx"
_COMMON = """
    anchor basin candle dune ember fjord garden harbour island jetty kettle lantern meadow needle
    orchard pebble quarry river stone timber umbrella valley willow yarn zinc backup restore index
    archive network signal engine ledger window bridge tower
"""
_SENTENCES = (1, 3, 8, 20, 60)
"""Sentences by version, so that a version that replaces another one may leave a tail."""


def word(*parts: object) -> str:
    """Return a word without vowels that stands for ``parts``: no stemmer changes it."""
    digest = hashlib.sha256("/".join(map(str, parts)).encode()).digest()
    return "z" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:9])


def source_word(owner: str, source: str) -> str:
    """Return the word in every chunk of all versions of a source."""
    return word("source", owner, source)


def content(owner: str, source: str, version: int) -> str:
    """Return the text of a version of a source, the same at every call."""
    chance = random.Random(f"{owner}/{source}/{version}")
    words = source_word(owner, source), word("version", owner, source, version)
    sentences = [
        f"{words[0]} {words[1]} {' '.join(chance.sample(_COMMON.split(), 6))} {number}."
        for number in range(_SENTENCES[version % VERSIONS])
    ]
    chance.shuffle(sentences)
    return " ".join(sentences)


def document(owner: str, source: str, version: int) -> dict[str, Any]:
    """Return a version of a source as an element of ``documents`` of search-index."""
    return {
        "source": source,
        "title": source_word(owner, source),
        "content": content(owner, source, version),
        "metadata": {"owner": owner, "version": version, "even": version % 2 == 0},
    }


def file_text(owner: str, source: str, version: int) -> str:
    """Return a version of a source as a Markdown file, whose heading becomes the title."""
    return f"# {source_word(owner, source)}\n\n{content(owner, source, version)}\n"


def squeezed(text: str) -> str:
    """Return a text without its white space and heading marks: chunks may lose both."""
    return re.sub(r"[\s#]+", "", text)


def version_of(owner: str, source: str, chunks: Sequence[str]) -> int | None:
    """Return the version of a source that these chunks make up, in order; ``None`` if none does.

    Chunks may overlap, and may include the heading.
    """
    for version in range(VERSIONS):
        text = squeezed(content(owner, source, version))
        if _cover(text, chunks) or _cover(source_word(owner, source) + text, chunks):
            return version
    return None


def _cover(text: str, chunks: Sequence[str]) -> bool:
    """Return whether each chunk continues the text where those before it end, or before that."""
    done = 0
    for chunk in map(squeezed, chunks):
        start = text.rfind(chunk, 0, done + len(chunk))
        if not chunk or start < 0 or start + len(chunk) <= done:
            return False
        done = start + len(chunk)
    return done == len(text)
