"""Documents, presentations and workbooks."""

from __future__ import annotations

import io
import zipfile
from datetime import date, datetime, time

import docx
import pptx
import pytest
from tests.ability_search.text.loaders.samples import saved, slides, word, workbook

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

BOUNDS = Bounds(text=1 << 20, unpacked=1 << 24)


def read(name: str, data: bytes, bounds: Bounds = BOUNDS) -> Extracted:
    return extract(name, data, format_of(name, data), bounds)


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


def test_properties_of_a_document_are_metadata() -> None:
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


def test_slides_are_sections_on_separate_pages() -> None:
    found = read("a.pptx", slides("Alpha", "Beta"))
    assert found.text == (
        "## Alpha\n\n- About Alpha\n- and more\n\nSay Alpha\n\f\n"
        "## Beta\n\n- About Beta\n- and more\n\nSay Beta\n\f\n"
    )
    assert (found.format, found.title) == ("markdown", "Alpha")


def test_tables_and_groups_of_a_slide_are_read_but_not_pictures() -> None:
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


def test_cells_have_the_values_that_people_would_write() -> None:
    cells = [time(9, 30), datetime(2026, 3, 1), datetime(2026, 3, 1, 9), 3.0, 0.5, False, None]
    found = read("a.xlsx", workbook(A=[cells]))
    assert found.text == "## A\n\n- 09:30:00; 2026-03-01; 2026-03-01T09:00:00; 3; 0.5; False"


def test_sheets_are_sections_and_rows_name_their_columns() -> None:
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


def test_a_table_with_more_text_than_allowed_is_rejected_early() -> None:
    rows = [[f"column{n}" for n in range(20)], *[[str(n)] * 20 for n in range(2000)]]
    with pytest.raises(Unreadable, match="max_document_bytes"):
        read("a.xlsx", workbook(Huge=rows), Bounds(text=50_000, unpacked=1 << 24))


def test_exponential_entities_are_not_expanded() -> None:
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
