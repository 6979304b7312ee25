from __future__ import annotations

import pytest

from kadi_client.addresses import is_loopback


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
