"""Network addresses."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit


def split_addresses(text: str) -> list[str]:
    """Return the addresses in a list that is separated by commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def without_credentials(url: str) -> str:
    """Return an address without user name, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_loopback(host: str) -> bool:
    """Return True if ``host`` is a loopback address; of names, only ``localhost`` counts."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
