"""Quoted stretches of a query, whose words are meant as they stand."""

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

    Offsets stay; apostrophes within words are no quotation marks. An unclosed one is none either.
    """
    return _QUOTED.sub(lambda match: "Q" * len(match[0]), text)
