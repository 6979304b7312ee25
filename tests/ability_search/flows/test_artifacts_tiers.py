"""Indexes of a folder of skills: built, built upon, shared, and preferred to one's own."""

from __future__ import annotations

import json
from base64 import b64decode
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, down
from tests.ability_search.flows.stored import assert_consistent, collections, services_of, types

from ability_search.errors import EmbeddingUnavailable, InvalidInput
from ability_search.extensions.artifacts.artifact_format import ChunksManifest
from ability_search.extensions.artifacts.artifact_reader import Artifact, read_manifest
from ability_search.extensions.artifacts.artifact_service import ArtifactService, open_artifact
from ability_search.extensions.cli import output
from ability_search.extensions.cli.clients import report_bar
from ability_search.extensions.cli.local_files import UploadReport, select_paths

SETTINGS = {"SEARCH_DATABASE_GRACE_PERIOD": "0", "SEARCH_EMBEDDING_ATTEMPTS": "1"}
SKILLS = {
    "db-advisor": "Analyze slow queries and index usage",
    "sql-explain": "Generate EXPLAIN plans for queries",
    "ppt-maker": "Make slides; 制作一个ppt",
}


def write_skill(base: Path, name: str, description: str) -> None:
    directory = base / "skills" / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "SKILL.md").write_text(
        f"---\nname: {name}\ndescription: {description}\nkeywords: [{name}]\n---\n"
        f"# {name}\n\n{description}.\n",
        encoding="utf-8",
    )


@pytest.fixture
def base(tmp_path: Path) -> Path:
    for name, description in SKILLS.items():
        write_skill(tmp_path, name, description)
    return tmp_path


def artifacts_of(network: Network, home: Path) -> ArtifactService:
    progress = partial(report_bar, hidden=True)
    return ArtifactService(services_of(network, home), progress, output.warn)


async def build(
    network: Network, home: Path, out: str, **options: Any
) -> tuple[ChunksManifest, UploadReport]:
    usual = {"base": home / out, "model": None, "force": False, "revision": None}
    return await artifacts_of(network, home).build(
        "skills", home / out, select_paths([home / "skills"], home), **usual | options
    )


def vectors(directory: Path) -> dict[str, Any]:
    manifest = read_manifest(directory)
    assert isinstance(manifest, ChunksManifest)
    artifact = Artifact(directory, manifest)
    artifact.check()
    return {
        item.record.source: [chunk.embedding for chunk in item.chunks]
        for item in artifact.items("skills")
    }


async def nothing_is_left(network: Network) -> None:
    assert await collections(network) == []
    assert await types(network) == set()


async def test_only_what_changed_is_embedded_again(start: Start, base: Path) -> None:
    async with start(**SETTINGS) as network:
        _, outcome = await build(network, base, "search")
        assert (outcome.counts["added"], outcome.counts["unchanged"]) == (3, 0)
        first = vectors(base / "search")
        assert sorted(first) == [f"skills/{name}/SKILL.md" for name in sorted(SKILLS)]

        write_skill(base, "sql-explain", "Explain why a query is slow")
        write_skill(base, "new", "Something else")
        (base / "skills" / "ppt-maker" / "SKILL.md").unlink()
        network.model.texts.clear()
        _, outcome = await build(network, base, "search")
        counts = [outcome.counts[name] for name in ("added", "updated", "unchanged")]
        assert (counts, outcome.removed) == ([1, 1, 1], 1)
        assert {text.split()[0] for text in network.model.texts} == {"new", "sql-explain"}
        second = vectors(base / "search")
        assert "skills/ppt-maker/SKILL.md" not in second
        kept = "skills/db-advisor/SKILL.md"
        assert np.array_equal(first[kept], second[kept])
        await nothing_is_left(network)


