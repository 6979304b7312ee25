"""PDF: the text of each page; images: the text in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ability_search.extensions.formats import foreign_files
from ability_search.text.formats import Bounds, Extracted, Unreadable, too_much_text

_PASSWORD = 4
_IMAGE = 3
_DOTS_PER_INCH = 300
_MOST_PIXELS = 40_000_000
# PDFium marks a word that is hyphenated at the end of a line.
_DIVIDED = re.compile(r"[\ufffe\u00ad\x02](?:\r?\n)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\uffff]")
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")


def read_image(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read the text in an image.

    Raises:
        Unreadable: if it has none, or images cannot be read.
    """
    recognize = foreign_files.ForeignReading.within(bounds).recognize
    if recognize is None:
        raise Unreadable(f"an image; {foreign_files.NO_RECOGNITION}")
    text = recognize(data)
    if not text.strip():
        raise Unreadable("an image without text")
    return Extracted(text, "text")


def read_pdf(_name: str, data: bytes, bounds: Bounds) -> Extracted:
    """Read the text of a PDF, with a form feed after each page.

    Args:
        _name: Name of the file.
        data: The file.
        bounds: Limits for the text; what is in a :class:`.Reading` reads pages that have images but
            no text.

    Raises:
        Unreadable: if it is corrupt or encrypted, or has no text.
    """
    pdfium = foreign_files.library("pypdfium2", reads="PDF files")
    unread: list[tuple[int, str]] = []
    try:
        document = pdfium.PdfDocument(data)
        document.init_forms()
        pages = list(_pages(pdfium, document, foreign_files.ForeignReading.within(bounds), unread))
        about: Mapping[str, str] = document.get_metadata_dict()
    except pdfium.PdfiumError as exc:
        # The code may be that of an earlier failure; this entry is never compressed.
        locked = exc.err_code == _PASSWORD and b"/Encrypt" in data
        if not locked:
            raise
        raise Unreadable("encrypted: needs a password") from exc
    if not any(pages):
        raise Unreadable(unread[0][1] if unread else "no text in it")
    metadata = foreign_files.known(
        author=about.get("Author"),
        subject=about.get("Subject"),
        keywords=about.get("Keywords"),
        created=_day(about.get("CreationDate")),
    )
    return Extracted(
        "".join(f"{page}{foreign_files.PAGE_END}" for page in pages),
        "text",
        title=foreign_files.known(title=about.get("Title")).get("title"),
        metadata={**metadata, "pages": len(pages)},
        unread=tuple(_page_ranges(unread)),
    )


def _pages(
    pdfium: Any, document: Any, bounds: foreign_files.ForeignReading, unread: list[tuple[int, str]]
) -> Iterator[str]:
    """Yield the text of each page; add the numbers of unreadable ones, with the reason."""
    room = bounds.text
    read = bounds.recognize or Unreadable(f"scanned; {foreign_files.NO_RECOGNITION}")
    for number in range(len(document)):
        page = document[number]
        # Form fields and annotations, such as typed text, become page content.
        done = pdfium.raw.FPDFPage_Flatten(page, pdfium.raw.FLAT_NORMALDISPLAY)
        if done == pdfium.raw.FLATTEN_SUCCESS:
            page.close()
            page = document[number]
        text = _cleaned(page.get_textpage().get_text_bounded())
        try:
            text = text or _recognized(page, read)
        except Unreadable as exc:
            unread.append((number + 1, str(exc)))
            read = exc if isinstance(exc, foreign_files.OutOfTime) else read
        page.close()
        room -= len(text.encode("utf-8", "replace")) + len(foreign_files.PAGE_END)
        if room < 0:
            raise too_much_text(bounds)
        yield text


def _page_ranges(unread: Sequence[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    """Yield ``page=3`` or ``page=3-9`` for pages in succession with one reason."""
    for (_, reason), run in groupby(
        enumerate(unread), key=lambda item: (item[1][0] - item[0], item[1][1])
    ):
        numbers = [number for _, (number, _) in run]
        last = f"-{numbers[-1]}" if len(numbers) > 1 else ""
        yield f"page={numbers[0]}{last}", reason


def _recognized(page: Any, read: foreign_files.Recognize | Unreadable) -> str:
    """Return the text of a page with images, and of any other page nothing.

    Raises:
        Unreadable: if the page cannot be read; ``read`` is the reason if no page can be.
    """
    if next(page.get_objects(filter=[_IMAGE]), None) is None:
        return ""
    if isinstance(read, Unreadable):
        raise read
    width, height = page.get_size()
    scale = min(_DOTS_PER_INCH / 72, (_MOST_PIXELS / (width * height)) ** 0.5)
    pixels = page.render(scale=scale, grayscale=True).to_numpy()
    head = f"P5 {pixels.shape[1]} {pixels.shape[0]} 255\n"
    return _cleaned(read(head.encode() + pixels.tobytes()))


def _cleaned(text: str) -> str:
    lines = _CONTROL.sub("", _DIVIDED.sub("", text)).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _day(stamp: str | None) -> str | None:
    """Return the year, month and day of a PDF date (``D:20260301120000Z``), as far as given."""
    match = _DATE.match(stamp or "")
    return "-".join(filter(None, match.groups())) if match else None
