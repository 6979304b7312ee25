"""Chunking: properties of every strategy, prose, windows and the automatic choice."""

from __future__ import annotations

import json
import re
import time
import tracemalloc

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ability_search.text.chunkers.invariants import assert_sound
from tests.examples import examples

from ability_search.documents import Passage
from ability_search.errors import InvalidInput, TooLarge
from ability_search.text.chunkers.strategies import STRATEGIES, chunk
from ability_search.text.token_counter import EstimatedTokens, TokenCounter


def paragraphs(text: str, max_tokens: int) -> list[Passage]:
    return chunk(text, strategy="paragraph", max_tokens=max_tokens)


def test_short_paragraphs_are_merged_and_boundaries_kept_whole() -> None:
    text = "\n\n".join(f"Cat {name} sat on the mat." for name in "abcdef")
    assert [each.content.count("Cat") for each in paragraphs(text, 24)] == [3, 3]


@pytest.mark.parametrize("gap", ["\n\n", "\n \t\n\n", "\r\n\r\n", "\r\r", "\u2029"])
def test_every_kind_of_blank_line_separates_paragraphs(gap: str) -> None:
    assert [each.content for each in paragraphs(f"one cat{gap}two cats", 3)] == [
        "one cat",
        "two cats",
    ]


@given(st.text(alphabet="aB. \n\t\f\u2029数", max_size=60), st.integers(1, 40))
def test_plain_text_that_fits_is_the_chunk_that_its_paragraphs_are_packed_into(
    text: str, max_tokens: int
) -> None:
    whole = chunk(text, format="text", max_tokens=max_tokens)
    assert whole == paragraphs(text, max_tokens)


def test_a_long_paragraph_is_cut_at_sentences() -> None:
    text = "The cat sat on the mat. " * 20
    contents = [each.content for each in paragraphs(text, 30)]
    assert len(contents) == 5
    assert all(each.endswith("mat.") for each in contents)


def test_a_long_sentence_is_cut_at_words_and_a_long_word_between_characters() -> None:
    assert all(
        set(each.content.split()) <= {"some", "words"} for each in paragraphs("some words " * 50, 9)
    )
    assert "".join(each.content for each in paragraphs("数" * 1000, 64)) == "数" * 1000


def test_lines_are_preferred_to_words_where_there_are_no_sentences() -> None:
    text = "\n".join(f"{n},name {n},some value" for n in range(100))
    assert all(each.content.endswith("some value") for each in paragraphs(text, 50))


def test_a_paragraph_is_not_cut_to_fill_the_previous_chunk() -> None:
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


def windows(text: str, max_tokens: int, overlap: int) -> list[Passage]:
    return chunk(text, strategy="sliding-window", max_tokens=max_tokens, overlap=overlap)


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


def test_chunks_respect_a_tokenizer_that_counts_more_for_a_span_alone() -> None:
    class OneMore(EstimatedTokens):
        """As tokenizers do that put a marker before every text."""

        def count(self, text: str) -> int:
            return super().count(text) + 3

    text = "The cat sat on the mat. " * 50
    passages = chunk(text, strategy="paragraph", max_tokens=33, count=OneMore())
    assert_sound(text, passages, OneMore(), 33)
    assert max(each.tokens for each in passages) > 25


PIECES = st.sampled_from(
    [
        *("# Title\n", "## Sub\n", "Setext\n===\n", "```py\n", "```\n", "~~~~\n", "> quote\n"),
        *("- item\n", "1. one\n", "| a | b |\n|---|---|\n", "<div>\n", "---\n", "    code\n"),
        *("Hello world. ", "Is it? ", "e.g. this ", "word ", "\n", "\n\n", "\r\n", "\r", "\t"),
        *(
            "数据库。",
            "こんにちは",
            "안녕",
            "👩\u200d💻",
            "🇩🇪",
            "e\u0301",
            "\u2028",
            "\u2029",
            "\x00",
            "\f",
        ),
        *(
            "\n\f\n",
            "Title\n=====\n",
            "====\nOver\n====\n",
            ".. note::\n\n   x\n\n",
            "a::\n\n  b\n",
        ),
        *('{"a": [1, {"b": "c"}]}', "[", "}", ",", '"', "def f():\n    return 1\n", "class A:\n"),
        *("\ufeff", "\ud83d", "\ude00", "https://example.com/a?b=c&d=1", "x" * 130, " " * 40),
        *("[ref]: http://x.y\n", "aGVsbG8gd29ybGQ=" * 12, "." * 30, "\u0301" * 15, "ﷺ", "한글"),
    ]
)


TEXTS = st.one_of(
    st.lists(PIECES, max_size=40).map("".join),
    st.text(max_size=300),
    st.text(alphabet=st.characters(exclude_categories=[]), max_size=80),
)


