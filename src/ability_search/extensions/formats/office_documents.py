"""Office documents: Office Open XML and OpenDocument as Markdown, Rich Text as text."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time
from typing import Any

from ability_search.extensions.formats.foreign_files import (
    PAGE_END,
    checked_archive,
    known,
    library,
    xml_parser,
)
from ability_search.extensions.formats.markdown_writer import (
    MOST_REPEATED,
    Composer,
    Range,
    described,
    flat,
    spread,
    unmerged,
)
from ability_search.text.formats import Bounds, Extracted, Unreadable

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
_SVG = f"{_ODF}svg-compatible:1.0}}"
_META, _DRAW = f"{_ODF}meta:1.0}}", f"{_ODF}drawing:1.0}}"
_MANIFEST = "META-INF/manifest.xml"
_OPEN_ENCRYPTED = re.compile(
    rb"full-path=\"(?:content\.xml|encrypted-package)\"[^>]*+>\s*+<(?:\w+:)?encryption-data"
)
"""Matches if the text is encrypted; that of single macros does not matter."""
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
_OPEN_BLOCKS = frozenset((f"{_TEXT}p", f"{_TEXT}h", f"{_SVG}title", f"{_SVG}desc"))
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
_CHART_PLACE, _DIAGRAM_PLACE = f"{_CHART}chart", f"{_DIAGRAM}relIds"
_DATA = f"{_RELATIONS}dm"
_MAIN_PART = "word/document.xml"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")
"""Names of elements in strict Open XML."""
_HEADING = re.compile(r"heading ([1-9])", re.IGNORECASE)
_DAY = len("2026-03-01")


def read_docx(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a document: headings, paragraphs, lists, tables and text boxes in order.

    Tracked insertions and moves are text, deletions are not. Footnotes follow their words.

    Raises:
        Unreadable: if it is encrypted, or too large when unpacked.
    """
    file = checked_archive(data, bounds)
    composer = Composer(bounds)
    with zipfile.ZipFile(file) as archive:
        parts = _Parts(archive)
        main = next(parts.related("", "officeDocument"), (_MAIN_PART, ""))[0]
        body = parts.read(main).find(f"{_W}body")
        _Document(parts, main, composer).add(body)
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
            composer.table(unmerged(rows, ranges))
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
        manifest = archive.read(_MANIFEST) if _MANIFEST in names else b""
        if _OPEN_ENCRYPTED.search(manifest):
            raise Unreadable("encrypted: needs a password")
        meta = None
        with suppress(KeyError, zipfile.BadZipFile, zlib.error):
            meta = parse(archive.read("meta.xml"))
        return parse(archive.read("content.xml")), meta


def _add_open(composer: Composer, container: Any, *, depth: int) -> None:
    """Add the blocks of an element of an OpenDocument file; ``depth`` counts the lists around."""
    for element in container.iterchildren("*"):
        tag = element.tag
        if tag == f"{_TEXT}h":
            composer.heading(int(element.get(f"{_TEXT}outline-level") or 1), _open_text(element))
        elif tag in _OPEN_BLOCKS:
            if depth:
                composer.item(_open_text(element), depth=depth - 1)
            else:
                composer.paragraph(_open_text(element))
        elif tag == f"{_TEXT}list":
            _add_open(composer, element, depth=depth + 1)
        elif tag == f"{_TABLE}table":
            _add_open_table(composer, element, sheet=container.tag == f"{_OFFICE}spreadsheet")
        elif tag == f"{_DRAW}page":
            composer.heading(2, element.get(f"{_DRAW}name") or "")
            _add_open(composer, element, depth=0)
            composer.end_page()
        elif tag not in _OPEN_SILENT:
            _add_open(composer, element, depth=depth)


def _add_open_table(composer: Composer, table: Any, *, sheet: bool) -> None:
    if sheet:
        composer.heading(2, table.get(f"{_TABLE}name") or "")
    composer.table(_open_rows(table))
    for shapes in table.iterchildren(f"{_TABLE}shapes"):
        _add_open(composer, shapes, depth=0)


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
    return unmerged(rows, ranges)


def _times(element: Any, attribute: str) -> int:
    return int(element.get(f"{_TABLE}number-{attribute}") or 1)


def _open_text(element: Any) -> str:
    """Return the text of a paragraph with its footnotes, without comments."""
    parts = [element.text or ""]
    for child in element:
        tag = child.tag
        if tag == f"{_TEXT}note":
            parts.append(f" ({' '.join(_open_text(each) for each in child.iter(f'{_TEXT}p'))})")
        elif tag in _OPEN_SPACES:
            parts.append(_OPEN_SPACES[tag])
        elif isinstance(tag, str) and tag not in _OPEN_SILENT:
            text = _open_text(child)
            parts.append(f" {text} " if tag in _OPEN_BLOCKS else text)
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


