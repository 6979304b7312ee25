"""What a failure looks like on the command line, and which exit code it has.

====  =====================================================================
code  meaning
====  =====================================================================
0     done
1     the operation failed, or a part of it
2     the command line, or an input that it gave, is wrong
3     there is no such thing, or nothing was found
130   interrupted
====  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from ability_search.errors import SearchError
from kadi_client import errors as kadi

FAILED = 1
USAGE = 2
NOT_FOUND = 3

_CODES = {"invalid_input": USAGE, "too_large": USAGE, "not_found": NOT_FOUND}
_START = (
    "Start the stack with `ability-search up`, or name a broker with --broker or BROKER_URL;"
    " `ability-search doctor` checks every part."
)
_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (kadi.NotConnected, _START),
    (kadi.CallTimeout, "Allow more time with --timeout, or check with `ability-search doctor`."),
    (kadi.RemoteError, "Correct the input, or see with `ability-search doctor` what is connected."),
    (kadi.AuthenticationError, "The broker refuses this identity: check its address."),
    (kadi.FrameTooLarge, "Raise SEARCH_MAX_MESSAGE_BYTES on all sides, or send less."),
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A failure in words."""

    text: str
    hint: str
    exit_code: int = FAILED
    unexpected: bool = False
    """Whether it is a defect of the program, of which a traceback tells more."""


def explain(exc: Exception) -> Explanation:
    """The words and the exit code for a failure."""
    if isinstance(exc, SearchError | kadi.ToolError):
        return Explanation(str(exc), exc.hint, _CODES.get(exc.code, FAILED))
    for kind, hint in _HINTS:
        if isinstance(exc, kind):
            return Explanation(str(exc), hint)
    if isinstance(exc, kadi.KadiError):
        return Explanation(str(exc), "Check with `ability-search doctor`.")
    if isinstance(exc, OSError) and exc.strerror:
        where = f"{exc.filename}: " if exc.filename else ""
        return Explanation(f"{where}{exc.strerror}", "")
    return Explanation(
        f"internal error: {type(exc).__name__}: {exc}",
        "This is a defect; with SEARCH_LOG_LEVEL=debug its traceback is shown.",
        unexpected=True,
    )
