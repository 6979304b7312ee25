"""Languages of texts: detection, names and stemmers.

Languages are ISO 639 codes of two letters, empty if unknown; an analyzer has its own names. The
detector is py3langid (extra ``languages``); without it, only English is recognized.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from typing import Any, Final

ENGLISH: Final = "en"

STOP_WORDS = {
    "english": """
        a about am an and any are as at be been being but by can could did do does for from had
        has have he her his how i if in into is it its me my no not of on or our she should so
        some such than that the their them then there these they this to was we were what when
        where which who whom whose why will with would you your
    """
}
"""Function words and question words. Question words are rare in notes, so that inverse document
frequency alone would give them the highest weight. Removing them from queries, measured: nDCG@10
.599 -> .626 on short notes, .372 -> .378 on abstracts; from documents too: .615, .380."""

_CODES = """
    ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish
    et:estonian eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian
    id:indonesian it:italian lt:lithuanian ne:nepali nl:dutch no:norwegian pl:polish pt:portuguese
    ro:romanian ru:russian sr:serbian sv:swedish ta:tamil tr:turkish yi:yiddish
"""
_STEMMERS = dict(pair.split(":") for pair in _CODES.split())
"""Snowball stemmers by language; other languages are not stemmed."""
_OTHER_NAMES = {"ja": "Japanese", "ko": "Korean", "th": "Thai", "vi": "Vietnamese", "zh": "Chinese"}

_SAME_WRITING = {"wuu": "zh", "yue": "zh", "lzh": "zh", "nb": "no", "nn": "no", "pcm": "en"}
"""Languages that count as another one, which is written alike."""
_DOCUMENTS = 40
_CHARACTERS = 400
"""Characters of each document that are read: its beginning."""
_SHORTEST = 100
"""Bytes of text below which the language stays unknown; Chinese has three bytes a character."""
_LIKELY = 0.9
"""Minimum probability of a detected language."""
_FUNCTION_WORDS = 0.2
"""Minimum share of function words that makes a text English without the detector, which takes
100 MB and a second. Measured: abstracts .32 to .41, conversations .36, technical notes .13; Dutch
and German .12."""


def detect_language(texts: Iterable[str]) -> str:
    """Return the language of the first texts together; empty if it is not clear.

    Example:
        >>> detect_language(["The database keeps a log of all that was written to the disk. " * 2])
        'en'
    """
    sample = "\n".join(text[:_CHARACTERS] for text in islice(filter(None, texts), _DOCUMENTS))
    if len(sample.encode("utf-8", "replace")) < _SHORTEST:
        return ""
    words = sample.lower().split()
    english = frozenset(STOP_WORDS["english"].split())
    if sum(word in english for word in words) >= _FUNCTION_WORDS * len(words):
        return ENGLISH
    detector = _detector()
    if detector is None:
        return ""
    likely: Counter[str] = Counter()
    for language, probability in detector.rank(sample):
        likely[_SAME_WRITING.get(language, language)] += probability
    ((likeliest, share),) = likely.most_common(1)
    return likeliest if share >= _LIKELY and len(likeliest) == 2 else ""


@lru_cache(maxsize=1)
def _detector() -> Any:
    """Return the detector; ``None`` if it is not installed."""
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def stemmer_of(language: str) -> str:
    """Return the name of an analyzer for a language; that without stemming if there is none."""
    return _STEMMERS.get(language, "none")


def language_of(analyzer: str) -> str:
    """Return the language that an analyzer is for; empty for one without stemming."""
    return next((code for code, name in _STEMMERS.items() if name == analyzer), "")


def language_name(language: str) -> str:
    """Return the English name of a language, or its code."""
    named = _STEMMERS.get(language, "").capitalize() or _OTHER_NAMES.get(language)
    return named or f"the language {language!r}"
