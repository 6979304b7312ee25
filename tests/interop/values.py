"""JSON values that programs get wrong."""

from __future__ import annotations

from typing import Any

TEN_MEGABYTES = "0123456789" * 1_000_000


def nested(depth: int) -> Any:
    value: Any = "innermost"
    for _ in range(depth):
        value = [{"deeper": value}]
    return value


VALUES = {
    "null": None,
    "false": False,
    "zero": 0,
    "empty-text": "",
    "empty-array": [],
    "empty-object": {},
    "largest": 1.7976931348623157e308,
    "1e308": 1e308,
    "smallest": 5e-324,
    "fraction": 0.1,
    "largest-exact-integer": 2**53,
    "negative": -(2**53),
    "emoji": "\U0001f9ed\u200d\U0001f3f4 \U0010ffff",
    "controls": "".join(map(chr, range(32))) + "\x7f\u2028\u2029\ufeff",
    "odd-keys": {
        "": 1,
        "__proto__": {"a": 1},
        "constructor": None,
        "\x00": [],
        "\u00e9": "e\u0301",
    },
    "like-a-pending": {"status": "pending", "requestId": "r"},
    "like-an-error": {"error": "none", "code": -32000},
    "nested": nested(100),
    "ten-megabytes": TEN_MEGABYTES,
}
"""JSON values that JavaScript holds exactly."""


def assert_same(received: Any, sent: Any) -> None:
    """Compare type and value, without a report that is as long as they are."""
    assert type(received) is type(sent)
    assert (received == sent) is True
