"""Chunking: the strategies by name, the choice of one for a text, and joining chunks again."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

from ability_search.documents import Passage
from ability_search.errors import InvalidInput
from ability_search.text.chunkers import Strategy, boundaries, chunk_packing
from ability_search.text.chunkers.markdown_blocks import read_blocks
from ability_search.text.chunkers.markdown_sections import chunk_fences, chunk_sections
from ability_search.text.formats import MARKDOWN, Format, function, named, table
from ability_search.text.token_counter import EstimatedTokens, TokenCounter

log = logging.getLogger(__name__)

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

DEFAULT_MAX_TOKENS = 500
DEFAULT_OVERLAP = 50

_BYTE_ORDER_MARK = "\ufeff"
_HEADING_OR_FENCE = re.compile(
    r"\n(?: {0,3}(?:#{1,6}[ \t]|```|~~~)|[^\s][^\r\n]*+(?:\r\n?|\n)={2,}+[ \t]*+$)", re.MULTILINE
)
_SEARCHED = 1 << 20
"""Characters searched for Markdown in one call; other threads wait meanwhile."""
_NEWLINE = re.compile(r"[\r\n]+")
_UNBROKEN = 2_000
"""Characters per sentence end or newline, on average; a text with more is not prose."""
_MARKDOWN = frozenset({MARKDOWN.name, *MARKDOWN.others})
_OF_MARKDOWN = frozenset({"markdown-headers", "code-blocks"})
_PARAGRAPHS = (chunk_packing.BY_PARAGRAPH, *chunk_packing.PROSE)
"""Paragraphs that fit into one chunk together are merged; one that is too long is cut into
sentences, then lines, words and characters."""
_MOSTLY_FENCES = 0.6
_SEVERAL_FENCES = 2


Turns = Sequence[int]
"""Offsets at which the content of a text turns, in order, for the strategy ``semantic``."""
SEMANTIC = "semantic"


def chunk(
    text: str,
    *,
    strategy: str | Turns = "auto",
    max_tokens: int = DEFAULT_MAX_TOKENS,
    overlap: int | None = None,
    count: TokenCounter | None = None,
    format: str | None = None,
    language: str | None = None,
    max_passages: int | None = None,
) -> list[Passage]:
    """Cut a text into passages.

    The metadata at the beginning of Markdown are in no passage, unless they are the whole text, see
    :attr:`.Format.front`.

    Args:
        text: Any string; a byte order mark at its beginning is dropped.
        strategy: One of :data:`STRATEGIES`. ``auto`` chooses by ``format``, without a format by
            the content. ``semantic``, for which :data:`Turns` are given, is like ``auto``, but ends
            a passage where the text turns.
        max_tokens: Maximum tokens of a passage, at least 1. A passage also has at most
            :data:`.chunk_packing.CHARS_PER_TOKEN` characters per token of this limit. A single
            character that the tokenizer encodes as more tokens is the only exception.
        overlap: Maximum tokens repeated by ``sliding-window``, less than ``max_tokens``. Default:
            :data:`DEFAULT_OVERLAP`, or a quarter of ``max_tokens`` if that is less.
        count: Counts tokens. Default: :class:`EstimatedTokens`.
        format: ``markdown``, ``text``, ``code``, ``json``, ``html``, ``rst``, ``csv``,
            ``conversation``, or the name or file suffix of a programming language. Used by
            ``auto`` only; any other value counts as unknown.
        language: Programming language of the text, if known.
        max_passages: Maximum number of passages. Default: unlimited.

    Returns:
        Passages in the order of the text; none for a blank text.

    Raises:
        InvalidInput: for an unknown strategy, or numbers out of range.
        TooLarge: for more than ``max_passages`` passages.
    """
    turns: Turns = ()
    if not isinstance(strategy, str):
        turns, strategy = strategy, SEMANTIC
    repeated = _checked_overlap(strategy, max_tokens, overlap)
    format = (format or "").lower().lstrip(".")
    end, preface = 0, ""
    if is_markdown(text, format, language) or (strategy in _OF_MARKDOWN and not format):
        end, preface = _front(text)
    if end and not text[end:].strip():
        end, preface, strategy = 0, "", "paragraph"
    mark = end or (len(_BYTE_ORDER_MARK) if text.startswith(_BYTE_ORDER_MARK) else 0)
    body = text[mark:]
    if not body or body.isspace():
        return []
    ruler = chunk_packing.Ruler(
        body,
        count or EstimatedTokens(),
        max_tokens,
        overlap=repeated,
        turns=[offset - mark for offset in turns],
        max_passages=max_passages,
        above=text[:mark],
    )
    if preface:
        first = boundaries.skip_space(body, 0, len(body))
        ruler.add_preface(0, first + 1, preface)
    try:
        if strategy in ("auto", SEMANTIC):
            return _chunk_auto(ruler, format, language)
        return _CHUNKERS[strategy](ruler)
    except chunk_packing.Unstructured as exc:
        log.warning("a text of %d characters is cut at its paragraphs: %s", len(body), exc)
        return chunk_plain(ruler)


def is_markdown(text: str, format: str | None, language: str | None) -> bool:
    """Return whether a text is Markdown: by its format, or else by the sign of Markdown."""
    if format or language:
        return (format or "").lower().lstrip(".") in _MARKDOWN
    sign = table().by_name[MARKDOWN.name].sign
    return sign is not None and bool(function(sign)(text))


def _front(text: str) -> tuple[int, str]:
    """Return where the metadata of Markdown end, and the text to begin the first passage with."""
    front = table().by_name[MARKDOWN.name].front
    found: tuple[int, str] = function(front)(text) if front else (0, "")
    return found


def joined(chunks: Sequence[Mapping[str, Any]]) -> str:
    """Return the text from the beginning of the first chunk to the end of the last.

    Args:
        chunks: Consecutive chunks, each with its ``content``, its ``lead`` (the text between the
            previous chunk and this one) and its ``overlap`` (number of characters repeated from
            the previous chunk). No chunks give the empty text.
    """
    return "".join(
        f"{row.get('lead') or ''}{row['content'][row.get('overlap') or 0 :]}"
        if place
        else row["content"]
        for place, row in enumerate(chunks)
    )


def _checked_overlap(strategy: str, max_tokens: int, overlap: int | None) -> int:
    """Check the arguments of :func:`chunk` and return the overlap to use."""
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


def _chunk_auto(ruler: chunk_packing.Ruler, format: str, language: str | None) -> list[Passage]:
    """Cut a text by the strategy that suits its format, language or content."""
    found = _format_of(ruler.text, format, language)
    if found is None or found.cut is None:
        return chunk_plain(ruler)
    if found.language and not language and format != found.name:
        language = format
    passages: list[Passage] | None = function(found.cut)(ruler, language)
    return chunk_plain(ruler) if passages is None else passages


def _format_of(text: str, format: str, language: str | None) -> Format | None:
    """Return the format that a text is cut as; ``None`` if it is plain."""
    known = named(format)
    if known is not None and known.cut:
        return known
    of_language = _of_language(format)
    if of_language is None and not format:
        of_language = next((f for f in table().formats if f.sign and function(f.sign)(text)), None)
    if of_language is None and language:
        of_language = _of_language(language)
    if of_language is None and looks_like_markdown(text):
        return MARKDOWN
    return of_language


def _of_language(name: str) -> Format | None:
    """Return the format of texts in a language."""
    every = table().formats if name else ()
    return next((f for f in every if f.language and function(f.language)(name)), None)


def looks_like_markdown(text: str) -> bool:
    """Return whether a text of unknown format has a heading or a fence of Markdown."""
    return has_markdown("\n" + text)


def has_markdown(text: str) -> bool:
    """Return whether a line that follows a newline is a heading or opens a fence."""
    start = end = 0
    while end < len(text):
        end = text.find("\n", start + _SEARCHED) + 1 or len(text)
        if _HEADING_OR_FENCE.search(text, start, end):
            return True
        # The last line may be a heading because of the line below it.
        last = text.rfind("\n", 0, end - 1)
        start = last if last > start else end - 1
    return False


def chunk_markdown(ruler: chunk_packing.Ruler, _language: str | None = None) -> list[Passage]:
    """Cut Markdown at its fences if they are most of the text, else at its headings."""
    blocks, fences = read_blocks(ruler.text)
    in_fences = sum(fence.end - fence.start for fence in fences)
    if len(fences) >= _SEVERAL_FENCES and in_fences >= _MOSTLY_FENCES * len(ruler.text.strip()):
        return list(chunk_fences(ruler, blocks, fences))
    return chunk_sections(ruler, blocks, fences)


def chunk_plain(ruler: chunk_packing.Ruler, _language: str | None = None) -> list[Passage]:
    """Cut a text into paragraphs, or into windows if it is long and hardly has any breaks."""
    text, end = ruler.text, len(ruler.text)
    if ruler.fits(0, end) and not (ruler.preface(0)[0] or "\f" in text or text != text.strip()):
        return [ruler.passage(chunk_packing.Packed(0, end, ruler.estimate(0, end), ()))]
    if len(text) > _UNBROKEN:
        breaks = sum(1 for _ in _NEWLINE.finditer(text))
        breaks += sum(1 for _ in boundaries.sentences(text, 0, len(text)))
        if len(text) > _UNBROKEN * breaks:
            return list(map(ruler.passage, _windows(ruler)))
    return chunk_by(ruler, _PARAGRAPHS)


def chunk_by(
    ruler: chunk_packing.Ruler, cuts: tuple[chunk_packing.BreakPoint, ...]
) -> list[Passage]:
    """Cut a text by the first of ``cuts``, and parts that are too long by the following ones."""
    first, *finer = cuts
    units = (
        chunk_packing.Unit(start, end, first.rank, tuple(finer))
        for start, end in first.spans(ruler, 0, len(ruler.text))
    )
    return [ruler.passage(packed) for packed in chunk_packing.pack(ruler, units)]


def chunk_lines(ruler: chunk_packing.Ruler, _language: str | None = None) -> list[Passage]:
    """Cut source code at blank lines before unindented lines."""
    return chunk_by(ruler, chunk_packing.BY_BLANK_LINES)


def _windows(ruler: chunk_packing.Ruler) -> Iterator[chunk_packing.Packed]:
    """Cut a text into windows of equal length, each repeating the end of the previous one.

    Windows begin and end between words if possible, else at the edges of words and punctuation,
    else between characters. At most ``ruler.overlap`` tokens are repeated; each window has text
    that the previous one does not have.
    """
    start, last = boundaries.trim(ruler.text, 0, len(ruler.text))
    if start == last:
        return
    window = _window(ruler, start, last)
    yield window
    while (fresh := boundaries.skip_space(ruler.text, window.end, last)) < last:
        begin = _repeat_from(ruler, window)
        following = _window(ruler, begin, last) if begin < window.end else None
        # Do not repeat anything if that leaves no room for new text.
        if following is None or following.end <= fresh:
            following = _window(ruler, fresh, last)
        window = following
        yield window


def _window(ruler: chunk_packing.Ruler, start: int, last: int) -> chunk_packing.Packed:
    """Return the longest window that begins at ``start``, without whitespace at its end."""
    text = ruler.text
    limit = min(last, max(start + 1, ruler.furthest(start, ruler.room(start))))
    while True:
        end = limit if limit == last else boundaries.cut_before(text, start, limit)
        end = boundaries.trim(text, start, end)[1]
        tokens, kept = ruler.overrun(start, end)
        if kept >= 1 or end == start + 1:
            return chunk_packing.Packed(start, end, tokens, ())
        limit = max(start + 1, min(end - 1, start + int((end - start) * kept)))


def _repeat_from(ruler: chunk_packing.Ruler, window: chunk_packing.Packed) -> int:
    """Return the offset in this window at which the next one begins; its end for no overlap."""
    earliest = max(window.start + 1, ruler.earliest(window.end, ruler.overlap))
    if earliest >= window.end:
        return window.end
    begin = boundaries.cut_after(ruler.text, earliest, window.end)
    return boundaries.skip_space(ruler.text, begin, window.end)


_CHUNKERS: Mapping[str, Callable[[chunk_packing.Ruler], list[Passage]]] = {
    "markdown-headers": lambda ruler: chunk_sections(ruler, *read_blocks(ruler.text)),
    "code-blocks": lambda ruler: list(chunk_fences(ruler, *read_blocks(ruler.text))),
    "paragraph": lambda ruler: chunk_by(ruler, _PARAGRAPHS),
    "sliding-window": lambda ruler: list(map(ruler.passage, _windows(ruler))),
}
