"""The conventions of HTTP APIs of models."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from ability_search.providers.transports import retry_after, route_address

DAY = 24 * 3600


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://h:1", "http://h:1/v1/rerank"),
        ("http://h/", "http://h/v1/rerank"),
        ("http://h/api/", "http://h/api/v1/rerank"),
        ("http://h/v1/", "http://h/v1/rerank"),
        ("https://api.cohere.com/v2", "https://api.cohere.com/v2/rerank"),
        ("http://h/api/v3/rerank/", "http://h/api/v3/rerank"),
        ("http://h/rerank", "http://h/rerank"),
        ("http://h/v1beta", "http://h/v1beta/v1/rerank"),
    ],
)
def test_a_route_is_appended_unless_present(base: str, address: str) -> None:
    assert route_address(base, "rerank") == address


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after({"retry-after": "0"}) == 0
    assert retry_after({"retry-after": " 120 "}) == 120
    soon = datetime.now(UTC) + timedelta(seconds=1000)
    for zone in (" GMT", " -0000", ""):
        date = format_datetime(soon).removesuffix(" +0000") + zone
        assert retry_after({"retry-after": date}) == pytest.approx(1000, abs=30)
    assert retry_after({"retry-after": format_datetime(datetime.fromtimestamp(0, UTC))}) == 0
    assert retry_after({}) is None


@pytest.mark.parametrize("value", ["", "soon", "-1", "1.5", "²", "٣"])
def test_retry_after_that_is_neither_is_none(value: str) -> None:
    assert retry_after({"retry-after": value}) is None


@pytest.mark.parametrize("value", ["9" * 400, "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_is_a_day_at_most(value: str) -> None:
    assert retry_after({"retry-after": value}) == DAY