FORMATS = st.sampled_from(
    [None, "markdown", "text", "code", "python", "json", "html", "yaml", "rst", "csv"]
)


@pytest.mark.parametrize("strategy", STRATEGIES)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, max_tokens=st.integers(1, 60), format_name=FORMATS, data=st.data())
def test_chunks_cover_the_text_in_order_within_the_bound(
    counter: TokenCounter,
    strategy: str,
    text: str,
    max_tokens: int,
    format_name: str | None,
    data: st.DataObject,
) -> None:
    overlap = data.draw(st.none() | st.integers(0, max_tokens - 1))
    passages = chunk(
        text,
        strategy=strategy,
        max_tokens=max_tokens,
        overlap=overlap,
        count=counter,
        format=format_name,
    )
    may_overlap = strategy in ("auto", "sliding-window")
    assert_sound(text, passages, counter, max_tokens, overlapping=may_overlap)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("text", ["", " ", "\n\r\n\t\u2028", "\ufeff", "\ufeff \n"])
def test_a_blank_text_has_no_chunks(strategy: str, text: str) -> None:
    assert chunk(text, strategy=strategy) == []


def test_an_unknown_strategy_is_rejected_with_the_valid_ones() -> None:
    with pytest.raises(InvalidInput, match="markdown-headers.*sliding-window") as caught:
        chunk("x", strategy="sentences")
    assert caught.value.field == "chunkStrategy"


