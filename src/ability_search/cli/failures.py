"""Error messages and exit codes of the command line.

====  =====================================================================
code  meaning
====  =====================================================================
0     done
1     the operation failed, entirely or in part
2     wrong usage or invalid input
3     not found, or nothing found
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
    "Start the stack with `ability-search up`, or set a broker with --broker or BROKER_URL;"
    " `ability-search doctor` checks every component."
)
_HINTS: tuple[tuple[type[Exception], str], ...] = (
    (kadi.NotConnected, _START),
    (kadi.CallTimeout, "Increase --timeout, or run `ability-search doctor`."),
    (kadi.RemoteError, "Correct the input, or check the network with `ability-search doctor`."),
    (kadi.AuthenticationError, "The broker refused this identity; check its address."),
    (kadi.FrameTooLarge, "Increase SEARCH_MAX_MESSAGE_BYTES on all sides, or send less."),
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """The message, the hint and the exit code of a failure."""

    text: str
    hint: str
    exit_code: int = FAILED
    unexpected: bool = False
    """Whether it is a defect of the program, to be logged with its traceback."""


def explain(exc: Exception) -> Explanation:
    """Return the message, the hint and the exit code for an exception."""
    if isinstance(exc, SearchError | kadi.ToolError):
        return Explanation(str(exc), exc.hint, _CODES.get(exc.code, FAILED))
    for kind, hint in _HINTS:
        if isinstance(exc, kind):
            return Explanation(str(exc), hint)
    if isinstance(exc, kadi.KadiError):
        return Explanation(str(exc), "Run `ability-search doctor`.")
    if isinstance(exc, OSError) and exc.strerror:
        where = f"{exc.filename}: " if exc.filename else ""
        return Explanation(f"{where}{exc.strerror}", "")
    return Explanation(
        f"internal error: {type(exc).__name__}: {exc}",
        "This is a bug; set SEARCH_LOG_LEVEL=debug to see the traceback.",
        unexpected=True,
    )
