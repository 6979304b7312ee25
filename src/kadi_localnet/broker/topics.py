"""Subscribers by topic pattern; :class:`kadi_client.patterns.TopicPattern` says what matches."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from kadi_client.patterns import ANY_WORDS, ONE_WORD, TopicPattern

S = TypeVar("S", bound=Hashable)


class _Tail(Generic[S]):
    """A pattern from its first ``#`` on."""

    __slots__ = ("pattern", "subscribers")

    def __init__(self, words: tuple[str, ...]) -> None:
        self.pattern = TopicPattern(words)
        self.subscribers: set[S] = set()


class _Node(Generic[S]):
    __slots__ = ("children", "subscribers", "tails")

    def __init__(self) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.tails: dict[tuple[str, ...], _Tail[S]] = {}
        self.subscribers: set[S] = set()

    def __bool__(self) -> bool:
        return bool(self.children or self.tails or self.subscribers)


class Topics(Generic[S]):
    """Subscribers by pattern: a trie of the words before the first ``#``, and what is left there.

    Matching a channel of w words touches each node, and each rest of a pattern, at most once; a
    rest takes w steps at most.
    """

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()

    def add(self, pattern: str, subscriber: S) -> None:
        """Subscribe; a second time changes nothing."""
        node = self._root
        words, rest = _divided(pattern)
        for word in words:
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node()
            node = child
        if not rest:
            node.subscribers.add(subscriber)
            return
        tail = node.tails.get(rest)
        if tail is None:
            tail = node.tails[rest] = _Tail(rest)
        tail.subscribers.add(subscriber)

    def remove(self, pattern: str, subscriber: S) -> None:
        """Unsubscribe from exactly this pattern; an unknown one is ignored."""
        path: list[tuple[_Node[S], str]] = []
        node = self._root
        words, rest = _divided(pattern)
        for word in words:
            child = node.children.get(word)
            if child is None:
                return
            path.append((node, word))
            node = child
        if not rest:
            node.subscribers.discard(subscriber)
        elif (tail := node.tails.get(rest)) is not None:
            tail.subscribers.discard(subscriber)
            if not tail.subscribers:
                del node.tails[rest]
        for parent, word in reversed(path):
            if parent.children[word]:
                return
            del parent.children[word]

    def match(self, channel: str) -> set[S]:
        """Return the subscribers of every pattern that matches, each once."""
        words = channel.split(".")
        found: set[S] = set()
        reached = [self._root]
        for position, word in enumerate(words):
            _take_tails(reached, words[position:], found)
            reached = [
                child
                for node in reached
                for key in {word, ONE_WORD}
                if (child := node.children.get(key)) is not None
            ]
            if not reached:
                return found
        _take_tails(reached, [], found)
        return found.union(*(node.subscribers for node in reached))

    def __bool__(self) -> bool:
        return bool(self._root)


def _divided(pattern: str) -> tuple[list[str], tuple[str, ...]]:
    """Return the words before the first ``#``, and the pattern from it on."""
    words = pattern.split(".")
    first = words.index(ANY_WORDS) if ANY_WORDS in words else len(words)
    return words[:first], tuple(words[first:])


def _take_tails(nodes: list[_Node[S]], words: list[str], found: set[S]) -> None:
    """Add the subscribers to what fits the rest of a channel."""
    for node in nodes:
        for tail in node.tails.values():
            if tail.pattern.matches(words):
                found |= tail.subscribers
