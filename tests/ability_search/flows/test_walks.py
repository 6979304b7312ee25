"""The walks of docs/architecture.md, followed by a query and by a document."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, document

ARCHITECTURE = Path("docs/architecture.md").read_text(encoding="utf-8")
SOURCES = Path("src/ability_search").resolve()
MOST = 25
"""Stops that a reader is asked to make."""
STOP = re.compile(r"^\| \d+ \| `([a-z_/]+\.py)` `([A-Za-z_.]+)` \|", re.MULTILINE)


def walk(heading: str) -> list[tuple[str, str]]:
    """The stops below a heading: file and function."""
    section = ARCHITECTURE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return STOP.findall(section)


@contextmanager
def entered() -> Iterator[dict[tuple[str, str], int]]:
    """Record the functions that the block enters, with their places among the first calls."""
    places: dict[tuple[str, str], int] = {}

    def called(frame: FrameType, event: str, _argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{SOURCES}/"):
            file = Path(code.co_filename).relative_to(SOURCES).as_posix()
            name = code.co_qualname.replace(".<locals>", "")
            places.setdefault((file, name), len(places))

    before = sys.getprofile()
    sys.setprofile(called)
    threading.setprofile(called)
    try:
        yield places
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


@pytest.mark.parametrize(
    ("heading", "tool", "given"),
    [
        (
            "The path of a query",
            "search-query",
            {"query": "backups at night"},
        ),
        (
            "The path of a document",
            "search-index",
            {"documents": [document("b.md", "# Pumps\n\nThe pump was replaced.")]},
        ),
    ],
)
async def test_the_functions_of_a_walk_are_entered_in_its_order(
    network: Network, heading: str, tool: str, given: dict[str, Any]
) -> None:
    first = document("a.md", "Backups run at night.")
    await network.call("search-index", collection="docs", documents=[first])
    stops = walk(heading)
    with entered() as places:
        await network.call(tool, collection="docs", **given)
    assert 0 < len(stops) <= MOST
    assert [stop for stop in stops if stop not in places] == []
    assert sorted(stops, key=places.__getitem__) == stops
