"""`analyze`, `paths`: the summary and JSON of an analysis, and paths over links."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from tests.ability_search.extensions.cli.conftest import Network, Run

from ability_search.extensions.notes.collection_measures import measure
from ability_search.extensions.notes.graph_analysis import NoteChunk
from ability_search.extensions.notes.note_tools import SourceConnection, SourcePath
from ability_search.store.records import SourceRecord


def source(name: str, *links: str) -> SourceRecord:
    return SourceRecord(
        source=name,
        title=name,
        content_hash="",
        chunks=1,
        tokens=1,
        tokens_min=1,
        tokens_max=1,
        indexed_at=0,
        kind="document",
        metadata={},
        links=[{"target": link, "kind": "cites", "weight": 1.0} for link in links],
    )


@pytest.fixture
def analysis(network: Network) -> dict[str, Any]:
    """The analysis of four notes, which the tools answer."""
    names = ["hub", "a<b", "c", "alone"]
    chunks = [NoteChunk(f"docs:{name}:0", name, f"Title {name}", 0) for name in names]
    sources = [source("hub"), source("a<b", "hub"), source("c", "hub"), source("alone")]
    found, _ = measure(chunks, np.eye(4, dtype=np.float32), sources)
    answer = found.model_dump(mode="json", by_alias=True)
    network.answers["notes-analyze"] = lambda _: answer
    return answer


def test_the_summary_names_edges_components_and_the_first_chunks(
    network: Network, run: Run, analysis: dict[str, Any]
) -> None:
    done = run("analyze", "docs", broker=network.url)
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert "edges         2 link" in lines
    assert "components    1 of 3 chunks, 1 of 1 chunk" in lines
    assert lines[lines.index("central (PageRank):") + 1].split()[1:] == [
        "docs:hub:0",
        "Title",
        "hub",
    ]
    assert network.inputs("notes-analyze")[0]["collection"] == "docs"
    shown = run("analyze", "docs", "--json", broker=network.url).stdout
    assert json.loads(shown) == analysis


def test_paths_between_two_sources_are_printed(network: Network, run: Run) -> None:
    path = SourcePath(sources=["a.md", "c.md", "b.md"], via=["cites", "references"], strength=0.25)
    found = SourceConnection(paths=[path], common=["c.md"])
    network.answers["notes-paths"] = lambda _: found.model_dump(mode="json", by_alias=True)
    words = ("paths", "docs", "a.md", "b.md", "--hops", "2")
    done = run(*words, broker=network.url)
    assert done.exit_code == 0
    assert done.stdout == "0.250  a.md -cites- c.md -references- b.md\ncommon: c.md\n"
    assert network.inputs("notes-paths")[0] == {
        "collection": "docs",
        "source": "a.md",
        "to": "b.md",
        "hops": 2,
        "limit": 10,
    }
    found.paths = []
    assert run(*words, broker=network.url).exit_code == 3
