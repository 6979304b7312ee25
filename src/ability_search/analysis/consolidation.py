"""Consolidation of notes: near-duplicates, contradictions, stale notes and missing links. Pure.

The notes are compared first (:func:`compare`). What may contradict can then be judged by others,
before the findings are put together (:meth:`Comparison.report`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ability_search.analysis.consolidation_report import (
    Consolidation,
    ContradictingNotes,
    Duplicate,
    NoteLink,
    StaleNote,
)
from ability_search.analysis.contradictions import (
    Contradiction,
    find_contradiction,
    same_facts,
    shared_words,
)
from ability_search.documents import Vector
from ability_search.understanding.periods import iso_day
from ability_search.understanding.written_dates import written_periods

if TYPE_CHECKING:  # it loads scipy, which workers may be without
    from ability_search.analysis.vector_measures import Nearest

DUPLICATE: Final = 0.95
"""Minimum cosine of duplicates."""
TOPIC: Final = 0.5
"""Minimum cosine of notes that are compared for contradictions."""
RELATED: Final = 0.7
"""Minimum cosine of related notes."""
SHARED_WORDS: Final = 0.2
"""Minimum Jaccard index of the words of two notes that may contradict without a rule."""
NEIGHBOURS: Final = 10
"""Nearest notes that each is compared with."""
RELATED_TO, DERIVES_FROM, CONTRADICTS = "related_to", "derives_from", "contradicts"
"""Kinds of links."""
MOST_STATED: Final = 300
"""Characters of a note that are shown as its statement, if no rule names a sentence."""
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


Pair = tuple[int, int, float]
"""Places of two notes, the smaller first, and their cosine."""


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


@dataclass(frozen=True, slots=True)
class Suspected:
    """Two notes on one topic that may contradict each other."""

    new: Note
    old: Note
    cosine: float
    found: Contradiction | None
    """The contradiction that a rule found."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Notes that were compared."""

    notes: Sequence[Note]
    duplicates: Sequence[Duplicate]
    pairs: Sequence[Pair]
    """Pairs of neighbours without duplicates, the most similar first."""

    def suspected(self, *, limit: int) -> list[Suspected]:
        """Return pairs that may contradict: those that a rule found first, then by cosine.

        Args:
            limit: Maximum number of those that no rule found.
        """
        found: list[Suspected] = []
        others: list[Suspected] = []
        for one, other, cosine in self.pairs:
            new, old = sorted(
                (self.notes[one], self.notes[other]), key=lambda e: (e.day, e.source), reverse=True
            )
            contradiction = find_contradiction(new.text, old.text)
            pair = Suspected(new, old, cosine, contradiction)
            if contradiction is not None:
                found.append(pair)
            elif len(others) < limit and shared_words(new.text, old.text) >= SHARED_WORDS:
                others.append(pair)
        return [*found, *others]

    def report(
        self,
        contradictions: Sequence[ContradictingNotes],
        *,
        today: int,
        longer: int,
        revision: int,
    ) -> Consolidation:
        """Return all findings.

        Args:
            contradictions: The contradictions.
            today: Day from which a date is past.
            longer: Documents that are not compared.
            revision: Revision of the collection.
        """
        stale = [*_superseded(self.notes, contradictions), *_expired(self.notes, today)]
        links = list(_links(self.notes, self.duplicates, contradictions, self.pairs))
        return Consolidation(
            notes=len(self.notes),
            longer=longer,
            revision=revision,
            counts={
                "duplicates": len(self.duplicates),
                "contradictions": len(contradictions),
                "stale": len(stale),
                "links": len(links),
            },
            duplicates=list(self.duplicates),
            contradictions=list(contradictions),
            stale=stale,
            links=links,
        )


def compare(notes: Sequence[Note], vectors: Vector, neighbours: Nearest) -> Comparison:
    """Compare each note with its neighbours.

    Args:
        notes: The notes.
        vectors: Their vectors, of unit length, shape (n, d).
        neighbours: The nearest neighbours of each.
    """
    pairs = sorted(_pairs(neighbours), key=lambda pair: (-pair[2], pair[0], pair[1]))
    duplicates = _duplicates(notes, vectors, pairs)
    aside = {each.source for each in duplicates}
    kept = [pair for pair in pairs if not aside & {notes[pair[0]].source, notes[pair[1]].source}]
    return Comparison(notes, duplicates, kept)


def contradicting(pair: Suspected, *, by_model: bool) -> ContradictingNotes:
    """Return two notes that contradict each other, as a rule or a language model says."""
    found = pair.found
    return ContradictingNotes(
        source=pair.new.source,
        other=pair.old.source,
        rule=None if found is None else found.rule,
        judge="chat" if by_model else "rules",
        statement=pair.new.text[:MOST_STATED] if found is None else found.one,
        other_statement=pair.old.text[:MOST_STATED] if found is None else found.other,
        differing=None if found is None else list(found.differing),
        cosine=pair.cosine,
    )


def _pairs(neighbours: Nearest) -> set[Pair]:
    """Return the pairs of neighbours, the smaller place first."""
    found: dict[tuple[int, int], float] = {}
    for place, (near, cosines) in enumerate(
        zip(neighbours.places.tolist(), neighbours.cosines.tolist(), strict=True)
    ):
        for other, cosine in zip(near, cosines, strict=True):
            if other >= 0 and cosine >= TOPIC:
                found[min(place, other), max(place, other)] = round(min(cosine, 1.0), 4)
    return {(one, other, cosine) for (one, other), cosine in found.items()}


def _duplicates(notes: Sequence[Note], vectors: Vector, pairs: Sequence[Pair]) -> list[Duplicate]:
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
    pairs: Sequence[Pair],
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
        reason = each.rule or each.judge
        yield _link(each.source, each.other, CONTRADICTS, each.cosine, reason)


def _link(source: str, target: str, kind: str, weight: float, reason: str) -> NoteLink:
    return NoteLink(source=source, target=target, kind=kind, weight=weight, reason=reason)
