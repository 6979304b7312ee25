"""Consolidation of notes: near-duplicates, contradictions, stale notes and missing links. Pure.

The notes are compared first (:func:`compare`). What may contradict can then be judged by others,
before the findings are put together (:meth:`NoteComparison.report`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ability_search.documents import Vector
from ability_search.extensions.notes.consolidation_report import (
    Consolidation,
    ContradictingNotes,
    Duplicate,
    NoteLink,
    StaleNote,
)
from ability_search.extensions.notes.contradictions import (
    find_contradiction,
    same_facts,
    shared_words,
)
from ability_search.extensions.notes.graph_analysis import NoteChunk
from ability_search.extensions.understanding.periods import day_of, iso_day
from ability_search.extensions.understanding.written_dates import written_periods
from ability_search.store.records import SourceRecord
from ability_search.wire import Result

if TYPE_CHECKING:  # it loads scipy, which workers may be without
    from ability_search.extensions.notes.vector_measures import Nearest

DUPLICATE: Final = 0.95
"""Minimum cosine of chunks that match."""
SHARE: Final = 0.8
"""Minimum share of the chunks of a note that match one of its duplicate, all of whose match."""
TOPIC: Final = 0.5
"""Minimum cosine of chunks that are compared for contradictions."""
RELATED: Final = 0.7
"""Minimum cosine of chunks of related notes."""
SHARED_WORDS: Final = 0.2
"""Minimum Jaccard index of the words of two chunks that may contradict without a rule."""
NEIGHBOURS: Final = 10
"""Nearest chunks of other notes that each is compared with."""
COMPARED: Final = 100_000
"""Maximum number of pairs of chunks that are compared for contradictions."""
RELATED_TO, DERIVES_FROM, CONTRADICTS = "related_to", "derives_from", "contradicts"
"""Kinds of links."""
MOST_STATED: Final = 300
"""Characters of a chunk that are shown as its statement, if no rule names a sentence."""
_MOST_RELATED = 3
_NAMED = {
    "source_id": DERIVES_FROM,
    DERIVES_FROM: DERIVES_FROM,
    RELATED_TO: RELATED_TO,
    CONTRADICTS: CONTRADICTS,
}
"""Kinds of the links to the sources that a metadata field names."""
_TIMES = ("time", "date", "timestamp", "updated_at", "updatedAt", "created_at", "createdAt")
"""Fields of metadata with the time of a note."""
_EXPIRY = ("expires", "expires_at", "expiresAt", "valid_until", "validUntil")
_ENDS = re.compile(
    r"\b(?:expires?|valid|sunsets?|deadline|due|ends?|until|till)\b[^.;!?\n]{0,16}$", re.IGNORECASE
)


Pair = tuple[int, int, float]
"""Places of two chunks of different notes, the smaller first, and their cosine."""
Notes = Mapping[str, SourceRecord]
"""Notes by source."""


@dataclass(frozen=True, slots=True)
class NoteComparison:
    """Notes that were compared."""

    notes: Notes
    chunks: Sequence[NoteChunk]
    duplicates: Sequence[Duplicate]
    pairs: Sequence[Pair]
    """Pairs of neighbours without those of duplicates, the most similar first."""

    def suspected(self, *, limit: int) -> list[ContradictingNotes]:
        """Return pairs that may contradict: those that a rule found first, then by cosine.

        Args:
            limit: Maximum number of those that no rule found.
        """
        found: list[ContradictingNotes] = []
        others: list[ContradictingNotes] = []
        for one, other, cosine in self.pairs[:COMPARED]:
            old, new = sorted(
                (self.chunks[one], self.chunks[other]), key=lambda each: (each.day, each.source)
            )
            said: Mapping[str, Any]
            if contradiction := find_contradiction(new.text, old.text):
                said, suspected = contradiction._asdict(), found
            elif len(others) < limit and shared_words(new.text, old.text) >= SHARED_WORDS:
                texts = new.text[:MOST_STATED], old.text[:MOST_STATED]
                said = dict(zip(("statement", "other_statement"), texts, strict=True))
                suspected = others
            else:
                continue
            suspected.append(
                ContradictingNotes(
                    source=new.source,
                    other=old.source,
                    chunk_id=new.chunk_id,
                    other_chunk_id=old.chunk_id,
                    cosine=cosine,
                    **said,
                )
            )
        return [*found, *others]

    def report(
        self, contradictions: Sequence[ContradictingNotes], *, today: int, revision: int
    ) -> Consolidation:
        """Return all findings.

        Args:
            contradictions: The contradictions.
            today: Day from which a date is past.
            revision: Revision of the collection.
        """
        days = {each.source: each.day for each in self.chunks}
        stale = [*_superseded(days, contradictions), *_expired(self.chunks, self.notes, today)]
        related: dict[tuple[str, str], float] = {}
        for one, other, cosine in self.pairs:
            if cosine >= RELATED:  # the greatest of the chunks of two notes comes first
                source, target = sorted((self.chunks[one].source, self.chunks[other].source))
                related.setdefault((source, target), cosine)
        links = list(_links(self.notes, self.duplicates, contradictions, related))
        lists: dict[str, Sequence[Result]] = {
            "duplicates": self.duplicates,
            "contradictions": contradictions,
            "stale": stale,
            "links": links,
        }
        return Consolidation(
            notes=len(days),
            chunks=len(self.chunks),
            revision=revision,
            counts={name: len(found) for name, found in lists.items()},
            **lists,
        )


def compare(chunks: Sequence[NoteChunk], vectors: Vector, notes: Notes) -> NoteComparison:
    """Compare each chunk with the nearest ones of other notes.

    Args:
        chunks: The chunks; those of no note are left out.
        vectors: Their vectors, of unit length, shape (n, d).
        notes: The notes.
    """
    # Loading scipy takes a moment, and workers may be without it.
    from ability_search.extensions.notes.vector_measures import nearest

    days = {
        source: next(_named_days(note.metadata, _TIMES), day_of(note.indexed_at))
        for source, note in notes.items()
    }
    places = [place for place, each in enumerate(chunks) if each.source in days]
    own = [replace(chunks[place], day=days[chunks[place].source]) for place in places]
    vectors = vectors[places]
    _, groups = np.unique([each.source for each in own], return_inverse=True)
    found = _pairs(nearest(vectors, limit=NEIGHBOURS, groups=groups))
    pairs = sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))
    duplicates = _duplicates(own, vectors, pairs)
    aside = {each.source for each in duplicates}
    indexed = [each.source not in aside for each in own]
    left = [pair for pair in pairs if indexed[pair[0]] and indexed[pair[1]]]
    compared = {each.source: notes[each.source] for each in own}
    return NoteComparison(compared, own, duplicates, left)


def _named_days(metadata: Mapping[str, Any], names: Iterable[str]) -> Iterator[int]:
    """Yield the last days of the dates in some fields of metadata."""
    for name in names:
        for written in written_periods(str(metadata.get(name, ""))[:40]):
            if written.period.last is not None:
                yield written.period.last


def _pairs(neighbours: Nearest) -> set[Pair]:
    """Return the pairs of neighbours, the smaller place first."""
    places, cosines = neighbours.places.tolist(), neighbours.cosines.tolist()
    found: dict[tuple[int, int], float] = {}
    for place, rank in np.argwhere(neighbours.cosines >= TOPIC).tolist():
        ends = place, places[place][rank]
        found[min(ends), max(ends)] = round(min(cosines[place][rank], 1.0), 4)
    return {(one, other, cosine) for (one, other), cosine in found.items()}


def _duplicates(
    chunks: Sequence[NoteChunk], vectors: Vector, pairs: Sequence[Pair]
) -> list[Duplicate]:
    """Return the duplicates; each is one of the note that is kept, which is none itself."""
    own: defaultdict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(chunks):
        own[each.source].append(place)
    lengths = {source: sum(len(chunks[n].text) for n in own[source]) for source in own}

    def preference(source: str) -> tuple[int, int, str]:
        return -lengths[source], -chunks[own[source][0]].day, source

    similar: defaultdict[str, set[str]] = defaultdict(set)
    for one, other, cosine in pairs:
        if cosine >= DUPLICATE:
            similar[chunks[one].source].add(chunks[other].source)
            similar[chunks[other].source].add(chunks[one].source)
    standing: set[str] = set()
    found = []
    for source in sorted(own, key=preference):
        preferred = sorted(similar[source] & standing, key=preference)
        repeated = (_repeated(chunks, vectors, own[source], own[kept]) for kept in preferred)
        duplicate = next((each for each in repeated if each is not None), None)
        if duplicate is None:
            standing.add(source)
        else:
            found.append(duplicate)
    return sorted(found, key=lambda each: (-each.cosine, each.source))


def _repeated(
    chunks: Sequence[NoteChunk], vectors: Vector, own: Sequence[int], kept: Sequence[int]
) -> Duplicate | None:
    """Return a note as a duplicate of another one, unless it is none; both as places of chunks."""
    cosines = vectors[own] @ vectors[kept].T
    match = cosines >= DUPLICATE
    for one, other in np.argwhere(match).tolist():
        match[one, other] = same_facts(chunks[own[one]].text, chunks[kept[other]].text)
    share = float(match.any(axis=0).mean())
    if not match.any(axis=1).all() or share < SHARE:
        return None
    least = float(np.where(match, cosines, 0).max(axis=1).min())
    return Duplicate(
        source=chunks[own[0]].source,
        kept=chunks[kept[0]].source,
        cosine=round(min(least, 1.0), 4),
        share=round(share, 4),
    )


def _superseded(
    days: Mapping[str, int], contradictions: Sequence[ContradictingNotes]
) -> Iterator[StaleNote]:
    seen: set[str] = set()
    for each in contradictions:
        if days[each.other] < days[each.source] and each.other_chunk_id not in seen:
            seen.add(each.other_chunk_id)
            yield StaleNote(
                source=each.other, chunk_id=each.other_chunk_id, reason="superseded", by=each.source
            )


def _expired(chunks: Sequence[NoteChunk], notes: Notes, today: int) -> Iterator[StaleNote]:
    """Yield the notes that expired as their metadata say, and else the chunks that say so."""
    ends = {
        source: max(_named_days(note.metadata, _EXPIRY), default=None)
        for source, note in notes.items()
    }
    for source, last in ends.items():
        if last is not None and last < today:
            yield StaleNote(source=source, reason="expired", date=iso_day(last))
    for each in chunks:
        last = max(_ends(each.text), default=today) if ends[each.source] is None else today
        if last < today:
            yield StaleNote(
                source=each.source, chunk_id=each.chunk_id, reason="expired", date=iso_day(last)
            )


def _ends(text: str) -> Iterator[int]:
    """Yield the last days on which a text says that it is valid."""
    for written in written_periods(text):
        before = text[max(0, written.start - 24) : written.start]
        if written.period.last is not None and _ENDS.search(before):
            yield written.period.last


def _links(
    notes: Notes,
    duplicates: Sequence[Duplicate],
    contradictions: Sequence[ContradictingNotes],
    related: Mapping[tuple[str, str], float],
) -> Iterator[NoteLink]:
    """Yield the links that the notes do not have yet, in either direction."""
    known = {
        (source, str(link["target"]), str(link["kind"]))
        for source, note in notes.items()
        for link in note.links
    }
    linked = {frozenset((each.source, each.kept)) for each in duplicates}
    contradicting = (
        _link(each.source, each.other, CONTRADICTS, each.cosine, each.rule or each.judge)
        for each in contradictions
    )
    for link in (*_named_links(notes), *contradicting):
        ends = (link.source, link.target), (link.target, link.source)
        if known.isdisjoint((*each, link.kind) for each in ends):
            known.add((link.source, link.target, link.kind))
            yield link
    linked |= {frozenset((source, target)) for source, target, _ in known}
    count: defaultdict[str, int] = defaultdict(int)
    for (source, target), cosine in related.items():
        if max(count[source], count[target]) >= _MOST_RELATED:
            continue
        count[source] += 1
        count[target] += 1
        if frozenset((source, target)) not in linked:
            yield _link(source, target, RELATED_TO, cosine, f"cosine {cosine:.2f}")


def _named_links(notes: Notes) -> Iterator[NoteLink]:
    """Yield the links to the notes that the metadata of others names."""
    for note in notes.values():
        for name, kind in _NAMED.items():
            value = note.metadata.get(name)
            for target in value if isinstance(value, list) else [value]:
                if target != note.source and isinstance(target, str) and target in notes:
                    yield _link(note.source, target, kind, 1.0, f"metadata.{name}")


def _link(source: str, target: str, kind: str, weight: float, reason: str) -> NoteLink:
    return NoteLink(source=source, target=target, kind=kind, weight=weight, reason=reason)
