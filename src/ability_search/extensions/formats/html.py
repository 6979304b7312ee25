"""HTML: the main text as Markdown; HTML itself, cut at its blocks; books (EPUB); drawings (SVG)."""

from __future__ import annotations

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag

from ability_search.documents import Passage
from ability_search.extensions.formats.foreign_files import (
    checked_archive,
    known,
    library,
    xml_parser,
)
from ability_search.extensions.formats.markdown_writer import Composer, spread
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import BLOCK, PROSE, BreakPoint, Ruler
from ability_search.text.chunkers.strategies import chunk_by
from ability_search.text.formats import EMPTY, Bounds, Extracted, Unreadable
from ability_search.text.loaders import decoded

_BLOCK_TAG = re.compile(
    r"<(?:address|article|aside|blockquote|body|details|div|dl|dt|fieldset|figure|footer|form"
    r"|h[1-6]|header|head|hr|li|main|nav|ol|p|pre|script|section|style|table|tbody|tfoot|thead|tr"
    r"|ul)\b",
    re.IGNORECASE,
)
_SILENT = frozenset(
    re.findall(
        r"\S+",
        "button canvas dialog embed form head iframe input math noscript object script select style"
        " svg template textarea",
    )
)
_AROUND = frozenset({"aside", "footer", "header", "nav"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_LISTS = frozenset({"ul", "ol", "menu"})
_BLOCKS = _LISTS.union(
    _HEADINGS,
    re.findall(
        r"\S+",
        "address article aside blockquote body caption center dd details div dl dt fieldset"
        " figcaption figure footer header hr legend li main nav p pre section summary table tbody"
        " td tfoot th thead tr",
    ),
)
_ENCRYPTION = "META-INF/encryption.xml"
_BOOK = ("title", "creator", "date", "description", "language")
_SPACE = re.compile(r"\s+")
_SPAN = re.compile(r"\s*[1-9]\d{0,4}")
"""Columns or rows of a cell."""


def chunk_html(ruler: Ruler, _language: str | None = None) -> list[Passage]:
    """Cut HTML before the opening tags of block elements. Tags stay in the text."""
    return chunk_by(ruler, (BreakPoint(BLOCK, _html_blocks), *PROSE))


def _html_blocks(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    tags = _BLOCK_TAG.finditer(ruler.text, start, end)
    return boundaries.between(ruler.text, start, end, (tag.start() for tag in tags))


def read_html(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read the main text of a page: headings, paragraphs, lists, tables and code.

    The main text is the content of ``main``, else of the only ``article``, else the body without
    navigation, headers, footers and asides. Scripts, forms and hidden elements are dropped.
    """
    etree = library("lxml.etree", reads="HTML files")
    parser = etree.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True)
    root = etree.fromstring(decoded(data).encode("utf-8", "replace") or b" ", parser)
    if root is None:
        raise Unreadable(EMPTY)
    ways = (".//main", ".//*[@role='main']", ".//article")
    main = next((found[0] for each in ways if len(found := root.findall(each)) == 1), None)
    text = ""
    if main is not None:
        text = _composed(etree, main, bounds, _AROUND - {"header"})
    text = text or _composed(etree, root, bounds, _AROUND) or _composed(etree, root, bounds)
    return Extracted(text, "markdown", title=_title(etree, root) or None, metadata=_about(root))


def _title(etree: Any, root: Any) -> str:
    """Return the only ``h1`` with the ``title``, unless one has the words of the other."""
    headings = [words for each in root.findall(".//h1") if (words := _line(etree, each))]
    title = _words(root.find(".//title"))
    if not headings or (title and len(headings) > 1):
        return title
    heading = headings[0]
    if heading.casefold() in title.casefold():
        return title
    return heading if title.casefold() in heading.casefold() else f"{heading} | {title}"


def read_svg(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read the words of a drawing: its title, its description, and a paragraph for each text.

    Of the versions of a label in a ``switch``, the first is read.
    """
    root = xml_parser(reads="SVG files")(data)
    if root is None:
        raise Unreadable("corrupt, or not what its name says")
    composer = Composer(bounds)
    for switch in root.iter("{*}switch"):
        del switch[1:]
    for element in root.iter("{*}title", "{*}desc", "{*}text"):
        height = None
        for span in element.iter("{*}tspan"):
            # A space before each line of a text, which is at another height.
            if span.get("dy") or span.get("y", height) != height:
                span.text = f" {span.text or ''}"
            height = span.get("y", height)
        composer.paragraph(_words(element))
    for label in root.iter("{*}foreignObject"):
        composer.paragraph(" ".join(label.itertext()))
    title = _words(root.find("{*}title"))
    return Extracted(composer.text, "text", title=title or None)


def read_epub(name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read a book: the main text of its chapters, in order; corrupt ones are unread.

    Raises:
        Unreadable: if it is encrypted, too large when unpacked, or has no readable chapter.
    """
    parse = xml_parser(reads="EPUB files")
    composer = Composer(bounds)
    unread = []
    with zipfile.ZipFile(checked_archive(data, bounds)) as archive:
        container = parse(archive.read("META-INF/container.xml"))
        package = container.find(".//{*}rootfile").get("full-path")
        book = parse(archive.read(package))
        items = {
            item.get("id"): _path(package, item.get("href", ""))
            for item in book.iterfind("{*}manifest/{*}item")
            if "nav" not in item.get("properties", "").split()
        }
        locked = b""
        if _ENCRYPTION in archive.namelist():
            locked = archive.read(_ENCRYPTION)
        for reference in book.iterfind("{*}spine/{*}itemref"):
            chapter = items.get(reference.get("idref"))
            if chapter is None:
                continue
            if chapter.encode() in locked:
                raise Unreadable("encrypted: its chapters cannot be read")
            try:
                page = archive.read(chapter)
            except KeyError:
                unread.append((f"chapter={chapter}", "not in the file"))
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
                unread.append((f"chapter={chapter}", "corrupt"))
            else:
                composer.verbatim(read_html(name, page or b"<p>", bounds).text)
    if unread and not composer.text:
        raise Unreadable("none of its chapters can be read")
    about = {each: _words(book.find(f"{{*}}metadata/{{*}}{each}")) for each in _BOOK}
    metadata = known(
        author=about["creator"],
        created=about["date"],
        description=about["description"],
        lang=about["language"],
    )
    title = about["title"] or None
    return Extracted(composer.text, "markdown", title, None, metadata, unread=tuple(unread))


def _path(package: str, reference: str) -> str:
    """Return the name of a member that the package refers to."""
    path = unquote(urldefrag(reference).url)
    return posixpath.normpath(posixpath.join(posixpath.dirname(package), path))


def _about(root: Any) -> dict[str, Any]:
    """Return the metadata of the page."""
    named: dict[str, str] = {}
    for meta in root.iter("meta"):
        name = (meta.get("name") or meta.get("property") or "").lower()
        named.setdefault(name, meta.get("content") or "")
    return known(
        author=named.get("author"),
        description=named.get("description") or named.get("og:description"),
        keywords=named.get("keywords"),
        created=named.get("article:published_time") or named.get("date"),
        modified=named.get("article:modified_time"),
        lang=root.get("lang"),
    )


def _words(element: Any) -> str:
    return "" if element is None else " ".join("".join(element.itertext()).split())


def _line(etree: Any, root: Any) -> str:
    """Return the words of an element as one line; those of different blocks are apart."""
    words: list[str] = []
    walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        is_shown = event in ("start", "end") and not _is_silent(element)
        if is_shown and (element.tag == "br" or element.tag in _BLOCKS):
            words.append(" ")
        if event != "start":
            words.append("" if element is root else element.tail or "")
        elif is_shown:
            words += [element.get("alt", "") if element.tag == "img" else "", element.text or ""]
        else:
            walk.skip_subtree()
    return " ".join("".join(words).split())


def _span(cell: Any, attribute: str) -> int:
    number = _SPAN.match(cell.get(attribute, ""))
    return int(number[0]) if number else 1


def _composed(etree: Any, root: Any, bounds: Bounds, left_out: frozenset[str] = frozenset()) -> str:
    writer = _HtmlWriter(etree, Composer(bounds))
    _walk(etree, root, writer, left_out)
    writer.flush()
    return writer.composer.text


def _walk(
    etree: Any, root: Any, writer: _HtmlWriter, left_out: frozenset[str] = frozenset()
) -> None:
    walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        if event == "start":
            if _is_silent(element) or element.tag in left_out:
                walk.skip_subtree()
            elif writer.open(element):
                writer.text(element.text)
            else:
                walk.skip_subtree()
        else:
            if event == "end" and not (_is_silent(element) or element.tag in left_out):
                writer.close(element.tag)
            if element is not root:
                writer.text(element.tail)


def _is_silent(element: Any) -> bool:
    return (
        element.tag in _SILENT
        or element.get("hidden") is not None
        or element.get("aria-hidden") == "true"
    )


class _HtmlWriter:
    """A writer that collects words until a block ends."""

    def __init__(self, etree: Any, composer: Composer) -> None:
        self._etree = etree
        self.composer = composer
        self._words: list[str] = []
        self._lists: list[str] = []
        self._heading = 0
        self._item = False
        self._verbatim = False

    def open(self, element: Any) -> bool:
        """Begin an element; return whether to visit its content."""
        tag = element.tag
        if tag == "table" and element.xpath("./tr/th | ./*/tr/th"):
            self._add_table(element)
            return False
        if tag in _BLOCKS:
            self.flush()
        if tag in _LISTS:
            self._lists.append(tag)
        elif tag == "li":
            self._item = True
        elif tag in _HEADINGS:
            self._heading = _HEADINGS[tag]
        elif tag == "pre":
            self._verbatim = True
        elif tag == "br":
            self._words.append("\n")
        elif tag == "img":
            self.text(element.get("alt"))
        return True

    def _add_table(self, table: Any) -> None:
        """Add the caption of a table with names, its rows, and tables between them."""
        self.flush()
        for caption in table.iterchildren("caption"):
            self.composer.paragraph(_line(self._etree, caption))
        rows = [row.xpath("./th | ./td") for row in table.xpath("./tr | ./*[not(self::table)]/tr")]
        tags = [[cell.tag for cell in row] for row in rows]
        names = next((n for n, each in enumerate(tags) if "td" in each), len(tags))
        first = next((each for each in tags if len(each) > 1), [])
        headed: bool | None = "td" not in first
        if first[:1] == ["td"] or (not headed and "th" in first[1:]):
            headed = None
        cells = (
            [
                (_line(self._etree, cell), _span(cell, "colspan"), _span(cell, "rowspan"))
                for cell in row
            ]
            for row in rows
        )
        self.composer.table(spread(cells, names=names or None), headed=headed)
        for inner in table.xpath("./table | ./*/table"):
            _walk(self._etree, inner, self)

    def close(self, tag: str) -> None:
        """End an element."""
        if tag in _BLOCKS:
            self.flush()
        if tag in _LISTS and self._lists:
            self._lists.pop()
        elif tag == "li":
            self._item = False
        elif tag in _HEADINGS:
            self._heading = 0
        elif tag == "pre":
            self._verbatim = False

    def text(self, text: str | None) -> None:
        """Add text; collapse whitespace except within ``pre``."""
        if text:
            self._words.append(text if self._verbatim else _SPACE.sub(" ", text))

    def flush(self) -> None:
        """Write the collected words as a block."""
        text, self._words = "".join(self._words), []
        if self._verbatim:
            self.composer.code(text)
        elif self._heading:
            self.composer.heading(self._heading, text)
        elif self._lists and text.strip():
            mark = "1." if self._lists[-1] == "ol" else "-"
            depth = len(self._lists) - 1
            self.composer.item(text, depth=depth, mark=mark if self._item else " ")
            self._item = False
        else:
            self.composer.paragraph(text)
