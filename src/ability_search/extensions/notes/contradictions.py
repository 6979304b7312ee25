"""Contradictions between two texts on one topic, by rules. English. Pure.

The rules are the lexical ones of de Marneffe, Rafferty and Manning (Finding Contradictions in Text,
ACL 2008): negation, antonyms, and numbers or dates that differ; and different values of one
attribute. They compare sentences with about the same words only, so most contradictions that are
phrased in other words are missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from ability_search.extensions.notes.consolidation_report import Rule
from ability_search.extensions.understanding.written_dates import written_periods
from ability_search.text.analyzer import analyzer_for
from ability_search.text.chunkers.boundaries import sentences

SHARED: Final = 0.6
"""Minimum Jaccard index of the words of two sentences that are compared."""
_SENTENCES = 32
"""Sentences of a text that are compared for contradictions, from its beginning."""
_VALUE_WORDS = 4
_LABELS: Final = frozenset(":=")
_NO_PROSE: Final = ("#", "|", "<!--", "```", "~~~")
"""Beginnings of lines of Markdown that are no sentences."""

_OPPOSITES: Final = (
    "enabled disabled",
    "enable disable",
    "on off",
    "allowed forbidden denied prohibited blocked",
    "allow forbid deny prohibit block",
    "accepted rejected declined",
    "approved rejected declined",
    "open closed",
    "active inactive deprecated",
    "required optional",
    "mandatory optional",
    "public private",
    "supported unsupported",
    "started stopped",
    "running stopped",
    "passed failed",
    "succeeded failed",
    "increased decreased",
    "added removed",
    "always never",
    "true false",
    "safe unsafe",
    "valid invalid",
    "online offline",
    "synchronous asynchronous",
    "likes dislikes hates",
    "encrypted unencrypted plaintext",
    "internal external",
    "available unavailable",
    "manual automatic",
    "manually automatically",
    "before after",
    "primary replica",
    "blocking non-blocking",
)
"""Words of which each contradicts the first, and the first each of the others."""

_AMOUNT = re.compile(
    r"(?<![\w.,:/-])(?P<currency>[$€£]?+)(?P<number>\d++(?:[.,:]\d++)*+)"
    r"(?P<unit>%|-?[A-Za-z]++(?![\w-]))?+(?![\w-])(?:\s(?P<next>[A-Za-z]++))?+"
)
_NAME = re.compile(
    r"\b[A-Z][a-z]++ \d++(?:\.\d++)*+(?![\w:%-])"  # Sprint 14, Version 1.2
    r"|(?<=[\w,;:)] )[A-Z][\w'-]*+"
    r"|(?<![\w-])[A-Za-z][A-Za-z_-]*+\d[\w-]*+(?:\.\d++)*+"  # db-prod-01, v2.3.1
    r"|\b[A-Za-z]++_\w++"
)
_ATTRIBUTE = re.compile(
    r"(?P<subject>[^:=.]{3,80}?)\s*+(?P<verb>\b(?:(?:is|are|was|were)(?:\s\w++(?<=ed))?+"
    r"(?:\s(?:at|by|in|on|to)\b)?+|prefers?\b|(?:lives|runs|works)\s(?:in|on|at|for)\b)"
    r"|[:=])\s++(?P<value>[^.;]{1,60})"
)
_WORD = re.compile(r"[\w-]++")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_NEGATION = re.compile(r"\b(?:no|not|never|cannot|without|neither|nor|\w++n['’]t)\b", re.IGNORECASE)


class Contradiction(NamedTuple):
    """Two sentences that contradict each other, and what they say differently."""

    rule: Rule
    statement: str
    other_statement: str
    differing: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Read:
    """A sentence as the rules see it."""

    text: str
    words: frozenset[str]
    """Terms without stop words, dates and amounts."""
    denied: str
    """First negated term, behind the word that negates if there is one; empty without."""
    names: frozenset[str]
    amounts: tuple[tuple[str, str], ...]
    """Unit and number of each."""
    dates: tuple[tuple[int | None, int | None], ...]
    attribute: tuple[frozenset[str], str, str] | None
    """Words before the verb, the verb, and what follows it."""


def find_contradiction(one: str, other: str) -> Contradiction | None:
    """Return a contradiction between two texts, the one with the most words in common; or none."""
    best: tuple[float, Contradiction] | None = None
    for first in _statements(one):
        for second in _statements(other):
            shared = _jaccard(first.words, second.words)
            found = _compare(first, second, shared)
            if found is not None and (best is None or shared > best[0]):
                rule, differing = found
                best = shared, Contradiction(rule, first.text, second.text, differing)
    return None if best is None else best[1]


def shared_words(one: str, other: str) -> float:
    """Return the Jaccard index of the words of two texts, 0 to 1, without stop words."""
    own, others = (
        frozenset().union(*(each.words for each in _read_text(text))) for text in (one, other)
    )
    return _jaccard(own, others)


def same_facts(one: str, other: str) -> bool:
    """Return whether two texts have the same amounts, dates and names, and negate alike.

    Near-duplicates that differ in one of these are not the same note.
    """
    return _facts(one) == _facts(other)


def _facts(text: str) -> tuple[object, ...]:
    read = _read_text(text)
    return (
        {amount for each in read for amount in each.amounts},
        {date for each in read for date in each.dates},
        {name for each in read for name in each.names},
        sum(bool(each.denied) for each in read),
    )


def _compare(one: _Read, other: _Read, shared: float) -> tuple[Rule, tuple[str, str]] | None:
    found = _values(one, other)
    if found is not None:
        return "values", found
    own, others = one.words - other.words, other.words - one.words
    for word in sorted(own):
        for opposite in sorted(_ANTONYMS.get(word, frozenset()) & others):
            alike = bool(one.denied) == bool(other.denied) and one.names == other.names
            if alike and _same_topic(one, other, {word, opposite}):
                return "antonyms", (word, opposite)
    if shared < SHARED or not _same_topic(one, other, set()):
        return None
    if bool(one.denied) != bool(other.denied):
        denied = one.denied or other.denied
        sides = (f"not {denied}", denied)
        return "negation", sides if one.denied else (sides[1], sides[0])
    if one.names != other.names:
        return None
    return _amounts(one, other) or _dates(one, other)


def _same_topic(one: _Read, other: _Read, apart: set[str]) -> bool:
    """Return whether one sentence has all words of the other except ``apart``, and all names.

    If each has a word of its own, such as ``orders`` and ``payments``, the topics differ.
    """
    own, others = one.words - other.words - apart, other.words - one.words - apart
    names = one.names <= other.names or other.names <= one.names
    enough = len(one.words & other.words) > 1 or not own | others
    return names and enough and not (own and others)


def _values(one: _Read, other: _Read) -> tuple[str, str] | None:
    """Return the values of an attribute that both sentences name, if they differ."""
    if not (one.attribute and other.attribute) or one.denied or other.denied:
        return None
    (*attribute, value), (*same, another) = one.attribute, other.attribute
    words = [frozenset(_WORD.findall(each.casefold())) for each in (value, another)]
    if attribute != same or words[0] & words[1] or max(map(len, words)) > _VALUE_WORDS:
        return None
    name = _is_name if attribute[1] in _LABELS else _starts_as_name
    return (value, another) if name(value) and name(another) else None


def _starts_as_name(value: str) -> bool:
    return value[:1].isupper() or _NAME.match(value) is not None


def _is_name(value: str) -> bool:
    """Return whether each word is capitalised: behind a colon the first one of a sentence is, too.

    In a conversation the label is the speaker, and what follows is a sentence, not a value.
    """
    return all(_starts_as_name(word) for word in _WORD.findall(value)) and value[-1] not in "!?"


def _amounts(one: _Read, other: _Read) -> tuple[Rule, tuple[str, str]] | None:
    if one.dates and other.dates and one.dates != other.dates:
        return None  # two events
    for unit in dict(one.amounts):
        here = {number for each, number in one.amounts if each == unit}
        there = {number for each, number in other.amounts if each == unit}
        if there and not here & there:
            shown = [" ".join([*sorted(each), unit]).strip() for each in (here, there)]
            return "numbers", (shown[0], shown[1])
    return None


def _dates(one: _Read, other: _Read) -> tuple[Rule, tuple[str, str]] | None:
    same = one.words == other.words and one.amounts == other.amounts
    if len(one.dates) == len(other.dates) == 1 and same:
        apart = _before(one.dates[0], other.dates[0]) or _before(other.dates[0], one.dates[0])
        if apart:
            texts = one.text, other.text
            spans = [written_periods(text)[0] for text in texts]
            first, second = (t[at.start : at.end] for t, at in zip(texts, spans, strict=True))
            return "dates", (first, second)
    return None


def _before(one: tuple[int | None, int | None], other: tuple[int | None, int | None]) -> bool:
    return one[1] is not None and other[0] is not None and one[1] < other[0]


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    either = one | other
    return len(one & other) / len(either) if either else 0.0


def _statements(text: str) -> Sequence[_Read]:
    """Return the first sentences that state something: no question, heading or row of a table."""
    read = _read_text("\n".join(_prose(text)))
    return [each for each in read if not each.text.endswith("?")][:_SENTENCES]


def _prose(text: str) -> Iterator[str]:
    """Yield the lines of a text without its code and without what is no sentence."""
    fenced = False
    for line in text.splitlines():
        start = line.lstrip()
        if start.startswith(_NO_PROSE[-2:]):
            fenced = not fenced
        elif not fenced and not start.startswith(_NO_PROSE):
            yield line


@lru_cache(maxsize=4096)
def _read_text(text: str) -> Sequence[_Read]:
    found: list[_Read] = []
    for line in text.splitlines():
        for start, end in sentences(line, 0, len(line)):
            if sentence := line[start:end].strip():
                found.append(_read(sentence))
    return found


def _read(text: str) -> _Read:
    plain = list(text)
    dates = []
    for written in written_periods(text):
        dates.append((written.period.first, written.period.last))
        plain[written.start : written.end] = " " * (written.end - written.start)
    names = []
    for match in _NAME.finditer("".join(plain)):
        names.append(match[0].casefold())
        if match[0][-1].isdigit():
            plain[match.start() : match.end()] = " " * len(match[0])
    amounts = []
    for match in _AMOUNT.finditer("".join(plain)):
        unit = match["currency"] or (match["unit"] or match["next"] or "").lstrip("-").lower()
        amounts.append((unit, _THOUSANDS.sub("", match["number"])))
        end = match.end("unit") if match["unit"] else match.end("number")
        plain[match.start() : end] = " " * (end - match.start())
    left = "".join(plain)
    # What denies is no word of its own: "is not cached" and "is cached" have the same words.
    bare = _NEGATION.sub(" ", left)
    words = frozenset(_ANALYZER.query_terms(bare)) if bare.strip() else frozenset()
    negation = _NEGATION.search(left)
    negated = [
        (start < (negation.end() if negation else 0), start, term)
        for term, start, end in _ANALYZER.spans(left)
        if term in words and is_negated(left, start, end)
    ]
    denied = min(negated)[2] if negated else ""
    attribute = None
    if stated := _ATTRIBUTE.match(text):
        subject = frozenset(_ANALYZER.query_terms(stated["subject"]))
        attribute = subject, stated["verb"], stated["value"].strip()
    return _Read(
        text=text,
        words=words,
        denied=denied,
        names=frozenset(names),
        amounts=tuple(amounts),
        dates=tuple(dates),
        attribute=attribute,
    )


_ANALYZER: Final = analyzer_for("english")


def _antonyms() -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in _OPPOSITES:
        first, *others = (_ANALYZER.terms(word)[0] for word in line.split())
        for other in others:
            found.setdefault(first, set()).add(other)
            found.setdefault(other, set()).add(first)
    return {word: frozenset(others) for word, others in found.items()}


_ANTONYMS: Final = _antonyms()


SCOPE_CHARACTERS: Final = 80
"""Maximum distance of a negation, in characters; at most four words lie between."""

_TURN = r"(?!(?:although|and|because|but|however|only|so|though|which|while)\b)"
_BETWEEN = rf"(?:[^\w'’.;:!?\n]++{_TURN}[\w'’]++)"
_BE_NOT = r"(?:is|are|was|were|been|be)(?:n['’]t|\s+(?:not|never))"


class Cue(NamedTuple):
    """A pattern of words that negate, and texts in which they do and do not negate ``cream``."""

    pattern: str
    example: str
    counterexample: str


def _any_of(cues: Iterable[Cue]) -> str:
    return "|".join(cue.pattern for cue in cues)


BEFORE: Final = (
    Cue(
        r"no|not|never|neither|nor|none|nothing|cannot|\w+n['’]t",
        "a sauce that does not contain any cream",
        "not only cream",
    ),
    Cue(
        r"without|lack(?:s|ed|ing)?|free\s+(?:from|of)|zero|non",
        "lasagne without cream",
        "without further ado. Cream is added",
    ),
    Cue(
        r"avoid(?:s|ed|ing)?|exclud(?:es?|ed|ing)|except(?:\s+for)?|instead\s+of|rather\s+than|unlike",
        "coconut milk instead of cream",
        "instead of whisking by hand, at last add cream",
    ),
)
"""Words that negate what follows."""
BEHIND: Final = (
    Cue(r"[\s-]free\b", "cream-free sauces", "cream and free drinks"),
    Cue(
        rf"{_BETWEEN}{{0,2}}[^\w'’.;:!?\n]++(?:{_BE_NOT}\s+(?:\w+(?:ed|en|wn)|necessary|part)\b"
        r"|(?:is|are|was|were)\s+(?:excluded|avoided|omitted|unnecessary)\b"
        r"|(?:does|do|did)(?:n['’]t|\s+not)\s+(?:apply|exist|matter|occur)\b)",
        "cream is not needed",
        "cream does not mix with lemon",
    ),
)
"""Words that negate what precedes."""

_BEFORE = re.compile(
    rf"(?<![\w'’])(?:{_any_of(BEFORE)}){_BETWEEN}{{0,4}}[^\w'’.;:!?\n]++$", re.IGNORECASE
)
_BEHIND = re.compile(_any_of(BEHIND), re.IGNORECASE)


def is_negated(text: str, start: int, end: int) -> bool:
    """Return whether the words ``text[start:end]`` are within the scope of a negation.

    The scope is found as by NegEx (Chapman et al., A Simple Algorithm for Identifying Negated
    Findings and Diseases in Discharge Summaries, 2001): words of one clause, a few words after one
    that negates, or before one like ``is not needed``.
    """
    before = text[max(0, start - SCOPE_CHARACTERS) : start]
    behind = text[end : end + SCOPE_CHARACTERS]
    return _BEFORE.search(before) is not None or _BEHIND.match(behind) is not None
