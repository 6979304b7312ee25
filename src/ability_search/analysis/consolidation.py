"""Consolidation of notes: near-duplicates, contradictions, stale notes and missing links. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ability_search.analysis.consolidation_report import (
    Consolidation,
    ContradictingNotes,
    Duplicate,
    NoteLink,
    StaleNote,
)
from ability_search.analysis.contradictions import find_contradiction, same_facts
from ability_search.analysis.vector_measures import Nearest, Vectors
from ability_search.understanding.periods import iso_day
from ability_search.understanding.written_dates import written_periods

DUPLICATE: Final = 0.95
"""Minimum cosine of duplicates."""
TOPIC: Final = 0.5
"""Minimum cosine of notes that are compared for contradictions."""
RELATED: Final = 0.7
"""Minimum cosine of related notes."""
NEIGHBOURS: Final = 10
"""Nearest notes that each is compared with."""
RELATED_TO, DERIVES_FROM, CONTRADICTS = "related_to", "derives_from", "contradicts"
"""Kinds of links."""
_MOST_RELATED = 3
_NAMED = {
    "source_id": DERIVES_FROM,
    DERIVES_FROM: DERIVES_FROM,
    RELATED_TO: RELATED_TO,
    CONTRADICTS: CONTRADICTS,
}
"""Kinds of the links to the sources that a metadata field names."""
_EXPIRY = ("expires", "expires_at", "expiresAt", "valid_until", "validUntil")
_ENDS = re.compile(
    r"\b(?:expires?|valid|sunsets?|deadline|due|ends?|until|till)\b[^.;!?\n]{0,16}$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Note:
    """A document of one chunk."""

    source: str
    chunk_id: str
    text: str
    day: int
    """Day of its metadata, or on which it was stored."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    links: frozenset[tuple[str, str]] = frozenset()
    """Target and kind of each link."""


def consolidate(
    notes: Sequence[Note],
    vectors: Vectors,
    neighbours: Nearest,
    *,
    today: int,
    longer: int = 0,
    revision: int = 0,
) -> Consolidation:
    """Compare each note with its neighbours; return all findings.

    Args:
        notes: The notes.
        vectors: Their vectors, of unit length, shape (n, d).
        neighbours: The nearest neighbours of each.
        today: Day from which a date is past.
        longer: Documents that are not compared.
        revision: Revision of the collection.
    """
    pairs = sorted(_pairs(neighbours), key=lambda pair: (-pair[2], pair[0], pair[1]))
    duplicates = _duplicates(notes, vectors, pairs)
    aside = {each.source for each in duplicates}
    kept = [pair for pair in pairs if not aside & {notes[pair[0]].source, notes[pair[1]].source}]
    contradictions = list(_contradictions(notes, kept))
    stale = [*_superseded(notes, contradictions), *_expired(notes, today)]
    links = list(_links(notes, duplicates, contradictions, kept))
    return Consolidation(
        notes=len(notes),
        longer=longer,
        revision=revision,
        counts={
            "duplicates": len(duplicates),
            "contradictions": len(contradictions),
            "stale": len(stale),
            "links": len(links),
        },
        duplicates=duplicates,
        contradictions=contradictions,
        stale=stale,
        links=links,
    )


def _pairs(neighbours: Nearest) -> set[tuple[int, int, float]]:
    """Return the pairs of neighbours, the smaller place first."""
    found: dict[tuple[int, int], float] = {}
    for place, (near, cosines) in enumerate(
        zip(neighbours.places.tolist(), neighbours.cosines.tolist(), strict=True)
    ):
        for other, cosine in zip(near, cosines, strict=True):
            if other >= 0 and cosine >= TOPIC:
                found[min(place, other), max(place, other)] = round(min(cosine, 1.0), 4)
    return {(one, other, cosine) for (one, other), cosine in found.items()}


