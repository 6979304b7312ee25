"""search-index-file over the wire: which files, what is read of them, what is removed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import assert_consistent, chunks

from ability_search.files.file_documents import hashed
from ability_search.files.selection import select


def write(root: Path, **files: str | bytes) -> None:
    for name, content in files.items():
        path = root / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


async def sources(network: Network) -> set[str]:
    return {row["source"] for row in await chunks(network, "docs")}


async def test_a_single_file_is_named_by_its_path_below_the_root(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, guide__a_DOT_md="# Title of it\n\ntext")
    answer = await network.call("search-index-file", collection="docs", path="guide/a.md")
    assert (answer["files"], answer["added"]) == (1, 1)
    (chunk,) = await chunks(network, "docs")
    assert (chunk["source"], chunk["title"]) == ("guide/a.md", "Title of it")
    assert chunk["metadata"] == {"path": "guide/a.md", "extension": "md"}
    alias = await network.call("search-index-file", collection="docs", filePath="guide/a.md")
    assert alias["unchanged"] == 1


async def test_a_directory_is_indexed_and_a_second_time_unchanged(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, d__a_DOT_md="alpha", d__sub__a_DOT_md="another", d__b_DOT_py="def f(): pass")
    first = await network.call("search-index-file", collection="docs", path="d")
    again = await network.call("search-index-file", collection="docs", path=str(tmp_path / "d"))
    assert (first["files"], first["added"], again["unchanged"]) == (3, 3, 3)
    assert await sources(network) == {"d/a.md", "d/sub/a.md", "d/b.py"}
    await assert_consistent(network, "docs")


async def test_patterns_choose_files_as_gitignore_does(network: Network, tmp_path: Path) -> None:
    write(
        tmp_path,
        d__a_DOT_md="a",
        d__b_DOT_txt="b",
        d__sub__c_DOT_md="c",
        d__drafts__e_DOT_md="e",
        d__node_modules__f_DOT_md="f",
        d__keep_DOT_md="k",
    )
    await network.call(
        "search-index-file",
        collection="docs",
        path="d",
        include=["*.md"],
        exclude=["drafts/", "/keep.md"],
    )
    assert await sources(network) == {"d/a.md", "d/sub/c.md"}


async def test_gitignore_files_are_followed_where_asked(network: Network, tmp_path: Path) -> None:
    write(tmp_path, d__a_DOT_md="a", d__b_DOT_log="b", d___DOT_gitignore="*.log\n.gitignore\n")
    options = {"collection": "docs", "path": "d"}
    await network.call("search-index-file", **options, gitignore=True)
    assert await sources(network) == {"d/a.md"}


async def test_what_is_excluded_now_is_swept(network: Network, tmp_path: Path) -> None:
    write(tmp_path, **{f"d__{name}_DOT_md": name for name in "abc"}, d__e__x_DOT_md="x")
    wanted = {"collection": "docs", "path": "d"}
    await network.call("search-index-file", **wanted)
    write(tmp_path, d___DOT_gitignore="/b.md\n.gitignore\n")
    swept = {"exclude": ["./e/"], "gitignore": True, "sweep": True}
    answer = await network.call("search-index-file", **wanted, **swept)
    assert (answer["removed"], answer["unchanged"], answer["skipped"]) == (2, 2, [])
    assert await sources(network) == {"d/a.md", "d/c.md"}
    excluded = {"exclude": ["*.md", ".gitignore"], "sweep": True}
    kept = await network.call("search-index-file", **wanted, **excluded)
    assert (kept["removed"], "excludes the files of 2 of 2" in kept["warnings"][0]) == (0, True)
    await assert_consistent(network, "docs")


async def test_paths_outside_the_allowed_roots_are_forbidden(start: Start, tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    write(inside, a_DOT_md="alpha")
    write(outside, secret_DOT_md="secret")
    (inside / "link.md").symlink_to(outside / "secret.md")
    (inside / "linked").symlink_to(outside)
    (inside / "loop").symlink_to(inside / "loop")
    async with start(SEARCH_ALLOWED_ROOTS=str(inside)) as network:
        for path in (
            "outside/secret.md",
            "inside/../outside/secret.md",
            str(outside / "secret.md"),
            str(outside / "missing.md"),
            "inside/link.md",
            "inside/linked/secret.md",
            "/etc/passwd",
        ):
            refusal = await network.refused("search-index-file", collection="docs", path=path)
            assert refusal["code"] == "forbidden_path", path
            assert str(tmp_path) not in str(refusal)
        for path in ("inside/missing.md", "inside/a\0.md", "inside/loop", "inside/" + "x" * 5000):
            refusal = await network.refused("search-index-file", collection="docs", path=path)
            assert refusal["code"] == "invalid_input", path
            assert str(tmp_path) not in str(refusal)
        answer = await network.call("search-index-file", collection="docs", path="inside")
        assert (answer["files"], await sources(network)) == (1, {"a.md"})


async def test_files_that_are_no_text_are_skipped_with_the_reason(
    start: Start, tmp_path: Path
) -> None:
    write(
        tmp_path,
        d__binary=b"\0\1\2" * 10,
        d__empty_DOT_md=" \n",
        d__large_DOT_md="x" * 5000,
        d__latin_DOT_txt="Größe, Öl und Ähre: für die schöne Übung wäre das möglich".encode(
            "latin-1"
        ),
        d__utf16_DOT_txt="Grüße aus UTF-16".encode("utf-16"),
        d__bom_DOT_txt="\ufeffmarked".encode(),
    )
    os.mkfifo(tmp_path / "d" / "pipe")
    (tmp_path / "d" / os.fsdecode(b"bad\xff.md")).write_text("text")
    async with start(SEARCH_MAX_FILE_BYTES="4096") as network:
        answer = await network.call("search-index-file", collection="docs", path="d")
        reasons = {item["path"]: item["reason"] for item in answer["skipped"]}
        assert set(reasons) == {"d/binary", "d/empty.md", "d/large.md", "d/bad?.md", "d/pipe"}
        assert "max_file_bytes" in reasons["d/large.md"]
        assert answer["files"] == 3
        stored = {row["source"]: row["content"] for row in await chunks(network, "docs")}
        assert stored == {
            "d/latin.txt": "Größe, Öl und Ähre: für die schöne Übung wäre das möglich",
            "d/utf16.txt": "Grüße aus UTF-16",
            "d/bom.txt": "marked",
        }


async def test_a_sweep_removes_what_vanished_below_the_path_and_nothing_else(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, d__a_DOT_md="a", d__b_DOT_md="b", dd__c_DOT_md="c", d_DOT_md="top")
    await network.call("search-index-file", collection="docs", path=".", include=["*.md"])
    await network.call(
        "search-index",
        collection="docs",
        documents=[document("d/typed-in.md", "x"), document("https://d/b.md", "y")],
    )
    for gone in ("d/a.md", "dd/c.md"):
        (tmp_path / gone).unlink()
    kept = await network.call("search-index-file", collection="docs", path="d")
    assert kept["removed"] == 0
    file = await network.call("search-index-file", collection="docs", path="d.md", sweep=True)
    assert file["removed"] == 0
    swept = await network.call("search-index-file", collection="docs", path="d", sweep=True)
    assert swept["removed"] == 1
    assert await sources(network) == {
        "d/b.md", "dd/c.md", "d.md", "d/typed-in.md", "https://d/b.md"
    }  # fmt: skip
    await assert_consistent(network, "docs")
    (tmp_path / "d" / "b.md").unlink()
    emptied = await network.call(
        "search-index-file", collection="docs", path=".", include=["*.md"], sweep=True
    )
    assert emptied["removed"] == 2
    assert await sources(network) == {"d.md", "d/typed-in.md", "https://d/b.md"}


async def test_an_emptied_directory_or_file_is_handled_apart(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, d__a_DOT_md="a", d__b_DOT_md="b", e__c_DOT_md="c")
    for name in ("d", "e"):
        await network.call("search-index-file", collection="docs", path=name)
    write(tmp_path, d__a_DOT_md=" \n")
    answer = await network.call("search-index-file", collection="docs", path="d")
    assert (answer["removed"], [each["reason"] for each in answer["skipped"]]) == (1, ["empty"])
    again = await network.call("search-index-file", collection="docs", path="d")
    assert again["removed"] == 0
    (tmp_path / "e" / "c.md").unlink()
    answer = await network.call("search-index-file", collection="docs", path="e", sweep=True)
    assert answer["removed"] == 0
    assert (
        "e/ lacks or excludes the files of 1 of 1 sources; they are kept" in answer["warnings"][0]
    )
    assert await sources(network) == {"d/b.md", "e/c.md"}
    await assert_consistent(network, "docs")


@pytest.mark.parametrize(
    ("stored", "left"), [(1, 0), (5, 0), (5, 2), (7, 3), (8, 4), (19, 1), (20, 9), (60, 29)]
)
async def test_a_sweep_of_most_sources_needs_consent(
    network: Network, tmp_path: Path, stored: int, left: int
) -> None:
    """A drive that is not mounted may leave files of the system behind, or a part."""
    (tmp_path / "d").mkdir()
    for n in range(stored):
        (tmp_path / f"d/{n:02}.md").write_text(f"text {n}")
    await network.call("search-index-file", collection="docs", path="d")
    for n in range(left, stored):
        (tmp_path / f"d/{n:02}.md").unlink()
    if stored > 1:
        (tmp_path / "d/.DS_Store").write_bytes(b"\0\0\0\1Bud1")
    swept = await network.call("search-index-file", collection="docs", path="d", sweep=True)
    unusual = left == 0 or (stored - left > 3 and left < stored - left)
    assert swept["removed"] == (0 if unusual else stored - left)
    assert any("sweepAll" in each for each in swept.get("warnings", ())) == unusual
    if unusual:
        swept = await network.call(
            "search-index-file", collection="docs", path="d", sweep=True, sweepAll=True
        )
        assert swept["removed"] == stored - left
    assert len(await sources(network)) == left


async def test_a_file_that_is_no_text_now_loses_its_earlier_text(
    network: Network, tmp_path: Path
) -> None:
    """One that cannot be read for now keeps it, which is said."""
    write(tmp_path, **{f"d__{name}_DOT_md": f"text of {name}" for name in "abcdef"})
    await network.call("search-index-file", collection="docs", path="d")
    write(
        tmp_path,
        d__a_DOT_md=b"\x7fELF\0\1\2\3",
        d__b_DOT_md="-----BEGIN PRIVATE KEY-----\nabc\n",
        d__c_DOT_md=bytes(range(256)) * 9,
        d__d_DOT_md=" \n",
        d__e_DOT_md="x" * 20_000_000,
    )
    answer = await network.call("search-index-file", collection="docs", path="d")
    assert answer["removed"] == 4
    assert await sources(network) == {"d/e.md", "d/f.md"}
    assert any("keep the text that was read before, 1: 'd/e.md'" in w for w in answer["warnings"])
    await assert_consistent(network, "docs")


async def test_copies_of_a_file_are_not_searched_where_asked(
    network: Network, tmp_path: Path
) -> None:
    text = "# Backups\n\nBackups run at two in the morning."
    write(tmp_path, d__a_DOT_md=text, d__copy_DOT_md=text, d__b_DOT_md="# Other\n\nElse.")
    options = {"collection": "docs", "path": "d", "dedupThreshold": 0.99}
    answer = await network.call("search-index-file", **options)
    assert (answer["added"], answer["deduplicated"]) == (3, 1)
    found = await network.call("search-query", collection="docs", query="Backups", limit=5)
    assert sorted(each["source"] for each in found["results"]) == ["d/a.md", "d/b.md"]
    await assert_consistent(network, "docs")


async def test_files_of_several_roots_do_not_collide_or_sweep_each_other(
    start: Start, tmp_path: Path
) -> None:
    write(tmp_path, one__same_DOT_md="first", two__same_DOT_md="second", two__x_DOT_md="third")
    roots = os.pathsep.join(str(tmp_path / name) for name in ("one", "two"))
    async with start(SEARCH_ALLOWED_ROOTS=roots) as network:
        for name in ("one", "two"):
            await network.call("search-index-file", collection="docs", path=name, sweep=True)
        swept = await network.call("search-index-file", collection="docs", path="one", sweep=True)
        assert swept["removed"] == 0
        assert await sources(network) == {"one/same.md", "two/same.md", "two/x.md"}


async def test_more_files_than_fit_into_a_call_are_all_indexed(
    start: Start, tmp_path: Path
) -> None:
    write(tmp_path, **{f"d__f{n}_DOT_md": f"text {n} " + "x" * 300 for n in range(25)})
    async with start(
        SEARCH_MAX_BATCH_DOCUMENTS="10",
        SEARCH_MAX_BATCH_BYTES="2048",
        SEARCH_MAX_DOCUMENT_BYTES="1024",
    ) as network:
        answer = await network.call("search-index-file", collection="docs", path="d")
        assert (answer["documents"], answer["added"]) == (25, 25)
        assert (await assert_consistent(network, "docs")).sources == 25


async def test_a_pattern_that_cannot_be_read_is_refused_by_name(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, d__a_DOT_md="a")
    refusal = await network.refused("search-index-file", collection="docs", path="d", exclude=["!"])
    assert refusal["code"] == "invalid_input"
    assert "exclude" in refusal["error"]


async def test_another_text_of_the_same_size_and_time_is_noticed(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, d__a_DOT_md="one", d__b_DOT_md="two")
    file = tmp_path / "d" / "a.md"
    about = file.stat()
    await network.call("search-index-file", collection="docs", path="d")
    file.write_text("six")
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    answer = await network.call("search-index-file", collection="docs", path="d")
    assert (answer["updated"], answer["unchanged"]) == (1, 1)
    assert {row["content"] for row in await chunks(network, "docs")} == {"six", "two"}


async def test_a_document_without_content_is_compared_by_the_hash_of_its_file(
    network: Network, tmp_path: Path
) -> None:
    write(tmp_path, d__a_DOT_md="alpha", d__b_DOT_md="beta")
    files, _ = hashed(select(tmp_path / "d", tmp_path), max_bytes=99)
    hashes = {each.source: each.file_hash for each in files.values()}

    def sent(**contents: str) -> list[dict[str, Any]]:
        names = {"d/a.md": contents.get("a", ""), "d/b.md": contents.get("b", "")}
        return [document(name, text, fileHash=hashes[name]) for name, text in names.items()]

    unknown = await network.call("search-index", collection="docs", documents=sent())
    assert (unknown["wanted"], unknown["added"]) == (["d/a.md", "d/b.md"], 0)
    assert (await network.call("search-collections"))["collections"] == []
    mixed = await network.call("search-index", collection="docs", documents=sent(a="alpha"))
    assert (mixed["added"], mixed["wanted"]) == (1, ["d/b.md"])
    again = await network.call("search-index", collection="docs", documents=sent())
    assert (again["unchanged"], again["wanted"]) == (1, ["d/b.md"])
    by_worker = await network.call("search-index-file", collection="docs", path="d")
    assert (by_worker["unchanged"], by_worker["added"]) == (1, 1)
    done = await network.call("search-index", collection="docs", documents=sent())
    assert (done["unchanged"], "wanted" in done) == (2, False)
    other = await network.call("search-index", collection="docs", documents=sent(), maxTokens=32)
    assert other["wanted"] == ["d/a.md", "d/b.md"]
    forced = await network.call("search-index", collection="docs", documents=sent(), force=True)
    assert forced["wanted"] == ["d/a.md", "d/b.md"]
    assert (await assert_consistent(network, "docs")).sources == 2
