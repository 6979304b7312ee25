"""Documents, presentations and workbooks."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.opc.packuri import PackURI as WordURI
from docx.opc.part import Part as WordPart
from docx.oxml import parse_xml
from docx.oxml.ns import qn
from openpyxl.utils import range_boundaries
from pptx.chart import data as chart_data
from pptx.enum.chart import XL_CHART_TYPE
from pptx.opc.package import Part
from pptx.opc.packuri import PackURI
from tests.ability_search.text.loaders.samples import (
    flat_opendocument,
    opendocument,
    replaced,
    saved,
    slides,
    word,
    workbook,
)

from ability_search.text.loaders import Bounds, Extracted, Unreadable, extract, format_of

TRANSITIONAL = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
PRESENTATION = "http://schemas.openxmlformats.org/presentationml/2006/main"
PIXEL = bytes.fromhex(
    "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
)
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


def test_the_description_of_a_picture_is_read() -> None:
    document = docx.Document()
    shape = document.add_picture(io.BytesIO(PIXEL))
    shape._inline.docPr.set("descr", "A ferry at dawn")
    assert read("a.docx", saved(document)).text == "A ferry at dawn"


def test_a_style_without_a_type_does_not_end_a_document() -> None:
    document = docx.Document()
    document.add_heading("Part", 2)
    for style in document.styles.element.style_lst:
        style.attrib.pop(qn("w:type"), None)
    assert read("a.docx", saved(document)).text == "## Part"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([("Main street", "Phone")], "- Main street; Phone"),
        ([("Name", "Remark", "Born"), ("Ada", "", "1815")], "- Name: Ada; Born: 1815\n- Remark"),
    ],
)
def test_names_of_columns_without_values_are_kept(rows: list[tuple[str, ...]], text: str) -> None:
    document = docx.Document()
    table = document.add_table(len(rows), len(rows[0]))
    for row, cells in zip(table.rows, rows, strict=True):
        for cell, content in zip(row.cells, cells, strict=True):
            cell.text = content
    assert read("a.docx", saved(document)).text == text


def test_the_text_of_merged_cells_of_a_document_is_that_of_each() -> None:
    document = docx.Document()
    table = document.add_table(3, 3)
    for place, text in enumerate(("Region", "May", "June", "East", "closed", "", "", "1", "2")):
        table.cell(place // 3, place % 3).text = text
    table.cell(1, 1).merge(table.cell(1, 2))
    table.cell(1, 0).merge(table.cell(2, 0))
    assert read("a.docx", saved(document)).text == (
        "- Region: East; May: closed; June: closed\n- Region: East; May: 1; June: 2"
    )


def test_properties_of_a_document_are_metadata() -> None:
    found = read("a.docx", word("text"))
    assert found.title == "Titled"
    assert (found.metadata["author"], found.metadata["created"]) == ("Ada", "2026-03-01")


_TYPES, _RELATIONS = "[Content_Types].xml", "word/_rels/document.xml.rels"
_OPEN_XML = b"http://schemas.openxmlformats.org/"


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        (_TYPES, b"wordprocessingml.document.main", b"macroEnabled.main"),
        (_TYPES, b"wordprocessingml.document.main", b"wordprocessingml.template.main"),
        (_TYPES, b'Extension="xml"', b'Extension="none"'),
        (_RELATIONS, b"</Relationships>", b'<Relationship Target="lost.xml"/></Relationships>'),
        (_RELATIONS, b'"styles.xml"', b'"/word/Styles.xml"'),
        (_RELATIONS, b'"styles.xml"', b'"..\\word\\styles.xml"'),
        ("_rels/.rels", b"docProps/core.xml", b"docProps/thumbnail.jpeg"),
        (
            "",
            _OPEN_XML + b"wordprocessingml/2006/",
            b"http://purl.oclc.org/ooxml/wordprocessingml/",
        ),
        ("", _OPEN_XML + b"officeDocument/2006/", b"http://purl.oclc.org/ooxml/officeDocument/"),
    ],
)
@pytest.mark.parametrize("name", ["a.docx", "a.docm", "a.dotx"])
def test_documents_of_other_programs_are_read(name: str, part: str, old: bytes, new: bytes) -> None:
    data = word("text")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {each: archive.read(each) for each in archive.namelist()}
    assert any(old in content for each, content in members.items() if part in ("", each))
    for each, content in members.items():
        if part in ("", each):
            data = replaced(data, each, content.replace(old, new))
    assert read(name, data).text == "# Guide\n\ntext"


def test_words_beside_a_described_picture_stay_apart() -> None:
    document = docx.Document()
    paragraph = document.add_paragraph("before")
    shape = paragraph.add_run().add_picture(io.BytesIO(PIXEL))
    shape._inline.docPr.set("descr", "A ferry")
    paragraph.add_run("after")
    assert read("a.docx", saved(document)).text == "before A ferry after"


def test_charts_and_diagrams_of_a_document_are_read() -> None:
    main = "http://schemas.openxmlformats.org/drawingml/2006"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    words = "<a:p><a:r><a:t>{}</a:t></a:r></a:p>"
    point = '<c:pt idx="0"><c:v>{}</c:v></c:pt>'
    parts = {
        "chart": (
            f'<c:chartSpace xmlns:c="{main}/chart" xmlns:a="{main}/main"><c:title>'
            f"{words.format('Revenue')}</c:title><c:plotArea><c:barChart><c:ser><c:cat>"
            f"{point.format('East')}</c:cat><c:val>{point.format(8)}</c:val></c:ser></c:barChart>"
            "</c:plotArea></c:chartSpace>",
            f'<c:chart xmlns:c="{main}/chart" xmlns:r="{relations}" r:id="{{}}"/>',
        ),
        "diagramData": (
            f'<d:dataModel xmlns:d="{main}/diagram" xmlns:a="{main}/main"><d:t>'
            f"{words.format('Draft')}</d:t></d:dataModel>",
            f'<d:relIds xmlns:d="{main}/diagram" xmlns:r="{relations}" r:dm="{{}}"/>',
        ),
    }
    document = docx.Document()
    run = document.add_paragraph("before").add_run()
    for kind, (data, place) in parts.items():
        uri = WordURI(f"/word/charts/{kind}.xml")
        part = WordPart(uri, "text/xml", data.encode(), document.part.package)
        related = document.part.relate_to(part, f"{relations}/{kind}")
        run._r.append(parse_xml(place.format(related)))
    document.add_paragraph("after")
    text = read("a.docx", saved(document)).text
    assert text == "before\n\nRevenue\n\n- East; 8\n- Draft\n\nafter"


_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_RUN = "<w:r><w:t>word</w:t></w:r>"
_BOX = f"<w:txbxContent><w:p>{_RUN}</w:p></w:txbxContent>"
_ALTERNATIVE = "http://schemas.openxmlformats.org/markup-compatibility/2006"
_MATH = "http://schemas.openxmlformats.org/officeDocument/2006/math"
INLINE = {
    "insertion": f'<w:ins w:id="1" w:author="a">{_RUN}</w:ins>',
    "move": f'<w:moveTo w:id="1" w:author="a">{_RUN}</w:moveTo>',
    "control": f"<w:sdt><w:sdtPr/><w:sdtContent>{_RUN}</w:sdtContent></w:sdt>",
    "field": f'<w:fldSimple w:instr="TITLE">{_RUN}</w:fldSimple>',
    "tag": f'<w:smartTag w:element="place">{_RUN}</w:smartTag>',
    "custom": f'<w:customXml w:element="x">{_RUN}</w:customXml>',
    "direction": f'<w:bdo w:val="ltr">{_RUN}</w:bdo>',
    "link": f'<w:hyperlink w:anchor="a">{_RUN}</w:hyperlink>',
    "equation": f'<m:oMath xmlns:m="{_MATH}"><m:r><m:t>word</m:t></m:r></m:oMath>',
    "box": f"<w:r><w:pict>{_BOX}</w:pict></w:r>",
    "alternative": (
        f'<w:r><mc:AlternateContent xmlns:mc="{_ALTERNATIVE}"><mc:Choice Requires="wps">{_BOX}'
        f"</mc:Choice><mc:Fallback><w:pict>{_BOX}</w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    ),
}
PLACES = {
    "paragraph": "<w:p>{}</w:p>",
    "list": '<w:p><w:pPr><w:numPr><w:numId w:val="1"/></w:numPr></w:pPr>{}</w:p>',
    "control": "<w:sdt><w:sdtContent><w:p>{}</w:p></w:sdtContent></w:sdt>",
    "cell": "<w:tbl><w:tr><w:tc><w:p>{}</w:p></w:tc></w:tr></w:tbl>",
    "repeated row": (
        "<w:tbl><w:sdt><w:sdtContent><w:tr><w:sdt><w:sdtContent><w:tc><w:p>{}</w:p></w:tc>"
        "</w:sdtContent></w:sdt></w:tr></w:sdtContent></w:sdt></w:tbl>"
    ),
    "inner table": (
        "<w:tbl><w:tr><w:tc><w:tbl><w:tr><w:tc><w:p>{}</w:p></w:tc></w:tr></w:tbl><w:p/></w:tc>"
        "</w:tr></w:tbl>"
    ),
}


def with_body(xml: str) -> bytes:
    document = docx.Document()
    for block in parse_xml(f'<w:body xmlns:w="{_W}">{xml}</w:body>'):
        document.element.body.insert(0, block)
    return saved(document)


@pytest.mark.parametrize("outer", PLACES)
@pytest.mark.parametrize("inner", INLINE)
def test_words_in_every_structure_of_a_document_are_read_once(outer: str, inner: str) -> None:
    found = read("a.docx", with_body(PLACES[outer].format(f"{INLINE[inner]}{_RUN}")))
    assert found.text.count("word") == 2


@pytest.mark.parametrize(
    "xml",
    [
        f"<w:p>{_RUN}<w:del w:id='1'><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>",
        f"<w:p>{_RUN}<w:moveFrom w:id='1'><w:r><w:t>gone</w:t></w:r></w:moveFrom></w:p>",
        f"<w:p>{_RUN}<w:r><w:instrText>gone</w:instrText></w:r></w:p>",
        f"<w:p>{_RUN}</w:p><w:tbl><w:tr><w:trPr><w:del w:id='1' w:author='a'/></w:trPr><w:tc><w:p>"
        "<w:r><w:t>gone</w:t></w:r></w:p></w:tc></w:tr></w:tbl>",
    ],
)
def test_deleted_words_of_a_document_are_left_out(xml: str) -> None:
    assert read("a.docx", with_body(xml)).text == "word"


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


def test_charts_of_a_slide_are_lists_of_their_values() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    kinds: Any = chart_data
    sales = kinds.CategoryChartData()
    sales.categories = ["East", "West"]
    sales.add_series("May", (1.5, 2))
    sales.add_series("June", (3, None))
    group = slide.shapes.add_chart(XL_CHART_TYPE.LINE, 0, 0, 100, 100, sales)
    group.chart.has_title = True
    group.chart.chart_title.text_frame.text = "Revenue"
    points = kinds.XyChartData()
    points.add_series("Load").add_data_point(1, 2)
    slide.shapes.add_chart(XL_CHART_TYPE.XY_SCATTER, 0, 0, 100, 100, points)
    assert read("a.pptx", saved(presentation)).text == (
        "## Slide 1\n\nRevenue\n\n- East; May: 1.5; June: 3\n- West; May: 2\n- 1; Load: 2\n\f\n"
    )


def test_a_chart_of_any_kind_is_read() -> None:
    rows: Any = chart_data
    sales = rows.CategoryChartData()
    sales.categories = ["East", "West"]
    sales.add_series("May", (8.1999999999999993, 2))
    for kind in XL_CHART_TYPE:
        presentation = pptx.Presentation()
        slide = presentation.slides.add_slide(presentation.slide_layouts[6])
        try:
            chart = slide.shapes.add_chart(kind, 0, 0, 100, 100, sales).chart
        except (NotImplementedError, AttributeError):
            continue
        for plot in chart.element.iter("{*}barChart"):
            plot.tag = plot.tag.replace("bar", "bar3D")
        text = read("a.pptx", saved(presentation)).text
        assert "- East; May: 8.2\n- West; May: 2\n" in text, kind


def test_a_picture_in_the_place_of_a_title_does_not_end_a_presentation() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[8])
    slide.placeholders[0].text = "Plan"
    picture = next(each for each in slide.placeholders if "Picture" in type(each).__name__)
    shown = picture.insert_picture(io.BytesIO(PIXEL))
    picture = slide.shapes.title._element
    picture.getparent().remove(picture)
    shown._element.nvPicPr.nvPr.find(f"{{{PRESENTATION}}}ph").attrib.update(
        {"type": "title", "idx": "0"}
    )
    slide.placeholders[2].text = "Costs"
    assert read("a.pptx", saved(presentation)).text == "## Slide 1\n\n- Costs\n\f\n"


def test_diagrams_of_a_slide_are_lists_of_their_texts() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    diagram = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
    main = "http://schemas.openxmlformats.org/drawingml/2006/main"
    points = "".join(
        f"<d:pt><d:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></d:t></d:pt>"
        for text in ("Draft", "Review")
    )
    data = f'<d:dataModel xmlns:d="{diagram}" xmlns:a="{main}">{points}</d:dataModel>'
    part = Part(PackURI("/ppt/diagrams/data1.xml"), "text/xml", slide.part.package, data.encode())
    related = slide.part.relate_to(part, f"{diagram}Data")
    frame = slide.shapes.add_table(1, 1, 0, 0, 100, 100)._element
    graphic = frame.graphic.graphicData
    graphic.set("uri", diagram)
    graphic.remove(graphic[0])
    ids = graphic.makeelement(f"{{{diagram}}}relIds")
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    ids.set(f"{{{relations}}}dm", related)
    graphic.append(ids)
    assert read("a.pptx", saved(presentation)).text == "## Slide 1\n\n- Draft\n- Review\n\f\n"


MERGED: dict[str, tuple[list[list[object]], list[str], str]] = {
    "names in two rows": (
        [
            ["Region", "2025", None, "2026", None],
            [None, "Q1", "Q2", "Q1", "Q2"],
            ["East", 1, 2, 3, 4],
            [None, 5, 6, 7, 8],
        ],
        ["A1:A2", "B1:C1", "D1:E1", "A3:A4"],
        "- Region: East; 2025 Q1: 1; 2025 Q2: 2; 2026 Q1: 3; 2026 Q2: 4\n"
        "- Region: East; 2025 Q1: 5; 2025 Q2: 6; 2026 Q1: 7; 2026 Q2: 8",
    ),
    "a title over all columns": (
        [["Report of May", None], ["name", "hours"], ["Ada", 7]],
        ["A1:B1"],
        "- Report of May\n- name: Ada; hours: 7",
    ),
    "a value over two columns": (
        [["day", "from", "to"], ["Sunday", "closed", None], ["Monday", 8, 16]],
        ["B2:C2"],
        "- day: Sunday; from: closed; to: closed\n- day: Monday; from: 8; to: 16",
    ),
    "years as names": (
        [["Region", 2023, 2024], ["East", 1, 2], ["West", 3, 4]],
        [],
        "- Region: East; 2023: 1; 2024: 2\n- Region: West; 2023: 3; 2024: 4",
    ),
    "nothing below names": ([["a", "b", None]], ["B1:C1"], "- a; b; b"),
}


def bounds_of(cells: str) -> tuple[int, ...]:
    """First column, first row, last column and last row, from 1."""
    return tuple(place or 0 for place in range_boundaries(cells))


@pytest.mark.parametrize("case", MERGED)
def test_the_value_of_merged_cells_is_that_of_each(case: str) -> None:
    rows, merged, text = MERGED[case]
    book = openpyxl.load_workbook(io.BytesIO(workbook(A=rows)))
    for each in merged:
        book["A"].merge_cells(each)
    assert read("a.xlsx", saved(book)).text == f"## A\n\n{text}"


@pytest.mark.parametrize("case", MERGED)
def test_the_text_of_merged_cells_of_a_slide_is_that_of_each(case: str) -> None:
    rows, merged, text = MERGED[case]
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(len(rows), len(rows[0]), 0, 0, 9, 9).table
    for number, row in enumerate(rows):
        for column, value in enumerate(row):
            table.cell(number, column).text = "" if value is None else str(value)
    for each in merged:
        first, top, last, bottom = bounds_of(each)
        table.cell(top - 1, first - 1).merge(table.cell(bottom - 1, last - 1))
    assert read("a.pptx", saved(presentation)).text == f"## Slide 1\n\n{text}\n\f\n"


@pytest.mark.parametrize("case", MERGED)
def test_the_text_of_merged_cells_of_a_spreadsheet_is_that_of_each(case: str) -> None:
    rows, merged, text = MERGED[case]
    begins = {each[:2]: each[2:] for each in map(bounds_of, merged)}
    found = ""
    for number, row in enumerate(rows, start=1):
        found += "<table:table-row>"
        for column, value in enumerate(row, start=1):
            last, bottom = begins.get((column, number), (column, number))
            found += (
                f'<table:table-cell table:number-columns-spanned="{last - column + 1}"'
                f' table:number-rows-spanned="{bottom - number + 1}">'
                f"<text:p>{'' if value is None else value}</text:p></table:table-cell>"
            )
        found += "</table:table-row>"
    body = f'<table:table table:name="A">{found}</table:table>'
    data = opendocument(body, kind="spreadsheet")
    assert read("a.ods", data).text == f"## A\n\n{text}"


def test_repeated_rows_of_a_spreadsheet_count_in_merged_cells() -> None:
    def row(*cells: str, repeated: int = 1) -> str:
        found = "".join(
            f"<table:table-cell{each.partition('|')[2]}><text:p>{each.partition('|')[0]}</text:p>"
            "</table:table-cell>"
            for each in cells
        )
        return f'<table:table-row table:number-rows-repeated="{repeated}">{found}</table:table-row>'

    over = '|  table:number-rows-spanned="4"'
    body = "".join(
        (row("city", "day"), row(f"Oslo{over}", "1"), row("", "2", repeated=3), row("Rome", "3"))
    )
    data = opendocument(f'<table:table table:name="A">{body}</table:table>', kind="spreadsheet")
    assert read("a.ods", data).text == (
        "## A\n\n- city: Oslo; day: 1\n- city: Oslo; day: 2\n- city: Rome; day: 3"
    )


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


@pytest.mark.parametrize(
    ("part", "old", "new"),
    [
        ("xl/workbook.xml", TRANSITIONAL, b"http://purl.oclc.org/ooxml/spreadsheetml/main"),
        ("xl/styles.xml", b"<cellXfs", b'<cellXfs made="by another program"'),
        ("xl/styles.xml", b"<cellStyle ", b'<cellStyle xr="1" extra="2" '),
        ("docProps/core.xml", b"</cp:coreProperties>", b"<dc:x/></cp:coreProperties>"),
    ],
)
def test_workbooks_of_other_programs_are_read(part: str, old: bytes, new: bytes) -> None:
    data = workbook(Names=[["Ada", 1815], ["Alan", 1912]])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    assert old in members[part]
    for name, content in members.items():
        if name == part or old == TRANSITIONAL:
            data = replaced(data, name, content.replace(old, new))
    assert "Ada; 1815" in read("a.xlsx", data).text.replace("Ada: ", "Ada; ")


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
    found = read("a.docx", buffer.getvalue())
    assert (found.title, found.text) == ("Guide", "# Guide\n\ntext")


_SLIDE = "ppt/slides/slide1.xml"


def _changed_slide(changes: Mapping[bytes, bytes]) -> bytes:
    archive = slides("hello")
    data = zipfile.ZipFile(io.BytesIO(archive)).read(_SLIDE)
    for old, new in changes.items():
        data = data.replace(old, new, 1)
    return replaced(archive, _SLIDE, data)


def test_external_entities_of_a_slide_are_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password")
    entity = f'<!DOCTYPE x [<!ENTITY e SYSTEM "file://{secret}">]><p:sld'
    found = read("a.pptx", _changed_slide({b"<p:sld": entity.encode(), b"hello": b"&e;"}))
    assert "password" not in found.text
    assert "About hello" in found.text


@pytest.mark.parametrize("depth", [50, 5000])
def test_groups_of_shapes_are_read_or_refused_at_any_depth(depth: int) -> None:
    group = b"<p:grpSp><p:nvGrpSpPr/><p:grpSpPr/>" * depth
    changes = {b"<p:sp>": group + b"<p:sp>", b"</p:sp>": b"</p:sp>" + b"</p:grpSp>" * depth}
    if depth == 50:
        assert "hello" in read("a.pptx", _changed_slide(changes)).text
    else:
        with pytest.raises(Unreadable, match="corrupt"):
            read("a.pptx", _changed_slide(changes))


@pytest.mark.parametrize("content", [b"", b"\0\xff" * 100, b"<a>" * 10_000, b"<x/>"])
def test_a_presentation_with_a_broken_slide_is_corrupt(content: bytes) -> None:
    with pytest.raises(Unreadable, match="corrupt"):
        read("a.pptx", replaced(slides("hello"), _SLIDE, content))


ODT = """<text:tracked-changes><text:p>deleted</text:p></text:tracked-changes>
<text:h text:outline-level="2">Guide</text:h>
<text:p>Two<text:s text:c="3"/>words<text:line-break/>and<office:annotation><text:p>remark</text:p>
</office:annotation><text:note><text:note-citation>1</text:note-citation><text:note-body>
<text:p>a footnote</text:p></text:note-body></text:note> more.</text:p>
<text:section><text:list><text:list-item><text:p>one</text:p><text:list><text:list-item>
<text:p>inner</text:p></text:list-item></text:list></text:list-item></text:list></text:section>
<table:table><table:table-header-rows><table:table-row><table:table-cell><text:p>Name</text:p>
</table:table-cell><table:table-cell><text:p>Size</text:p></table:table-cell></table:table-row>
</table:table-header-rows><table:table-row><table:table-cell
table:number-columns-repeated="2"><text:p>db</text:p></table:table-cell>
<table:table-cell table:number-columns-repeated="16382"/></table:table-row></table:table>"""


def test_an_opendocument_text_keeps_its_structure() -> None:
    meta = "<office:meta><dc:title>Manual</dc:title><dc:creator>Ada</dc:creator></office:meta>"
    found = read("a.odt", opendocument(ODT, meta=meta))
    assert found.text == (
        "## Guide\n\nTwo words\nand ( a footnote ) more.\n\n- one\n  - inner\n- Name: db; Size: db"
    ).replace("( a footnote )", "(a footnote)")
    assert (found.format, found.title) == ("markdown", "Manual")
    assert found.metadata == {"author": "Ada"}


@pytest.mark.parametrize("name", ["a.fodt", "a.xml", "unnamed"])
def test_an_opendocument_text_in_one_xml_file_is_read_like_an_archive(name: str) -> None:
    meta = "<office:meta><dc:title>Manual</dc:title><dc:creator>Ada</dc:creator></office:meta>"
    image = "A" * 11_000_000  # libxml2 drops longer texts, and everything after them
    picture = f"<text:p><office:binary-data>{image}</office:binary-data></text:p>"
    data = flat_opendocument(picture + ODT, meta=meta)
    expected = read("a.odt", opendocument(ODT, meta=meta))
    assert read(name, data) == expected
    slide = '<draw:page draw:name="One"><text:p>About</text:p></draw:page>'
    assert read("a.fodp", flat_opendocument(slide, kind="presentation")).text.endswith("\f\n")


def test_slides_of_opendocument_are_pages_and_sheets_are_sections() -> None:
    pages = "".join(
        f'<draw:page draw:name="{name}"><draw:frame><draw:text-box><text:p>About {name}</text:p>'
        "</draw:text-box></draw:frame></draw:page>"
        for name in ("One", "Two")
    )
    shown = read("a.odp", opendocument(pages, kind="presentation"))
    assert shown.text == "## One\n\nAbout One\n\f\n## Two\n\nAbout Two\n\f\n"
    cell = "<table:table-cell><text:p>ostrich</text:p></table:table-cell>"
    row = f"<table:table-row>{cell}</table:table-row>"
    table = f'<table:table table:name="Birds">{row}</table:table>'
    assert read("a.ods", opendocument(table, kind="spreadsheet")).text == "## Birds\n\n- ostrich"


def test_an_encrypted_opendocument_file_is_named_as_such() -> None:
    entry = '<manifest:file-entry manifest:full-path="{}">\n<manifest:encryption-data/>'
    data = opendocument("", manifest=entry.format("content.xml"))
    with pytest.raises(Unreadable, match="encrypted: needs a password"):
        read("a.odt", data)
    macro = opendocument("<text:p>read</text:p>", manifest=entry.format("Basic/Protected.xml"))
    assert read("a.odt", macro).text == "read"


def test_words_in_drawings_of_an_opendocument_file_are_read_apart() -> None:
    cell = "<table:table-row><table:table-cell><text:p>ostrich</text:p></table:table-cell>"
    words = "<draw:text-box><text:p>a</text:p><text:p>b</text:p></draw:text-box>"
    box = f"<draw:frame>{words}<svg:title>Map</svg:title></draw:frame>"
    table = f"{cell}</table:table-row><table:shapes>{box}</table:shapes>"
    sheet = f'<table:table table:name="Birds">{table}</table:table>'
    assert read("a.ods", opendocument(sheet, kind="spreadsheet")).text.split() == (
        ["##", "Birds", "-", "ostrich", "a", "b", "Map"]
    )
    text = read("a.odt", opendocument(f"<text:p>see{box}below</text:p>")).text
    assert text.split() == ["see", "a", "b", "Map", "below"]


def test_an_opendocument_file_with_corrupt_properties_is_read() -> None:
    data = opendocument("<text:p>read</text:p>", meta="<dc:title>Lost</dc:title>")
    assert read("a.odt", data.replace(b"Lost", b"LOST")).text == "read"


def test_an_opendocument_file_is_bounded_when_unpacked() -> None:
    data = opendocument("<text:p>" + "x" * 100_000 + "</text:p>")
    with pytest.raises(Unreadable, match="max_unpacked_bytes"):
        read("a.odt", data, Bounds(text=1 << 20, unpacked=50_000))


RTF = (
    rb"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\info{\title Gr\'f6\'dfe}{\author Ada}}"
    rb"First \b line\b0 , caf\'e9 and \u26085?\u26412?.\par Second\page Third\par}"
)


def test_rich_text_is_read_with_its_pages() -> None:
    found = read("a.rtf", RTF)
    assert "First line, caf\u00e9 and \u65e5\u672c." in found.text
    assert [page.split() for page in found.text.split("\f")][1] == ["Third"]
    assert (found.format, found.title) == ("text", "Gr\u00f6\u00dfe")


@pytest.mark.parametrize(
    "group",
    [
        rb"{\*\footnote\pard\plain{\super\chftn} tide}",
        rb"{\shp{\*\shpinst\shpleft0{\sp{\sn fill}{\sv 0}}{\shptxt\pard tide\par}}}",
        rb"{\object{\*\objclass Word}{\*\objdata 0105}{\result\pard tide}}",
        rb"{\mmath{\*\moMath{\mf{\mfPr{\mctrlPr}}{\mnum{\mr tide}}{\mden{\mr 2}}}}}",
    ],
)
def test_notes_boxes_objects_and_equations_of_rich_text_are_read(group: bytes) -> None:
    text = read("a.rtf", rb"{\rtf1\ansi ebb" + group + rb"flow\par}").text
    assert text.split()[0] == "ebb"
    assert "tide" in text
    assert "fill" not in text
    assert "0105" not in text


def test_rich_text_is_recognised_by_its_content() -> None:
    assert read("letter", RTF).format == "text"
    with pytest.raises(Unreadable, match="not a RTF file"):
        read("a.rtf", b"plain words")
