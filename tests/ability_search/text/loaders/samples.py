"""Small real files, made here."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import docx
import openpyxl
import pptx
import pypdfium2 as pdfium


def pdf(*pages: str, encrypted: bool = False) -> bytes:
    """A PDF with one line of text for each line of a page."""
    kids = " ".join(f"{4 + 2 * place} 0 R" for place in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for place, text in enumerate(pages):
        lines = "".join(f"({line}) Tj T* " for line in text.split("\n"))
        stream = f"BT /F1 12 Tf 14 TL 50 700 Td {lines}ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * place} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    objects.append("<< /Title (The Title) /Author (Ada) /CreationDate (D:20260301120000Z) >>")
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    # No password that anybody knows makes these.
    secret = f"/Encrypt << /Filter /Standard /V 1 /R 2 /O <{'00' * 32}> /U <{'11' * 32}> /P -4 >>"
    further = f"{secret} /ID [<00><00>]" if encrypted else ""
    info = f"/Root 1 0 R /Info {len(objects)} 0 R {further}"
    out += f"trailer << /Size {len(objects) + 1} {info} >>\nstartxref\n{start}\n%%EOF".encode()
    return bytes(out)


def compressed_pdf(unit: bytes, times: int) -> bytes:
    """A PDF of one page whose content is ``unit`` so many times, compressed."""
    packer = zlib.compressobj()
    block, number = unit * 10_000, times // 10_000
    stream = b"".join([*(packer.compress(block) for _ in range(number)), packer.flush()])
    head, _, rest = pdf("x").partition(b"<< /Length ")
    tail = rest.partition(b"\nendstream")[2]
    return b"%s<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream%s" % (
        head,
        len(stream),
        stream,
        tail,
    )


def replaced(archive: bytes, member: str, data: bytes) -> bytes:
    """An archive with one member replaced."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, data if name == member else old.read(name))
    return buffer.getvalue()


def scan(*pages: str) -> bytes:
    """A PDF with a picture of each page of :func:`pdf` that is not blank, and without text."""
    document = pdfium.PdfDocument.new()
    for text, page in zip(pages, pdfium.PdfDocument(pdf(*pages)), strict=True):
        width, height = page.get_size()
        scanned = document.new_page(width, height)
        if text:
            image = pdfium.PdfImage.new(document)
            image.set_bitmap(page.render(scale=200 / 72))
            image.set_matrix(pdfium.PdfMatrix().scale(width, height))
            scanned.insert_obj(image)
            scanned.gen_content()
    return saved(document)


def zipped(**members: str) -> bytes:
    """An archive; ``__`` in a name is a dot, and ``___`` a slash."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("___", "/").replace("__", "."), text)
    return buffer.getvalue()


_ODF = "urn:oasis:names:tc:opendocument:xmlns:"


_SPACES = " ".join(
    f'xmlns:{name}="{_ODF}{name}:1.0"'
    for name in ("office", "text", "table", "meta", "presentation")
)
_SPACES += f' xmlns:svg="{_ODF}svg-compatible:1.0"'
_SPACES += f' xmlns:draw="{_ODF}drawing:1.0" xmlns:dc="http://purl.org/dc/elements/1.1/"'


def opendocument(body: str, *, kind: str = "text", meta: str = "", manifest: str = "") -> bytes:
    return zipped(
        mimetype=f"application/vnd.oasis.opendocument.{kind}",
        content__xml=f"<office:document-content {_SPACES}><office:body><office:{kind}>{body}"
        f"</office:{kind}></office:body></office:document-content>",
        meta__xml=f"<office:document-meta {_SPACES}>{meta}</office:document-meta>",
        **{"META-INF___manifest__xml": f"<manifest>{manifest}</manifest>"},
    )


def flat_opendocument(body: str, *, kind: str = "text", meta: str = "") -> bytes:
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<office:document {_SPACES}>{meta}<office:body>'
        f"<office:{kind}>{body}</office:{kind}></office:body></office:document>"
    ).encode()


def book(*chapters: str, encrypted: str = "") -> bytes:
    """An EPUB of chapters in HTML, listed in the manifest in another order than they are read."""
    numbers = range(len(chapters))
    items = "".join(
        f'<item id="c{n}" href="text%20files/c{n}.xhtml#start" media-type="application/xhtml+xml"/>'
        for n in reversed(numbers)
    )
    order = "".join(f'<itemref idref="c{n}"/>' for n in numbers)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf"><metadata'
        ' xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Book</dc:title>'
        "<dc:creator>Ada</dc:creator><dc:language>en</dc:language></metadata>"
        f"<manifest>{items}</manifest><spine>{order}</spine></package>"
    )
    members = {f"OPS___text files___c{n}__xhtml": chapters[n] for n in numbers}
    if encrypted:
        members["META-INF___encryption__xml"] = f'<e><CipherReference URI="{encrypted}"/></e>'
    return zipped(
        mimetype="application/epub+zip",
        **{
            "META-INF___container__xml": '<container xmlns="urn:oasis:names:tc:opendocument:'
            'xmlns:container"><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles>'
            "</container>",
            "OPS___book__opf": package,
        },
        **members,
    )


def saved(file: Any) -> bytes:
    buffer = io.BytesIO()
    file.save(buffer)
    return buffer.getvalue()


def word(*paragraphs: str) -> bytes:
    document = docx.Document()
    document.core_properties.title = "Titled"
    document.core_properties.author = "Ada"
    document.core_properties.created = datetime(2026, 3, 1, 12)
    document.add_heading("Guide", 1)
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    return saved(document)


def slides(*titles: str) -> bytes:
    presentation = pptx.Presentation()
    for title in titles:
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes.title.text = title
        slide.placeholders[1].text = f"About {title}\nand more"
        slide.notes_slide.notes_text_frame.text = f"Say {title}"
    return saved(presentation)


def workbook(**sheets: Sequence[Sequence[object]]) -> bytes:
    book = openpyxl.Workbook()
    first = book.active
    assert first is not None
    book.remove(first)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return saved(book)
