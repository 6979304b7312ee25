"""Files in many formats over the wire: what is found of them, and what a second time costs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import EmailMessage
from functools import partial
from pathlib import Path
from typing import Any

import pypdfium2
import pytest
from tests.ability_search.flows.conftest import Network, Start, document
from tests.ability_search.flows.stored import assert_consistent, chunks
from tests.ability_search.flows.test_files_indexing import sources
from tests.ability_search.text.loaders.samples import (
    book,
    opendocument,
    pdf,
    saved,
    scan,
    slides,
    word,
    workbook,
)

from ability_search.extensions.formats.isolated_reader import IsolatedReader
from ability_search.files.selection import SECRET
from kadi_client import RemoteError


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose text is read."""
    names: list[str] = []
    extract = IsolatedReader.extract

    def noted(self: IsolatedReader, name: str, data: bytes, format: str | None) -> object:
        names.append(name)
        return extract(self, name, data, format)

    monkeypatch.setattr(IsolatedReader, "extract", noted)
    return names


def write(root: Path, **files: bytes) -> Path:
    folder = root / "d"
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("_", ".")).write_bytes(data)
    return folder


@pytest.mark.slow
async def test_files_of_all_formats_are_found_and_a_broken_one_is_named(
    network: Network, tmp_path: Path
) -> None:
    write(
        tmp_path,
        a_pdf=pdf("An introduction", "The walrus sleeps"),
        b_docx=word("A pelican drinks"),
        c_pptx=slides("Flamingo"),
        d_xlsx=workbook(Birds=[["name", "legs"], ["ostrich", 2]]),
        e_html=b"<title>Site</title><script>no</script><h1>Otters</h1><p>An otter swims",
        f_md=b"---\ntitle: Moles\ntags: [x]\n---\nA mole digs",
        g_csv=b"animal,sound\nlynx,hiss\n",
        h_rst=b"Top\n===\n\nA badger rests\n",
        i_pdf=pdf("secret", encrypted=True),
        j_docx=b"no document",
        k_png=b"\x89PNG\r\n\x1a\n",
        l_odt=opendocument("<text:p>A heron fishes</text:p>"),
        m_epub=book("<p>An ibex climbs"),
        n_rtf=rb"{\rtf1\ansi A yak grazes\par}",
        o_svg=b'<svg xmlns="http://www.w3.org/2000/svg"><text>A newt hides</text></svg>',
        p_eml=b"From: a@b.c\nSubject: Owls\n\nAn owl hoots\n",
    )
    answer = await network.call("search-index-file", collection="docs", path="d")
    assert (answer["files"], answer["added"], answer["failed"]) == (13, 13, [])
    reasons = {each["path"]: each["reason"] for each in answer["skipped"]}
    assert "tesseract" in reasons.pop("d/k.png")
    assert reasons == {
        "d/i.pdf": "encrypted: needs a password",
        "d/j.docx": "not a DOCX file, though its name says so",
    }
    for words, source, title, page in [
        ("walrus sleeps", "d/a.pdf", "The Title", 2),
        ("pelican drinks", "d/b.docx", "Titled", None),
        ("say flamingo", "d/c.pptx", "Flamingo", 1),
        ("ostrich", "d/d.xlsx", "d.xlsx", None),
        ("otter swims", "d/e.html", "Otters | Site", None),
        ("mole digs", "d/f.md", "Moles", None),
        ("lynx", "d/g.csv", "g.csv", None),
        ("badger rests", "d/h.rst", "Top", None),
        ("heron", "d/l.odt", "l.odt", None),
        ("ibex", "d/m.epub", "The Book", None),
        ("yak", "d/n.rtf", "n.rtf", None),
        ("newt", "d/o.svg", "o.svg", None),
        ("owl hoots", "d/p.eml", "Owls", None),
    ]:
        found = await network.call(
            "search-query", collection="docs", query=words, mode="keyword", limit=1
        )
        (hit,) = found["results"]
        assert (hit["source"], hit["title"], hit.get("page")) == (source, title, page), words
    await assert_consistent(network, "docs")


async def index_files(network: Network, base: Path, **files: bytes) -> dict[str, Any]:
    """Write files, and index and sweep their directory."""
    write(base, **files)
    wanted = {"collection": "docs", "path": "d", "sweep": True}
    answer: dict[str, Any] = await network.call("search-index-file", **wanted)
    return answer


