"""Meanings of the refusals of a database: the one place that decides by the text of a message.

A database ability returns the words of its engine or server, with no code. The words of several
abilities are known: ours, and those of the field's TypeScript ability, which passes on the body of
an HTTP response (``HTTP 500: {"error": ..., "detail": ..., "exception": ...}``), or the message of
an exception of its HTTP client (``fetch failed``).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ability_search.errors import (
    DatabaseUnavailable,
    EngineTooOld,
    SearchError,
    ServerUnreachable,
    StatementRefused,
    TooLarge,
)
from ability_search.providers.provider_errors import texts_in, words_of

log = logging.getLogger(__name__)

_LOGGED = 200
"""Characters of the database's error to log: enough for the cause, without quoted texts."""
_QUOTED = 200
"""Maximum characters of the database's words in an error."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The meaning of a kind of refusal to a caller.

    Attributes:
        reason: Its name.
        pattern: Expression that matches the text of such a refusal.
        problem: The text for callers; ``{who}`` stands for the database ability.
        hint: The remedy.
        retryable: Whether the same call may succeed later.
        quoted: Whether the words of the database are added. They may not be where they quote keys,
            records or statements.
    """

    reason: str
    pattern: re.Pattern[str]
    problem: str
    hint: str
    retryable: bool = True
    quoted: bool = False


def _meaning(
    reason: str,
    pattern: str,
    problem: str,
    hint: str,
    *,
    retryable: bool = True,
    quoted: bool = False,
) -> Meaning:
    return Meaning(reason, re.compile(pattern, re.IGNORECASE), problem, hint, retryable, quoted)


PASSING = frozenset({"conflict", "record_missing"})
"""Reasons that another attempt may not meet: a record was written or deleted meanwhile."""
UNREACHABLE = "unreachable"
_TOO_LARGE = "too_large"
_TOO_OLD = "too_old"

_MEANINGS = (
    # First, because the text quotes the key, which may match any of the other patterns.
    _meaning(
        "duplicate",
        r"duplicated? ?key|already exists",
        "{who} refused a record that another writer has stored",
        "Call again.",
    ),
    _meaning(
        UNREACHABLE,
        r"\bfetch failed\b|econnre(fused|set)|enotfound|ehostunreach|enetunreach|etimedout"
        r"|und_err|socket hang up|other side closed|\bno database server answers\b"
        r"|\bserver is not (accessible|ready)\b|\bcannot (connect|reach)\b|\bfailed to connect\b"
        r"|connection (was |is )?(refused|reset|closed|lost)"
        # An engine answers 503 to what should be repeated, and then names its exception.
        r"|\bHTTP 50[234]\b(?!.*exception)"
        r"|\bthe cluster has no leader\b|\bserver is (stopping|shutting down|offline)\b",
        "{who} does not reach its ArcadeDB server",
        "Start the server, or correct the address that the database ability connects to; then"
        " call again.",
        quoted=True,
    ),
    _meaning(
        _TOO_OLD,
        r"^ArcadeDB \S+ found at .{1,300} or later is needed",
        "the engine of {who} is too old",
        EngineTooOld.default_hint,
        retryable=False,
    ),
    _meaning(
        "missing_database",
        r"\bno (such )?database\b(?! server)|create it with arcade-db-create"
        r"|\bdatabase\b.{0,80}\b(does not exist|not found|is not available(?! on))",
        "the database of this ability does not exist at {who}",
        "Call again: the next search-index creates it.",
    ),
    _meaning(
        "missing_type",
        r"type\b.{0,200}\b(not found|does not exist)",
        "the database at {who} lacks a type that was there",
        "Call again. If it stays, restore the database or index again.",
    ),
    _meaning(
        "record_missing",
        r"record ?not ?found|\brecord\b.{0,60}\bwas not found",
        "a record that an index of the database at {who} names is gone",
        "Call again. If it stays, search-reindex the collection.",
    ),
    _meaning(
        "conflict",
        r"concurrent ?(modification|write)|needretry|lock ?timeout",
        "{who} was busy with other writes to the same records at every attempt",
        "Call again in a moment.",
    ),
    _meaning(
        "disk_full",
        r"\bdisk (is )?full\b|no space left on device",
        "the disk of the database is full",
        "Free disk space on the machine of the database, or delete data; then call again.",
    ),
    _meaning(
        "busy",
        r"\bthe database is busy\b|\bcalls are running or waiting\b",
        "{who} is busy with other calls",
        "Call again in a moment.",
    ),
    _meaning(
        "timeout",
        r"\bno answer within\b|\btime(d )?out (of|exceeded|waiting)|\bthe deadline has passed\b"
        r"|\btimeout of the (query|command)",
        "{who} ended the statement at its time limit",
        "Call again, with a smaller request or more time.",
    ),
    _meaning(
        _TOO_LARGE,
        r"\bthe answer is too large\b",
        "the answer of {who} is too large",
        "Request less at a time.",
    ),
    _meaning(
        "memory",
        r"outofmemory|\bout of memory\b|java heap space|gc overhead limit",
        "the database at {who} is out of memory",
        "Give ArcadeDB a larger heap (arcadedb_heap, or -Xmx of the server), or send less at once.",
    ),
    _meaning(
        "rights",
        r"securityexception|security error|rejected the user or password|\bunauthori[sz]ed\b"
        r"|\bHTTP 40[13]\b|: 40[13]$|\bnot (authorized|allowed) to\b|user/password not valid",
        "the ArcadeDB server of {who} refused its user, password or rights",
        "Correct the user and password that the database ability connects with, and that user's"
        " rights on the server; docs/storage.md lists what a worker needs.",
        retryable=False,
    ),
    _meaning(
        "read_only",
        r"databaseisreadonly|\b(database|server|file ?system) is (in )?read[- ]?only",
        "the database at {who} is read-only",
        "Make it writable, or let a database ability with a writable one serve the network.",
        retryable=False,
    ),
)
_OTHER = _meaning(
    "other",
    r".",
    "{who} refused a statement",
    "See the log of the database ability; `ability-search doctor` checks the database.",
    quoted=True,
)
_BODY = re.compile(r"^(?:[\w ]+: )?HTTP (?P<status>\d{3}): (?P<body>\{.*)$", re.DOTALL)
"""The text of an ability that passes on an HTTP response."""
_QUOTES = re.compile(
    r"'[^']*+(?:'|$)|\"[^\"]*+(?:\"|$)|`[^`]*+(?:`|$)"
    r"|\[[^\]]*+(?:\]|$)|\{[^}]*+(?:\}|$)|\([^)]*+(?:\)|$)"
)
"""Parts of a message that may repeat what was sent or stored; one that is not closed, such as in a
message that was cut, ends with it."""
_STATEMENT = re.compile(
    r"\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|LET|RETURN|MATCH|TRAVERSE|BEGIN|COMMIT"
    r"|FOREACH|FROM|WHERE|ORDER BY|CONTENT|UPSERT)\b.*"
)
"""A statement that a message repeats; the engine's own words are in lower case."""


