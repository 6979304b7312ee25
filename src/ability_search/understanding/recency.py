"""Queries for the newest or the oldest: ``latest deployment``, ``what was the last incident``.

``last`` and ``first`` count in questions about the past only, not in ``what is the last element``.
Questions how to do something (``how to find the newest file``) and statements (``the latest results
are poor``) do not count. Words within quotation marks are ignored.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from ability_search.understanding.sentence_types import is_instruction, is_statement, masked

Order = Literal["newest", "oldest"]

NEWEST: Final = (
    r"most\s+recent(?:ly)?|latest|newest|recent(?:ly)?|lately"
    r"|(?:neu|aktuell)este[nrsm]?|neulich|kürzlich|plus\s+récente?s?|récemment"
    r"|más\s+recientes?|recientemente"
)
OLDEST: Final = (
    r"oldest|earliest|(?:älte|frühe)ste[nrsm]?|plus\s+ancien(?:ne)?s?|más\s+antigu[oa]s?"
)


def _of_time(words: str, chinese: str) -> re.Pattern[str]:
    """Return a pattern of words that are not part of a name such as ``image:latest``."""
    return re.compile(
        rf"(?<!\bat\sthe\s)(?<![\w:@/.=+-])(?:{words})(?![\w:@/=+-]|\.\w)(?!\s+possible\b)|{chinese}",
        re.IGNORECASE,
    )


_NEWEST = _of_time(NEWEST, "最新|最近(?=的)")
_OLDEST = _of_time(OLDEST, "最早|最旧")
_PAST = r"""
    ^\W*(?:what|which|when|who|whose|where)\b (?=.*?\b(?:was|were|did|had|has|have)\b)
    .*? (?<!\bbefore\sthe\s)(?<!\bafter\sthe\s)(?<!\bsince\sthe\s) (?<![\w:@/.=+-])(?-i:%s)(?=\s)
    (?!\s+(?:names?|mile|resort|minute|words?|elements?|items?|one|aid|class|floor|place)\b)
"""
_LAST, _FIRST = (re.compile(_PAST % word, re.IGNORECASE | re.VERBOSE) for word in ("last", "first"))
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
    newest = any(pattern.search(plain) for pattern in (_NEWEST, _LAST))
    oldest = any(pattern.search(plain) for pattern in (_OLDEST, _FIRST))
    if newest == oldest or _HOW.search(plain) or is_statement(plain) or is_instruction(plain):
        return None
    return "newest" if newest else "oldest"
