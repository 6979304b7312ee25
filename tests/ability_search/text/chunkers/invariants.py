"""Invariants of the chunks of every strategy."""

from collections.abc import Sequence

from ability_search.documents import Passage
from ability_search.text.token_counter import TokenCounter


def assert_sound(
    text: str,
    passages: Sequence[Passage],
    counter: TokenCounter,
    max_tokens: int,
    *,
    overlapping: bool = False,
) -> None:
    reached = 0
    for index, passage in enumerate(passages):
        assert passage.content[passage.preface :] == text[passage.start : passage.end]
        assert passage.content.strip()
        assert passage.tokens == counter.count(passage.content)
        assert passage.tokens <= max_tokens or len(passage.content) == 1
        assert len(passage.content) <= 10 * max_tokens
        newlines = text.replace("\r\n", " \n").replace("\r", "\n")
        assert passage.start_line == newlines[: passage.start].count("\n") + 1
        assert passage.end_line == newlines[: passage.end - 1].count("\n") + 1
        skipped = text[reached : passage.start]
        assert not skipped.strip() or (index == 0 and skipped.strip() == "\ufeff")
        if overlapping:
            assert passage.end > reached
        else:
            assert passage.start >= reached
        reached = max(reached, passage.end)
    assert not text[reached:].strip("\ufeff" if not passages else "").strip()
