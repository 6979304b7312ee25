"""Formats that libraries read."""

from __future__ import annotations

import io
import sys
import zipfile
from datetime import date, datetime, time

import docx
import pptx
import pytest
from tests.ability_search.text.loaders.samples import pdf, saved, slides, word, workbook

from ability_search.text import loaders
from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, data: bytes, bounds: Bounds = BOUNDS) -> Extracted:
    return extract(name, data, format_of(name, data), bounds)


def test_a_form_feed_ends_each_page_of_a_pdf() -> None:
    found = read("a.pdf", pdf("First page\nsecond line", "", "Third page"))
    assert found.text == "First page\nsecond line\n\f\n\n\f\nThird page\n\f\n"
    assert (found.format, found.title) == ("text", "The Title")
    assert found.metadata == {"author": "Ada", "created": "2026-03-01", "pages": 3}


def test_a_document_keeps_headings_lists_and_tables_in_order() -> None:
    document = docx.Document()
    document.add_heading("Top", 0)
    document.add_heading("Part", 2)
    document.add_paragraph("# not a heading")
    document.add_paragraph("first", style="List Bullet")
    table = document.add_table(2, 2)
    for row, cells in zip(table.rows, [("Name", "Born"), ("Ada", "1815")], strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    document.add_paragraph("after")
    found = read("a.docx", saved(document))
    assert found.text == (
        "# Top\n\n## Part\n\n\\# not a heading\n\n- first\n- Name: Ada; Born: 1815\n\nafter"
    )
    assert found.title == "Top"


def test_what_a_document_says_of_itself_is_metadata() -> None:
    found = read("a.docx", word("text"))
    assert found.title == "Titled"
    assert (found.metadata["author"], found.metadata["created"]) == ("Ada", "2026-03-01")


def test_text_in_content_controls_is_read() -> None:
    document = docx.Document(io.BytesIO(word("inside")))
    body = document.element.body
    paragraph = next(each for each in body if each.tag.endswith("}p") and each.text == "inside")
    control = body.makeelement(paragraph.tag[:-1] + "sdt")
    content = control.makeelement(paragraph.tag[:-1] + "sdtContent")
    paragraph.addprevious(control)
    control.append(content)
    content.append(paragraph)
    assert read("a.docx", saved(document)).text == "# Guide\n\ninside"


def test_slides_are_sections_on_pages_of_their_own() -> None:
    found = read("a.pptx", slides("Alpha", "Beta"))
    assert found.text == (
        "## Alpha\n\n- About Alpha\n- and more\n\nSay Alpha\n\f\n"
        "## Beta\n\n- About Beta\n- and more\n\nSay Beta\n\f\n"
    )
    assert (found.format, found.title) == ("markdown", "Alpha")


def test_tables_and_groups_of_a_slide_are_read_and_pictures_are_not() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 100, 100).text_frame.text = "in a group"
    table = slide.shapes.add_table(2, 2, 0, 0, 100, 100).table
    for place, text in enumerate(["Name", "Born", "Ada", "1815"]):
        table.cell(place // 2, place % 2).text = text
    slide.shapes.add_connector(1, 0, 0, 10, 10)
    found = read("a.pptx", saved(presentation))
    assert found.text == "## Slide 1\n\n- in a group\n- Name: Ada; Born: 1815\n\f\n"


def test_cells_are_written_as_people_do() -> None:
    cells = [time(9, 30), datetime(2026, 3, 1), datetime(2026, 3, 1, 9), 3.0, 0.5, False, None]
    found = read("a.xlsx", workbook(A=[cells]))
    assert found.text == "## A\n\n- 09:30:00; 2026-03-01; 2026-03-01T09:00:00; 3; 0.5; False"


def test_sheets_are_sections_and_rows_say_their_columns() -> None:
    found = read(
        "a.xlsx",
        workbook(
            People=[["Staff"], [], ["name", "since", "hours"], ["Ada", date(2026, 3, 1), 7.5]],
            Empty=[],
            Numbers=[[1, 2.0], [3, None, True]],
        ),
    )
    assert found.text == (
        "## People\n\n- Staff\n- name: Ada; since: 2026-03-01; hours: 7.5\n\n## Empty\n\n"
        "## Numbers\n\n- 1; 2\n- 3; True"
    )


def test_a_table_with_more_text_than_allowed_is_refused_early() -> None:
    rows = [[f"column{n}" for n in range(20)], *[[str(n)] * 20 for n in range(2000)]]
    with pytest.raises(Unreadable, match="max_document_bytes"):
        read("a.xlsx", workbook(Huge=rows), Bounds(text=50_000, unpacked=1 << 24))


PAGE = b"""<!doctype html>
<html lang="en"><head><title>Backups | Site</title>
<meta name="author" content="Ada"><meta name="description" content="How to">
<style>p { color: red }</style><script>var x = "<p>no</p>"</script></head>
<body><nav><a href="/">Home</a></nav><header>Banner</header>
<main><h1>Back<em>ups</em></h1><p>They run<br>at <b>two</b> &amp; never at noon.</p>
<ul><li>one<ul><li>inner</li></ul></li><li><p>two</p></li></ul><ol><li>first</li></ol>
<pre>  keep
    this</pre>
<table><tr><th>Name</th><th>Size</th></tr><tr><td>db</td><td>1 GB</td></tr></table>
<p hidden>hidden</p><div aria-hidden="true">decor</div><div>loose <!-- x --> words</div>
<aside>Advert</aside></main><footer>Imprint</footer></body></html>"""


def test_the_main_text_of_a_page_keeps_its_structure() -> None:
    found = read("a.html", PAGE)
    assert found.text == (
        "# Backups\n\nThey run\nat two & never at noon.\n\n- one\n  - inner\n- two\n1. first\n\n"
        "```\n  keep\n    this\n```\n\n- Name: db; Size: 1 GB\n\nloose words"
    )
    assert (found.format, found.title) == ("markdown", "Backups")
    assert found.metadata == {"author": "Ada", "description": "How to", "lang": "en"}


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (b"<p>just <i>this", "just this"),
        (b"<body><nav>Home</nav><p>Body text</p><footer>f</footer>", "Body text"),
        (b"<nav>only navigation</nav>", "only navigation"),
        (b"<main></main><p>outside</p>", "outside"),
        (b"<table><tr><td>laid out</td><td>by a table</td></tr></table>", "laid out\n\nby a table"),
        (b"<div>" * 2000 + b"deep", "deep"),
        (b"plain words", "plain words"),
        ('<meta charset="iso-8859-1"><p>Größe'.encode("latin-1"), "Größe"),
        ('<?xml version="1.0" encoding="utf-8"?><html><p>Größe</p></html>'.encode(), "Größe"),
        ('<meta charset="nonsense"><p>Größe'.encode(), "Größe"),
        (b'<p>a<img src="x" alt="A picture">b</p>', "aA pictureb"),
    ],
)
def test_pages_of_all_kinds(page: bytes, text: str) -> None:
    assert read("a.html", page).text == text


