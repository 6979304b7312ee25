from __future__ import annotations

import pytest

from kadi_client.addresses import is_loopback, route_address


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.org", False),
        ("", False),
    ],
)
def test_loopback_is_recognised(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


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
