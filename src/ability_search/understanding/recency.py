"""Queries for the newest or the oldest: ``latest deployment``, ``what was the last incident``.

* ``latest``, ``newest``, ``most recent``, ``recent``, ``recently``, ``lately``, ``oldest`` and
  ``earliest`` count in any position, except in ``at the latest``, ``latest possible`` and names
  (``image:latest``).
* ``last`` counts in questions about the past: ``when did we last rotate the keys``, ``last time we
  met``; not in questions about the present: ``what is the last element``. ``first`` does not count,
  as in ``what was the first computer``.

Questions how to do something (``how to find the newest file``) and statements (``the latest results
are poor``) do not count. Nothing within quotation marks is read.
"""

from __future__ import annotations

import re
from typing import Literal

from ability_search.understanding.quotations import masked
from ability_search.understanding.sentence_types import is_instruction, is_statement

Order = Literal["newest", "oldest"]


def _alone(words: str) -> str:
    """Return a pattern of words that are not part of a name."""
    return rf"(?<![\w:@/.=+-])(?:{words})(?![\w:@/=+-]|\.\w)"


def _end_of_time(words: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<!\bat\sthe\s){_alone(words)}(?!\s+possible\b)", re.IGNORECASE | re.VERBOSE
    )


_NEWEST = _end_of_time(r"most\s+recent(?:ly)?|latest|newest|recent(?:ly)?|lately")
_OLDEST = _end_of_time("oldest|earliest")
_WAS = re.compile(
    rf"""
    ^\W*(?:what|which|when|who|whose|where)\b
    (?=.*?\b(?:was|were|did|had|has|have)\b)
    .*?{_alone("last")}
    (?!\s+(?:names?|mile|resort|minute|words?|elements?|items?|one)\b)
    | ^\W*(?:who\s+last | (?:the\s+)?last\s+time\s+(?:i|we|you|they|he|she|it|our|my|the))\s
    """,
    re.IGNORECASE | re.VERBOSE,
)
_HOW = re.compile(
    r"""
    \bhow\s+(?:to|do|does|can|could|should|would|is|are)\b
    | ^\W*(?:does|(?:can|could|should|do)\s+(?:i|we|you\s+have\s+to|one))\b
    """,
    re.IGNORECASE | re.VERBOSE,
)


def find_order(text: str) -> Order | None:
    """Return whether a query asks for the newest or the oldest; ``None`` if for neither or both."""
    plain = masked(text)
    newest = any(pattern.search(plain) for pattern in (_NEWEST, _WAS))
    oldest = _OLDEST.search(plain) is not None
    if newest == oldest or _HOW.search(plain) or is_statement(plain) or is_instruction(plain):
        return None
    return "newest" if newest else "oldest"
