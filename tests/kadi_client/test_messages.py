"""Frames as peers of all kinds write them."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadi_client.errors import ProtocolError
from kadi_client.messages import decode, decode_frame, has_more_values, without_halves


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"\ud800", "\ufffd"),
        (r"\uDC00", "\ufffd"),
        (r"a\ud83d\ude00b", "a\U0001f600b"),
        (r"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud800", r"\ud800"),
        (r"\\\ud800", "\\\ufffd"),
        (r"\n\ud800\ud83d\ude00\ude00\\", "\n\ufffd\U0001f600\ufffd\\"),
    ],
)
def test_half_a_surrogate_pair_is_replaced_and_the_rest_is_kept(written: str, read: str) -> None:
    frame = decode_frame(f'{{"method": "m", "params": {{"text": "{written}", "half": "\\ud800"}}}}')
    assert decode(frame.params) == {"text": read, "half": "\ufffd"}


@given(st.text(st.characters(exclude_categories=[]), max_size=20))
def test_whatever_json_a_javascript_peer_writes_can_be_read(text: str) -> None:
    frame = decode_frame(json.dumps({"method": "m", "params": [text]}))
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    assert decode(frame.params) == [whole]


def test_only_escapes_of_surrogates_cost_a_call() -> None:
    text = r"\n" * 2_000_000
    began = time.process_time()
    assert without_halves(text) is text
    assert time.process_time() - began < 0.3


def test_what_is_not_json_is_refused() -> None:
    with pytest.raises(ProtocolError):
        decode_frame(r'{"method": "\ud800", "params": ')


@pytest.mark.parametrize(
    ("value", "more"),
    [
        ([{}] * 99, False),
        ([{}] * 100, True),
        ([[]] * 100, True),
        (dict.fromkeys(map(str, range(390)), 1), False),
        (dict.fromkeys(map(str, range(410)), 1), True),
        ([1] * 1001, False),
        ([1] * 1002, True),
        (["{,[" * 5000, '"' * 5000, "\\" * 5000, '\\"{' * 5000], False),
        (['\\"{' * 5000, [{}] * 100], True),
    ],
)
def test_values_are_counted_outside_strings(value: Any, more: bool) -> None:
    for separators in ((",", ":"), (" , ", " : ")):
        text = json.dumps(value, separators=separators).encode()
        assert has_more_values(text, 100) is more


def test_unpaired_surrogates_beyond_a_number_are_left() -> None:
    many = r"\ud800" * 100_000
    assert without_halves(many).count(r"\ufffd") == 50_000