@pytest.mark.parametrize("max_tokens", [0, -5])
def test_a_limit_below_one_is_rejected(max_tokens: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        chunk("x", max_tokens=max_tokens)
    assert caught.value.field == "maxTokens"


@pytest.mark.parametrize("overlap", [-1, 20, 21])
def test_an_overlap_that_leaves_no_room_is_rejected(overlap: int) -> None:
    with pytest.raises(InvalidInput, match="19") as caught:
        chunk("x", strategy="sliding-window", max_tokens=20, overlap=overlap)
    assert caught.value.field == "overlap"


def test_the_default_overlap_fits_a_small_limit() -> None:
    assert len(chunk("one two three four five six", strategy="sliding-window", max_tokens=3)) == 2


def test_a_byte_order_mark_is_dropped_but_counts_in_offsets() -> None:
    (passage,) = chunk("\ufeff# Title\n\ntext", strategy="markdown-headers")
    assert (passage.start, passage.breadcrumb, passage.start_line) == (1, "Title", 1)


@pytest.mark.parametrize(
    ("text", "format_name", "breadcrumbs"),
    [
        ("# A\n\ntext\n\n## B\n\nmore", None, ["A", "A > B"]),
        ("# A\n\ntext", "text", [""]),
        ("A\n===\n\ntext", None, ["A"]),
        ("# A\n\ntext", ".md", ["A"]),
        ("def f():\n    pass\n\n\ndef g():\n    pass\n", "py", ["f", "g"]),
        ("<p>one</p><p>two</p>", "html", [""]),
        ("key: value\n", "yaml", [""]),
    ],
)
def test_auto_chooses_by_format_then_by_content(
    text: str, format_name: str | None, breadcrumbs: list[str]
) -> None:
    assert [each.breadcrumb for each in chunk(text, format=format_name)] == breadcrumbs


def test_auto_cuts_text_of_mostly_fences_at_fences() -> None:
    text = "Run:\n\n```sh\nmake all the things\n```\n\nthen\n\n```py\nprint('hello')\n```\n"
    assert [each.language for each in chunk(text)] == [None, "sh", None, "py"]


def test_auto_recognizes_json_without_a_format() -> None:
    text = json.dumps({"users": [{"name": f"user {i}"} for i in range(40)]})
    assert {each.breadcrumb for each in chunk(text, max_tokens=60)} <= {"users", "users[39]"}


def test_auto_uses_windows_for_minified_text_only() -> None:
    minified = "var a=function(b,c){return b+c};" * 200
    windows = chunk(minified, max_tokens=100)
    assert all(one.end > two.start for one, two in zip(windows, windows[1:], strict=False))
    prose = chunk("This is a sentence of prose on one line. " * 200, max_tokens=100)
    assert all(one.end < two.start for one, two in zip(prose, prose[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "unit",
    [
        "A sentence of some words follows another. ",
        "abcdefghij",
        "数据库。",
        "word ",
        "a=b;",
        "]",
        ".",
    ],
)
def test_time_is_linear_in_the_length_of_the_text(strategy: str, unit: str) -> None:
    def seconds(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        taken = []
        for _ in range(3):  # the least of them is the least disturbed by what else is running
            begin = time.process_time()
            chunk(text, strategy=strategy)
            taken.append(time.process_time() - begin)
        return min(taken)

    seconds(1_000)
    # Sixteen times the text: a quadratic step would cost 256 times as much.
    assert seconds(80_000) < 128 * max(seconds(5_000), 0.002)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "sign", ["👩\u200d👩\u200d👧", "🇩🇪", "e\u0301\u0302", "1\ufe0f\u20e3", "\r\n", "각"]
)
def test_a_grapheme_is_never_cut(strategy: str, sign: str) -> None:
    text = ("x" + sign * 7) * 60
    for passage in chunk(text, strategy=strategy, max_tokens=24, count=EstimatedTokens()):
        rest = passage.content.removeprefix("x")
        assert set(rest.replace(sign, "").replace("x", "")) <= set("\r\n".strip(sign)), rest


def test_a_word_unknown_to_the_tokenizer_is_bounded_in_characters(counter: TokenCounter) -> None:
    text = "Ab3+" * 20_000
    passages = chunk(text, strategy="paragraph", max_tokens=100, count=counter)
    assert_sound(text, passages, counter, 100)
    assert len(passages) >= 80


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        ("paragraphs", "a\n\n" * 5_000, "markdown"),
        ("quotes", "> a\n" * 5_000, "markdown"),
        ("lists", "- a\n" * 5_000, "markdown"),
        ("tables", ("|a" * 200 + "\n" + "|-" * 200 + "\n" + "a\n" * 330 + "\n") * 12, "markdown"),
        ("containers", "[]," * 8_000, "json"),
        ("brackets", "[" * 50_000, "json"),
        ("numbers", "[" + "1," * 10_000 + "1]", None),
        ("words", "a " * 10_000, "text"),
        ("lines", "a\n" * 10_000, "text"),
    ],
)
def test_memory_is_proportional_to_the_text(name: str, text: str, format: str | None) -> None:
    """The tokens of the whole of ``lists`` would be over a thousand bytes a character."""
    chunk("warm up", format=format)
    tracemalloc.start()
    try:
        passages = chunk(text, format=format)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert passages, name
    assert peak < 220 * len(text)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("a\n=\n\n" * 100, "rst"),
        ("# a\n\nb\n\n" * 100, "markdown"),
        ("```\na\n```\n" * 100, "markdown"),
        ("def f():\n    pass\n\n" * 100, "py"),
        ("word " * 2_000, "text"),
        ("x" * 20_000, "text"),
        ("[" + "1, " * 2_000 + "1]", "json"),
    ],
)
def test_a_text_with_more_chunks_than_allowed_is_rejected(text: str, format: str) -> None:
    made = chunk(text, format=format, max_tokens=20)
    assert len(made) > 50
    assert chunk(text, format=format, max_tokens=20, max_passages=len(made)) == made

    with pytest.raises(TooLarge, match=r"49 chunks .* \(max_document_chunks\)"):
        chunk(text, format=format, max_tokens=20, max_passages=49)


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("# " + "long title " * 1_000 + "\n\ntext\n", "markdown"),
        ('{"' + "k" * 5_000 + '": [' + "1, " * 500 + "1]}", "json"),
        ("class " + "C" * 5_000 + ":\n" + "    def f(self):\n        pass\n\n" * 50, "py"),
        ("x" * 5_000 + "\n" + "=" * 5_000 + "\n\ntext\n", "rst"),
    ],
)
def test_a_breadcrumb_has_only_the_beginning_of_a_long_name(text: str, format: str) -> None:
    passages: list[Passage] = chunk(text, format=format, max_tokens=60)

    breadcrumbs = [each.breadcrumb for each in passages if each.breadcrumb]
    assert breadcrumbs
    assert max(map(len, breadcrumbs)) <= 320


@pytest.mark.parametrize("strategy", ["markdown-headers", "code-blocks", "auto"])
@pytest.mark.parametrize("language", ["python", "ruby", "brainfuck"])
def test_a_long_fence_is_cut_between_functions_and_keeps_its_language(
    strategy: str, language: str
) -> None:
    functions = [f"def name{n}(a):\n    b = a\n\n    return b + {n}" for n in range(40)]
    fence = "\n\n".join(functions)
    text = f"# Title\n\nProse.\n\n```{language}\n{fence}\n```\n\nMore prose.\n"

    parts = [each for each in chunk(text, strategy=strategy, max_tokens=60, format="markdown")
             if "def name" in each.content]  # fmt: skip

    assert len(parts) > 5
    assert {each.language for each in parts} <= {language, None}
    assert all(each.language == language for each in parts[1:-1])
    assert all(sum(each in part.content for part in parts) == 1 for each in functions)
