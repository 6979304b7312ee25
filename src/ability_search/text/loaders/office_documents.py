"""Office Open XML: documents, presentations and workbooks as Markdown."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from datetime import date, datetime, time
from typing import Any

from ability_search.text.loaders.extracts import Bounds, Extracted, Unreadable, known, library
from ability_search.text.loaders.markdown_writer import Composer

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_CORE = "docProps/core.xml"
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"
_CP = "{http://schemas.openxmlformats.org/package/2006/metadata/core-properties}"
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_DAY = len("2026-03-01")


def read_docx(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a document: headings, paragraphs, lists and tables in order.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    docx = library("docx", reads="DOCX files")
    file = _checked(data, bounds)
    document = docx.Document(file)
    names = {style.style_id: str(style.name) for style in document.styles}
    composer = Composer(bounds)
    for block in _blocks(document.element.body):
        if block.tag == f"{_W}tbl":
            composer.table(_rows(block))
        else:
            _add_paragraph(composer, block, names.get(block.style, ""))
    return _extracted(file, composer, title=composer.first_heading)


def read_pptx(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a presentation: one section per slide with its notes, ended by a form feed.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    pptx = library("pptx", reads="PPTX files")
    file = _checked(data, bounds)
    composer = Composer(bounds)
    for number, slide in enumerate(pptx.Presentation(file).slides, start=1):
        title = slide.shapes.title
        heading = title.text_frame.text if title is not None else ""
        composer.heading(2, heading if heading.strip() else f"Slide {number}")
        for shape in _shapes(slide.shapes):
            if title is None or shape.shape_id != title.shape_id:
                _add_shape(composer, shape)
        notes = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if notes is not None:
            composer.paragraph(notes.text)
        composer.end_page()
    return _extracted(file, composer, title=composer.first_heading)


def read_xlsx(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a workbook: one section per sheet, one line ``column: value`` per row.

    Formulas have the values of the last save.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    openpyxl = library("openpyxl", reads="XLSX files")
    file = _checked(data, bounds)
    book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
    composer = Composer(bounds)
    for sheet in book.worksheets:
        # The dimensions declared in the file may be wrong.
        sheet.reset_dimensions()
        composer.heading(2, sheet.title)
        composer.table([_shown(value) for value in row] for row in sheet.values)
    return _extracted(file, composer)


def _checked(data: bytes, bounds: Bounds) -> io.BytesIO:
    """Return the file if its unpacked size is within the bounds.

    The sizes declared in the archive are reliable: no more of a member is ever unpacked.
    """
    file = io.BytesIO(data)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise Unreadable("encrypted: needs a password")
    unpacked = sum(member.file_size for member in members)
    if unpacked > bounds.unpacked:
        raise Unreadable(
            f"unpacks to {unpacked} bytes, more than the {bounds.unpacked} allowed"
            " (max_unpacked_bytes)"
        )
    return file


def _extracted(file: io.BytesIO, composer: Composer, *, title: str | None = None) -> Extracted:
    """Return the composed text with the file's metadata; ``title`` is the default title.

    Reads the properties itself, because the libraries invent missing ones.
    """
    properties: dict[str, str | None] = {}
    with zipfile.ZipFile(file) as archive:
        if _CORE in archive.namelist():
            etree = library("lxml.etree", reads="Office files")
            parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
            root = etree.fromstring(archive.read(_CORE), parser)
            properties = {each.tag: each.text for each in root} if root is not None else {}
    metadata = known(
        author=properties.get(f"{_DC}creator"),
        subject=properties.get(f"{_DC}subject"),
        keywords=properties.get(f"{_CP}keywords"),
        created=(properties.get(f"{_TERMS}created") or "")[:_DAY],
        modified=(properties.get(f"{_TERMS}modified") or "")[:_DAY],
    )
    title = known(title=properties.get(f"{_DC}title")).get("title", title)
    return Extracted(composer.text, "markdown", title=title, metadata=metadata)


def _blocks(container: Any) -> Iterator[Any]:
    """Yield the paragraphs and tables of a document, including those in content controls."""
    for element in container:
        if element.tag in (f"{_W}p", f"{_W}tbl"):
            yield element
        elif element.tag in (f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml", f"{_W}ins"):
            yield from _blocks(element)


def _rows(table: Any) -> Iterator[list[str]]:
    for row in table.tr_lst:
        yield [" ".join(each.text for each in cell.iter(f"{_W}p")) for cell in row.tc_lst]


def _add_paragraph(composer: Composer, paragraph: Any, style: str) -> None:
    heading = _HEADING.match(style)
    properties = paragraph.pPr
    numbering = properties.numPr if properties is not None else None
    if heading or style == "Title":
        composer.heading(int(heading[1]) if heading else 1, paragraph.text)
    elif numbering is not None or style.startswith("List"):
        level = numbering.ilvl.val if numbering is not None and numbering.ilvl is not None else 0
        composer.item(paragraph.text, depth=level)
    else:
        composer.paragraph(paragraph.text)


def _shapes(shapes: Any) -> Iterator[Any]:
    """Yield shapes in order, including those in groups."""
    for shape in shapes:
        if hasattr(shape, "shapes"):
            yield from _shapes(shape.shapes)
        else:
            yield shape


def _add_shape(composer: Composer, shape: Any) -> None:
    if shape.has_text_frame:
        for paragraph in shape.text_frame.paragraphs:
            composer.item(paragraph.text, depth=paragraph.level)
    elif getattr(shape, "has_table", False):
        composer.table([cell.text for cell in row.cells] for row in shape.table.rows)


def _shown(value: object) -> object:
    """Return the value of a cell as a person would write it."""
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value
