"""Reads indexes of agent skills that other tools wrote, with one vector for each skill.

Such an index has ``index_manifest.json``, ``vectors.f32`` and ``skills.jsonl``, which lists
``id``, ``path``, ``name``, ``description``, ``text_hash`` and optionally ``keywords``.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from ability_search.collection import Collection, Recipe, new_collection
from ability_search.config.schema import Settings
from ability_search.documents import Document
from ability_search.extensions.artifacts.artifact_files import opened
from ability_search.extensions.artifacts.artifact_format import Counts, Damaged, SkillsManifest
from ability_search.extensions.artifacts.artifact_reader import (
    Importable,
    Item,
    count_contents,
    read_vectors,
)
from ability_search.index import preparation
from ability_search.index.writer import expected_length
from ability_search.text.analyzer import DEFAULT_LANGUAGE
from ability_search.text.token_counter import TokenCounter

NAME = "skills"
FILE = "SKILL.md"

_WHOLE = ("paragraph", 1_000_000, 0, DEFAULT_LANGUAGE)
"""One chunk for each skill, as there is one vector."""

_Text = Annotated[str, Meta(min_length=1)]


class SkillLine(msgspec.Struct):
    """A line of ``skills.jsonl``."""

    id: _Text
    path: _Text
    name: _Text
    text_hash: _Text
    description: str = ""
    keywords: list[str] = []


@dataclass(slots=True)
class SkillsArtifact(Importable):
    """An index of skills that was read and checked."""

    manifest: SkillsManifest
    collection: Collection
    """The record of the collection that its skills become."""
    counts: Counts
    fingerprint: str
    skills: Sequence[preparation.Prepared]
    """The skills in the order of their paths."""

    def items(self, name: str) -> Iterator[Item]:
        """Yield the skills in the order of their paths."""
        collection = replace(self.collection, name=name)
        for skill in self.skills:
            yield _item(skill, collection)


def read_skills(
    directory: Path,
    manifest: SkillsManifest,
    *,
    settings: Settings,
    counter: TokenCounter,
    label: Sequence[preparation.Labelling] = (),
) -> SkillsArtifact:
    """Read an index of skills.

    Args:
        directory: Its directory.
        manifest: Its manifest.
        settings: The settings of term weights.
        counter: Token counter.
        label: As for :func:`.analyzed`.

    Raises:
        Damaged: if the index is invalid.
    """
    ranking = settings.ranking
    recipe = Recipe(*_WHOLE, manifest.model_id, bm25_k1=ranking.bm25_k1, bm25_b=ranking.bm25_b)
    prepared = [
        _prepared(line, vector, recipe, counter, label)
        for line, vector in zip(*_read(directory, manifest), strict=True)
    ]
    prepared.sort(key=lambda skill: skill.document.source)
    collection = new_collection(
        NAME,
        recipe,
        dimensions=manifest.dim,
        average_length=expected_length(prepared),
        now=time.time_ns() // 1_000_000,
    )
    counted: Counter[str] = Counter(dict.fromkeys(Counts.model_fields, 0))
    digest = sha256()
    for skill in prepared:
        item = _item(skill, collection)
        count_contents(counted, [item.record], item.chunks)
        # These manifests have no hashes of their files.
        digest.update(repr((skill.document.content_hash, skill.vectors)).encode())
    return SkillsArtifact(manifest, collection, Counts(**counted), digest.hexdigest(), prepared)


def _read(
    directory: Path, manifest: SkillsManifest
) -> tuple[Iterable[SkillLine], list[list[float]]]:
    lines: dict[str, SkillLine] = {}
    with (
        opened(directory, manifest.vector_file) as vectors,
        opened(directory, manifest.skills_file) as skills,
    ):
        for place, row in skills.rows():
            try:
                skill = msgspec.convert(row, SkillLine)
            except msgspec.ValidationError as exc:
                raise Damaged(place, str(exc)) from exc
            if skill.path in lines:
                raise Damaged(place, "has the path of another skill")
            lines[skill.path] = skill
        return lines.values(), read_vectors(vectors, manifest, len(lines), 0)


def _prepared(
    line: SkillLine,
    vector: Sequence[float],
    recipe: Recipe,
    counter: TokenCounter,
    label: Sequence[preparation.Labelling],
) -> preparation.Prepared:
    metadata: dict[str, Any] = {"id": line.id, "path": line.path}
    if line.keywords:
        metadata["keywords"] = line.keywords
    document = Document(
        source=f"{line.path.rstrip('/')}/{FILE}",
        title=line.name,
        content=line.description.strip() or line.name,
        metadata=metadata,
        format="text",
    )
    hash_ = preparation.content_hash(document, recipe, counter=counter.name)
    prepared = preparation.prepare(
        replace(document, content_hash=hash_), recipe, count=counter, label=label
    )
    prepared.vectors = [np.array(vector) for _ in prepared.passages]
    return prepared


def _item(prepared: preparation.Prepared, collection: Collection) -> Item:
    now = collection.created_at
    # The text that was embedded is unknown, so the key is that of no text of a model.
    chunks = [
        replace(chunk, vector_key=preparation.vector_key("", chunk.chunk_id))
        for chunk in preparation.chunk_records(prepared, collection, now=now)
    ]
    return Item(preparation.source_record(prepared, now=now), chunks)
