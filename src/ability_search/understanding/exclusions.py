"""Exclusions of a query: ``besides X``, ``but not Y``, ``without Z``, ``-term``. English.

A wrong exclusion hides relevant results, so ambiguous cases are not exclusions. The cues are in
tables by the queries in which they exclude:

* :data:`ANYWHERE` exclude in any position.
* :data:`OUTSIDE_QUESTIONS` exclude unless the query asks how or why or whether: ``why does it work
  here but not there``.
* :data:`WITHOUT` usually describes (``patients without diabetes``). It excludes only in plain
  requests and after words for collected items: ``everything about caching without Redis``,
  ``recipes without nuts``; not with a verb (``run docker without sudo``), not before one (``without
  losing data``), not with common complements (``without downtime``).
* :data:`IN_REQUESTS` usually compare or describe. They exclude only in plain requests: ``show me
  caching notes, no Redis``.
* ``-"a phrase"`` excludes, and so does ``-term`` at the end of the query: a word of at least three
  letters or an acronym, and only if nothing looks like a command line (``ls -la``, ``--force``,
  ``java -jar``).

Statements (``all but X are Y``), texts of several sentences and instructions (``remove all files
except X``) have no exclusions. Words in quotation marks, parts of words (``non-blocking``) and
negated verbs (``cannot connect``, ``is not working``, ``not found``, ``no such file``) exclude
nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ability_search.understanding.cues import Cue, any_of
from ability_search.understanding.sentence_types import (
    asks_how,
    has_verb,
    is_instruction,
    is_request,
    is_statement,
    masked,
)

TIME: Final = "\ue000"
"""Replacement of each character of a time in a query; ends a phrase, counts as content."""
_PHRASE_WORDS: Final = 8
"""Maximum words of an excluded phrase; a longer one is the rest of a sentence, not a topic."""

_FLAGS = re.IGNORECASE | re.VERBOSE
_THAT = r"(?:that|which|who)"
_NOT_BE = r"(?:(?:is|are|was|were)(?:n't|\s+not))"
_NOT_DO = r"(?:(?:do|does|did)(?:n't|\s+not))"

ANYWHERE: Final = (
    Cue("besides", "login notes besides OAuth and SSO", "besides that what else"),
    Cue(
        r"(?<!none\s)(?<!each\s)other\s+than",
        "API guidelines other than paging",
        "none other than John",
    ),
    Cue(
        r"apart\s+from",
        "what did the board decide apart from the budget?",
        "forms of flow, apart from being homogeneous",
    ),
    Cue(r"aside\s+from", "flight costs aside from hotels", "aside from this what else"),
    Cue(
        r"with\s+the\s+exception\s+of",
        "emails with the exception of newsletters",
        "All proteins with the exception of histones are removed",
    ),
    Cue(
        r"unrelated\s+to",
        "changes unrelated to the migration",
        "The failure is unrelated to the migration.",
    ),
    Cue(
        rf"{_THAT}\s+{_NOT_BE}\s+"
        r"(?:about(?!\s+to\b)|(?:related|relating)\s+to|concerning|regarding)",
        "services that aren't about billing",
        "The talks that aren't about money are rare.",
    ),
    Cue(
        rf"{_THAT}\s+{_NOT_DO}\s+(?:mention|involve|concern|cover|discuss|include|relate\s+to"
        r"|deal\s+with|talk\s+about|have\s+(?:anything\s+)?to\s+do\s+with)",
        "docs on login that do not mention SAML",
        "the contract does not include support",
    ),
    Cue(
        rf"{_THAT}\s+ha(?:s|ve|d)\s+nothing\s+to\s+do\s+with",
        "tickets that have nothing to do with billing",
        "The error has nothing to do with billing.",
    ),
    Cue(
        r"(?:(?:but|and)\s+)?(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)not\s+"
        r"(?:about(?!\s+to\b)|including|involving|concerning|regarding|mentioning"
        r"|(?:related|relating)\s+to)",
        "meeting notes not about hiring",
        "is it not about time",
    ),
    Cue(
        r"(?<=\beverything\s)but(?!\s+not\b)",
        "deployment docs, everything but Docker",
        "everything is fine but slow",
    ),
    Cue(
        r"(?<=\banything\s)but(?!\s+not\b)",
        "deployment docs, anything but Docker",
        "anything works but slowly",
    ),
    Cue(
        rf"{_THAT}\s+{_NOT_BE}(?=\s+(?!an?\b))(?P<predicate>)",
        "rule changes that aren't office hours",
        "services that aren't responding",
    ),
)
OUTSIDE_QUESTIONS: Final = (
    Cue(r"\bexcluding", "contracts excluding NDAs", "filter lists excluding None"),
    Cue(
        r"(?<!\btry\s)(?<!\bbare\s)\bexcept(?:\s+for|\s+in|\s+the\s+ones?\s+about)?",
        "security incidents except the payments outage",
        "how do I select all columns except one",
    ),
    Cue(
        r"\b(?:but|and)\s+not",
        "which services use Redis but not Postgres",
        "tests pass locally but not in CI",
    ),
    Cue(r",\s*not", "articles on kubernetes, not docker", "rollback strategy, not documented"),
    Cue(r"(?-i:\bNOT)", "java tutorials NOT javascript", "do NOT delete this file"),
)
WITHOUT: Final = (
    Cue("without", "pasta recipes without nuts or dairy", "countries without rivers"),
    Cue(
        r"with\s+no",
        "papers on turbulence with no wind tunnel data",
        "zero downtime deploy with no restart",
    ),
)
IN_REQUESTS: Final = (
    Cue(
        r"\binstead\s+of",
        "give me notes on deployment instead of testing",
        "materialized view instead of 6-table join",
    ),
    Cue(
        r"\brather\s+than",
        "I'm looking for Python examples rather than Java",
        "Redis rather than Memcached decision",
    ),
    Cue(
        r"(?:,\s*|\b(?:but|and)\s+)no",
        "show me caching notes, no Redis",
        "wifi connected but no internet",
    ),
)

_ANYWHERE = re.compile(rf"\b(?:{any_of(ANYWHERE)})\s+", re.IGNORECASE)
_OUTSIDE_QUESTIONS = re.compile(rf"(?:{any_of(OUTSIDE_QUESTIONS)})\s+", re.IGNORECASE)
_WITHOUT = re.compile(rf"\b(?:{any_of(WITHOUT)})(?:\s+any)?\s+", re.IGNORECASE)
_IN_REQUESTS = re.compile(rf"(?:{any_of(IN_REQUESTS)})\s+", re.IGNORECASE)
_MINUS_PHRASE = re.compile(r"(?<!\S)-(?P<phrase>QQQ+)")
_NOT_SPACE = re.compile(r"\S+")
_MINUS_TERM = re.compile(r"-(?:[^\W\d_]{3,}|[A-Z]{2,})")
_MIXED = re.compile(r"-[A-Z]+[a-z]")
"""Like ``-Wall``: an option, rarely an excluded word."""
_AUXILIARY = re.compile(
    r"\b(?:do|does|did|is|are|was|were|be|can|could|should|would|will|must|may|might|has|have|had"
    r"|or|if|whether|and|with|without|using|an?|the|of)\s+$",
    re.IGNORECASE,
)
"""Words before ``NOT`` that make it an operator or a negated verb."""
_COMPLEMENT = re.compile(
    r"(?:downtime|interruptions?|restarts?|reboots?|(?:data\s+)?loss|delays?|errors?|warnings?"
    r"|success|luck|permissions?|privileges|sudo|root|admin\b.*|internet|doubt|reason|limits?"
    r"|effect|help|conflicts?|\w+ing\s+\S.*)$",
    re.IGNORECASE,
)
"""Phrases after ``without`` that describe, such as ``without downtime``."""
_COLLECTED = re.compile(
    r"\b(?:everything|anything|alternatives|articles|books|docs|documents|documentation|examples"
    r"|frameworks|guides|ideas|libraries|notes|options|papers|recipes|solutions|tools|tutorials)\b",
    re.IGNORECASE,
)
"""Words for collected items, after which ``without`` excludes."""
_NOT_A_TOPIC = re.compile(
    r"""
    (?:it|that|this|these|those|them|him|her|me|us|you|what|which|who|when|where|why|how|if|whether
      |only|just|all|one|yet|always|necessarily|to|in|on|at|by|from|with|of|for|as|so|too|very
      |much|many|enough|least|being|having|because|due|even|each|every|both|either|now|today|yet|again
      |(?:the\s+)?(?:first|second|last|empty|current|same|others?|rest)|the\s+fact
      |(?-i:NULL|None|True|False|EXISTS|IN|LIKE|BETWEEN|FOUND|Exception)
      |found|allowed|supported|possible|sure|able|such|matter|exceptions?|clauses?|blocks?
      |statements?|handlers?|keywords?)\b
    """,
    _FLAGS,
)
"""Beginnings of phrases that are not topics."""
_NOT_A_NAME = re.compile(
    r"[\w-]+(?:ing|ed|able|ible|ful|ive|ous|al|ly)\b"
    r"|(?:ready|empty|null|none|true|false|valid|public|private|safe|secure|good|bad|new|old|up|down"
    r"|there|here|done|born|broken|static|local|unique|clear|shown|seen|known|met|set|sent|built|run"
    r"|given|taken|chosen|written|relevant)\b",
    re.IGNORECASE,
)
"""Beginnings of phrases that describe: ``that aren't responding``."""
_END = re.compile(
    r"""
    [;:!?()\[\]{}\n] | \.(?=\s|$) | \s[-–—]+\s | ,
    | \ue000
    | (?<!\s)\s++\ue000
    | (?<!\s)\s++(?:that|which|who|whose|when|where|while|why|how|because|but|so|then|for|during
        |since|until|before|after|if|unless|is|are|was|were|do|does|did|have|has|had|can|could
        |should|would|will|please|thanks|besides|except|excluding|without)\b
    """,
    _FLAGS,
)
"""The end of a clause."""
_LIST = re.compile(r"(?:[^,]{1,40}+,\s*+)++(?:[^,]{1,40}?\s)?(?:and|or|nor)\s+", re.IGNORECASE)
_AND = re.compile(
    r"(?:(?<!\s)\s++)?+,\s*+(?:(?:and|or|nor)\s++)?|(?<!\s)\s++(?:and|or|nor|&)\s++", re.IGNORECASE
)
_OPENING = re.compile(
    r"(?:(?:the|a|an|any|all|our|my|your|their|about|anything\s+about|those\s+about)\s+)+",
    re.IGNORECASE,
)
_COMMAND_LINE = re.compile(
    r"(?<!\S)--\w|(?<!\S)-\w{1,2}(?=\s|$)(?-i:(?<![A-Z]{2}))|[|<>$\\=*]|[.~]/"
)
"""Signs of a command line: options, pipes, paths."""
_COMMAND = re.compile(
    r"""
    adb|ansible|apt|aws|awk|az|bash|brew|bundle|cargo|cat|cc|chmod|chown|clang|cmake|convert|cp|curl
    |cut|date|dd|df|diff|dig|docker|du|echo|ffmpeg|find|g\+\+|gcc|gcloud|gdb|git|go|gpg|gradle|grep
    |gs|gzip|head|helm|iptables|jar|java|javac|journalctl|keytool|kill|kubectl|ld|less|ln|ls|lsof
    |magick|make|man|mkdir|mongo|mount|mv|mvn|mysql|nc|netstat|nginx|nmap|node|npm|nslookup|openssl
    |perl|php|ping|pip3?|powershell|ps|psql|python3?|rails|redis-cli|rm|rsync|ruby|sed|sh|sort
    |sqlite3|ssh|ssh-keygen|sudo|systemctl|tail|tar|tee|terraform|test|top|touch|tr|tsc|uniq|unzip
    |vim|wget|xargs|xset|yarn|yum|zip|zsh
    """,
    _FLAGS,
)
"""Names of commands; ``-term`` after them is an option."""
_WORD = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")
_EMPTY = re.compile(
    r"""
    a|about|all|am|an|and|any|anything|are|articles|as|be|but|by|can|did|do|docs|documents|does
    |everything|find|for|from|get|give|had|has|have|i|in|is|it|list|looking|me|my|no|not|notes|of|on
    |or|our|please|show|some|something|tell|that|the|there|these|they|things?|this|those|to|us|was
    |we|were|what|when|where|which|who|why|will|with|would|you|your
    """,
    _FLAGS,
)
"""Words without content."""
_SPACES = re.compile(r"\s{2,}")
_LOOSE = re.compile(r"(?<!\s)\s++(?=[,.;:?!](?:\s|$))")


