"""Network addresses."""

from __future__ import annotations

import ipaddress
import re
from contextlib import suppress
from urllib.parse import urlsplit, urlunsplit

SOCKET_PATH = "/kadi"
"""Path of the socket of a broker."""
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


def local_url(host: str, port: int) -> str:
    """Return the URL of a broker for clients on its machine, given the address it listens on.

    An unspecified host is reached over loopback.
    """
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        if address.is_unspecified:
            host = "127.0.0.1" if address.version == 4 else "::1"
    host = host or "127.0.0.1"
    return f"ws://{f'[{host}]' if ':' in host else host}:{port}{SOCKET_PATH}"


def route_address(url: str, route: str) -> str:
    """Return the address of a route: ``/v1/<route>`` is appended to the base URL unless present.

    A version at the end of the base URL is kept: ``/v2`` (Cohere) becomes ``/v2/<route>``.
    """
    base = url.rstrip("/")
    if base.endswith(f"/{route}"):
        return base
    return f"{base}/{route}" if _VERSION.search(base) else f"{base}/v1/{route}"