def bomb(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", b"<Types/>")
        archive.writestr(name, b" " * (20 << 20))
    return buffer.getvalue()


def declared_encrypted(data: bytes) -> bytes:
    """The archive with the bit set that says that its first member is encrypted."""
    place = data.index(b"PK\x01\x02") + 8
    return data[:place] + bytes([data[place] | 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.pdf", pdf("secret", encrypted=True), "needs a password"),
        ("a.pdf", pdf(), "corrupt"),
        ("a.pdf", pdf(""), "no text in it"),
        ("a.pdf", pdf("cut off")[:150], "corrupt"),
        ("a.docx", word("cut off")[:5000], "corrupt"),
        ("a.docx", workbook(A=[["x"]]), "corrupt, or not what its name says"),
        ("a.xlsx", word("x"), "corrupt, or not what its name says"),
        ("a.pptx", slides("x").replace(b"ppt/", b"xxx/"), "corrupt"),
        ("a.docx", bomb("word/document.xml"), "max_unpacked_bytes"),
        ("a.xlsx", bomb("xl/workbook.xml"), "max_unpacked_bytes"),
        ("a.docx", declared_encrypted(word("x")), "needs a password"),
        ("a.html", b" ", "empty"),
        ("a.html", b"<script>1</script>", "empty"),
    ],
)
def test_what_cannot_be_read_says_why(name: str, data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        read(name, data)


def test_an_earlier_encrypted_pdf_does_not_make_others_so() -> None:
    with pytest.raises(Unreadable, match="password"):
        read("a.pdf", pdf("x", encrypted=True))
    with pytest.raises(Unreadable, match="corrupt"):
        read("a.pdf", pdf())


def test_entities_that_grow_without_end_are_not_expanded() -> None:
    names = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    laughs = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "ha">{names}]>'
    buffer = io.BytesIO()
    original = zipfile.ZipFile(io.BytesIO(word("text")))
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in original.namelist():
            data = original.read(name)
            if name == "docProps/core.xml":
                data = laughs.encode() + data.partition(b"?>")[2].replace(b"Titled", b"&e11;")
            archive.writestr(name, data)
    with pytest.raises(Unreadable, match="corrupt"):
        read("a.docx", buffer.getvalue())


def test_too_little_memory_is_told_from_a_corrupt_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def starved(*_: object) -> Extracted:
        raise MemoryError

    monkeypatch.setitem(loaders._READERS, "pdf", starved)
    with pytest.raises(Unreadable, match="memory"):
        read("a.pdf", pdf("x"))


def test_a_defect_of_our_own_is_not_taken_for_a_corrupt_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> Extracted:
        raise KeyError("defect")

    monkeypatch.setitem(loaders._READERS, "markdown", broken)
    with pytest.raises(KeyError, match="defect"):
        read("a.md", b"x")


@pytest.mark.parametrize(
    ("library", "name", "data"),
    [
        ("pypdfium2", "a.pdf", pdf("x")),
        ("docx", "a.docx", word("x")),
        ("pptx", "a.pptx", slides("x")),
        ("openpyxl", "a.xlsx", workbook(A=[["x"]])),
        ("lxml.etree", "a.html", b"<p>x"),
    ],
)
def test_a_missing_library_is_named_with_its_install_line(
    monkeypatch: pytest.MonkeyPatch, library: str, name: str, data: bytes
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unreadable, match=r"pip install 'ability-search\[documents\]'"):
        read(name, data)
