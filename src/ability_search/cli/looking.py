"""Reads the metrics of the components, for `top` and `doctor`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from ability_search.cli.picture import Look, Picture, picture
from ability_search.ops.metrics.metric_table import PART_INFO
from ability_search.ops.metrics.scrape import parse
from ability_search.stack.data_directory import read_running

_ANSWER_SECONDS = 3.0
_WINDOW_SECONDS = 10.0
"""Time window of rates and latencies, in seconds; shorter until that much time has passed."""
_UNAUTHORIZED = (401, 403)


def metrics_client(token: str | None) -> httpx.AsyncClient:
    """Return an HTTP client for metrics; ``token`` is the bearer token, if one is needed."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(headers=headers, timeout=_ANSWER_SECONDS, trust_env=False)


async def look(client: httpx.AsyncClient, url: str, name: str = "") -> Look:
    """Read the metrics of a component; the default name is its own kind and its address."""
    at = time.time()
    shown = name or urlsplit(url).netloc.rpartition("@")[2]
    try:
        answer = await client.get(url)
        if answer.status_code in _UNAUTHORIZED:
            return Look(shown, url, at, state="refused")
        reading = parse(answer.raise_for_status().text)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError):
        return Look(shown, url, at, state="gone")
    if not name:
        shown = " ".join((*reading.by(PART_INFO, "part"), shown))
    return Look(shown, url, at, reading)


class Watcher:
    """Reads the metrics of several components repeatedly.

    Args:
        urls: Addresses of metrics; if empty, those of the stack in ``data_dir``.
        data_dir: Data directory of the stack.
        token: Bearer token for the metrics.
    """

    def __init__(self, urls: Sequence[str], data_dir: Path, *, token: str | None) -> None:
        self.data_dir = data_dir
        self._urls = dict.fromkeys(urls, "")
        self._token = token
        self._last: Mapping[str, str] = {}
        self._past: deque[Sequence[Look]] = deque()

    def addresses(self) -> Mapping[str, str]:
        """Return address -> component name; the last known ones if the stack is gone."""
        if self._urls:
            return self._urls
        running = read_running(self.data_dir)
        if running is not None:
            self._last = {part.metrics: part.name for part in running.parts if part.metrics}
        return self._last

    def client(self) -> httpx.AsyncClient:
        """Return an HTTP client; the caller closes it."""
        return metrics_client(self._token)

    async def look(self, client: httpx.AsyncClient) -> Picture:
        """Read all components concurrently."""
        asked = self.addresses().items()
        looks = await asyncio.gather(*(look(client, url, name) for url, name in asked))
        now = time.time()
        while len(self._past) > 1 and self._past[1][0].at <= now - _WINDOW_SECONDS:
            self._past.popleft()
        seen = picture(looks, self._past)
        self._past.append(looks)
        return seen