def letter(text: str, **attachments: bytes) -> bytes:
    message = EmailMessage()
    message["From"], message["Subject"] = "ada@example.com", "Birds"
    message.set_content(text)
    for name, data in attachments.items():
        file = name.replace("_", ".")
        message.add_attachment(data, maintype="application", subtype="x", filename=file)
    return message.as_bytes()


@pytest.mark.slow
async def test_attachments_are_updated_and_deleted_with_their_message(
    network: Network, tmp_path: Path
) -> None:
    index = partial(index_files, network, tmp_path)

    async def note(source: str) -> None:
        of = {"of": "d/a.eml", "source": source}
        await network.call(
            "search-index", collection="docs", documents=[document("x", "note") | of]
        )

    first = letter(
        "Hello", b_pdf=pdf("one", "The walrus"), c_docx=word("A pelican"), **{".env": b"key"}
    )
    answer = await index(a_eml=first, z_md=b"other")
    counts = {name: answer[name] for name in ("files", "documents", "added", "failed")}
    assert counts == {"files": 2, "documents": 4, "added": 4, "failed": []}
    assert answer["skipped"] == [{"path": "d/a.eml#attachment=.env", "reason": SECRET}]
    found = await network.call("search-query", collection="docs", query="walrus", mode="keyword")
    (hit,) = found["results"]
    assert (hit["source"], hit["of"]) == ("d/a.eml#attachment=b.pdf", "d/a.eml")
    assert (hit["page"], hit["metadata"]["from"]) == (2, "ada@example.com")
    near = await network.call("search-similar", collection="docs", chunkId="docs:d/z.md:0")
    assert {each.get("of") for each in near["results"]} == {None, "d/a.eml"}
    await note("a note")
    await note("d/a.eml#2")
    again = await index()
    assert (again["files"], again["documents"], again["unchanged"]) == (2, 4, 4)
    changed = await index(a_eml=letter("Hello", c_docx=word("A pelican"), e_txt=b"An owl"))
    assert (changed["added"], changed["updated"], changed["unchanged"]) == (1, 1, 2)
    assert await sources(network) == {
        *("d/a.eml", "d/a.eml#attachment=c.docx", "d/a.eml#attachment=e.txt", "d/z.md"),
        *("a note", "d/a.eml#2"),
    }
    (tmp_path / "d" / "a.eml").unlink()
    assert (await index())["removed"] == 1
    assert await sources(network) == {"d/z.md"}
    await assert_consistent(network, "docs")


def listed(*documents: dict[str, Any]) -> bytes:
    return json.dumps(documents).encode()


CATS = {"source": "pets/cats.md", "title": "Cats", "content": "Cats purr."}
DOGS = {"source": "https://pets.example/dogs", "content": "Dogs bark.", "metadata": {"legs": 4}}
BIRDS = {"source": "birds", "title": "", "content": "# On birds\n\nBirds sing in M\u00fcnster."}


async def test_a_list_of_documents_is_that_many_documents_with_their_sources(
    network: Network, tmp_path: Path
) -> None:
    index = partial(index_files, network, tmp_path)

    names = ("files", "documents", "chunks", "added", "updated", "unchanged", "failed", "skipped")
    answer = await index(list_json=listed(CATS, DOGS))
    assert [answer[name] for name in names] == [1, 2, 2, 2, 0, 0, [], []]
    dogs, cats = await chunks(network, "docs")
    assert (dogs["source"], dogs["title"]) == (DOGS["source"], DOGS["source"])
    assert dogs["metadata"] == {"legs": 4, "path": "d/list.json", "extension": ""}
    assert [cats[name] for name in ("source", "title", "content")] == [*CATS.values()]
    again = await index()
    assert [again[name] for name in names] == [1, 2, 0, 0, 0, 2, [], []]
    info = await network.call("search-collection-info", collection="docs")
    assert (info["sourceCount"], info["sources"]) == (2, [DOGS["source"], CATS["source"]])
    note = document("note", "A note on cats.", of="d/list.json")
    await network.call("search-index", collection="docs", documents=[note])
    # A document that leaves the file is deleted, what others said of the file is kept.
    changed = await index(list_json=listed(BIRDS, CATS))
    assert [changed[name] for name in names] == [1, 2, 1, 1, 0, 1, [], []]
    assert await sources(network) == {"birds", "note", "pets/cats.md"}
    rebuilt = await network.call("search-reindex", collection="docs", maxTokens=64)
    assert rebuilt["chunks"] == 3
    assert (rebuilt["documents"], (await index())["unchanged"]) == (3, 2)
    found = await network.call("search-query", collection="docs", query="birds sing")
    assert (found["results"][0]["title"], found["results"][0]["of"]) == ("On birds", "d/list.json")
    # Another shape is read as before, and the documents are gone.
    await index(list_json=json.dumps([{"source": "a", "text": "b"}]).encode())
    assert await sources(network) == {"d/list.json", "note"}
    await index(list_json=listed(CATS), z_md=b"other")
    assert await sources(network) == {"d/z.md", "note", "pets/cats.md"}
    (tmp_path / "d" / "list.json").unlink()
    assert (await index())["removed"] == 1
    assert await sources(network) == {"d/z.md"}
    await assert_consistent(network, "docs")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stored"),
    [("list_json", {"birds"}), ("a_eml", {"d/a.eml", "d/a.eml#attachment=b.txt"})],
)
async def test_a_file_in_which_a_document_failed_is_read_again(
    network: Network, tmp_path: Path, name: str, stored: set[str]
) -> None:
    def refuse(request: dict[str, Any]) -> None:
        if any("purr" in text for text in request["input"]):
            raise RemoteError("input contains a text that cannot be embedded: invalid input")

    index = partial(index_files, network, tmp_path)
    held = {"list_json": listed(CATS, BIRDS), "a_eml": letter("Hi", b_txt=b"An owl", c_txt=b"purr")}
    network.model.failure = refuse
    for _ in range(2):
        answer = await index(**{name: held[name]})
        assert len(answer["failed"]) == 1
        assert await sources(network) == stored
    network.model.failure = None
    answer = await index()
    assert (answer["added"], answer["failed"]) == (1, [])
    assert len(await sources(network)) == len(stored) + 1
    answer = await index()
    assert (answer["unchanged"], answer["documents"]) == (answer["documents"], len(stored) + 1)
    await assert_consistent(network, "docs")


