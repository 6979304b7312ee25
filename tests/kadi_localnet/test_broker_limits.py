from typing import Any

import pytest

from kadi_localnet.broker import Limits


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tools": 0}, "tools"),
        ({"silence": -1.0}, "silence"),
        ({"nonce_lifetime": float("nan")}, "nonce_lifetime"),
        ({"outbox_bytes": 10, "max_message_bytes": 11}, "outbox_bytes"),
        ({"memory_bytes": 99, "max_message_bytes": 25}, "memory_bytes"),
        ({"default_timeout": 10.0, "max_timeout": 5.0}, "default_timeout"),
        ({"heartbeat": 90.0}, "heartbeat"),
    ],
)
def test_limits_that_cannot_work_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Limits(**changes)
