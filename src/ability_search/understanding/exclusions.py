"""Exclusions of a query: ``besides X``, ``but not Y``, ``without Z``, ``-term``. English.

A wrong exclusion hides relevant results, so ambiguous cases are not exclusions:

* ``besides``, ``other than``, ``apart from``, ``aside from``, ``with the exception of``, ``not
  about``, ``not related to``, ``that don't mention``, ``that aren't X``, ``everything but`` exclude
  in any position.
* ``except``, ``excluding``, ``but not``, ``and not``, ``, not`` and ``NOT`` exclude unless the
  query asks how or why or whether: ``why does it work here but not there``.
* ``without`` and ``with no`` usually describe (``patients without diabetes``). They exclude only in
  plain requests and after words for collected items: ``everything about caching without Redis``,
  ``recipes without nuts``; not with a verb (``run docker without sudo``), not before one (``without
  losing data``), not with common complements (``without downtime``).
* ``instead of``, ``rather than`` and ``no`` usually compare or describe. They exclude only in plain
  requests: ``show me caching notes, no Redis``.
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

from ability_search.understanding.quotations import masked
from ability_search.understanding.sentence_types import (
    asks_how,
    has_verb,
    is_instruction,
    is_request,
    is_statement,
)

TIME: Final = "\ue000"
"""Mark that replaces each character of a time in a query; ends a phrase, counts as content."""
_PHRASE_WORDS: Final = 8
"""Maximum words of an excluded phrase; a longer one is the rest of a sentence, not a topic."""

_FLAGS = re.IGNORECASE | re.VERBOSE
_NEGATED = r"(?:(?:is|are|was|were)(?:n't|\s+not))"
_NEGATED_DO = r"(?:(?:do|does|did)(?:n't|\s+not))"
_ANYWHERE = re.compile(
    rf"""
    \b(?: besides | (?<!none\s)(?<!each\s)other\s+than | apart\s+from | aside\s+from
        | with\s+the\s+exception\s+of | unrelated\s+to
        | (?:that|which|who)\s+
          (?: {_NEGATED}\s+(?:about(?!\s+to\b)|(?:related|relating)\s+to|concerning|regarding)
            | {_NEGATED_DO}\s+(?:mention|involve|concern|cover|discuss|include|relate\s+to
                                |deal\s+with|talk\s+about|have\s+(?:anything\s+)?to\s+do\s+with)
            | ha(?:s|ve|d)\s+nothing\s+to\s+do\s+with )
        | (?:(?:but|and)\s+)?(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)not\s+
          (?:about(?!\s+to\b)|including|involving|concerning|regarding|mentioning
            |(?:related|relating)\s+to)
        | (?<=\beverything\s)but(?!\s+not\b) | (?<=\banything\s)but(?!\s+not\b)
        | (?:that|which|who)\s+{_NEGATED}(?=\s+(?!an?\b))(?P<predicate>)
    )\s+
    """,
    _FLAGS,
)
_OUTSIDE_QUESTIONS = re.compile(
    r"""
    (?: \bexcluding | (?<!\btry\s)(?<!\bbare\s)\bexcept(?:\s+for|\s+in|\s+the\s+ones?\s+about)?
      | \b(?:but|and)\s+not(?P<contrast>) | ,\s*not(?P<comma>) | (?-i:\bNOT)(?P<capital>)
    )\s+
    """,
    _FLAGS,
)
_WITHOUT = re.compile(r"\b(?:without|with\s+no)(?:\s+any)?\s+", _FLAGS)
_ON_REQUEST = re.compile(
    r"\b(?:instead\s+of|rather\s+than)\s+ | (?:,\s*|\b(?:but|and)\s+)no\s+", _FLAGS
)
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
_GONE_WITHOUT = re.compile(
    r"(?:downtime|interruptions?|restarts?|reboots?|(?:data\s+)?loss|delays?|errors?|warnings?"
    r"|success|luck|permissions?|privileges|sudo|root|admin\b.*|internet|doubt|reason|limits?"
    r"|effect|help|conflicts?|\w+ing\s+\S.*)$",
    re.IGNORECASE,
)
_GATHERED = re.compile(
    r"\b(?:everything|anything|alternatives|articles|books|docs|documents|documentation|examples"
    r"|frameworks|guides|ideas|libraries|notes|options|papers|recipes|solutions|tools|tutorials)\b",
    re.IGNORECASE,
)
_NO_TOPIC = re.compile(
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
_NO_NAME = re.compile(
    r"[\w-]+(?:ing|ed|able|ible|ful|ive|ous|al|ly)\b"
    r"|(?:ready|empty|null|none|true|false|valid|public|private|safe|secure|good|bad|new|old|up|down"
    r"|there|here|done|born|broken|static|local|unique|clear|shown|seen|known|met|set|sent|built|run"
    r"|given|taken|chosen|written|relevant)\b",
    re.IGNORECASE,
)
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
    for pattern, applies in _CUES:
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
    """Return the words like ``-draft`` at the end of a query, without a first word that is one."""
    words = list(_NOT_SPACE.finditer(plain))
    first = len(words)
    while first > 1 and _MINUS_TERM.fullmatch(words[first - 1][0]):
        first -= 1
    return words[first:]


def _anywhere(plain: str, match: re.Match[str]) -> bool:
    if match["predicate"] is None:
        return True
    phrase = plain[match.end() : _end_of(plain, match.end())]
    return not (asks_how(plain[: match.start()]) or _NO_NAME.match(phrase))


def _outside_questions(plain: str, match: re.Match[str]) -> bool:
    before = plain[: match.start()]
    if asks_how(before):
        return False
    capital = match["capital"] is not None
    if capital and (plain.isupper() or _AUXILIARY.search(before)):
        return False
    contrast = capital or match["contrast"] is not None or match["comma"] is not None
    return not (contrast and _NO_NAME.match(plain, match.end()))


def _without(plain: str, match: re.Match[str]) -> bool:
    before = plain[: match.start()]
    phrase = plain[match.end() : _end_of(plain, match.end())]
    if asks_how(before) or has_verb(before) or _is_command(before) or _GONE_WITHOUT.match(phrase):
        return False
    return is_request(plain) or _GATHERED.search(before) is not None


def _on_request(plain: str, match: re.Match[str]) -> bool:
    return is_request(plain) and not asks_how(plain[: match.start()])


_CUES = (
    (_ANYWHERE, _anywhere),
    (_OUTSIDE_QUESTIONS, _outside_questions),
    (_WITHOUT, _without),
    (_ON_REQUEST, _on_request),
)


def _end_of(plain: str, start: int) -> int:
    """Return where the phrases that start here end: with the clause, or a list (``a, b and c``)."""
    enumeration = _LIST.match(plain, start)
    at = (
        enumeration.end() if enumeration and not _clause(plain, start, enumeration.end()) else start
    )
    found = _END.search(plain, at)
    end = found.start() if found else len(plain)
    return end - (len(plain[start:end]) - len(plain[start:end].rstrip()))


def _clause(plain: str, start: int, end: int) -> bool:
    """Return whether what looks like a list contains the end of a clause, not only commas."""
    return any(found[0] != "," for found in _END.finditer(plain, start, end))


def _parts(plain: str, text: str, start: int, end: int) -> Iterator[Excluded]:
    """Yield the phrases between two offsets; none if the text cannot be a topic."""
    if _NO_TOPIC.match(plain, start, end):
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
