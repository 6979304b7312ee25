"""Topic patterns as AMQP 0-9-1 topic exchanges know them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

ONE_WORD = "*"
ANY_WORDS = "#"

S = TypeVar("S", bound=Hashable)


class _Node(Generic[S]):
    __slots__ = ("children", "repeats", "subscribers")

    def __init__(self, *, repeats: bool = False) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.subscribers: set[S] | None = None
        self.repeats = repeats
        """Whether it stays reached, since its word is ``#``."""

    def __bool__(self) -> bool:
        return bool(self.children or self.subscribers)


class Topics(Generic[S]):
    """Subscribers by pattern, in a trie of the words of all patterns.

    The words of a pattern are separated by dots: ``*`` stands for exactly one word, ``#`` for zero
    or more. Everything else, the empty word included, stands for itself.

    Matching follows all ways through the trie at once: each word of a channel costs at most one
    visit of each node, however many ways lead to it.
    """

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()

    def add(self, pattern: str, subscriber: S) -> None:
        """Subscribe; a second time changes nothing."""
        node = self._root
        for word in pattern.split("."):
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(repeats=word == ANY_WORDS)
            node = child
        if node.subscribers is None:
            node.subscribers = set()
        node.subscribers.add(subscriber)

    def remove(self, pattern: str, subscriber: S) -> None:
        """Unsubscribe from exactly this pattern; an unknown one is ignored."""
        path: list[tuple[_Node[S], str]] = []
        node = self._root
        for word in pattern.split("."):
            child = node.children.get(word)
            if child is None:
                return
            path.append((node, word))
            node = child
        if node.subscribers is not None:
            node.subscribers.discard(subscriber)
        for parent, word in reversed(path):
            if parent.children[word]:
                return
            del parent.children[word]

    def match(self, channel: str) -> set[S]:
        """Return the subscribers of every pattern that matches, each once."""
        reached: dict[_Node[S], None] = {}
        _reach(self._root, reached)
        for word in channel.split("."):
            before, reached = reached, {}
            for node in before:
                if node.repeats:
                    _reach(node, reached)
                _reach(node.children.get(word), reached)
                _reach(node.children.get(ONE_WORD), reached)
        found: set[S] = set()
        return found.union(*(node.subscribers for node in reached if node.subscribers))

    def __bool__(self) -> bool:
        return bool(self._root)


def _reach(node: _Node[S] | None, reached: dict[_Node[S], None]) -> None:
    """Add a node, and those that follow it without a word."""
    while node is not None and node not in reached:
        reached[node] = None
        node = node.children.get(ANY_WORDS)