async def test_two_files_with_the_same_source_are_named(network: Network, tmp_path: Path) -> None:
    write(tmp_path, a_json=listed(CATS, DOGS), b_json=listed(CATS | {"content": "Lions roar."}))
    both = await network.call("search-index-file", collection="docs", path="d")
    assert both["documents"] == both["added"] + len(both["failed"]) == 3
    assert [each["source"] for each in both["failed"]] == [CATS["source"]]
    assert await sources(network) == {CATS["source"], DOGS["source"]}
    write(tmp_path, a_json=listed(CATS))
    other = await network.call("search-index-file", collection="docs", path="d")
    assert "'pets/cats.md' was in d/b.json and is now in d/a.json" in other["warnings"][0]
    await assert_consistent(network, "docs")


async def test_a_message_is_not_stored_before_its_attachments(
    network: Network, tmp_path: Path
) -> None:
    """So that it is read again if the worker is killed between the two."""
    held: list[bool] = []

    def fault(_tool: str, tool_input: Mapping[str, Any]) -> None:
        if "Hello" in str(tool_input):
            held.append("An owl" in str(network.calls))

    network.faults.append(fault)
    write(tmp_path, a_eml=letter("Hello", b_txt=b"An owl", c_txt=b"two"))
    await network.call("search-index-file", collection="docs", path="d")
    assert held
    assert all(held)


@pytest.mark.slow
async def test_files_are_not_read_again_until_their_bytes_change(
    network: Network, tmp_path: Path, read: list[str]
) -> None:
    folder = write(tmp_path, a_pdf=pdf("one"), b_html=b"<p>two", c_md=b"three")
    first = await network.call("search-index-file", collection="docs", path="d")
    assert (first["added"], read) == (3, ["d/a.pdf", "d/b.html", "d/c.md"])
    read.clear()
    texts = len(network.model.texts)
    (folder / "a.pdf").touch()
    again = await network.call("search-index-file", collection="docs", path="d")
    assert (again["documents"], again["files"], again["unchanged"]) == (3, 3, 3)
    assert (read, again["model"], again["dimensions"]) == ([], "words-64", 64)
    (folder / "a.pdf").write_bytes(pdf("other"))
    read.clear()
    changed = await network.call("search-index-file", collection="docs", path="d")
    assert (changed["updated"], changed["unchanged"], read) == (1, 2, ["d/a.pdf"])
    assert len(network.model.texts) == texts + 1
    forced = await network.call("search-index-file", collection="docs", path="d", force=True)
    assert forced["updated"] == 3


async def test_nothing_but_unchanged_files_still_tells_the_model(
    network: Network, tmp_path: Path, read: list[str]
) -> None:
    write(tmp_path, a_pdf=pdf("one"))
    for expected in ("added", "unchanged"):
        answer = await network.call("search-index-file", collection="docs", path="d")
        assert (answer[expected], answer["model"], answer["dimensions"]) == (1, "words-64", 64)
    assert read == ["d/a.pdf"]


