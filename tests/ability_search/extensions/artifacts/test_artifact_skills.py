"""Indexes of skills that other tools have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ability_search.config.loader import load_settings
from ability_search.extensions.artifacts.artifact_format import Damaged, SkillsManifest
from ability_search.extensions.artifacts.artifact_reader import read_manifest
from ability_search.extensions.artifacts.skill_indexes import SkillsArtifact, read_skills
from ability_search.text.token_counter import EstimatedTokens

MANIFEST = {
    "index_version": 1,
    "created_at": "2026-02-28T00:00:00Z",
    "hub_revision": "3f2c1e",
    "model_id": "openai:text-embedding-3-small",
    "dim": 3,
    "normalize": True,
    "vector_file": "vectors.f32",
    "skills_file": "skills.jsonl",
}
SKILLS: list[dict[str, Any]] = [
    {
        "id": "sql-explain",
        "path": "skills/sql-explain",
        "name": "sql-explain",
        "description": "Generate EXPLAIN plans for queries",
        "text_hash": "0" * 64,
        "updated_at": "2026-02-28T00:00:00Z",
    },
    {
        "id": "db-advisor",
        "path": "skills/db-advisor",
        "name": "db-advisor",
        "description": "",
        "keywords": ["slow", "index"],
        "text_hash": "1" * 64,
    },
]
VECTORS = [[1, 0, 0], [0, 0.6, 0.8]]


def written(directory: Path, skills: list[Any], vectors: list[Any], **fields: Any) -> None:
    (directory / "index_manifest.json").write_text(json.dumps(MANIFEST | fields))
    (directory / "skills.jsonl").write_text("".join(json.dumps(each) + "\n" for each in skills))
    np.array(vectors, dtype="<f4").tofile(directory / "vectors.f32")


def read(directory: Path) -> SkillsArtifact:
    manifest = read_manifest(directory)
    assert isinstance(manifest, SkillsManifest)
    settings = load_settings({"HOME": str(directory)}, directory)
    return read_skills(directory, manifest, settings=settings, counter=EstimatedTokens())


def test_each_skill_is_a_document_with_its_vector(tmp_path: Path) -> None:
    written(tmp_path, SKILLS, VECTORS)
    artifact = read(tmp_path)
    first, second = artifact.items("hub")
    assert first.record.source == "skills/db-advisor/SKILL.md"
    assert first.chunks[0].content == "db-advisor"
    assert first.chunks[0].metadata["keywords"] == ["slow", "index"]
    assert first.chunks[0].chunk_id == "hub:skills/db-advisor/SKILL.md:0"
    assert first.chunks[0].embedding == [0, 0.6, 0.8]
    assert second.chunks[0].title == "sql-explain"
    assert second.chunks[0].content == "Generate EXPLAIN plans for queries"
    assert second.chunks[0].embedding == [1, 0, 0]
    assert (artifact.counts.sources, artifact.counts.chunks) == (2, 2)
    assert artifact.manifest.revision == "3f2c1e"
    assert artifact.manifest.model_id == "openai:text-embedding-3-small"
    assert artifact.usage() is None


def test_vectors_of_other_lengths_are_made_unit_vectors_where_the_manifest_allows(
    tmp_path: Path,
) -> None:
    written(tmp_path, SKILLS, [[5, 0, 0], [0, 3, 4]], normalize=False)
    items = list(read(tmp_path).items("hub"))
    vectors = [item.chunks[0].embedding or () for item in items]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)
    written(tmp_path, SKILLS, [[5, 0, 0], [0, 3, 4]])
    with pytest.raises(Damaged, match="vector 1 is not finite and of unit length"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("skills", "vectors", "expected"),
    [
        (SKILLS, VECTORS[:1], "vectors.f32: is truncated"),
        (SKILLS[:1], VECTORS, "vectors.f32: is longer"),
        ([SKILLS[0], SKILLS[0]], VECTORS, "skills.jsonl:2: has the path of another"),
        ([{"id": "x"}, SKILLS[0]], VECTORS, "skills.jsonl:1"),
        ([SKILLS[0] | {"keywords": "a, b"}, SKILLS[1]], VECTORS, "skills.jsonl:1"),
    ],
)
def test_damages_are_named(
    tmp_path: Path, skills: list[Any], vectors: list[Any], expected: str
) -> None:
    written(tmp_path, skills, vectors)
    with pytest.raises(Damaged, match=expected):
        read(tmp_path)


def test_long_descriptions_stay_one_chunk(tmp_path: Path) -> None:
    description = "\n\n".join(f"Paragraph {n} of it." for n in range(500))
    written(tmp_path, [SKILLS[0] | {"description": description}], VECTORS[:1])
    (item,) = read(tmp_path).items("hub")
    assert [chunk.content for chunk in item.chunks] == [description]


def test_none_at_all(tmp_path: Path) -> None:
    written(tmp_path, [], [])
    assert list(read(tmp_path).items("hub")) == []
