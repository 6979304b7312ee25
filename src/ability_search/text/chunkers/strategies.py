"""The one door to chunking: names of strategies, and which one suits a text."""

from __future__ import annotations

import logging
import re
from dataclasses import replace

from ability_search.documents import Passage
from ability_search.errors import InvalidInput
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.chunk_packing import VERBATIM, Ruler, Unstructured
from ability_search.text.chunkers.code_fences import chunk_fences
from ability_search.text.chunkers.html_elements import chunk_html
from ability_search.text.chunkers.json_members import chunk_json, looks_like_json
from ability_search.text.chunkers.markdown_sections import chunk_markdown, read_blocks
from ability_search.text.chunkers.paragraphs import chunk_by, chunk_paragraphs
from ability_search.text.chunkers.restructured_sections import chunk_rst
from ability_search.text.chunkers.sliding_windows import chunk_windows
from ability_search.text.chunkers.symbols import chunk_code, is_code_language
from ability_search.text.token_counter import EstimatedTokens, TokenCounter

log = logging.getLogger(__name__)

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
    r"\n(?: {0,3}(?:#{1,6}[ \t]|```|~~~)|[^\s][^\r\n]*+(?:\r\n?|\n)={2,}+[ \t]*+$)", re.MULTILINE
)
_SEARCHED = 1 << 20
"""Characters that are searched for Markdown at once, while nothing else can run."""
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
    max_passages: int | None = None,
) -> list[Passage]:
    """Cut a text into passages.

    Args:
        text: any string; a byte order mark at its beginning is left out.
        strategy: one of :data:`STRATEGIES`. ``auto`` goes by ``format``, else by the content.
        max_tokens: what a passage may count at most, at least 1. A passage also has at most
            :data:`.chunk_packing.CHARS_PER_TOKEN` characters for each of them.
            The only exception is a single character that the tokenizer spells with more tokens.
        overlap: tokens that ``sliding-window`` repeats at most, less than ``max_tokens``. Left out:
            :data:`DEFAULT_OVERLAP`, or a quarter of ``max_tokens`` where that is less.
        count: counts tokens; :class:`EstimatedTokens` if left out.
        format: ``markdown``, ``text``, ``code``, ``json``, ``html``, ``rst``, ``csv``, or the name
            or file suffix of a programming language; read by ``auto`` only. Others are treated as
            not known.
        language: programming language of the text where that is known.
        max_passages: how many passages there may be; any number if left out.

    Returns:
        Passages in the order of the text; none for a blank text.

    Raises:
        InvalidInput: for an unknown strategy, or numbers out of range.
        TooLarge: for more passages than allowed.
    """
    repeated = _check(strategy, max_tokens, overlap)
    mark = len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0
    body = text[mark:]
    if not body or body.isspace():
        return []
    ruler = Ruler(body, count or EstimatedTokens(), max_tokens, max_passages=max_passages)
    try:
        passages = _chunk_by(strategy, ruler, repeated, format, language)
    except Unstructured as exc:
        log.warning("a text of %d characters is cut at its paragraphs: %s", len(body), exc)
        passages = _chunk_plain(ruler, repeated)
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


def _chunk_by(
    strategy: str, ruler: Ruler, overlap: int, format: str | None, language: str | None
) -> list[Passage]:
    if strategy == "auto":
        return _chunk_auto(ruler, (format or "").lower().lstrip("."), language, overlap)
    if strategy == "sliding-window":
        return chunk_windows(ruler, overlap)
    if strategy == "paragraph":
        return chunk_paragraphs(ruler)
    return _chunk_markdown(ruler, by_fences=strategy == "code-blocks")


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
    if _has_markdown("\n" + ruler.text):
        return _chunk_markdown(ruler)
    return _chunk_plain(ruler, overlap)


def _has_markdown(text: str) -> bool:
    """Whether there is a heading or a fence on one of the lines that newlines begin."""
    start = end = 0
    while end < len(text):
        end = text.find("\n", start + _SEARCHED) + 1 or len(text)
        if _HEADING_OR_FENCE.search(text, start, end):
            return True
        # The last line may be a heading by the line below it.
        last = text.rfind("\n", 0, end - 1)
        start = last if last > start else end - 1
    return False


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
