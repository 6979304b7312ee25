"""Topic patterns as AMQP 0-9-1 topic exchanges know them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ONE_WORD = "*"
ANY_WORDS = "#"


class TopicPattern:
    """A pattern of words: ``*`` stands for exactly one word, ``#`` for zero or more.

    Everything else, the empty word included, stands for itself. All places of the pattern that a
    channel can have reached are the bits of one number (the shift-and algorithm), so that every
    word of a channel costs a few operations, whatever the pattern.

    Args:
        words: The pattern, split at its dots.
    """

    __slots__ = ("_any", "_end", "_places", "_repeats")

    def __init__(self, words: Iterable[str]) -> None:
        self._places: dict[str, int] = {}
        self._any = self._repeats = 0
        place = 1
        for word in words:
            if word == ANY_WORDS:
                if self._repeats & place >> 1:
                    continue  # Two in a row say no more than one.
                self._repeats |= place
            elif word == ONE_WORD:
                self._any |= place
            else:
                self._places[word] = self._places.get(word, 0) | place
            place <<= 1
        self._end = place

    def matches(self, channel: Sequence[str]) -> bool:
        """Return whether a channel, split at its dots, fits."""
        repeats, any_word, places = self._repeats, self._any, self._places
        reached = 1 | (repeats & 1) << 1
        for word in channel:
            reached = (reached & (any_word | places.get(word, 0))) << 1 | reached & repeats
            reached |= (reached & repeats) << 1
            if not reached:
                return False
        return reached & self._end != 0
