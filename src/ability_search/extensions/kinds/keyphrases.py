"""Keyphrases of a text by C-value: phrases that occur often, and not only within longer ones.

Candidates are runs of words without function words and punctuation between them, and parts of runs
that occur at least twice. The score is that of

    Frantzi, Ananiadou, Mima: Automatic recognition of multi-word terms: the C-value/NC-value
    method. International Journal on Digital Libraries 3(2), 2000,

with 1 added to the length, so that single words have a score too:
``log2(|a| + 1) * (f(a) - mean of f(b) over the candidates b that contain a)``.

In Chinese and Japanese the units are Han characters and runs of katakana, separated by hiragana and
the most frequent Chinese particles.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from ability_search.text.characters import classify
from ability_search.text.languages import STOP_WORDS

Phrase = tuple[str, ...]
"""Units of a phrase, case-folded."""

_MOST_CHARACTERS = 50_000
"""Maximum characters of a text to analyze, from its beginning."""
_MOST_WORDS = 4
_MOST_UNITS_UNSPACED = 8
"""Maximum units of a phrase in Chinese and Japanese."""
_LONGEST_WHOLE = 3
"""Maximum units of a run that is a candidate even if it occurs only once."""
_LONGEST_WORD = 40

_UNIT = re.compile(
    r"(?P<han>h)|(?P<katakana>k[km]*+)|(?P<word>[aAdgt](?:[aAdgtmj]|[-_'.+\#&](?=[aAdgt])|[+\#])*+)"
)
"""Matches units in the class letters of :func:`.classify`, after removal of hiragana."""
_PARTICLES = frozenset("的了是在和与與及或等为為被把而也都就又其之这這那此该該们們着著吗呢吧啊")
_FURTHER_WORDS = """
    above across after again against all almost along already also although always among another
    around away back became because become before began behind below between both came cannot
    doing done down during each either else enough etc even ever every far few first found full
    further gave get gets give given gives go goes going got having hence here hers him however
    indeed instead itself just keep kept know known large last least less let like likely made
    mainly make makes making many may might mine more most mostly much must namely near nearly
    need needs neither never new next nor nothing now obtained off often once one only onto other
    others otherwise ours out over own per perhaps possible presented put quite rather really same
    say says see seem seems seen several shall show showed shown shows since small still take
    taken theirs therefore those though three through thus together too toward towards two under
    unless until up upon us use used uses using usually various very via want way well went
    whether while whole within without yes yet yours
"""
"""English words only; in other languages phrases are longer."""
_SEPARATORS = frozenset(f"{STOP_WORDS['english']} {_FURTHER_WORDS}".split())


def keywords(text: str, *, most: int = 12) -> list[str]:
    """Return the keyphrases of a text, best first, in the spelling of their first occurrence.

    Phrases with equal scores are in order of position. Phrases within a better one are left out.

    Args:
        text: Any text; only its first 50,000 characters are analyzed.
        most: Maximum number of keyphrases.
    """
    written: dict[Phrase, str] = {}
    frequency: Counter[Phrase] = Counter()
    whole: set[Phrase] = set()
    for shown, limit in _runs(text[:_MOST_CHARACTERS]):
        units = tuple(map(str.casefold, shown))
        if len(units) <= _LONGEST_WHOLE:
            whole.add(units)
        for phrase, own in zip(_parts(units, limit), _parts(tuple(shown), limit), strict=True):
            frequency[phrase] += 1
            between = " " if classify(own[0])[0] not in "hk" else ""
            written.setdefault(phrase, between.join(own))
    candidates = {
        phrase: count
        for phrase, count in frequency.items()
        if (count > 1 or phrase in whole) and _has_meaning(phrase)
    }
    scores = _c_values(candidates)
    chosen: list[Phrase] = []
    for phrase in sorted(candidates, key=lambda phrase: -scores[phrase]):
        if len(chosen) == most or scores[phrase] <= 0:
            break
        if not any(phrase in _parts(other, len(phrase)) for other in chosen):
            chosen.append(phrase)
    return [written[phrase] for phrase in chosen]


def _c_values(candidates: Mapping[Phrase, int]) -> dict[Phrase, float]:
    containing: defaultdict[Phrase, list[int]] = defaultdict(list)
    for phrase, count in candidates.items():
        for part in set(_parts(phrase, len(phrase) - 1)):
            containing[part].append(count)
    return {
        phrase: math.log2(len(phrase) + 1)
        * (count - (fmean(within) if (within := containing.get(phrase)) else 0.0))
        for phrase, count in candidates.items()
    }


def _parts(units: Phrase, limit: int) -> Iterator[Phrase]:
    """Yield the runs of up to ``limit`` of these units."""
    for start in range(len(units)):
        for end in range(start + 1, min(start + limit, len(units)) + 1):
            yield units[start:end]


def _runs(text: str) -> Iterator[tuple[Sequence[str], int]]:
    """Yield runs of units as written, each with the maximum units of a phrase."""
    letters = zip(text, classify(text), strict=True)
    classes = "".join(" " if "\u3041" <= char <= "\u309f" else letter for char, letter in letters)
    units: list[str] = []
    limit, end = _MOST_WORDS, 0
    for match in _UNIT.finditer(classes):
        shown = text[match.start() : match.end()]
        kind = _MOST_WORDS if match["word"] else _MOST_UNITS_UNSPACED
        gap = text[end : match.start()]
        separates = (
            shown.casefold() in _SEPARATORS
            or shown in _PARTICLES
            or len(shown) > _LONGEST_WORD
            or (shown.isascii() and len(shown) == 1)
        )
        if units and (separates or kind != limit or gap.strip(" \t") or gap.count("\n")):
            yield units, limit
            units = []
        end = match.end()
        if not separates:
            limit = kind
            units.append(shown)
    if units:
        yield units, limit


def _has_meaning(phrase: Phrase) -> bool:
    text = "".join(phrase)
    return len(text) > 1 and not text.isdecimal()
