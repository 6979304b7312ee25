"""Artifacts that are damaged in every way, and are noticed to be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ability_search.extensions.artifacts.made import (
    DIMENSIONS,
    TEXTS,
    changed,
    edited,
    line_changed,
    made,
)
from tests.examples import examples

from ability_search.extensions.artifacts.artifact_files import json_object
from ability_search.extensions.artifacts.artifact_format import (
    CHUNK_LINES,
    CHUNKS,
    MANIFEST,
    SOURCE_LINES,
    SOURCES,
    USE_LINES,
    VECTORS,
    ChunksManifest,
    Damaged,
)
from ability_search.extensions.artifacts.artifact_reader import (
    Artifact,
    Item,
    read_manifest,
)
from ability_search.extensions.sessions.uses import Use
from ability_search.index.preparation import restored_document
from ability_search.store.records import ChunkRecord, SourceRecord


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made(tmp_path / "artifact")
    return tmp_path / "artifact"


def checked(directory: Path) -> Artifact:
    manifest = read_manifest(directory)
    assert isinstance(manifest, ChunksManifest)
    artifact = Artifact(directory, manifest)
    artifact.check()
    return artifact


def vectors_changed(change: Callable[[np.ndarray], object]) -> Callable[[bytes], bytes]:
    def applied(data: bytes) -> bytes:
        vectors = np.frombuffer(data, dtype="<f4").reshape(-1, DIMENSIONS).copy()
        change(vectors)
        return vectors.tobytes()

    return applied


def test_what_was_written_is_read(directory: Path) -> None:
    artifact = checked(directory)
    items = list(artifact.items("docs"))
    assert [item.record.source for item in items] == sorted(TEXTS)
    for item in items:
        assert restored_document(item.record, item.chunks).content == TEXTS[item.record.source]
        assert all(len(chunk.embedding or ()) == DIMENSIONS for chunk in item.chunks)
    assert artifact.counts.model_dump(by_alias=True) == {
        "chunks": 4,
        "sources": 3,
        "tokens": sum(item.record.tokens for item in items),
        "aspects": 0,
        "duplicates": 1,
        "links": 2,
        "usage": 0,
    }
    assert artifact.usage() is None


def test_the_files_are_what_other_programs_expect(directory: Path) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    assert {"index_version", "created_at", "revision", "model_id", "dim", "normalize"} < set(
        manifest
    )
    lines = (directory / manifest["chunks_file"]).read_text().splitlines()
    vectors = np.fromfile(directory / manifest["vector_file"], dtype="<f4")
    assert vectors.size == len(lines) * manifest["dim"]
    assert all(len(json.loads(line)["text_hash"]) == 64 for line in lines)


def test_the_revision_is_that_of_the_texts_however_they_are_cut(tmp_path: Path) -> None:
    text = "One sentence here. Another one there, and more words. " * 12
    cut = [
        made(tmp_path / f"{n}", {"a": text, "b": "x  \n"}, chunk_size=size, chunk_overlap=overlap)
        for n, (size, overlap) in enumerate([(16, 0), (64, 0), (24, 6)])
    ]
    assert len({manifest.counts.chunks for manifest in cut}) == 3
    assert len({manifest.revision for manifest in cut}) == 1
    assert made(tmp_path / "turned", {"b": "x  \n", "a": text}).revision == cut[0].revision
    other = made(tmp_path / "other", {"a": text, "b": "y  \n"})
    assert other.revision != cut[0].revision


_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@settings(max_examples=examples(40))
@given(st.dictionaries(_texts, _texts.filter(lambda text: text.strip()), min_size=1, max_size=5))
def test_any_texts_come_back_as_they_were(texts: dict[str, str]) -> None:
    with TemporaryDirectory() as base:
        made(Path(base) / "artifact", texts)
        found = {
            item.record.source: restored_document(item.record, item.chunks).content
            for item in checked(Path(base) / "artifact").items("docs")
        }
    assert found == texts


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "vectors cut short": (VECTORS, lambda data: data[:-4], "is truncated"),
    "vectors too many": (VECTORS, lambda data: data + data[:16], "longer than the manifest says"),
    "NaN": (
        VECTORS,
        vectors_changed(lambda v: v.__setitem__((1, 0), np.nan)),
        "vector 2 is not finite",
    ),
    "infinite": (
        VECTORS,
        vectors_changed(lambda v: v.__setitem__((3, 2), np.inf)),
        "vector 4 is not finite",
    ),
    "not unit length": (
        VECTORS,
        vectors_changed(lambda v: v.__imul__(1.01)),
        "vector 1 is not finite and of unit length",
    ),
    "zero": (VECTORS, vectors_changed(lambda v: v.fill(0)), "vector 1 is not"),
    "a line too many": (CHUNKS, lambda data: data + data.splitlines(True)[-1], "more lines"),
    "a line too few": (
        CHUNKS,
        lambda data: b"".join(data.splitlines(True)[:-1]),
        "fewer lines",
    ),
    "lines swapped": (
        CHUNKS,
        lambda data: b"".join(data.splitlines(True)[i] for i in (1, 0, 2, 3)),
        f"{CHUNKS}:1: is not chunk 0 of 'a'",
    ),
    "no end of line": (CHUNKS, lambda data: data[:-1], "has an incomplete last line"),
    "no JSON": (CHUNKS, lambda data: b"{" + data, f"{CHUNKS}:1: is not JSON"),
    "no object": (CHUNKS, lambda data: b"[]\n" + data, f"{CHUNKS}:1: is not a JSON object"),
    "NaN in JSON": (
        CHUNKS,
        lambda data: data.replace(b'"averageLength":9.5', b'"averageLength":NaN', 1),
        f"{CHUNKS}:1: is not JSON",
    ),
    "deeply nested": (CHUNKS, lambda data: b"[" * 100_000 + data, f"{CHUNKS}:1: is not JSON"),
    "not UTF-8": (CHUNKS, lambda data: data.replace(b"Foxes", b"\xff\xfe"), "is not JSON"),
    "other text": (
        CHUNKS,
        line_changed(0, content="Forged."),
        f"{CHUNKS}:1: has a text_hash",
    ),
    "other title": (CHUNKS, line_changed(1, title="Forged"), f"{CHUNKS}:2: has a text_hash"),
    "no text": (CHUNKS, line_changed(0, content=None), "content"),
    "another source": (CHUNKS, line_changed(2, source="z"), "is not chunk 0 of 'b'"),
    "another chunkId": (CHUNKS, line_changed(0, chunkId="docs:a:1"), "wrong chunkId"),
    "other tokens": (CHUNKS, line_changed(0, tokens=3), "the token counts of 'a'"),
    "terms not ascending": (CHUNKS, line_changed(2, terms=[5, 4]), "out of order"),
    "terms too large": (CHUNKS, line_changed(2, terms=[2**31, 2**32]), "terms"),
    "a weight below 0": (CHUNKS, line_changed(2, weights=[-1.0, 1.0]), "weights"),
    "terms without weights": (CHUNKS, line_changed(2, terms=list(range(9))), "without a weight"),
    "a duplicate of nothing": (
        CHUNKS,
        line_changed(3, duplicateOf="docs:zz:0"),
        "duplicateOf names a missing chunk",
    ),
    "a duplicate of a duplicate": (
        CHUNKS,
        line_changed(3, duplicateOf="docs:c:0"),
        "duplicateOf names a missing chunk",
    ),
    "a duplicate elsewhere": (
        CHUNKS,
        line_changed(3, duplicateOf="other:b:0"),
        "duplicateOf names a chunk of another collection",
    ),
    "a source twice": (
        SOURCES,
        line_changed(2, source="b"),
        f"{CHUNKS}:4: is not chunk 0 of 'b'",
    ),
    "a source too few": (SOURCES, lambda data: b"".join(data.splitlines(True)[:2]), "more lines"),
    "no chunks": (SOURCES, line_changed(0, chunks=0), "chunks"),
    "an odd link": (SOURCES, line_changed(0, links=[{"target": "b"}]), "links"),
    "fewer links": (SOURCES, line_changed(0, links=[]), "the files contain 1 links instead of 2"),
    "another kind of number": (SOURCES, line_changed(0, tokens="many"), "tokens"),
    "a page 0": (CHUNKS, line_changed(0, page=0), f"{CHUNKS}:1: "),
    "a line 0": (CHUNKS, line_changed(0, startLine=0), f"{CHUNKS}:1: "),
    "lines that end before they begin": (
        CHUNKS,
        line_changed(1, startLine=3, endLine=2),
        "endLine",
    ),
    "offsets that end before they begin": (
        CHUNKS,
        line_changed(1, startOffset=9, endOffset=8),
        "endOffset",
    ),
    "a page beyond a column": (CHUNKS, line_changed(0, page=2**31), f"{CHUNKS}:1: "),
    "an overlap below 0": (CHUNKS, line_changed(0, overlap=-1), f"{CHUNKS}:1: "),
    "an overlap longer than the text": (CHUNKS, line_changed(1, overlap=10_000), "overlap"),
    "a section that begins later": (CHUNKS, line_changed(0, section=1), "section"),
    "a time after the year 9999": (CHUNKS, line_changed(0, createdAt=10**15), "createdAt"),
    "a source after the year 9999": (SOURCES, line_changed(0, indexedAt=10**15), "indexedAt"),
    "half a period": (CHUNKS, line_changed(0, dates=[1]), "dates"),
    "a period that ends before it begins": (CHUNKS, line_changed(0, dates=[5, 4]), "dates"),
    "a day after the year 9999": (CHUNKS, line_changed(0, dates=[0, 10**7]), "dates"),
    "an average below a term": (CHUNKS, line_changed(0, averageLength=1e-300), "averageLength"),
    "a kind that is no name": (CHUNKS, line_changed(0, kind="a b"), "kind"),
    "a kind of a source that is no name": (SOURCES, line_changed(0, kind=""), "kind"),
    "a kind of itself": (SOURCES, line_changed(0, aspectOf="a", kind="title"), f"{SOURCES}:1: of"),
    "a derived kind of nothing": (SOURCES, line_changed(0, generated=True), "generated"),
    "a reserved name": (SOURCES, line_changed(0, source="a#~title"), "reserved"),
    "a name of 5,000 characters": (SOURCES, line_changed(0, source="a" * 5000), f"{SOURCES}:1: "),
    "metadata beyond 64 bits": (SOURCES, line_changed(0, metadata={"n": 2**70}), "metadata.n"),
    "metadata of a chunk nested too deep": (
        CHUNKS,
        line_changed(0, metadata=json.loads('{"a":' * 30 + "1" + "}" * 30)),
        "nested too deep",
    ),
    "a later property beyond 64 bits": (CHUNKS, line_changed(0, novelty=2**70), "novelty"),
    "a link to nothing": (
        SOURCES,
        line_changed(0, links=[{"target": "", "kind": "k", "weight": 1.0}]),
        f"{SOURCES}:1: ",
    ),
    "a number without end": (SOURCES, line_changed(0, indexedAt=10**30), "indexedAt"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damage_is_noticed_although_the_hashes_agree(directory: Path, damage: str) -> None:
    file, change, expected = DAMAGES[damage]
    changed(directory, file, change)
    with pytest.raises(Damaged) as raised:
        checked(directory)
    assert expected in str(raised.value)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("file", [CHUNKS, SOURCES, VECTORS])
def test_every_changed_byte_is_noticed(directory: Path, file: str) -> None:
    data = bytearray((directory / file).read_bytes())
    data[len(data) // 2] ^= 1
    (directory / file).write_bytes(data)
    with pytest.raises(Damaged):
        checked(directory)


@pytest.mark.parametrize("file", [CHUNKS, SOURCES, VECTORS])
def test_a_missing_file_is_named(directory: Path, file: str) -> None:
    (directory / file).unlink()
    with pytest.raises(Damaged, match=f"{file}: cannot be read"):
        checked(directory)


def test_a_directory_without_an_artifact_is_named(directory: Path) -> None:
    (directory / MANIFEST).unlink()
    with pytest.raises(Damaged, match=f"{directory}: has no {MANIFEST}"):
        read_manifest(directory)
    with pytest.raises(Damaged, match=f"{directory / 'none'}: no such directory") as missing:
        read_manifest(directory / "none")
    assert missing.value.hint == "Name a directory that `export` has written."


@pytest.mark.parametrize("file", [CHUNKS, SOURCES, VECTORS, MANIFEST])
def test_a_link_to_a_file_is_not_followed(directory: Path, tmp_path: Path, file: str) -> None:
    (directory / file).rename(tmp_path / "elsewhere")
    (directory / file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Damaged, match=f"{file}: cannot be read"):
        checked(directory)


def test_a_pipe_is_no_plain_file_and_nobody_waits_for_it(directory: Path) -> None:
    (directory / CHUNKS).unlink()
    os.mkfifo(directory / CHUNKS)
    with pytest.raises(Damaged, match="a FIFO, not a regular file"):
        checked(directory)


def test_a_directory_may_itself_be_a_link(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(directory)
    assert checked(tmp_path / "current").counts.sources == 3


MANIFESTS: dict[str, tuple[dict[str, Any], str]] = {
    "newer": ({"index_version": 2}, "has index_version 2; this program supports 1"),
    "no version": ({"index_version": None}, "has index_version None"),
    "a version that is true": ({"index_version": True}, "has index_version True"),
    "up and out": ({"chunks_file": "../chunks.jsonl"}, "chunks_file"),
    "absolute": ({"vector_file": "/etc/passwd"}, "vector_file"),
    "below": ({"vector_file": "a/b"}, "vector_file"),
    "back": ({"vector_file": "a\\b"}, "vector_file"),
    "hidden": ({"sources_file": ".ssh"}, "sources_file"),
    "empty": ({"sources_file": ""}, "sources_file"),
    "one file for two": ({"sources_file": CHUNKS}, "two entries name the same file"),
    "itself": ({"chunks_file": MANIFEST}, "two entries name the same file"),
    "no digests": ({"digests": {}}, "digests"),
    "no dimension": ({"dim": 0}, "dim"),
    "dimension as text": ({"dim": "4"}, "dim"),
    "no model": ({"model_id": None}, "model_id"),
    "no counts": ({"counts": None}, "counts"),
    "counts below 0": ({"counts": {"chunks": -1, "sources": 0, "tokens": 0}}, "counts.chunks"),
    "a collection that is none": ({"collection": {"name": "a/b"}}, "collection.name"),
    "no revision": ({"revision": None}, "revision"),
}


ORIGINS: dict[str, Any] = {
    "language": "klingon",
    "chunk_strategy": "by-moon",
    "chunk_size": 2**31,
    "chunk_overlap": 16,
    "context": 9,
    "kinds": ["title", "title"],
    "kinds_by": "magic",
    "average_length": 1e-9,
    "bm25_k1": 1e9,
    "created_at": 10**15,
}


@pytest.mark.parametrize("field", ORIGINS)
def test_a_collection_that_could_not_be_used_is_refused(directory: Path, field: str) -> None:
    collection = json.loads((directory / MANIFEST).read_text())["collection"]
    edited(directory, collection=collection | {field: ORIGINS[field]})
    with pytest.raises(Damaged, match=rf"{MANIFEST}: .*{field.rstrip('s')}"):
        read_manifest(directory)


@pytest.mark.parametrize("name", ["", "m" * 257])
def test_a_name_of_a_model_is_bounded(directory: Path, name: str) -> None:
    edited(directory, model_id=name)
    with pytest.raises(Damaged, match=f"{MANIFEST}: model_id"):
        read_manifest(directory)


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_is_wrong_says_where(directory: Path, case: str) -> None:
    fields, expected = MANIFESTS[case]
    edited(directory, **fields)
    with pytest.raises(Damaged) as raised:
        read_manifest(directory)
    assert str(raised.value).startswith(MANIFEST)
    assert expected in str(raised.value)


def test_a_source_stands_there_once(directory: Path) -> None:
    def repeated(place: int) -> Callable[[bytes], bytes]:
        return lambda data: data + data.splitlines(True)[place]

    changed(directory, SOURCES, repeated(1))
    changed(directory, CHUNKS, repeated(2))
    changed(directory, VECTORS, lambda data: data + data[8 * DIMENSIONS : 12 * DIMENSIONS])
    with pytest.raises(Damaged, match="names a source twice"):
        checked(directory)


def test_the_dimension_must_fit_the_vectors(directory: Path) -> None:
    edited(directory, dim=DIMENSIONS + 1)
    with pytest.raises(Damaged, match=VECTORS):
        checked(directory)


def test_counts_must_be_right(directory: Path) -> None:
    manifest = json.loads((directory / MANIFEST).read_text())
    edited(directory, counts=manifest["counts"] | {"chunks": 5})
    with pytest.raises(Damaged, match="4 chunks instead of 5"):
        checked(directory)


@pytest.mark.parametrize("text", ["", "[]", "{", "x" * 2_000_000, '{"a": ' * 5000])
def test_a_manifest_that_is_none(directory: Path, text: str) -> None:
    (directory / MANIFEST).write_text(text)
    with pytest.raises(Damaged, match=MANIFEST):
        read_manifest(directory)


def test_vectors_that_need_not_be_of_unit_length_are_made_so(directory: Path) -> None:
    changed(directory, VECTORS, vectors_changed(lambda v: v.__imul__(3.0)))
    edited(directory, normalize=False)
    for item in checked(directory).items("docs"):
        vectors = [chunk.embedding or () for chunk in item.chunks]
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)


def test_the_older_name_of_a_revision_is_read(directory: Path) -> None:
    edited(directory, revision=None, hub_revision="abc")
    assert read_manifest(directory).revision == "abc"


@pytest.mark.parametrize("name", ["rating", "embedding", "collection", "@type", "a`; DROP"])
def test_unknown_properties_are_passed_over(directory: Path, name: str) -> None:
    expected = list(map(shown, checked(directory).items("docs")))
    added: dict[str, Any] = {name: [1, {"@type": "Collection"}]}
    edited(directory, rating={"x": 1})
    changed(directory, CHUNKS, line_changed(0, **added))
    changed(directory, SOURCES, line_changed(0, **added))
    assert list(map(shown, checked(directory).items("docs"))) == expected


def shown(item: Item) -> tuple[bytes, list[bytes], list[Any]]:
    chunks = list(map(CHUNK_LINES.encode, item.chunks))
    return SOURCE_LINES.encode(item.record), chunks, [chunk.embedding for chunk in item.chunks]


SOURCE = SourceRecord(
    source="d#~summary",
    title="t",
    content_hash="h",
    chunks=3,
    tokens=60,
    tokens_min=10,
    tokens_max=30,
    indexed_at=9,
    kind="summary",
    metadata={"a": [1]},
    format="text",
    language="python",
    links=({"target": "x", "kind": "k", "weight": 0.5},),
    of="d",
    file=True,
    file_hash="f",
    generated=True,
    tail="end",
    origin="o",
    dedup_threshold=0.75,
)
CHUNK = ChunkRecord(
    chunk_id="docs:d#~summary:1",
    collection="docs",
    source="d#~summary",
    title="t",
    content="content",
    kind="summary",
    of_chunk=2,
    parent="p",
    metadata={"a": [1]},
    chunk_index=1,
    total_chunks=3,
    created_at=9,
    tokens=20,
    breadcrumb="b",
    page=2,
    start_line=3,
    end_line=4,
    start_offset=5,
    end_offset=6,
    lead="lead",
    overlap=1,
    section=1,
    of="d",
    facets=["a"],
    dates=[1, 2],
    vector_key="v",
    terms=[1, 2],
    weights=[0.5, 1.5],
    lengths=[1, 2],
    average_length=7.5,
    duplicate_of="docs:e:0",
    centrality=0.5,
    novelty=0.25,
)


@pytest.mark.parametrize("record", [SOURCE, CHUNK], ids=["source", "chunk"])
def test_each_field_of_a_record_is_exported_and_read(record: SourceRecord | ChunkRecord) -> None:
    """The embedding is in a file of its own, and no other field may have its default here.

    The parent of a chunk is in the line of its source.
    """
    same = {each.name for each in fields(record) if getattr(record, each.name) == each.default}
    assert same <= {"embedding"}
    if isinstance(record, SourceRecord):
        assert SOURCE_LINES.decode(json_object(SOURCE_LINES.encode(record), ""), "") == record
    else:
        row = json_object(CHUNK_LINES.encode(record), "")
        assert CHUNK_LINES.decode(row, "", collection="docs", parent="p") == record


def test_each_field_of_a_use_is_exported() -> None:
    """The collection is in the manifest."""
    use = Use("agent", "docs", "docs:d:0", 3, 9)
    row = json_object(USE_LINES.encode(use), "")
    assert USE_LINES.decode(row, "", collection="docs") == use