async def test_another_way_of_cutting_reads_them_again_and_a_reindexing_does_not(
    network: Network, tmp_path: Path, read: list[str]
) -> None:
    write(tmp_path, a_pdf=pdf("word " * 60, "second"))
    await network.call("search-index-file", collection="docs", path="d")
    options = {"collection": "docs", "path": "d", "maxTokens": 32}
    cut = await network.call("search-index-file", **options)
    assert (cut["updated"], len(read)) == (1, 2)
    await network.call("search-reindex", collection="docs", maxTokens=64)
    (hit,) = (await network.call("search-query", collection="docs", query="second", limit=1))[
        "results"
    ]
    assert hit["page"] == 2
    again = await network.call("search-index-file", collection="docs", path="d")
    assert (again["unchanged"], len(read)) == (1, 2)


async def test_the_format_of_files_can_be_told(network: Network, tmp_path: Path) -> None:
    write(tmp_path, manual=pdf("kept without a suffix"), page_html=b"<p>raw</p>")
    told = await network.call("search-index-file", collection="a", path="d/manual", format="pdf")
    assert told["added"] == 1
    await network.call("search-index-file", collection="b", path="d/page.html", format="text")
    found = await network.call("search-query", collection="b", query="raw")
    assert found["results"][0]["content"] == "<p>raw</p>"


async def test_a_file_that_takes_too_long_is_skipped(start: Start, tmp_path: Path) -> None:
    write(tmp_path, a_pdf=pdf("slow"), b_md=b"quick")
    async with start(SEARCH_FILE_TIMEOUT="0.01") as network:
        answer = await network.call("search-index-file", collection="docs", path="d")
        assert [each["path"] for each in answer["skipped"]] == ["d/a.pdf"]
        assert "file_timeout" in answer["skipped"][0]["reason"]
        assert await sources(network) == {"d/b.md"}


async def test_callers_mark_pages_with_form_feeds(network: Network) -> None:
    pages = "\n\f\n".join(["first " * 12, "second " * 12, "third " * 12])
    code = document("b.c", "int a;\n\f\nint walrus;", format="code", language="c")
    await network.call(
        "search-index",
        collection="docs",
        chunkStrategy="paragraph",
        maxTokens=16,
        documents=[document("a.txt", pages), code],
    )
    for wanted, page in [("first", 1), ("second", 2), ("third", 3), ("walrus", None)]:
        found = await network.call("search-query", collection="docs", query=wanted, limit=1)
        assert found["results"][0].get("page") == page, wanted


async def test_front_matter_is_metadata_and_its_description_is_found(network: Network) -> None:
    matter = "---\nname: db-advisor\ndescription: Finds slow queries\ntags: [sql]\nteam: a\n---\n"
    skill = document("skill", f"{matter}# Usage\n\nCall it. #beta\n", format="markdown")
    skill["metadata"] = {"team": "b"}
    await network.call("search-index", collection="docs", documents=[skill])
    found = await network.call(
        "search-query",
        collection="docs",
        query="slow queries",
        mode="keyword",
        filter={"metadata.tags": {"$contains": "beta"}},
    )
    (hit,) = found["results"]
    assert hit["content"] == "Finds slow queries\n\n# Usage\n\nCall it. #beta"
    assert hit["startLine"] == 7
    assert hit["metadata"]["team"] == "b"
    again = await network.call("search-index", collection="docs", documents=[skill])
    assert again["unchanged"] == 1
    await network.call("search-reindex", collection="docs")
    after = await network.call("search-index", collection="docs", documents=[skill])
    assert after["unchanged"] == 1


async def test_a_scanned_page_is_named_as_skipped_and_its_file_counts_as_read(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    mixed = pypdfium2.PdfDocument(scan("One", "Two"))
    mixed.import_pages(pypdfium2.PdfDocument(pdf("The walrus")))
    write(tmp_path, a_pdf=saved(mixed), b_png=b"\x89PNG\r\n\x1a\n")
    answer = await network.call("search-index-file", collection="docs", path="d")
    assert (answer["files"], answer["added"]) == (1, 1)
    paths = [each["path"] for each in answer["skipped"]]
    assert sorted(paths) == ["d/a.pdf#page=1-2", "d/b.png"]
    assert all("apt install tesseract-ocr" in each["reason"] for each in answer["skipped"])