@dataclass(frozen=True, slots=True)
class Excluded:
    """An excluded phrase: ``text[start:end]`` without its quotation marks."""

    phrase: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Exclusions:
    """A query split into its exclusions and the rest.

    Attributes:
        remaining: The query without exclusions; the query itself if there are none.
        excluded: The distinct phrases in order of position.
        spans: Removed spans, cue and phrases, in characters of the query.
    """

    remaining: str
    excluded: tuple[Excluded, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()


def find_exclusions(text: str) -> Exclusions:
    """Find the exclusions in ``text``.

    A query that would have no content word left excludes nothing, and a phrase that also occurs
    elsewhere in the query is not excluded.
    """
    plain = masked(text.replace("’", "'"))
    stretches = sorted(_stretches(plain, text))
    if not stretches or is_statement(plain) or is_instruction(plain):
        return Exclusions(text)
    excluded: dict[str, Excluded] = {}
    spans: list[tuple[int, int]] = []
    for start, at, end in stretches:
        if spans and start < spans[-1][1]:
            continue
        parts = list(_parts(plain, text, at, end))
        rest = (text[:start] + text[end:]).casefold()
        if parts and not any(part.phrase.casefold() in rest for part in parts):
            spans.append((start, end))
            for part in parts:
                excluded.setdefault(part.phrase.casefold(), part)
    remaining = without(text, spans)
    if not excluded or not (has_content(remaining) or TIME in remaining):
        return Exclusions(text)
    return Exclusions(remaining, tuple(excluded.values()), tuple(spans))


def without(text: str, spans: list[tuple[int, int]]) -> str:
    """Return ``text`` without these ordered spans, with spaces and punctuation tidied."""
    if not spans:
        return text
    kept = []
    at = 0
    for start, end in spans:
        kept.append(text[at:start].rstrip(" \t\n,;"))
        at = end
    kept.append(text[at:] if any(kept) else text[at:].lstrip(" \t\n,;"))
    return _LOOSE.sub("", _SPACES.sub(" ", " ".join(kept))).strip()


def has_content(text: str) -> bool:
    """Return whether a text has a word besides function words and ``show me all notes about``."""
    return any(not _EMPTY.fullmatch(match[0]) for match in _WORD.finditer(text))


def _stretches(plain: str, text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the start of each exclusion, the start of its phrases, and their end."""
    for pattern, applies in _GROUPS:
        for match in pattern.finditer(plain):
            if applies(plain, match):
                yield match.start(), match.end(), _end_of(plain, match.end())
    for match in _MINUS_PHRASE.finditer(plain):
        if text[match.start("phrase")] in '"“':
            yield match.start(), match.start("phrase"), match.end()
    terms = _minus_terms(plain)
    if terms:
        before, tail = plain[: terms[0].start()].rstrip(), plain[terms[0].start() :]
        if not (_is_command(before) or _MIXED.search(tail)):
            yield from ((term.start(), term.start() + 1, term.end()) for term in terms)


def _minus_terms(plain: str) -> list[re.Match[str]]:
    """Return the words like ``-draft`` at the end of a query, except its first word."""
    words = list(_NOT_SPACE.finditer(plain))
    first = len(words)
    while first > 1 and _MINUS_TERM.fullmatch(words[first - 1][0]):
        first -= 1
    return words[first:]


def _anywhere(plain: str, match: re.Match[str]) -> bool:
    if match["predicate"] is None:
        return True
    phrase = plain[match.end() : _end_of(plain, match.end())]
    return not (asks_how(plain[: match.start()]) or _NOT_A_NAME.match(phrase))


def _outside_questions(plain: str, match: re.Match[str]) -> bool:
    before = plain[: match.start()]
    if asks_how(before):
        return False
    cue = match[0].rstrip()
    if cue == "NOT" and (plain.isupper() or _AUXILIARY.search(before)):
        return False
    return not (cue.lower().endswith("not") and _NOT_A_NAME.match(plain, match.end()))


def _without(plain: str, match: re.Match[str]) -> bool:
    before = plain[: match.start()]
    phrase = plain[match.end() : _end_of(plain, match.end())]
    if asks_how(before) or has_verb(before) or _is_command(before) or _COMPLEMENT.match(phrase):
        return False
    return is_request(plain) or _COLLECTED.search(before) is not None


def _in_requests(plain: str, match: re.Match[str]) -> bool:
    return is_request(plain) and not asks_how(plain[: match.start()])


_GROUPS = (
    (_ANYWHERE, _anywhere),
    (_OUTSIDE_QUESTIONS, _outside_questions),
    (_WITHOUT, _without),
    (_IN_REQUESTS, _in_requests),
)


def _end_of(plain: str, start: int) -> int:
    """Return the end of the phrases at ``start``: of the clause, or of a list (``a, b and c``)."""
    enumeration = _LIST.match(plain, start)
    at = (
        enumeration.end() if enumeration and not _clause(plain, start, enumeration.end()) else start
    )
    found = _END.search(plain, at)
    end = found.start() if found else len(plain)
    return end - (len(plain[start:end]) - len(plain[start:end].rstrip()))


def _clause(plain: str, start: int, end: int) -> bool:
    """Return whether an apparent list contains the end of a clause, not only commas."""
    return any(found[0] != "," for found in _END.finditer(plain, start, end))


def _parts(plain: str, text: str, start: int, end: int) -> Iterator[Excluded]:
    """Yield the phrases between two offsets; none if the text cannot be a topic."""
    if _NOT_A_TOPIC.match(plain, start, end):
        return
    cuts = [start]
    for match in _AND.finditer(plain, start, end):
        cuts += [match.start(), match.end()]
    cuts.append(end)
    for first, last in zip(cuts[::2], cuts[1::2], strict=True):
        opening = _OPENING.match(plain, first, last)
        at = opening.end() if opening else first
        phrase = text[at:last].strip(" \t\"“”`'.")
        if has_content(phrase) and len(phrase.split()) <= _PHRASE_WORDS:
            yield Excluded(phrase, at, last)


def _is_command(before: str) -> bool:
    words = before.split()
    if not has_content(before) or _COMMAND_LINE.search(before):
        return True
    return any(_COMMAND.fullmatch(word) for word in (words[-1], *words[: len(words) < 3]))
