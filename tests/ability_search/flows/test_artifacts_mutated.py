"""Valid artifacts with changed values: refused with file and line, or of use once imported."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.artifacts.made import (
    DIMENSIONS,
    TEXTS,
    changed,
    edited,
    line_changed,
    made,
)
from tests.ability_search.flows.conftest import MODEL, Network
from tests.ability_search.flows.stored import services_of
from tests.ability_search.flows.test_artifacts import unheard

from ability_search.extensions.artifacts.artifact_format import (
    CHUNK_LINES,
    CHUNKS,
    MANIFEST,
    SOURCE_LINES,
    SOURCES,
    ChunksManifest,
    Damaged,
)
from ability_search.extensions.artifacts.artifact_reader import Artifact, read_manifest
from ability_search.extensions.artifacts.importer import Importer

pytestmark = [pytest.mark.process, pytest.mark.engine]

ROUNDS = 8
LATEST = 253_402_300_799_999
VALUES: list[Any] = [
    *(None, True, "", " ", "a", "title", "summary", "\0", "é\u2028'`\\", "x" * 256, "x" * 5000),
    *(-1, 0, 1, 2, 65_536, 2**31 - 1, 2**31, 2**53, 2**63 - 1, 2**64, LATEST, LATEST + 1),
    *(0.0, 0.5, 1e-300, 1e9, 1e308),
    *([], [0], [1, 2], [-719_162, 2_932_896], [""], ["2026"], ["title"], ["title", "title"], [[]]),
    *({}, {"a": None}, {"a": {"b": [1, {"c": 2.5}]}}, {"@type": "x"}, {"a": 2**64}),
    *({"a": {"@type": "x"}}, [{"@type": "x"}]),
    [{"target": "zz", "kind": "k", "weight": 0.5}],
]
Change = tuple[str, str, Any]
"""File, name of the property, and value; the file is the manifest for the collection's record."""


def apply(directory: Path, change: Change) -> None:
    file, name, value = change
    if file != MANIFEST:
        changed(directory, file, line_changed(0, **{name: value}))
        return
    manifest = json.loads((directory / MANIFEST).read_text())
    if name in manifest:
        edited(directory, **{name: value})
    else:
        edited(directory, collection=manifest["collection"] | {name: value})


def problem(directory: Path) -> str | None:
    """The reason why an artifact is refused; ``None`` if it is not."""
    try:
        opened(directory).check()
    except Damaged as exc:
        return str(exc)
    return None


def opened(directory: Path) -> Artifact:
    manifest = read_manifest(directory)
    assert isinstance(manifest, ChunksManifest)
    return Artifact(directory, manifest)


def names(directory: Path) -> Iterator[tuple[str, str]]:
    manifest = json.loads((directory / MANIFEST).read_text())
    yield from ((MANIFEST, name) for name in [*manifest["collection"], "model_id", "dim"])
    yield from ((SOURCES, name) for name in [*sorted(SOURCE_LINES.properties), "novelty"])
    yield from ((CHUNKS, name) for name in [*sorted(CHUNK_LINES.properties), "text_hash"])


async def test_what_is_imported_can_be_described_searched_rebuilt_and_deleted(
    network: Network, tmp_path: Path
) -> None:
    network.model.models["m"] = DIMENSIONS
    whole, one = tmp_path / "whole", tmp_path / "one"
    made(whole, TEXTS)
    taken: dict[tuple[str, str], list[Any]] = {}
    refused = 0
    shutil.copytree(whole, one)
    for file, name in names(whole):
        for value in VALUES:
            for each in {file, MANIFEST}:
                shutil.copyfile(whole / each, one / each)
            apply(one, (file, name, value))
            if found := problem(one):
                # Another file may be the first in which two disagree.
                assert found.startswith((MANIFEST, SOURCES, CHUNKS, "vectors.f32")), found
                refused += 1
            else:
                taken.setdefault((file, name), []).append(value)
        shutil.copytree(whole, one, dirs_exist_ok=True)
    assert refused > 1000
    for n in range(ROUNDS):
        # Each round imports one further value of every property at once.
        shutil.copytree(whole, one, dirs_exist_ok=True)
        applied: list[Change] = []
        for (file, name), values in taken.items():
            place = n * len(values) // ROUNDS if len(values) > ROUNDS else n % len(values)
            change = (file, name, values[place])
            kept = {each: (one / each).read_bytes() for each in (MANIFEST, SOURCES, CHUNKS)}
            apply(one, change)
            if problem(one) is None:
                applied.append(change)
            else:
                for each, data in kept.items():
                    (one / each).write_bytes(data)
        await assert_usable(network, one, f"c{n}", applied)


async def assert_usable(
    network: Network, directory: Path, name: str, applied: list[Change]
) -> None:
    services = services_of(network, directory.parent)
    importing = Importer(services)
    try:
        await importing.import_artifact(opened(directory), name, unheard)
        listed = await network.call("search-collections")
        assert name in [each["name"] for each in listed["collections"]]
        info = await network.call("search-collection-info", collection=name)
        included = ["tokens", "growth", "map"]
        await network.call("notes-overview", collection=name, include=included)
        assert info["chunks"] == 4
        for mode in ("keyword", "hybrid"):
            await network.call(
                "search-query",
                collection=name,
                query="foxes in the wood",
                mode=mode,
                decay={"weight": 1.0},
                expand="section",
                highlights=True,
                explain=True,
                timeRange={"from": "2025-01-01", "to": "2026-12-31"},
            )
        rebuilt = await network.call("search-reindex", collection=name, model=MODEL)
        assert (rebuilt["state"], rebuilt["documents"]) == ("done", 3)
        found = await network.call("search-query", collection=name, query="whales", mode="keyword")
        assert found["results"]
        assert (await network.call("search-delete", collection=name))["deleted"] > 0
    except Exception as exc:
        exc.add_note(repr(applied))
        raise
