"""Text files: plain text, code and Markdown. They keep their lines."""

from __future__ import annotations

from ability_search.text.chunkers import markdown_blocks
from ability_search.text.escapes import unescaped
from ability_search.text.front_matter import FrontMatter, markdown_metadata, read_front_matter
from ability_search.text.loaders.extracts import Bounds, Extracted
from ability_search.text.loaders.file_types import language_of

_HEAD = 8192
"""Characters searched for a title."""


def read_plain(name: str, text: str, _bounds: Bounds, *, format: str | None) -> Extracted:
    """Read text, its escapes decoded; chunking cuts it by ``format``, else by its content."""
    language = language_of(name) if format == "code" else None
    text = unescaped(text, name=name, format=format, language=language)
    return Extracted(text, format, language=language)


def read_markdown(_name: str, text: str, _bounds: Bounds) -> Extracted:
    """Read Markdown, with its front matter and its tags as metadata.

    The title is that of the front matter, else the first heading of level 1.
    """
    text = unescaped(text, format="markdown")
    matter = read_front_matter(text)
    title = markdown_title(text, matter)
    return Extracted(text, "markdown", title=title, metadata=markdown_metadata(text, matter))


def markdown_title(text: str, matter: FrontMatter | None = None) -> str | None:
    """Return the title in the front matter of Markdown, else its first heading of level 1."""
    matter = matter or read_front_matter(text)
    if matter.title:
        return matter.title
    blocks, _ = markdown_blocks.read_blocks(text[matter.end :][:_HEAD])
    return next((block.title for block in blocks if block.level == 1 and block.title), None)
