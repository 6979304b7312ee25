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

from ability_search.text.characters import classify

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
_FUNCTION_WORDS = """
    a about above across after again against all almost along already also although always am
    among an and another any are around as at away back be became because become been before
    began behind being below between both but by came can cannot could did do does doing done
    down during each either else enough etc even ever every far few first for found from full
    further gave get gets give given gives go goes going got had has have having he hence her
    here hers him his how however i if in indeed instead into is it its itself just keep kept
    know known large last least less let like likely made mainly make makes making many may me
    might mine more most mostly much must my namely near nearly need needs neither never new
    next no nor not nothing now obtained of off often on once one only onto or other others
    otherwise our ours out over own per perhaps possible presented put quite rather really same
    say says see seem seems seen several shall she should show showed shown shows since small so
    some still such take taken than that the their theirs them then there therefore these they
    this those though three through thus to together too toward towards two under unless until
    up upon us use used uses using usually various very via want was way we well went were what
    when where whether which while who whole whom whose why will with within without would yes
    yet you your yours
"""
"""English words only; in other languages phrases are longer."""
_SEPARATORS = frozenset(_FUNCTION_WORDS.split())


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
        for start in range(len(units)):
            for end in range(start + 1, min(start + limit, len(units)) + 1):
                phrase = units[start:end]
                frequency[phrase] += 1
                written.setdefault(phrase, _joined(shown[start:end]))
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
        if not any(_within(phrase, other) for other in chosen):
            chosen.append(phrase)
    return [written[phrase] for phrase in chosen]


def _c_values(candidates: Mapping[Phrase, int]) -> dict[Phrase, float]:
    containing: defaultdict[Phrase, list[int]] = defaultdict(list)
    for phrase, count in candidates.items():
        parts = {
            phrase[start:end]
            for start in range(len(phrase))
            for end in range(start + 1, len(phrase) + 1)
            if end - start < len(phrase)
        }
        for part in parts & candidates.keys():
            containing[part].append(count)
    return {
        phrase: math.log2(len(phrase) + 1) * (count - _mean(containing.get(phrase, ())))
        for phrase, count in candidates.items()
    }


def _runs(text: str) -> Iterator[tuple[Sequence[str], int]]:
    """Yield runs of units as written, each with the maximum units of a phrase."""
    letters = zip(text, classify(text), strict=True)
    classes = "".join(" " if _is_hiragana(char) else letter for char, letter in letters)
    units: list[str] = []
    limit, end = _MOST_WORDS, 0
    for match in _UNIT.finditer(classes):
        shown = text[match.start() : match.end()]
        kind = _MOST_WORDS if match["word"] else _MOST_UNITS_UNSPACED
        gap = text[end : match.start()]
        separates = _separates(shown)
        if units and (separates or kind != limit or gap.strip(" \t") or gap.count("\n")):
            yield units, limit
            units = []
        end = match.end()
        if not separates:
            limit = kind
            units.append(shown)
    if units:
        yield units, limit


def _is_hiragana(char: str) -> bool:
    return "\u3041" <= char <= "\u309f"


def _separates(word: str) -> bool:
    """Return whether a unit separates phrases."""
    return (
        word.casefold() in _SEPARATORS
        or word in _PARTICLES
        or len(word) > _LONGEST_WORD
        or (word.isascii() and len(word) == 1)
    )


def _has_meaning(phrase: Phrase) -> bool:
    text = "".join(phrase)
    return len(text) > 1 and not text.isdecimal()


def _within(phrase: Phrase, other: Phrase) -> bool:
    size = len(phrase)
    return any(other[at : at + size] == phrase for at in range(len(other) - size + 1))


def _joined(units: Sequence[str]) -> str:
    return (" " if classify(units[0])[0] not in "hk" else "").join(units)


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values) if values else 0.0
