import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.errors import InvalidInput
from ability_search.text.chunkers.strategies import STRATEGIES, chunk
from ability_search.text.token_counter import EstimatedTokens, TokenCounter

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
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def test_an_unknown_strategy_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(InvalidInput, match="markdown-headers.*sliding-window") as caught:
        chunk("x", strategy="semantic")
    assert caught.value.field == "chunkStrategy"


@pytest.mark.parametrize("max_tokens", [0, -5])
def test_a_limit_below_one_is_refused(max_tokens: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        chunk("x", max_tokens=max_tokens)
    assert caught.value.field == "maxTokens"


@pytest.mark.parametrize("overlap", [-1, 20, 21])
def test_an_overlap_that_leaves_no_room_is_refused(overlap: int) -> None:
    with pytest.raises(InvalidInput, match="19") as caught:
        chunk("x", strategy="sliding-window", max_tokens=20, overlap=overlap)
    assert caught.value.field == "overlap"


def test_a_small_limit_needs_no_overlap_of_its_own() -> None:
    assert len(chunk("one two three four five six", strategy="sliding-window", max_tokens=3)) == 2


def test_a_byte_order_mark_is_left_out_and_offsets_count_it() -> None:
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
def test_auto_goes_by_format_then_by_content(
    text: str, format_name: str | None, breadcrumbs: list[str]
) -> None:
    assert [each.breadcrumb for each in chunk(text, format=format_name)] == breadcrumbs


def test_auto_cuts_one_fence_after_another_as_code_blocks() -> None:
    text = "Run:\n\n```sh\nmake all the things\n```\n\nthen\n\n```py\nprint('hello')\n```\n"
    assert [each.language for each in chunk(text)] == [None, "sh", None, "py"]


def test_auto_sees_json_without_a_format() -> None:
    text = json.dumps({"users": [{"name": f"user {i}"} for i in range(40)]})
    assert {each.breadcrumb for each in chunk(text, max_tokens=60)} <= {"users", "users[39]"}


def test_auto_slides_over_minified_text_and_not_over_prose() -> None:
    minified = "var a=function(b,c){return b+c};" * 200
    windows = chunk(minified, max_tokens=100)
    assert all(one.end > two.start for one, two in zip(windows, windows[1:], strict=False))
    prose = chunk("This is a sentence of prose on one line. " * 200, max_tokens=100)
    assert all(one.end < two.start for one, two in zip(prose, prose[1:], strict=False))


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
def test_time_grows_with_the_length_and_not_with_its_square(strategy: str, unit: str) -> None:
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
    assert seconds(160_000) < 128 * max(seconds(10_000), 0.002)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "sign", ["👩\u200d👩\u200d👧", "🇩🇪", "e\u0301\u0302", "1\ufe0f\u20e3", "\r\n", "각"]
)
def test_a_sign_is_not_cut_in_two(strategy: str, sign: str) -> None:
    text = ("x" + sign * 7) * 60
    for passage in chunk(text, strategy=strategy, max_tokens=24, count=EstimatedTokens()):
        rest = passage.content.removeprefix("x")
        assert set(rest.replace(sign, "").replace("x", "")) <= set("\r\n".strip(sign)), rest


def test_a_word_unknown_to_the_tokenizer_is_bounded_in_characters(counter: TokenCounter) -> None:
    text = "Ab3+" * 20_000
    passages = chunk(text, strategy="paragraph", max_tokens=100, count=counter)
    assert_sound(text, passages, counter, 100)
    assert len(passages) >= 80