def is_understood(text: str) -> bool:
    """Return whether a text is one of a database, as far as these are known."""
    return any(meaning.pattern.search(text) for meaning in _MEANINGS)


def _meaning_of(text: str) -> Meaning:
    """Return the first meaning whose pattern matches a text."""
    for meaning in _MEANINGS:
        if meaning.pattern.search(text):
            return meaning
    return _OTHER


def refusal(
    text: str, *, who: str = "the database ability", params: Mapping[str, Any] | None = None
) -> SearchError:
    """Return the error for the error text of a database.

    Args:
        text: The words of the database ability.
        who: Describes the ability: its name and agent id.
        params: Parameters of the statement, which no error repeats.
    """
    meaning = _meaning_of(text)
    level = logging.WARNING if meaning is _OTHER else logging.DEBUG
    log.log(level, "statement refused (%s): %s", meaning.reason, text.partition("\n")[0][:_LOGGED])
    if meaning.reason == _TOO_LARGE:
        return answer_too_large()
    problem = meaning.problem.format(who=who)
    words = said(text, params or {}, whole=meaning is not _OTHER) if meaning.quoted else ""
    if words:
        problem = f"{problem}: {words!r}"
    if meaning.reason == UNREACHABLE:
        return ServerUnreachable(problem, hint=meaning.hint)
    if meaning.reason == _TOO_OLD:
        return EngineTooOld(said(text, params or {}, whole=True))
    return StatementRefused(
        meaning.reason, text, problem=problem, hint=meaning.hint, retryable=meaning.retryable
    )


def said(text: str, params: Mapping[str, Any], *, whole: bool = False) -> str:
    """Return the words of a database on one line, without what they may repeat.

    Credentials, paths, the texts of the parameters and, unless the ``whole`` is wanted, statements
    and what stands in quotes or brackets are replaced by ``...``.
    """
    line = _message(text).partition("\n")[0]
    if not whole:
        line = _STATEMENT.sub("...", _QUOTES.sub("...", line))
    words = words_of(line, {"input": list(texts_in(params))})
    return words if len(words) <= _QUOTED else f"{words[: _QUOTED - 3]}..."


def answer_too_large() -> TooLarge:
    """Return the error for an answer that does not fit into a message."""
    return TooLarge(
        "the database's answer does not fit into a message",
        hint="Request less at a time, or raise the setting max_message_bytes.",
    )


def unlike_a_result(tool: str, answer: Any, who: str) -> DatabaseUnavailable:
    """Return the error for an answer of another shape than that of the tool."""
    shape = type(answer).__name__
    if isinstance(answer, Mapping):
        names = ", ".join(sorted(map(str, answer))[:8])
        shape = f"an object with {names}" if names else "an empty object"
    elif answer is None:
        shape = "null"
    return DatabaseUnavailable(
        f"{tool} of {who} returned {shape} instead of {{success, result}}",
        hint="Check which agent offers this tool: it does not answer as a database ability.",
    )


def _message(text: str) -> str:
    """Return the message of an HTTP response in a text, with the status; or else the text."""
    match = _BODY.match(text)
    if match is None:
        return text
    body: Any = None
    with suppress(ValueError):
        body = json.loads(match["body"])
    if not isinstance(body, Mapping):
        return text
    kind = str(body.get("exception") or "").rpartition(".")[2]
    detail = str(body.get("detail") or body.get("error") or "")
    return ": ".join(filter(None, (f"HTTP {match['status']}", kind, detail)))
