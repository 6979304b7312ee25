"""Network addresses."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit, urlunsplit

_VERSION = re.compile(r"/v\d+$")


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


def route_address(url: str, route: str) -> str:
    """Return the address of a route: ``/v1/<route>`` is appended to the base URL unless present.

    A version at the end of the base URL is kept: ``/v2`` (Cohere) becomes ``/v2/<route>``.
    """
    base = url.rstrip("/")
    if base.endswith(f"/{route}"):
        return base
    return f"{base}/{route}" if _VERSION.search(base) else f"{base}/v1/{route}"
