"""Office documents: Office Open XML and OpenDocument as Markdown, Rich Text as text."""

from __future__ import annotations

import io
import re
import zipfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time
from typing import Any

from ability_search.text.loaders.extracts import (
    PAGE_END,
    Bounds,
    Extracted,
    Unreadable,
    checked_archive,
    known,
    library,
    xml_parser,
)
from ability_search.text.loaders.markdown_writer import Composer, described, flat
from ability_search.text.loaders.merged_cells import MOST_REPEATED, Range, unmerged

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_BLOCKS = (f"{_W}p", f"{_W}tbl")
_BOX = f"{_W}txbxContent"
_PICTURE = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}docPr"
_WORDS = frozenset((f"{_W}t", "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"))
_SPACES = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}
_NOTES = {f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes"}
_SILENT = frozenset(
    {
        f"{_W}del",
        f"{_W}moveFrom",
        f"{_W}pPr",
        f"{_W}rPr",
        # The same text for readers that do not know the alternative before it.
        "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
    }
)
"""Elements of a document whose text is deleted, or is none."""
_CORE = "docProps/core.xml"
_DC = "{http://purl.org/dc/elements/1.1/}"
_TERMS = "{http://purl.org/dc/terms/}"
_CP = "{http://schemas.openxmlformats.org/package/2006/metadata/core-properties}"
_ODF = "{urn:oasis:names:tc:opendocument:xmlns:"
_OFFICE, _TEXT, _TABLE = f"{_ODF}office:1.0}}", f"{_ODF}text:1.0}}", f"{_ODF}table:1.0}}"
_META, _DRAW = f"{_ODF}meta:1.0}}", f"{_ODF}drawing:1.0}}"
_MANIFEST = "META-INF/manifest.xml"
_OPEN_SILENT = frozenset(
    {
        f"{_OFFICE}annotation",
        f"{_OFFICE}forms",
        f"{_TEXT}note-citation",
        f"{_TEXT}sequence-decls",
        f"{_TEXT}tracked-changes",
        f"{_ODF}presentation:1.0}}notes",
    }
)
_OPEN_BINARY = re.compile(rb"(?<=<office:binary-data>)[^<]++")
"""An image in base64 in a single XML file."""
_OPEN_SPACES = {f"{_TEXT}s": " ", f"{_TEXT}tab": " ", f"{_TEXT}line-break": "\n"}
_RTF_PAGE = re.compile(r"\\page(?![a-z])")
_RTF_TEXT = re.compile(
    r"(?:\\\*)?\\(?:footnote|object|result|shp(?:inst|grp|txt)?"
    r"|mmath|moMath(?:Para)?|m(?:r|f|e|d|box|num|den|rad|deg|nary|sub|sup|func|fName|sSub|sSup|sSubSup))(?![a-z])",
    re.IGNORECASE,
)
"""Marks of groups that the library leaves out: footnotes, text boxes, objects, equations."""
_RTF_TITLE = re.compile(r"\{\\title ([^{}]*)\}")
_CONTINUED = "continue"
"""A cell that is merged with the one above."""
_CHART = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
_RELATIONS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_DAY = len("2026-03-01")


def read_docx(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a document: headings, paragraphs, lists, tables and text boxes in order.

    Tracked insertions and moves are text, deletions are not. Footnotes follow their words.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    docx = library("docx", reads="DOCX files")
    file = checked_archive(data, bounds)
    document = docx.Document(file)
    composer = Composer(bounds)
    _Document(document, composer).add(document.element.body)
    return _extracted(file, composer, title=composer.first_heading)


def read_pptx(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a presentation: one section per slide with its notes, ended by a form feed.

    Charts are lists of their values, and diagrams (SmartArt) lists of their texts.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    pptx = library("pptx", reads="PPTX files")
    file = checked_archive(data, bounds)
    composer = Composer(bounds)
    for number, slide in enumerate(pptx.Presentation(file).slides, start=1):
        title = slide.shapes.title
        if title is not None and not title.has_text_frame:
            title = None
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

    Formulas have the values of the last save. The value of merged cells is that of each of them.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    calamine = library("python_calamine", reads="XLSX files")
    file = checked_archive(data, bounds)
    composer = Composer(bounds)
    with calamine.CalamineWorkbook.from_filelike(io.BytesIO(data)) as book:
        for name in book.sheet_names:
            composer.heading(2, name)
            sheet = book.get_sheet_by_name(name)
            rows = ([_shown(value) for value in row] for row in sheet.to_python())
            # Both count from the first cell with a value; a range before it is empty.
            top, left = sheet.start or (0, 0)
            ranges = [
                (first[1] - left + 1, first[0] - top + 1, last[1] - left + 1, last[0] - top + 1)
                for first, last in sheet.merged_cell_ranges or ()
                if first[0] >= top and first[1] >= left
            ]
            composer.table(unmerged(rows, ranges) if ranges else rows)
    return _extracted(file, composer)


def read_rtf(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read the text of a Rich Text file; a page break becomes a form feed."""
    striprtf = library("striprtf.striprtf", reads="RTF files")
    source = _RTF_PAGE.sub(r"\\par\f\\par ", data.decode("latin-1"))
    text = striprtf.rtf_to_text(_RTF_TEXT.sub(" ", source), errors="replace")
    title = _RTF_TITLE.search(source)
    named = striprtf.rtf_to_text(f"{{\\rtf1\\ansi {title[1]}}}", errors="replace") if title else ""
    return Extracted(text.replace("\f", PAGE_END), "text", title=known(title=named).get("title"))


def read_odf(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read an OpenDocument text, presentation or spreadsheet, an archive or a single XML file.

    Headings, paragraphs, lists, footnotes and tables come in order, without comments and deleted
    text. A sheet is a section, and so is a slide, which ends with a form feed.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    content, meta = _open_parts(data, bounds)
    composer = Composer(bounds)
    for element in content.find(f"{_OFFICE}body"):
        _add_open(composer, element, depth=0)
    about = {} if meta is None else {each.tag: each.text for each in meta.iter("*")}
    metadata = known(
        author=about.get(f"{_DC}creator") or about.get(f"{_META}initial-creator"),
        subject=about.get(f"{_DC}subject"),
        description=about.get(f"{_DC}description"),
        created=(about.get(f"{_META}creation-date") or "")[:_DAY],
        modified=(about.get(f"{_DC}date") or "")[:_DAY],
    )
    title = known(title=about.get(f"{_DC}title")).get("title", composer.first_heading)
    return Extracted(composer.text, "markdown", title=title, metadata=metadata)


def _open_parts(data: bytes, bounds: Bounds) -> tuple[Any, Any]:
    """Return the element with the body, and the one with the metadata or ``None``."""
    parse = xml_parser(reads="OpenDocument files")
    if not zipfile.is_zipfile(io.BytesIO(data)):
        document = parse(_OPEN_BINARY.sub(b"", data))
        return document, document.find(f"{_OFFICE}meta")
    with zipfile.ZipFile(checked_archive(data, bounds)) as archive:
        names = archive.namelist()
        if _MANIFEST in names and b"encryption-data" in archive.read(_MANIFEST):
            raise Unreadable("encrypted: needs a password")
        meta = parse(archive.read("meta.xml")) if "meta.xml" in names else None
        return parse(archive.read("content.xml")), meta


def _add_open(composer: Composer, container: Any, *, depth: int) -> None:
    """Add the blocks of an element of an OpenDocument file; ``depth`` counts the lists around."""
    for element in container.iterchildren("*"):
        tag = element.tag
        if tag == f"{_TEXT}h":
            composer.heading(int(element.get(f"{_TEXT}outline-level") or 1), _open_text(element))
        elif tag == f"{_TEXT}p":
            if depth:
                composer.item(_open_text(element), depth=depth - 1)
            else:
                composer.paragraph(_open_text(element))
        elif tag == f"{_TEXT}list":
            _add_open(composer, element, depth=depth + 1)
        elif tag == f"{_TABLE}table":
            if container.tag == f"{_OFFICE}spreadsheet":
                composer.heading(2, element.get(f"{_TABLE}name") or "")
            composer.table(_open_rows(element))
        elif tag == f"{_DRAW}page":
            composer.heading(2, element.get(f"{_DRAW}name") or "")
            _add_open(composer, element, depth=0)
            composer.end_page()
        elif tag not in _OPEN_SILENT:
            _add_open(composer, element, depth=depth)


def _open_rows(table: Any) -> Iterable[list[object]]:
    """Return the rows of a table, repeated ones once; the text of merged cells is that of each."""
    rows: list[list[object]] = []
    merged: list[Range] = []
    ends: list[int] = []
    """The number of the last row that each row stands for."""
    for row in table.iter(f"{_TABLE}table-row"):
        above = ends[-1] if ends else 0
        ends.append(above + _times(row, "rows-repeated"))
        texts: list[object] = []
        for cell in row.iterchildren(f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
            columns, height = _times(cell, "columns-spanned"), _times(cell, "rows-spanned")
            if columns > 1 or height > 1:
                last = len(texts) + min(columns, MOST_REPEATED)
                merged.append((len(texts) + 1, len(ends), last, above + height))
            text = " ".join(_open_text(each) for each in cell.iter(f"{_TEXT}p")) or None
            texts += [text] * min(_times(cell, "columns-repeated"), MOST_REPEATED)
        while texts and texts[-1] is None:
            texts.pop()
        rows.append(texts)
    ranges = [
        (first, top, last, bisect_left(ends, bottom) + 1) for first, top, last, bottom in merged
    ]
    return unmerged(rows, ranges) if ranges else rows


def _times(element: Any, attribute: str) -> int:
    return int(element.get(f"{_TABLE}number-{attribute}") or 1)


def _open_text(element: Any) -> str:
    """Return the text of a paragraph with its footnotes, without comments."""
    parts = [element.text or ""]
    for child in element:
        tag = child.tag
        if tag == f"{_TEXT}note":
            parts += [" (", *(_open_text(each) for each in child.iter(f"{_TEXT}p")), ")"]
        elif tag in _OPEN_SPACES:
            parts.append(_OPEN_SPACES[tag])
        elif isinstance(tag, str) and tag not in _OPEN_SILENT:
            parts.append(_open_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _extracted(file: io.BytesIO, composer: Composer, *, title: str | None = None) -> Extracted:
    """Return the composed text with the file's metadata; ``title`` is the default title.

    Reads the properties itself, because the libraries invent missing ones.
    """
    properties: dict[str, str | None] = {}
    with zipfile.ZipFile(file) as archive:
        if _CORE in archive.namelist():
            root = xml_parser(reads="Office files")(archive.read(_CORE))
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


def _nearest(container: Any, *tags: str) -> Iterator[Any]:
    """Yield the outermost elements with the tags in a container, without deleted ones."""
    for element in container.iterchildren("*"):
        if element.tag in tags:
            yield element
        elif element.tag not in _SILENT:
            yield from _nearest(element, *tags)


class _Document:
    """The text of a DOCX document, with its styles and notes."""

    def __init__(self, document: Any, composer: Composer) -> None:
        self._composer = composer
        self._styles = {
            each.styleId: each.name_val or "" for each in document.styles.element.style_lst
        }
        self._notes: dict[tuple[str, str], str] = {}
        for relation in document.part.rels.values():
            kind = relation.reltype.rpartition("/")[2]
            if kind in _NOTES.values() and not relation.is_external:
                for note in xml_parser(reads="DOCX files")(relation.target_part.blob):
                    self._notes[kind, note.get(f"{_W}id")] = self._joined(note)

    def add(self, container: Any) -> None:
        """Add the blocks of a container; a text box comes after the paragraph that holds it."""
        for block in _nearest(container, *_BLOCKS):
            if block.tag == f"{_W}tbl":
                self._composer.table(self._rows(block))
                continue
            self._add_paragraph(block)
            for box in _nearest(block, _BOX):
                self.add(box)

    def _add_paragraph(self, paragraph: Any) -> None:
        style = self._styles.get(paragraph.style, "")
        heading = _HEADING.match(style)
        text = self._text(paragraph)
        properties = paragraph.pPr
        numbering = properties.numPr if properties is not None else None
        if heading or style.lower() == "title":
            self._composer.heading(int(heading[1]) if heading else 1, text)
        elif numbering is not None or style.startswith("List"):
            depth = (
                numbering.ilvl.val if numbering is not None and numbering.ilvl is not None else 0
            )
            self._composer.item(text, depth=depth)
        else:
            self._composer.paragraph(text)

    def _text(self, element: Any) -> str:
        """Return the text of a paragraph or of a part of it, without its text boxes."""
        parts: list[str] = []
        for child in element.iterchildren("*"):
            if child.tag in _WORDS:
                parts.append(child.text or "")
            elif child.tag in _SPACES:
                parts.append(_SPACES[child.tag])
            elif child.tag in _NOTES:
                note = self._notes.get((_NOTES[child.tag], child.get(f"{_W}id")))
                parts.append(f" ({note})" if note else "")
            elif child.tag == _PICTURE:
                parts.append(child.get("descr") or "")
            elif child.tag not in _SILENT and child.tag != _BOX:
                parts.append(self._text(child))
        return "".join(parts)

    def _joined(self, container: Any) -> str:
        """Return the text of all paragraphs in a container, and of their text boxes."""
        texts: list[str] = []
        for paragraph in _nearest(container, f"{_W}p"):
            texts += [self._text(paragraph), *map(self._joined, _nearest(paragraph, _BOX))]
        return " ".join(text.strip() for text in texts if text.strip())

    def _rows(self, table: Any) -> Iterable[list[object]]:
        """Return the rows of a table; the text of merged cells is that of each of them."""
        rows: list[list[object]] = []
        ranges: dict[int, Range] = {}
        closed: list[Range] = []
        kept = (row for row in _nearest(table, f"{_W}tr") if row.find(f"{_W}trPr/{_W}del") is None)
        for number, row in enumerate(kept, start=1):
            texts: list[object] = [None] * min(row.grid_before, MOST_REPEATED)
            for cell in _nearest(row, f"{_W}tc"):
                first = len(texts) + 1
                last = first + min(cell.grid_span, MOST_REPEATED) - 1
                texts.append(self._joined(cell) or None)
                texts += [None] * (last - first)
                above = ranges.get(first)
                if above is not None and cell.vMerge == _CONTINUED and above[2] == last:
                    ranges[first] = (first, above[1], last, number)
                else:
                    closed += [above] if above else []
                    ranges[first] = (first, number, last, number)
            rows.append(texts)
        found = [each for each in (*closed, *ranges.values()) if each[:2] != each[2:]]
        return unmerged(rows, found) if found else rows


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
        composer.table(_slide_rows(shape.table))
    elif getattr(shape, "has_chart", False):
        _add_chart(composer, shape.chart)
    else:
        for relation in shape.element.iter(f"{_DIAGRAM}relIds"):
            _add_diagram(composer, shape.part.related_part(relation.get(f"{_RELATIONS}dm")))


def _slide_rows(table: Any) -> Iterable[list[object]]:
    """Return the rows of a table of a slide; the text of merged cells is that of each of them."""
    rows: list[list[object]] = []
    ranges: list[Range] = []
    for number, row in enumerate(table.rows, start=1):
        rows.append([])
        for first, cell in enumerate(row.cells, start=1):
            rows[-1].append(cell.text or None)
            if cell.is_merge_origin:
                last = first - 1 + min(cell.span_width, MOST_REPEATED)
                ranges.append((first, number, last, number - 1 + cell.span_height))
    return unmerged(rows, ranges) if ranges else rows


def _add_chart(composer: Composer, chart: Any) -> None:
    """Add the titles of a chart and its values, one item for each category."""
    for title in chart.element.iter(f"{_CHART}title"):
        composer.paragraph("".join(each.text or "" for each in title.iter(f"{_A}t")))
    for plot in chart.element.iter(f"{_CHART}plotArea"):
        for group in plot.iterchildren("*"):
            series = list(group.iterchildren(f"{_CHART}ser"))
            names = next(filter(None, (_points(each, "cat", "xVal") for each in series)), {})
            rows = [_points(each, "val", "yVal") for each in series]
            header = ["", *(each.findtext(f"{_CHART}tx//{_CHART}v", "") for each in series)]
            for place in sorted(set().union(names, *rows)):
                cells = [row.get(place, "") for row in (names, *rows)]
                composer.item(described(header, cells))


def _points(series: Any, *tags: str) -> dict[int, str]:
    """Return the saved values of a series by their places; of nested categories, the innermost."""
    found = next(series.iterchildren(*(f"{_CHART}{tag}" for tag in tags)), None)
    if found is None:
        return {}
    level = next(found.iter(f"{_CHART}lvl"), found)
    points = {
        int(each.get("idx", 0)): each.findtext(f"{_CHART}v", "")
        for each in level.iter(f"{_CHART}pt")
    }
    return {place: _rounded(text) for place, text in points.items()}


def _rounded(text: str) -> str:
    """Return a number as a person would write it (8.2 for 8.1999999999999993), or the text."""
    with suppress(ValueError):
        return flat(_shown(float(text)))
    return flat(text)


def _add_diagram(composer: Composer, data: Any) -> None:
    """Add the texts of a diagram, in the order of its data."""
    for text in xml_parser(reads="PPTX files")(data.blob).iter(f"{_DIAGRAM}t"):
        for paragraph in text.iter(f"{_A}p"):
            composer.item("".join(each.text or "" for each in paragraph.iter(f"{_A}t")))


def _shown(value: object) -> object:
    """Return the value of a cell as a person would write it; ``None`` for an empty one."""
    if value == "":
        return None
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return int(value)
    return value
