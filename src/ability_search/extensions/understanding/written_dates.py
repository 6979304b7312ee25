"""Dates in a text, each with its year: ``2026-03-12``, ``Q1 2026``.

The forms are those of :data:`.time_forms.WRITTEN`. Versions, addresses, identifiers, telephone
numbers, times and amounts are not dates. Two dates joined by ``to``, ``until``, ``through`` or a
dash, or by ``between`` and ``and``, are one period from the first to the second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from ability_search.documents import Document, Labels, Passage
from ability_search.extensions.understanding.periods import Period, buckets, to_numbers
from ability_search.extensions.understanding.time_forms import Mention, written
from ability_search.extensions.understanding.time_words import Tokens, tokens_of

PERIODS_LIMIT: Final = 64
_MAX_DATE_LENGTH = 40
"""Maximum length of a metadata value that is read for dates, in characters."""
_YEAR = re.compile(r"[12]\d{3}(?<!\d\d{4})(?!\d)", re.ASCII)
"""Begins with its digits, which the search for them skips to."""
_CONNECTOR = re.compile(r" ?[-–—ju] ?(?:t )?")
_AND = re.compile(r" ?& ?(?:t )?")
_BETWEEN = re.compile(r"< (?:t )?$")


@dataclass(frozen=True, slots=True)
class Written:
    """A period and its position in a text, in characters."""

    period: Period
    start: int
    end: int


def written_periods(text: str) -> list[Written]:
    """Return the periods that ``text`` names, in order.

    Linear in the length of the text; a text without any year costs one scan for four digits.
    """
    if not _YEAR.search(text):
        return []
    tokens = tokens_of(text)
    found: list[Mention] = []
    for each in written(tokens):
        if found and _joined(tokens, found[-1], each):
            found[-1] = Mention(found[-1].period.to(each.period), found[-1].first, each.last)
        else:
            found.append(each)
    return [Written(each.period, *tokens.span(each.first, each.last)) for each in found]


def chunk_periods(*texts: str, metadata: Mapping[str, Any] | None = None) -> list[Period]:
    """Return the periods that a chunk is about, the first :data:`PERIODS_LIMIT` of them.

    Args:
        texts: Texts of the chunk, most informative first: source, title, headings, content.
        metadata: Its short strings are read too, before the content, also those in lists.

    Returns:
        Without duplicates, each closed at both ends; empty for a chunk without dates.
    """
    values = (metadata or {}).values()
    said = (each for value in values for each in (value if isinstance(value, list) else [value]))
    short = (each for each in said if isinstance(each, str) and len(each) <= _MAX_DATE_LENGTH)
    periods = (
        each.period for text in (*texts[:-1], *short, *texts[-1:]) for each in written_periods(text)
    )
    return list(islice(dict.fromkeys(periods), PERIODS_LIMIT))


def dated(document: Document, passage: Passage) -> Labels:
    """Return the periods that a passage is about, and the keys that filters find it by."""
    periods = chunk_periods(
        document.source,
        document.title,
        passage.breadcrumb,
        passage.content,
        metadata={**document.metadata, **passage.metadata},
    )
    return Labels(buckets(periods), to_numbers(periods))


def _joined(tokens: Tokens, before: Mention, after: Mention) -> bool:
    if _AND.fullmatch(tokens.kinds, before.last, after.first):
        return _BETWEEN.search(tokens.kinds, max(0, before.first - 4), before.first) is not None
    return _CONNECTOR.fullmatch(tokens.kinds, before.last, after.first) is not None