async def test_all_is_embedded_again_if_asked_or_if_the_model_is_another(
    start: Start, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start(**SETTINGS) as network:
        network.model.models = {MODEL: 64, "words-32": 32}
        first, _ = await build(network, base, "search")
        network.model.texts.clear()
        await build(network, base, "search")
        assert network.model.texts == []
        await build(network, base, "search", base=None)
        assert len(network.model.texts) == first.counts.chunks
        artifacts = artifacts_of(network, base)
        artifact = open_artifact(base / "search", artifacts.services.ports.settings)
        await artifacts.import_artifact(artifact, "there", replace=False)
        network.model.texts.clear()
        await build(network, base, "search", base=None)
        assert len(network.model.texts) == 1
        network.model.texts.clear()
        await build(network, base, "search", base=None, force=True)
        assert len(network.model.texts) == first.counts.chunks
        network.model.texts.clear()
        other, _ = await build(network, base, "search", model="words-32")
        assert len(network.model.texts) == first.counts.chunks
        assert "its model is 'words-64', not 'words-32'" in capsys.readouterr().err
        assert (other.model_id, other.dim) == ("words-32", 32)
        assert other.revision == first.revision


async def test_a_damaged_base_is_said_and_not_built_upon(
    start: Start, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start(**SETTINGS) as network:
        await build(network, base, "search")
        (base / "search" / "vectors.f32").write_bytes(b"")
        _, outcome = await build(network, base, "search")
        assert outcome.counts["added"] == 3
        assert "is not used: vectors.f32" in capsys.readouterr().err
        assert len(vectors(base / "search")) == 3


async def test_a_build_that_fails_leaves_the_artifact_as_it_was(start: Start, base: Path) -> None:
    async with start(**SETTINGS) as network:
        found, _ = await build(network, base, "search")
        write_skill(base, "new", "Something else")
        network.model.failure = down
        with pytest.raises(EmbeddingUnavailable):
            await build(network, base, "search")
        assert read_manifest(base / "search") == found
        assert len(vectors(base / "search")) == 3
        await nothing_is_left(network)


async def test_nothing_makes_no_artifact(start: Start, tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    async with start(**SETTINGS) as network:
        with pytest.raises(InvalidInput):
            await build(network, tmp_path, "search")
        assert not (tmp_path / "search").exists()


@pytest.mark.slow
@pytest.mark.engine
async def test_the_own_index_answers_only_if_it_fits(start: Start, base: Path) -> None:
    async with start(**SETTINGS) as network:
        artifacts = artifacts_of(network, base)

        async def asked(own: Path | None = base / "own") -> tuple[str, list[str]]:
            return await artifacts.choose_collection(base / "shared", own)

        await build(network, base, "shared")
        alone, said = await asked(own=None)
        assert alone.startswith("skills.")
        assert said == []
        await assert_consistent(network, alone)
        found = await network.call("search-query", collection=alone, query="slow queries")
        assert found["results"][0]["metadata"]["name"] == "db-advisor"

        await build(network, base, "own", base=None)
        own, said = await asked()
        assert own != alone
        assert said == [f"{own} replaces {alone}, of the same artifact"]
        assert (await asked()) == (own, [])

        write_skill(base, "new", "Something else")
        await build(network, base, "shared")
        newer, said = await asked()
        assert newer not in (alone, own)
        assert "is not used: it has revision sha256:" in said[0]
        assert said[1:] == [f"{newer} replaces {own}, of the same artifact"]
        assert await collections(network) == [newer]
        network.calls.clear()
        assert await asked() == (newer, said[:1])
        assert "arcade-command" not in network.hops()


async def test_a_collection_that_was_written_to_is_not_taken_for_the_artifact(
    start: Start, base: Path
) -> None:
    async with start(**SETTINGS) as network:
        artifacts = artifacts_of(network, base)
        await build(network, base, "shared")
        name, _ = await artifacts.choose_collection(base / "shared", None)
        await network.call("search-delete", collection=name, source="skills/db-advisor/SKILL.md")
        assert await artifacts.choose_collection(base / "shared", None) == (name, [])
        assert (await assert_consistent(network, name)).sources == 3


async def test_what_another_version_has_made_is_said(
    start: Start, base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with start(**SETTINGS) as network:
        artifacts = artifacts_of(network, base)
        await build(network, base, "shared")
        artifact = open_artifact(base / "shared", artifacts.services.ports.settings)
        await artifacts.import_artifact(artifact, "one", replace=False)
        assert capsys.readouterr().err == ""
        path = base / "shared" / "index_manifest.json"
        manifest = json.loads(path.read_text())
        manifest["collection"]["layout"] = "0"
        path.write_text(json.dumps(manifest))
        older = open_artifact(base / "shared", artifacts.services.ports.settings)
        await artifacts.import_artifact(older, "two", replace=False)
        assert "written by another version (layout 0," in capsys.readouterr().err


async def test_an_own_index_with_damaged_files_is_said(start: Start, base: Path) -> None:
    async with start(**SETTINGS) as network:
        artifacts = artifacts_of(network, base)
        await build(network, base, "shared")
        await build(network, base, "own", base=None)
        (base / "own" / "vectors.f32").write_bytes(b"")
        name, said = await artifacts.choose_collection(base / "shared", base / "own")
        assert len(said) == 1
        assert "cannot be used: vectors.f32" in said[0]
        assert (await assert_consistent(network, name)).sources == 3


async def test_an_index_of_skills_by_another_tool_is_searched(start: Start, base: Path) -> None:
    texts = [f"{name}\n{description}" for name, description in SKILLS.items()]
    directory = base / "theirs"
    directory.mkdir()
    async with start(**SETTINGS) as network:
        answer = await network.client.invoke(
            "create-embedding", {"model": MODEL, "input": texts}, timeout=20
        )
        network.model.texts.clear()
        table = [np.frombuffer(b64decode(item["embedding"]), "<f4") for item in answer["data"]]
        np.array(table, dtype="<f4").tofile(directory / "vectors.f32")
        lines = [
            {
                "id": name,
                "path": f"skills/{name}",
                "name": name,
                "description": description,
                "text_hash": "0" * 64,
            }
            for name, description in SKILLS.items()
        ]
        (directory / "skills.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (directory / "index_manifest.json").write_text(
            json.dumps(
                {
                    "index_version": 1,
                    "created_at": "2026-02-28T00:00:00Z",
                    "hub_revision": "3f2c1e",
                    "model_id": "provider:words",
                    "dim": len(table[0]),
                    "normalize": False,
                    "vector_file": "vectors.f32",
                    "skills_file": "skills.jsonl",
                }
            )
        )
        artifacts = artifacts_of(network, base)
        artifact = open_artifact(directory, artifacts.services.ports.settings)
        await artifacts.import_artifact(artifact, "theirs", model=MODEL, replace=False)
        assert network.model.texts == []
        await assert_consistent(network, "theirs")
        for mode in ("hybrid", "semantic", "keyword"):
            found = await network.call(
                "search-query", collection="theirs", query="explain plans", mode=mode
            )
            assert found["results"][0]["source"] == "skills/sql-explain/SKILL.md"
