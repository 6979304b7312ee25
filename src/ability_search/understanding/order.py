"""Questions for the newest or the oldest: ``latest deployment``, ``what was the last incident``.

* ``latest``, ``newest``, ``most recent``, ``recent``, ``recently``, ``lately``, ``oldest`` and
  ``earliest`` say so wherever they stand, but for ``at the latest``, ``latest possible`` and names
  (``image:latest``).
* ``last`` says so in questions of what was: ``when did we last rotate the keys``, ``last time we
  met``; not in those of what is: ``what is the last element``. ``first`` does not, as in ``what
  was the first computer``.

Who asks how to do something does not ask when (``how to find the newest file``), nor does who says
something (``the latest results are poor``). Nothing within quotation marks is read.
"""

from __future__ import annotations

import re
from typing import Literal

from ability_search.understanding.clauses import is_instruction, is_statement
from ability_search.understanding.quotes import masked

Order = Literal["newest", "oldest"]


def _alone(words: str) -> str:
    """A pattern of words that are no part of a name."""
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
    """Return which end of time a query asks for; ``None`` if neither, or both."""
    plain = masked(text)
    newest = any(pattern.search(plain) for pattern in (_NEWEST, _WAS))
    oldest = _OLDEST.search(plain) is not None
    if newest == oldest or _HOW.search(plain) or is_statement(plain) or is_instruction(plain):
        return None
    return "newest" if newest else "oldest"
