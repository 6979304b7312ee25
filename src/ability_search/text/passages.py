"""Texts that models read."""

from __future__ import annotations


def embedded_text(title: str, content: str, *, breadcrumb: str = "", context: str = "") -> str:
    """Return the text that models read for a passage: title, headings, introduction and content.

    The title is omitted if the headings or the content begin with it.
    """
    above = [breadcrumb, context]
    if not (breadcrumb.startswith(title) or content.startswith(title)):
        above.insert(0, title)
    return "\n".join([*filter(None, above), content])
