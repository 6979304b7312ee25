"""A directory of mixed files for measurements: Python's own library, and documents made of it."""

from __future__ import annotations

import csv
import html
import io
import json
import random
import sysconfig
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import cycle, islice
from pathlib import Path

from benchmarks import texts

_LARGEST_SOURCE = 12_000
_DIRECTORY_FILES = 100

_WORD = (
    '<?xml version="1.0"?><w:document xmlns:w='
    '"http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{}</w:body></w:document>'
)
_TYPES = (
    '<?xml version="1.0"?><Types xmlns='
    '"http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels"'
    ' ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override'
    ' PartName="/word/document.xml" ContentType='
    '"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns='
    '"http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" Type='
    '"http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"'
    ' Target="word/document.xml"/></Relationships>'
)


def write(root: Path, count: int, *, seed: int = 5) -> list[Path]:
    """Write ``count`` files below a directory, 100 in each of its own; returns them."""
    rng = random.Random(seed)
    paths = []
    for number, suffix in enumerate(islice(cycle(_MIX), count)):
        path = root / f"part-{number // _DIRECTORY_FILES:03}" / f"file-{number:05}.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        rewrite(path, rng)
        paths.append(path)
    return paths


def rewrite(path: Path, rng: random.Random) -> None:
    """Give a file another content of its kind."""
    path.write_bytes(_MAKERS[path.suffix.removeprefix(".")](rng))


def _prose(rng: random.Random) -> list[str]:
    return [" ".join(rng.choices(texts.sentences(), k=4)) for _ in range(rng.randint(2, 8))]


def _python(rng: random.Random) -> bytes:
    return rng.choice(_modules()) + f"\n# {rng.random()}\n".encode()


@cache
def _modules() -> tuple[bytes, ...]:
    found = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    found += sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-r]*/*.py"))
    read = (path.read_bytes() for path in found)
    return tuple(data for data in read if 200 < len(data) <= _LARGEST_SOURCE)


def _markdown(rng: random.Random) -> bytes:
    parts = (f"## Part {n}\n\n{text}\n\n" for n, text in enumerate(_prose(rng)))
    return f"# Notes {rng.random()}\n\n{''.join(parts)}".encode()


def _text(rng: random.Random) -> bytes:
    return "\n\n".join(_prose(rng)).encode()


def _html(rng: random.Random) -> bytes:
    body = "".join(f"<h2>Part</h2><p>{html.escape(text)}</p>" for text in _prose(rng))
    return f"<html><head><title>Page</title></head><body>{body}</body></html>".encode()


def _json(rng: random.Random) -> bytes:
    rows = [{"number": rng.random(), "text": text} for text in _prose(rng)]
    return json.dumps(rows, indent=1).encode()


def _csv(rng: random.Random) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([("number", "text"), *((rng.random(), t) for t in _prose(rng))])
    return out.getvalue().encode()


def _notebook(rng: random.Random) -> bytes:
    cells = [{"cell_type": "markdown", "metadata": {}, "source": text} for text in _prose(rng)]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


def _pdf(rng: random.Random) -> bytes:
    """One page for each paragraph, a line for every ten words."""
    pages = [list(_lines(text.split())) for text in _prose(rng)]
    kids = " ".join(f"{4 + 2 * place} 0 R" for place in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for place, lines in enumerate(pages):
        shown = "".join(f"({line}) Tj T* " for line in lines)
        stream = f"BT /F1 12 Tf 14 TL 50 700 Td {shown}ET"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {5 + 2 * place} 0 R"
            " /Resources << /Font << /F1 3 0 R >> >> >>",
            f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream",
        ]
    out = bytearray(b"%PDF-1.4\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode("ascii", "replace")
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    out += f"trailer << /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{start}\n%%EOF".encode()
    return bytes(out)


def _lines(words: list[str]) -> Iterator[str]:
    for start in range(0, len(words), 10):
        yield "".join(c for c in " ".join(words[start : start + 10]) if c not in "()\\")


def _word(rng: random.Random) -> bytes:
    body = "".join(f"<w:p><w:r><w:t>{html.escape(text)}</w:t></w:r></w:p>" for text in _prose(rng))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _RELATIONS)
        archive.writestr("word/document.xml", _WORD.format(body))
    return out.getvalue()


_MAKERS: dict[str, Callable[[random.Random], bytes]] = {
    "py": _python,
    "md": _markdown,
    "txt": _text,
    "html": _html,
    "json": _json,
    "csv": _csv,
    "ipynb": _notebook,
    "pdf": _pdf,
    "docx": _word,
}
_MIX = ("py", "md", "py", "txt", "md", "html", "py", "json", "md", "csv") + (
    *("py", "md", "ipynb", "txt", "html", "pdf", "py", "md", "docx", "py"),
)
"""The kinds of files, over and over."""
