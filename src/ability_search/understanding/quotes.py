"""Quotations in a query, whose words are taken literally."""

from __future__ import annotations

import re

_QUOTED = re.compile(
    r"""
    "[^"\n]+" | “[^”\n]+” | „[^“”\n]+[“”] | «[^»\n]+» | `[^`\n]+`
    | (?<!\w)'[^'\n]+'(?!\w) | (?<!\w)‘[^’\n]+’(?!\w)
    """,
    re.VERBOSE,
)


def masked(text: str) -> str:
    """Return ``text`` with each quotation, its marks included, as one word of the same length.

    Offsets are preserved. Apostrophes within words and unclosed quotation marks do not count.
    """
    return _QUOTED.sub(lambda match: "Q" * len(match[0]), text)
