"""Topic patterns as AMQP 0-9-1 topic exchanges know them.

Words are separated by dots; in a pattern ``*`` stands for exactly one word and ``#`` for zero or
more. Everything else, the empty word of ``a..b`` included, stands for itself.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)

ONE_WORD = "*"
ANY_WORDS = "#"


class _Node(Generic[S]):
    __slots__ = ("children", "repeats", "subscribers")

    def __init__(self, *, repeats: bool = False) -> None:
        self.children: dict[str, _Node[S]] = {}
        self.subscribers: set[S] = set()
        self.repeats = repeats


class Topics(Generic[S]):
    """Subscribers by pattern, in a trie that is read as a nondeterministic automaton.

    Matching a channel of w words touches each node at most once per word, whatever the patterns.
    """

    __slots__ = ("_root",)

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
        node.subscribers.add(subscriber)

    def remove(self, pattern: str, subscriber: S) -> None:
        """Unsubscribe from exactly this pattern; what is not there needs no removing."""
        path: list[tuple[_Node[S], str]] = []
        node = self._root
        for word in pattern.split("."):
            child = node.children.get(word)
            if child is None:
                return
            path.append((node, word))
            node = child
        node.subscribers.discard(subscriber)
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.children or child.subscribers:
                return
            del parent.children[word]

    def match(self, channel: str) -> set[S]:
        """Subscribers of every pattern that matches, each once."""
        reached: set[_Node[S]] = set()
        _reach(self._root, reached)
        for word in channel.split("."):
            following: set[_Node[S]] = set()
            for node in reached:
                if node.repeats:
                    _reach(node, following)
                for key in (word, ONE_WORD):
                    if (child := node.children.get(key)) is not None:
                        _reach(child, following)
            reached = following
            if not reached:
                break
        return {subscriber for node in reached for subscriber in node.subscribers}

    def __bool__(self) -> bool:
        return bool(self._root.children)


def _reach(node: _Node[S] | None, reached: set[_Node[S]]) -> None:
    """Add a node, and those behind it that ``#`` opens without consuming a word."""
    while node is not None and node not in reached:
        reached.add(node)
        node = node.children.get(ANY_WORDS)
