"""What a collection must hold, given what was acknowledged and what may have happened.

A *state* is the version of a source, or ``None`` if the source is absent. A *world* maps sources to
their possible states; sources that it lacks are absent. There are several worlds while the outcome
of an operation on the whole collection is unknown: all of it happened, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

State = int | None
World = dict[str, frozenset[State]]

LATE_SECONDS = 40.0
"""How long an operation without an answer may still take effect."""

ABSENT: frozenset[State] = frozenset({None})


CLASSES = ("lost", "twice", "let in", "other")


class Violation(Exception):
    """Something that must hold does not.

    ``kind`` is ``lost`` for a state that no acknowledged or possible change explains, ``twice`` for
    chunks that are not there once each, ``let in`` for hostile input that was not refused.
    """

    def __init__(self, expected: str, seen: str, *, kind: str = "other") -> None:
        super().__init__(f"expected {expected}; seen {seen}")
        self.kind = kind
        self.expected = expected
        self.seen = seen


class Expectation:
    """The possible contents of one collection."""

    def __init__(self) -> None:
        self._worlds: list[World] = [{}]
        self._settled_at = 0.0

    def acknowledge(self, changes: Mapping[str, State]) -> None:
        """Record changes that were acknowledged: the sources have these states."""
        for world in self._worlds:
            for source, state in changes.items():
                world[source] = frozenset({state})
        self._merge()

    def doubt(self, changes: Mapping[str, State], now: float) -> None:
        """Record changes whose outcome is unknown: each source has its old or its new state."""
        for world in self._worlds:
            for source, state in changes.items():
                world[source] = world.get(source, ABSENT) | {state}
        self._settled_at = now + LATE_SECONDS
        self._merge()

    def replace(self, whole: Mapping[str, State]) -> None:
        """Record that the whole collection was replaced; an empty mapping deletes it."""
        self._worlds = [{source: frozenset({state}) for source, state in whole.items()}]

    def doubt_replacement(self, whole: Mapping[str, State], now: float) -> None:
        """Record a replacement of unknown outcome: all of the old content, or all of the new."""
        self._worlds.append({source: frozenset({state}) for source, state in whole.items()})
        self._settled_at = now + LATE_SECONDS
        self._merge()

    def settled(self, now: float) -> bool:
        """Return whether no operation of unknown outcome can still take effect."""
        return now >= self._settled_at

    def allows(self, source: str, state: State) -> bool:
        """Return whether a source may have a state."""
        return any(state in world.get(source, ABSENT) for world in self._worlds)

    def certain(self) -> dict[str, int] | None:
        """Return the versions of all present sources; ``None`` if any state is unknown."""
        if len(self._worlds) > 1 or any(len(states) > 1 for states in self._worlds[0].values()):
            return None
        found = {source: next(iter(states)) for source, states in self._worlds[0].items()}
        return {source: state for source, state in found.items() if state is not None}

    def present(self) -> list[str]:
        """Return the sources that are present in every possible world, sorted."""
        worlds = self._worlds
        return sorted(
            source
            for source in worlds[0]
            if all(None not in world.get(source, ABSENT) for world in worlds)
        )

    def observe(self, seen: Mapping[str, State], now: float) -> None:
        """Compare states that were seen with the possible ones, and keep what is still possible.

        Before :meth:`settled`, nothing is ruled out, because a change may still arrive.

        Raises:
            Violation: if no world allows all of ``seen``.
        """
        consistent = [
            world
            for world in self._worlds
            if all(state in world.get(source, ABSENT) for source, state in seen.items())
        ]
        if not consistent:
            raise Violation(self._text(seen), str(dict(sorted(seen.items()))), kind="lost")
        if self.settled(now):
            self._worlds = consistent
            self.acknowledge(seen)

    def adopt(self, seen: Mapping[str, State]) -> None:
        """Continue from what was seen, after a violation."""
        for world in self._worlds:
            world.update({source: frozenset({state}) for source, state in seen.items()})
        self._merge()

    def _text(self, sources: Mapping[str, State]) -> str:
        texts = []
        for world in self._worlds:
            states = {
                source: sorted(world.get(source, ABSENT), key=lambda state: (state is None, state))
                for source in sorted(sources)
            }
            texts.append(str(states))
        return " or ".join(texts)

    def _merge(self) -> None:
        unique: list[World] = []
        for world in self._worlds:
            known = {source: states for source, states in world.items() if states != ABSENT}
            if known not in unique:
                unique.append(known)
        self._worlds = unique
