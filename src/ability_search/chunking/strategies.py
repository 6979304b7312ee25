"""The one door to chunking: names of strategies, and which one suits a text."""

from __future__ import annotations

import re
from dataclasses import replace

from ability_search.chunking import boundaries
from ability_search.chunking.fences import chunk_fences
from ability_search.chunking.markdown import chunk_markdown, read_blocks
from ability_search.chunking.markup import chunk_html
from ability_search.chunking.packing import VERBATIM, Ruler
from ability_search.chunking.paragraph import chunk_by, chunk_paragraphs
from ability_search.chunking.restructured import chunk_rst
from ability_search.chunking.sliding import chunk_windows
from ability_search.chunking.structure import chunk_json, looks_like_json
from ability_search.chunking.symbols import chunk_code, is_code_language
from ability_search.chunking.tokens import EstimatedTokens, TokenCounter
from ability_search.documents import Passage
from ability_search.errors import InvalidInput

STRATEGIES = ("auto", "code-blocks", "markdown-headers", "paragraph", "sliding-window")
"""What ``strategy`` may be."""

DEFAULT_MAX_TOKENS = 500
DEFAULT_OVERLAP = 50

_BYTE_ORDER_MARK = "\ufeff"
_MARKDOWN = frozenset({"markdown", "md", "mdx"})
_PLAIN = frozenset({"text", "txt", "plain"})
_JSON = frozenset({"json", "jsonl", "ndjson", "geojson"})
_HTML = frozenset({"html", "htm", "xhtml"})
_RST = frozenset({"rst", "rest", "restructuredtext"})
_ROWS = frozenset({"csv", "tsv"})
_HEADING_OR_FENCE = re.compile(
    r"^ {0,3}(?:#{1,6}[ \t]|```|~~~)|^[^\s][^\r\n]*(?:\r\n?|\n)={2,}[ \t]*$", re.MULTILINE
)
_NEWLINE = re.compile(r"[\r\n]+")
_UNBROKEN = 2_000
"""A text with so many characters from one sentence end or newline to the next is no prose."""
_MOSTLY_FENCES = 0.6
_SEVERAL_FENCES = 2


def chunk(
    text: str,
    *,
    strategy: str = "auto",
    max_tokens: int = DEFAULT_MAX_TOKENS,
    overlap: int | None = None,
    count: TokenCounter | None = None,
    format: str | None = None,
    language: str | None = None,
) -> list[Passage]:
    """Cut a text into passages.

    Args:
        text: any string; a byte order mark at its beginning is left out.
        strategy: one of :data:`STRATEGIES`. ``auto`` goes by ``format``, else by the content.
        max_tokens: what a passage may count at most, at least 1. A passage also has at most
            :data:`~ability_search.chunking.packing.CHARS_PER_TOKEN` characters for each of them.
            The only exception is a single character that the tokenizer spells with more tokens.
        overlap: tokens that ``sliding-window`` repeats at most, less than ``max_tokens``. Left out:
            :data:`DEFAULT_OVERLAP`, or a quarter of ``max_tokens`` where that is less.
        count: counts tokens; :class:`EstimatedTokens` if left out.
        format: ``markdown``, ``text``, ``code``, ``json``, ``html``, ``rst``, ``csv``, or the name
            or file suffix of a programming language; read by ``auto`` only. Others are treated as
            not known.
        language: programming language of the text where that is known.

    Returns:
        Passages in the order of the text; none for a blank text.

    Raises:
        InvalidInput: for an unknown strategy, or numbers out of range.
    """
    repeated = _check(strategy, max_tokens, overlap)
    mark = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    body = text[mark:]
    if not body or body.isspace():
        return []
    ruler = Ruler(body, count or EstimatedTokens(), max_tokens)
    if strategy == "auto":
        passages = _chunk_auto(ruler, (format or "").lower().lstrip("."), language, repeated)
    elif strategy == "sliding-window":
        passages = chunk_windows(ruler, repeated)
    elif strategy == "paragraph":
        passages = chunk_paragraphs(ruler)
    else:
        passages = _chunk_markdown(ruler, by_fences=strategy == "code-blocks")
    if not mark:
        return passages
    return [replace(each, start=each.start + mark, end=each.end + mark) for each in passages]


def _check(strategy: str, max_tokens: int, overlap: int | None) -> int:
    """The overlap to use, after all three were found to be in range."""
    if strategy not in STRATEGIES:
        raise InvalidInput("chunkStrategy", f"{strategy!r} is none of {', '.join(STRATEGIES)}")
    if max_tokens < 1:
        raise InvalidInput("maxTokens", f"must be at least 1, not {max_tokens}")
    if overlap is None:
        return min(DEFAULT_OVERLAP, max_tokens // 4)
    if not 0 <= overlap < max_tokens:
        raise InvalidInput(
            "overlap", f"must be from 0 to maxTokens - 1 ({max_tokens - 1}), not {overlap}"
        )
    return overlap


def _chunk_auto(
    ruler: Ruler, format_name: str, language: str | None, overlap: int
) -> list[Passage]:
    if format_name in _MARKDOWN:
        return _chunk_markdown(ruler)
    if format_name in _HTML:
        return chunk_html(ruler)
    if format_name in _RST:
        return chunk_rst(ruler)
    if format_name in _ROWS:
        return chunk_by(ruler, VERBATIM)
    if format_name in _PLAIN:
        return _chunk_plain(ruler, overlap)
    if format_name == "code" or is_code_language(format_name):
        return chunk_code(ruler, language or (None if format_name == "code" else format_name))
    if format_name in _JSON or (not format_name and looks_like_json(ruler.text)):
        passages = chunk_json(ruler)
        return _chunk_plain(ruler, overlap) if passages is None else passages
    if language and is_code_language(language):
        return chunk_code(ruler, language)
    if _HEADING_OR_FENCE.search(ruler.text):
        return _chunk_markdown(ruler)
    return _chunk_plain(ruler, overlap)


def _chunk_markdown(ruler: Ruler, *, by_fences: bool | None = None) -> list[Passage]:
    """By code blocks or by headings; by code blocks, if not told, if they are most of the text."""
    blocks, fences = read_blocks(ruler.text)
    if by_fences is None:
        in_fences = sum(fence.end - fence.start for fence in fences)
        by_fences = len(fences) >= _SEVERAL_FENCES and in_fences >= _MOSTLY_FENCES * len(
            ruler.text.strip()
        )
    return chunk_fences(ruler, blocks, fences) if by_fences else chunk_markdown(ruler, blocks)


def _chunk_plain(ruler: Ruler, overlap: int) -> list[Passage]:
    """By paragraphs, or by windows if there is next to nothing to cut a long text at."""
    text = ruler.text
    if len(text) > _UNBROKEN:
        breaks = sum(1 for _ in _NEWLINE.finditer(text))
        breaks += sum(1 for _ in boundaries.sentences(text, 0, len(text)))
        if len(text) > _UNBROKEN * breaks:
            return chunk_windows(ruler, overlap)
    return chunk_paragraphs(ruler)