class _Parts:
    """The parts of an Office Open XML file; those that it names but does not have are left out."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._parse = xml_parser(reads="Office files")
        self._names = {name.replace("\\", "/").lower(): name for name in archive.namelist()}

    def read(self, name: str) -> Any:
        """Return the root of a part; elements of strict Open XML get their usual names."""
        data = self._archive.read(self._names[name.lower()])
        return self._parse(_STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/\2", data))

    def related(self, part: str, *kinds: str) -> Iterator[tuple[str, str]]:
        """Yield the names of the parts to which a part has relations of a kind, and their ids."""
        folder, name = posixpath.split(part)
        relations = posixpath.join(folder, "_rels", f"{name}.rels")
        for each in self.read(relations) if relations.lower() in self._names else ():
            target = posixpath.join("/", folder, each.get("Target", "").replace("\\", "/"))
            target = posixpath.normpath(target).lstrip("/")
            kind = each.get("Type", "").rpartition("/")[2]
            if kind in kinds and target.lower() in self._names:
                yield target, each.get("Id")


class _Document:
    """The text of a DOCX document, with its styles, notes, charts and diagrams."""

    def __init__(self, parts: _Parts, main: str, composer: Composer) -> None:
        self._composer = composer
        self._styles = {
            style.get(f"{_W}styleId"): _value(style, "name")
            for name, _ in parts.related(main, "styles")
            for style in parts.read(name).iter(f"{_W}style")
        }
        self._notes = {
            (kind, note.get(f"{_W}id")): self._joined(note)
            for kind in _NOTES.values()
            for name, _ in parts.related(main, kind)
            for note in parts.read(name)
        }
        self._drawings = {
            id: parts.read(name) for name, id in parts.related(main, "chart", "diagramData")
        }

    def add(self, container: Any) -> None:
        """Add the blocks of a container; what a paragraph holds beside its text comes after it."""
        for block in _nearest(container, *_BLOCKS):
            if block.tag == f"{_W}tbl":
                for about in ("tblCaption", "tblDescription"):
                    self._composer.paragraph(_value(block, "tblPr", about))
                self._composer.table(self._rows(block))
                continue
            self._add_paragraph(block)
            for inner in _nearest(block, _BOX, _CHART_PLACE, _DIAGRAM_PLACE):
                drawing = self._drawings.get(inner.get(f"{_RELATIONS}id") or inner.get(_DATA))
                if inner.tag == _BOX:
                    self.add(inner)
                elif drawing is not None:
                    add = _add_chart if inner.tag == _CHART_PLACE else _add_diagram
                    add(self._composer, drawing)

    def _add_paragraph(self, paragraph: Any) -> None:
        style = self._styles.get(_value(paragraph, "pPr", "pStyle"), "")
        heading = _HEADING.match(style)
        text = self._text(paragraph)
        if heading or style.lower() == "title":
            self._composer.heading(int(heading[1]) if heading else 1, text)
        elif paragraph.find(f"{_W}pPr/{_W}numPr") is not None or style.startswith("List"):
            self._composer.item(text, depth=_number(paragraph, "pPr", "numPr", "ilvl"))
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
                parts.append(f" {child.get('descr') or ''} ")
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
            texts: list[object] = [None] * min(_number(row, "trPr", "gridBefore"), MOST_REPEATED)
            for cell in _nearest(row, f"{_W}tc"):
                first = len(texts) + 1
                span = _number(cell, "tcPr", "gridSpan") or 1
                last = first + min(span, MOST_REPEATED) - 1
                texts.append(self._joined(cell) or None)
                texts += [None] * (last - first)
                above = ranges.get(first)
                merged = cell.find(f"{_W}tcPr/{_W}vMerge")
                continued = merged is not None and merged.get(f"{_W}val", _CONTINUED) == _CONTINUED
                if above is not None and continued and above[2] == last:
                    ranges[first] = (first, above[1], last, number)
                else:
                    closed += [above] if above else []
                    ranges[first] = (first, number, last, number)
            rows.append(texts)
        found = [each for each in (*closed, *ranges.values()) if each[:2] != each[2:]]
        return unmerged(rows, found)


def _value(element: Any, *path: str) -> str:
    """Return the value of an element within another one; empty if there is none."""
    found = element.find("/".join(f"{_W}{tag}" for tag in path))
    return "" if found is None else found.get(f"{_W}val", "")


def _number(element: Any, *path: str) -> int:
    value = _value(element, *path)
    return int(value) if value.isdecimal() else 0


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
        rows = [
            [
                (each.text, each.span_width, each.span_height)
                for each in row.cells
                if not each.is_spanned
            ]
            for row in shape.table.rows
        ]
        composer.table(spread(rows, names=None))
    elif getattr(shape, "has_chart", False):
        _add_chart(composer, shape.chart.element)
    else:
        for relation in shape.element.iter(_DIAGRAM_PLACE):
            data = shape.part.related_part(relation.get(_DATA)).blob
            _add_diagram(composer, xml_parser(reads="PPTX files")(data))


def _add_chart(composer: Composer, chart: Any) -> None:
    """Add the titles and labels of a chart and its values, one item for each category."""
    for paragraph in chart.iter(f"{_A}p"):
        composer.paragraph("".join(each.text or "" for each in paragraph.iter(f"{_A}t")))
    for plot in chart.iter(f"{_CHART}plotArea"):
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
    for text in data.iter(f"{_DIAGRAM}t"):
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
