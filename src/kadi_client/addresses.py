"""Network addresses."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Return True if ``host`` is a loopback address; of names, only ``localhost`` counts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