def _duplicates(
    notes: Sequence[Note], vectors: Vectors, pairs: Sequence[tuple[int, int, float]]
) -> list[Duplicate]:
    """Return the duplicates; each is one of the note that is kept, which is none itself."""
    group = list(range(len(notes)))

    def root(place: int) -> int:
        while group[place] != place:
            group[place] = group[group[place]]
            place = group[place]
        return place

    for one, other, cosine in pairs:
        if cosine >= DUPLICATE and same_facts(notes[one].text, notes[other].text):
            group[root(one)] = root(other)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place in range(len(notes)):
        members[root(place)].append(place)
    found = []
    for places in members.values():
        best = min(places, key=lambda n: (-len(notes[n].text), -notes[n].day, notes[n].source))
        for place in places:
            cosine = float(np.dot(vectors[place], vectors[best]))
            same = same_facts(notes[place].text, notes[best].text)
            if place != best and cosine >= DUPLICATE and same:
                found.append(
                    Duplicate(
                        source=notes[place].source,
                        kept=notes[best].source,
                        cosine=round(min(cosine, 1.0), 4),
                    )
                )
    return sorted(found, key=lambda each: (-each.cosine, each.source))


def _contradictions(
    notes: Sequence[Note], pairs: Sequence[tuple[int, int, float]]
) -> Iterator[ContradictingNotes]:
    for one, other, cosine in pairs:
        new, old = sorted(
            (notes[one], notes[other]), key=lambda each: (each.day, each.source), reverse=True
        )
        found = find_contradiction(new.text, old.text)
        if found is not None:
            yield ContradictingNotes(
                source=new.source,
                other=old.source,
                rule=found.rule,
                statement=found.one,
                other_statement=found.other,
                differing=list(found.differing),
                cosine=cosine,
            )


def _superseded(
    notes: Sequence[Note], contradictions: Sequence[ContradictingNotes]
) -> Iterator[StaleNote]:
    day = {note.source: note.day for note in notes}
    seen: set[str] = set()
    for each in contradictions:
        if day[each.other] < day[each.source] and each.other not in seen:
            seen.add(each.other)
            yield StaleNote(source=each.other, reason="superseded", by=each.source)


def _expired(notes: Sequence[Note], today: int) -> Iterator[StaleNote]:
    for note in notes:
        last = max(_ends(note), default=today)
        if last < today:
            yield StaleNote(source=note.source, reason="expired", date=iso_day(last))


def _ends(note: Note) -> Iterator[int]:
    """Yield the last days on which a note says that it is valid."""
    for name in _EXPIRY:
        for written in written_periods(str(note.metadata.get(name, ""))[:40]):
            if written.period.last is not None:
                yield written.period.last
    for written in written_periods(note.text):
        before = note.text[max(0, written.start - 24) : written.start]
        if written.period.last is not None and _ENDS.search(before):
            yield written.period.last


def _links(
    notes: Sequence[Note],
    duplicates: Sequence[Duplicate],
    contradictions: Sequence[ContradictingNotes],
    pairs: Sequence[tuple[int, int, float]],
) -> Iterator[NoteLink]:
    """Yield the links that the notes do not have yet, in either direction."""
    known = {(note.source, *link) for note in notes for link in note.links}
    linked = {frozenset((each.source, each.kept)) for each in duplicates}
    for link in (*_named_links(notes), *_contradiction_links(contradictions)):
        ends = (link.source, link.target), (link.target, link.source)
        if known.isdisjoint((*each, link.kind) for each in ends):
            known.add((link.source, link.target, link.kind))
            yield link
    linked |= {frozenset((source, target)) for source, target, _ in known}
    count: defaultdict[str, int] = defaultdict(int)
    for one, other, cosine in pairs:
        source, target = sorted((notes[one].source, notes[other].source))
        if cosine < RELATED or max(count[source], count[target]) >= _MOST_RELATED:
            continue
        count[source] += 1
        count[target] += 1
        if frozenset((source, target)) not in linked:
            yield _link(source, target, RELATED_TO, cosine, f"cosine {cosine:.2f}")


def _named_links(notes: Sequence[Note]) -> Iterator[NoteLink]:
    """Yield the links to the notes that the metadata of others names."""
    names = {note.source for note in notes}
    for note in notes:
        for name, kind in _NAMED.items():
            value = note.metadata.get(name)
            for target in value if isinstance(value, list) else [value]:
                if target != note.source and isinstance(target, str) and target in names:
                    yield _link(note.source, target, kind, 1.0, f"metadata.{name}")


def _contradiction_links(contradictions: Sequence[ContradictingNotes]) -> Iterator[NoteLink]:
    for each in contradictions:
        yield _link(each.source, each.other, CONTRADICTS, each.cosine, each.rule)


def _link(source: str, target: str, kind: str, weight: float, reason: str) -> NoteLink:
    return NoteLink(source=source, target=target, kind=kind, weight=weight, reason=reason)
