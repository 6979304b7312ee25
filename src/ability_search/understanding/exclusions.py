"""Exclusions of an English query: a cue and noun phrases, ``besides X``, ``no Y, Z please``.

A wrong exclusion hides relevant results, so ambiguous cases are not exclusions. The cues are in
tables by the queries in which they exclude:

* :data:`ANYWHERE` exclude in any position.
* :data:`OUTSIDE_QUESTIONS` exclude unless the query asks how or why or whether: ``why does it work
  here but not there``.
* :data:`WITHOUT` usually describes (``patients without diabetes``). It excludes only in plain
  requests and after words for collected items: ``everything about caching without Redis``,
  ``recipes without nuts``; not with a verb (``run docker without sudo``), not before one (``without
  losing data``), not with common complements (``without downtime``). ``, no X`` excludes unless a
  state precedes it: ``wifi connected, no signal``.
* :data:`IN_REQUESTS` usually compare or describe. They exclude only in plain requests: ``give me
  notes on deployment instead of testing``.
* ``, X excluded``, ``, X not included`` and ``with X left out`` exclude at the end of a query.
* ``-"a phrase"`` excludes, and so does ``-term`` at the end of the query: a word of at least three
  letters or an acronym, and only if nothing looks like a command line (``ls -la``, ``--force``,
  ``java -jar``).

Statements (``all but X are Y``), texts of several sentences and instructions (``remove all files
except X``) have no exclusions; a sentence that only excludes (``Not Rome.``) does not count. Words
in quotation marks, parts of words (``non-blocking``) and negated verbs (``cannot connect``, ``is
not working``, ``not found``, ``no such file``) exclude nothing.
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
_NOT_BE = r"(?:'s\s++not|\s++(?:is|are|was|were)(?:n't|\s++not))"
_NOT_DO = r"\s++(?:do|does|did|can|could|will|would)(?:n't|not|\s++not)"
_CLAUSE = r"(?:[,.;:!?(]\s*+|\s[-–—]\s++|\b(?:but|and|just|please)\s++)"
"""Beginning of a clause of its own: ``, no meat``, ``but please skip the roadmap``."""
_LEAD = (
    r"(?:(?:but|and|just|please|rather|definitely|certainly|absolutely|really|preferably)\s++){0,2}"
)
"""Words between the beginning of a clause and its cue: ``but definitely no disco``."""
_PREPOSITION = r"(?:\s++(?:by|for|from|on|with))?"
_ABOUT = (
    r"(?:(?:related|relating)\s++to|in\s++relation\s++to|to\s++do\s++with|about(?!\s++to\b)|concerning"
    r"|regarding|mentioning|involving|including|dealing\s++with|made\s++(?:of|with|from))"
)

ANYWHERE: Final = (
    Cue(
        rf"(?:besides|(?:apart|aside)\s++from|with\s++the\s++exception\s++of){_PREPOSITION}",
        "what did the board decide apart from the budget?",
        "forms of flow, apart from being homogeneous",
    ),
    Cue(
        rf"(?<!none\s)(?<!each\s)other\s++than{_PREPOSITION}",
        "API guidelines other than paging",
        "none other than John",
    ),
    Cue(
        r"unrelated\s++to|(?:ha(?:s|ve|d)|having|with)\s++nothing\s++to\s++do\s++with",
        "changes unrelated to the migration",
        "The failure is unrelated to the migration.",
    ),
    Cue(
        rf"(?:(?:but|and)\s++)?(?<!\bis\s)(?<!\bare\s)(?<!\bwas\s)not\s++{_ABOUT}",
        "meeting notes not about hiring",
        "is it not about time",
    ),
    Cue(
        rf"{_THAT}{_NOT_BE}\s++(?:{_ABOUT}|(?:\w+(?:ed|en)\s++)?(?:at|from|of|on|with))(?!\s++to\b)",
        "services that aren't about billing",
        "services that aren't about to fail",
    ),
    Cue(
        rf"{_THAT}{_NOT_BE}(?P<predicate>)",
        "rule changes that aren't office hours",
        "services that aren't responding",
    ),
    Cue(
        r"(?P<kept>(?:everything|anything|anywhere|anyone|all|any\s++\w++)"
        r"(?:\s++(?:about|in|from|of|on)\s++[^,.;:!?]{1,40}?)?)\s++but"
        r"(?!\s++not\b)",
        "anything but Docker for deployments",
        "everything is fine but slow",
    ),
)
OUTSIDE_QUESTIONS: Final = (
    Cue(
        r"\b(?:excluding|omitting|ignoring|avoiding|minus|not\s++counting"
        r"|leaving(?:\s++(?:out|aside)|(?=\s[^,.;:!?]{1,60}\s(?:out|aside)\b)))",
        "contracts excluding NDAs",
        "filter lists excluding None",
    ),
    Cue(
        rf"(?<!\btry\s)(?<!\bbare\s)\bexcept(?:\s++in|{_PREPOSITION})",
        "security incidents except the payments outage",
        "how do I select all columns except one",
    ),
    Cue(
        rf"{_CLAUSE}{_LEAD}"
        r"(?:neither|not(?:\s++(?:about|by|for|with))?"
        rf"|nothing(?:\s++that\s++\w+)?(?:\s++(?:about|with))?{_PREPOSITION})",
        "which services use Redis but not Postgres",
        "tests pass locally but not in CI",
    ),
    Cue(
        rf"\b{_THAT}(?P<verb>{_NOT_DO}|\s++never)\s++"
        r"(?!(?:work|start|load|run|respond|connect|compile|build|pass|show|appear|render|open|exist"
        r"|match|return|support|require|finish|have\s++to)\s)"
        r"(?:have\s++(?:anything\s++)?to\s++do|[^\W\d]{3,})"
        r"(?:\s++(?:about|anything|by|from|in|of|on|to|with))*",
        "message queues that don't use Kafka",
        "features that don't work in Safari",
    ),
    Cue(r"(?-i:\bNOT)", "java tutorials NOT javascript", "do NOT delete this file"),
    Cue(
        rf"{_CLAUSE}{_LEAD}"
        r"(?:(?:please\s++)?(?:do\s++not|don't)\s++(?:show(?:\s++me)?|include|list|give\s++me|want)"
        r"|exclude|skip|ignore|omit|avoid"
        r"|leave(?:\s++(?:out|aside)|(?=\s[^,.;:!?]{1,60}\s(?:out|aside)\b)))",
        "soup ideas, skip anything with cream",
        "how do I run tests, skip slow ones",
    ),
    Cue(
        r"\bI\s++(?:hate|dislike|can't\s++eat|(?:do\s++not|don't)"
        r"\s++(?:eat|like|want|need|use)(?!\s++to\b))",
        "a city break, I hate beaches",
        "why do I hate mornings",
    ),
)
WITHOUT: Final = (
    Cue(r"\bwithout", "pasta recipes without nuts or dairy", "run docker without sudo"),
    Cue(
        r"\bwith\s++no",
        "papers on turbulence with no wind tunnel data",
        "zero downtime deploy with no restart",
    ),
    Cue(
        rf"(?P<no>{_CLAUSE}){_LEAD}no",
        "show me caching notes, no Redis",
        "wifi connected but no internet",
    ),
)
IN_REQUESTS: Final = (
    Cue(
        r"\binstead\s++of|\brather\s++than",
        "give me notes on deployment instead of testing",
        "materialized view instead of 6-table join",
    ),
)

_ANYWHERE = re.compile(rf"\b(?:{any_of(ANYWHERE)})\s++", re.IGNORECASE)
_OUTSIDE_QUESTIONS = re.compile(rf"(?:{any_of(OUTSIDE_QUESTIONS)})\s++", re.IGNORECASE)
_WITHOUT = re.compile(rf"(?:{any_of(WITHOUT)})(?:\s++any)?\s++", re.IGNORECASE)
_IN_REQUESTS = re.compile(rf"(?:{any_of(IN_REQUESTS)})\s++", re.IGNORECASE)
_MINUS_PHRASE = re.compile(r"(?<!\S)-(?P<phrase>QQQ+)")
_FOLLOWED = re.compile(
    r"(?:,\s*+|\s(?=with\s))(?:with\s++)?(?P<phrase>(?!leav(?:e|ing)\b)[^,.;:!?]{2,60}?)"
    r"(?=\s(?:excluded|excepted|aside|left\s++out|not\s++included)\W*+$)",
    re.IGNORECASE,
)
"""A phrase before its cue, at the end of a query: ``cities, Rome excluded``."""
_NOT_SPACE = re.compile(r"\S+")
_MINUS_TERM = re.compile(r"-(?:[^\W\d_]{3,}|[A-Z]{2,})")
_MIXED = re.compile(r"-[A-Z]+[a-z]")
"""Like ``-Wall``: an option, rarely an excluded word."""
_AUXILIARY = re.compile(
    r"\b(?:do|does|did|is|are|was|were|be|can|could|should|would|will|must|may|might|has|have|had"
    r"|or|if|whether|and|with|without|using|an?|the|of)\s++$",
    re.IGNORECASE,
)
"""Words before ``NOT`` that make it an operator or a negated verb."""
_COMPLEMENT = re.compile(
    r"(?:downtime|interruptions?|restarts?|reboots?|(?:data\s++)?loss|delays?|errors?\b.*|warnings?"
    r"|access|connection|output|response|signal|sound|success|luck|permissions?|privileges|sudo|root|admin\b.*|internet|doubt|reason|limits?"
    r"|effect|help|conflicts?|\w+ing\s++\S.*)$",
    re.IGNORECASE,
)
"""Phrases after ``without`` that describe, such as ``without downtime``."""
_COLLECTED = re.compile(
    r"\b(?:everything|anything|alternatives|articles|books|docs|documents|documentation|examples"
    r"|frameworks|guides|ideas|libraries|notes|options|papers|recipes|solutions|tools|tutorials)\b",
    re.IGNORECASE,
)
"""Words for collected items, after which ``without`` excludes."""
_CLAUSE_MARK = re.compile(r"\W")
_NO = re.compile(r"\bno\s++$", re.IGNORECASE)
"""``no`` as a sentence describes: ``Login page broken. No errors.``"""
_STATE = re.compile(r"(?:ed|ing)\W*$", re.IGNORECASE)
"""Ends of descriptions: ``wifi connected, no signal``."""
_ARTICLE = re.compile(r"an?\b", re.IGNORECASE)
_NOT_A_TOPIC = re.compile(
    r"""
    (?:without|it|that|this|these|those|them|him|her|me|us|you|what|which|who|when|where|why|how|if|whether
      |only|just|all|one|yet|always|necessarily|to|in|on|at|by|from|with|of|for|as|so|too|very
      |much|many|enough|least|being|having|because|due|even|each|every|both|either|now|today|yet|again
      |(?:the\s++)?(?:first|second|last|empty|current|same|others?|rest)|the\s++fact
      |(?-i:NULL|None|True|False|EXISTS|IN|LIKE|BETWEEN|FOUND|Exception)
      |\d|found|allowed|supported|possible|sure|able|such|matter|exceptions?|clauses?|blocks?
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
        |out|aside|since|until|before|after|if|unless|is|are|was|were|do|does|did|have|has|had|can|could
        |should|would|will|please|thanks|besides|except|excluding|without)\b
    """,
    _FLAGS,
)
"""The end of a clause."""
_LIST = re.compile(r"(?:[^,]{1,40}+,\s*+)++(?:[^,]{1,40}?\s)?(?:and|or|nor)\s++", re.IGNORECASE)
_AND = re.compile(
    r"(?:(?<!\s)\s++)?+,\s*+(?:(?:and|or|nor)\s++)?|(?<!\s)\s++(?:and|or|nor|&)\s++", re.IGNORECASE
)
_OPENING = re.compile(
    r"(?:(?:the|a|an|any|all|our|my|your|their|about|no|not|nor"
    r"|(?:(?:any|some)thing|those|(?:the\s++)?ones?)\s++(?:about|by|concerning|for|from|of|on|with))\s++)+",
    re.IGNORECASE,
)
_CLOSING = re.compile(r"(?<!\s)\s++(?:ones?|stuff|things?|related)$", re.IGNORECASE)
_BEHIND = re.compile(
    r"\s*+\)|(?:,?\s++(?:(?:left\s++)?out|aside|excluded|excepted|not\s++included|please|at\s++all"
    r"|thanks))+\b",
    re.IGNORECASE,
)
"""End of an exclusion that is no part of its phrases."""
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
_ITEMS = re.compile(
    rf"""
    (?: ,\s*+ (?:(?:and|or|no|not|nor)\s++)*
        (?: (?! (?: {_EMPTY.pattern}
                  | after|at|before|besides|during|except|into|just|latest|newest|only|over|since|so
                  | than|thanks|that|under|until|within|without ) \b )
            [\w+#'/-]++ (?:\s++(?!,)|(?=[^\w,]*+(?:,|$))) ){{1,3}} )+
    (?=[^\w\s]*+\s*+$)
    """,
    _FLAGS,
)
"""Items of a list without a conjunction, up to the end of the query: ``, Flask, Pyramid``."""
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
    sentences = [
        (start, end)
        for start, at, end in stretches
        if plain[start] in ".!?" and not _NO.search(plain, start, at)
    ]
    if not stretches or is_statement(without(plain, sentences)) or is_instruction(plain):
        return Exclusions(text)
    excluded: dict[str, Excluded] = {}
    spans: list[tuple[int, int]] = []
    for start, at, end in stretches:
        if spans and start < spans[-1][1]:
            continue
        parts = list(_parts(plain, text, at, end))
        rest = (text[:start] + text[end:]).casefold()
        if parts and not any(part.phrase.casefold() in rest for part in parts):
            behind = _BEHIND.match(plain, end)
            opened = behind is not None and behind[0].endswith(")") and text[:start].endswith("(")
            spans.append((start - opened, behind.end() if behind else end))
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
    kept.append(text[at:] if any(kept) else text[at:].lstrip(" \t\n,;."))
    return _LOOSE.sub("", _SPACES.sub(" ", " ".join(kept))).strip()


def has_content(text: str) -> bool:
    """Return whether a text has a word besides function words and ``show me all notes about``."""
    return any(not _EMPTY.fullmatch(match[0]) for match in _WORD.finditer(text))


def _stretches(plain: str, text: str) -> Iterator[tuple[int, int, int]]:
    """Yield the start of each exclusion, the start of its phrases, and their end."""
    for pattern, applies in _GROUPS:
        for match in pattern.finditer(plain):
            if applies(plain, match):
                kept = match.groupdict().get("kept")
                start = match.end("kept") + 1 if kept else match.start()
                yield start, match.end(), _end_of(plain, match)
    found = _FOLLOWED.search(plain)
    if found and not asks_how(plain[: found.start()]):
        yield found.start(), *found.span("phrase")
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
    if _ARTICLE.match(plain, match.end()):
        return is_request(plain)
    return not (asks_how(plain[: match.start()]) or _NOT_A_NAME.match(plain, match.end()))


def _outside_questions(plain: str, match: re.Match[str]) -> bool:
    before = plain[: match.start()]
    if asks_how(before) or (match["verb"] and _is_command(before)):
        return False
    cue = match[0].rstrip()
    if cue == "NOT" and (plain.isupper() or _AUXILIARY.search(before)):
        return False
    return not (cue.lower().endswith("not") and _NOT_A_NAME.match(plain, match.end()))


def _without(plain: str, match: re.Match[str]) -> bool:
    before = plain[: match.start()]
    phrase = plain[match.end() : _end_of(plain, match)]
    if asks_how(before) or has_verb(before) or _is_command(before) or _COMPLEMENT.match(phrase):
        return False
    if is_request(plain):
        return True
    if match["no"]:
        return _CLAUSE_MARK.match(match["no"]) is not None and not _STATE.search(before)
    return _COLLECTED.search(before) is not None


def _in_requests(plain: str, match: re.Match[str]) -> bool:
    return is_request(plain) and not asks_how(plain[: match.start()])


_GROUPS = (
    (_ANYWHERE, _anywhere),
    (_OUTSIDE_QUESTIONS, _outside_questions),
    (_WITHOUT, _without),
    (_IN_REQUESTS, _in_requests),
)


def _end_of(plain: str, cue: re.Match[str]) -> int:
    """Return the end of the phrases after a cue: of the clause, or of a list (``a, b and c``)."""
    start = cue.end()
    enumeration = _LIST.match(plain, start)
    at = (
        enumeration.end() if enumeration and not _clause(plain, start, enumeration.end()) else start
    )
    found = _END.search(plain, at)
    end = found.start() if found else len(plain)
    if has_content(plain[: cue.start()]) and (items := _ITEMS.match(plain, end)):
        end = items.end()
    return end - (len(plain[start:end]) - len(plain[start:end].rstrip()))


def _clause(plain: str, start: int, end: int) -> bool:
    """Return whether an apparent list contains the end of a clause, not only commas."""
    return any(found[0] != "," for found in _END.finditer(plain, start, end))


def _parts(plain: str, text: str, start: int, end: int) -> Iterator[Excluded]:
    """Yield the phrases between two offsets; none if the text cannot be a topic."""
    opening = _OPENING.match(plain, start, end)
    if _NOT_A_TOPIC.match(plain, opening.end() if opening else start, end):
        return
    cuts = [start]
    for match in _AND.finditer(plain, start, end):
        cuts += [match.start(), match.end()]
    cuts.append(end)
    for first, last in zip(cuts[::2], cuts[1::2], strict=True):
        opening = _OPENING.match(plain, first, last)
        at = opening.end() if opening else first
        closing = _CLOSING.search(plain, at, last)
        last = closing.start() if closing else last
        phrase = text[at:last].strip(" \t\"“”`'.")
        topic = has_content(phrase) and not _NOT_A_TOPIC.match(plain, at, last)
        if topic and len(phrase.split()) <= _PHRASE_WORDS:
            yield Excluded(phrase, at, last)


def _is_command(before: str) -> bool:
    words = before.split()
    if not has_content(before) or _COMMAND_LINE.search(before):
        return True
    return any(_COMMAND.fullmatch(word) for word in (words[-1], *words[: len(words) < 3]))
