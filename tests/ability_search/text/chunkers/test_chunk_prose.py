import re

import pytest
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.documents import Passage
from ability_search.text.chunkers.boundaries import paragraphs as blank_line_spans
from ability_search.text.chunkers.boundaries import sentences
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import EstimatedTokens, TokenCounter


def paragraphs(text: str, max_tokens: int) -> list[Passage]:
    return chunk(text, strategy="paragraph", max_tokens=max_tokens)


def windows(text: str, max_tokens: int, overlap: int) -> list[Passage]:
    return chunk(text, strategy="sliding-window", max_tokens=max_tokens, overlap=overlap)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "no." Then he left.', ['He said "no."', "Then he left."]),
        ("Dr. Smith met J. Doe, e.g. at 3.14 p.m. today.", None),
        ("See fig. 3 and No. 5 of vol. 2. Next.", ["See fig. 3 and No. 5 of vol. 2. Next."]),
        (
            "Am 3. Oktober war z.B. Ruhe. Dann nicht.",
            ["Am 3. Oktober war z.B. Ruhe.", "Dann nicht."],
        ),
        ("Born in 1999. Died old.", ["Born in 1999.", "Died old."]),
        (
            "一つ目。二つ目！「三つ目。」四つ目？",
            ["一つ目。", "二つ目！", "「三つ目。」", "四つ目？"],
        ),
        ("Wait... what? Yes", ["Wait... what?", "Yes"]),
        ("v1.2.3 is out at example.com now", None),
        ("  ", []),
    ],
)
def test_sentences(text: str, expected: list[str] | None) -> None:
    found = [text[start:end] for start, end in sentences(text, 0, len(text))]
    assert found == ([text] if expected is None else expected)


def test_short_paragraphs_are_merged_and_boundaries_kept_whole() -> None:
    text = "\n\n".join(f"Cat {name} sat on the mat." for name in "abcdef")
    assert [each.content.count("Cat") for each in paragraphs(text, 24)] == [3, 3]


@pytest.mark.parametrize("gap", ["\n\n", "\n \t\n\n", "\r\n\r\n", "\r\r", "\u2029"])
def test_every_kind_of_blank_line_separates(gap: str) -> None:
    assert [each.content for each in paragraphs(f"one cat{gap}two cats", 3)] == [
        "one cat",
        "two cats",
    ]


def test_one_line_end_of_two_characters_is_no_blank_line() -> None:
    text = "one cat\r\ntwo cats\r\n\r\nthree cats"
    assert [text[start:end] for start, end in blank_line_spans(text, 0, len(text))] == [
        "one cat\r\ntwo cats",
        "three cats",
    ]


def test_a_long_paragraph_is_cut_at_sentences() -> None:
    text = "The cat sat on the mat. " * 20
    contents = [each.content for each in paragraphs(text, 30)]
    assert len(contents) == 5
    assert all(each.endswith("mat.") for each in contents)


def test_a_long_sentence_is_cut_at_words_and_a_long_word_at_signs() -> None:
    assert all(
        set(each.content.split()) <= {"some", "words"} for each in paragraphs("some words " * 50, 9)
    )
    assert "".join(each.content for each in paragraphs("数" * 1000, 64)) == "数" * 1000


def test_lines_are_preferred_to_words_where_there_are_no_sentences() -> None:
    text = "\n".join(f"{n},name {n},some value" for n in range(100))
    assert all(each.content.endswith("some value") for each in paragraphs(text, 50))


def test_a_paragraph_is_not_torn_to_fill_the_chunk_before_it() -> None:
    text = "The cat sat. " * 6 + "\n\n" + "The dog ran far. " * 12
    first = paragraphs(text, 40)[0]
    assert "dog" not in first.content


def test_windows_repeat_at_most_the_overlap_at_word_boundaries(counter: TokenCounter) -> None:
    text = " ".join(f"cat{'s' * (n % 2)} sat {n}" for n in range(400))
    passages = chunk(text, strategy="sliding-window", max_tokens=60, overlap=15, count=counter)
    assert_sound(text, passages, counter, 60, overlapping=True)
    for one, two in zip(passages, passages[1:], strict=False):
        repeated = text[two.start : one.end]
        assert 10 <= counter.count(repeated) <= 15
        assert text[two.start - 1] == " "
        assert text[one.end] == " "


def test_without_overlap_nothing_is_repeated() -> None:
    passages = windows("cat sat mat " * 30, 10, 0)
    assert all(one.end < two.start for one, two in zip(passages, passages[1:], strict=False))


@pytest.mark.parametrize("words", range(18, 32))
def test_no_last_window_only_repeats_the_overlap(words: int) -> None:
    passages = windows("cat " * words, 10, 4)
    assert passages[-1].end > passages[-2].end
    assert all(one.end < two.end for one, two in zip(passages, passages[1:], strict=False))


def test_the_largest_overlap_still_progresses() -> None:
    passages = windows("cat sat mat " * 10, 5, 4)
    assert [each.start for each in passages] == [4 * n for n in range(len(passages))]
    assert passages[-1].end == len("cat sat mat " * 10) - 1


def test_windows_over_unbroken_text_overlap_too() -> None:
    passages = windows("数据库搜索引擎" * 100, 50, 10)
    assert [one.end - two.start for one, two in zip(passages, passages[1:], strict=False)] == [
        10
    ] * (len(passages) - 1)


def test_windows_over_minified_text_cut_between_names() -> None:
    text = "alpha(beta,gamma);" * 100
    for each in windows(text, 40, 5):
        assert set(re.findall(r"\w+", each.content)) == {"alpha", "beta", "gamma"}


def test_a_single_character_beyond_the_limit_is_the_only_exception() -> None:
    class TwoEach(EstimatedTokens):
        def count(self, text: str) -> int:
            return 2 * len(text)

    passages = chunk("ab c", strategy="paragraph", max_tokens=1, count=TwoEach())
    assert [each.content for each in passages] == ["a", "b", "c"]


def test_a_tokenizer_that_counts_more_alone_is_held_to_its_count() -> None:
    class OneMore(EstimatedTokens):
        """As tokenizers do that put a marker before every text."""

        def count(self, text: str) -> int:
            return super().count(text) + 3

    text = "The cat sat on the mat. " * 50
    passages = chunk(text, strategy="paragraph", max_tokens=33, count=OneMore())
    assert_sound(text, passages, OneMore(), 33)
    assert max(each.tokens for each in passages) > 25
