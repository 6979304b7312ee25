"""The format of a file, by the suffix of its name and by its first bytes."""

from __future__ import annotations

import re
from pathlib import PurePath

from ability_search.text.formats import EMPTY, NOT_TEXT, Unreadable, named, table

_SUFFIXES = {
    "bash": ".sh",
    "c": ".c .h",
    "cpp": ".cc .cpp .hpp",
    "csharp": ".cs",
    "css": ".css",
    "go": ".go",
    "haskell": ".hs",
    "java": ".java",
    "javascript": ".cjs .js .jsx .mjs",
    "kotlin": ".kt .kts",
    "lua": ".lua",
    "perl": ".pl",
    "php": ".php",
    "python": ".py .pyi",
    "ruby": ".rb",
    "rust": ".rs",
    "scala": ".scala",
    "sql": ".sql",
    "swift": ".swift",
    "toml": ".toml",
    "tsx": ".tsx",
    "typescript": ".ts",
    "yaml": ".yaml .yml",
}
LANGUAGES = {
    suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}
"""Programming languages by the suffixes of files."""
_PDF = b"%PDF-"
_ZIP = b"PK\x03\x04"
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_OFFICE = {b"word/": "docx", b"ppt/": "pptx", b"xl/": "xlsx"}
_MIMETYPES = {b"application/epub+zip": "epub", b"application/vnd.oasis.opendocument.": "odf"}
_ARCHIVES = frozenset({*_OFFICE.values(), *_MIMETYPES.values()})
_MIMETYPE = 30, b"mimetype"
"""Place and name of the first member of an archive that names its type."""
_MAILBOX = re.compile(rb"From \S++ [^\n:]*+:\d\d[^\n]*+\n[A-Za-z-]++: ")
_MESSAGE = (b"Return-Path: ", b"Received: ", b"Delivered-To: ")
_FLAT_ODF = re.compile(rb"(?:\xef\xbb\xbf)?<\?xml[^>]*+>\s*+<office:document\b")
_HEAD = 1024
_LONGEST_MIMETYPE = 80
_LEFT_OUT = "a {} file, which the extension formats reads; it is left out"
_OF_FORMATS = frozenset(
    re.findall(
        r"\S+",
        ".docm .docx .eml .epub .fodp .fods .fodt .htm .html .ipynb .mbox .odp .ods .odt .pdf .pptm"
        " .pptx .rtf .svg .xhtml .xlsm .xlsx",
    )
)
"""Suffixes of files of the extension ``formats``, which without it are not read as text either."""
_CHECKED = frozenset({"docx", "epub", "odf", "pdf", "pptx", "rtf", "xlsx"})
"""Formats that the first bytes must confirm."""
_MAGIC = (
    (b"{\\rtf", "rtf", "a Rich Text file"),
    (_OLE, None, "an Office file from before 2007, or an encrypted one"),
    (b"\x89PNG\r\n", "image", "a PNG image"),
    (b"\xff\xd8\xff", "image", "a JPEG image"),
    (b"GIF8", "image", "a GIF image"),
    (b"II*\0", "image", "a TIFF image"),
    (b"MM\0*", "image", "a TIFF image"),
    (b"RIFF", None, "an image, sound or video"),
    (b"\0\0\1\0", None, "an icon"),
    (b"\x1f\x8b", None, "a gzip archive"),
    (b"7z\xbc\xaf\x27\x1c", None, "a 7z archive"),
    (b"\xfd7zXZ\0", None, "an xz archive"),
    (b"\x28\xb5\x2f\xfd", None, "a zstd archive"),
    (b"BZh", None, "a bzip2 archive"),
    (b"Rar!\x1a", None, "a RAR archive"),
    (b"\x7fELF", None, "a program"),
    (b"MZ\x90\0", None, "a program"),
    (b"\xcf\xfa\xed\xfe", None, "a program"),
    (b"\xca\xfe\xba\xbe", None, "a program"),
    (b"SQLite format 3\0", None, "an SQLite database"),
    (b"ID3\2", None, "a sound"),
    (b"ID3\3", None, "a sound"),
    (b"ID3\4", None, "a sound"),
    (b"OggS", None, "a sound or video"),
    (b"wOF", None, "a font"),
)
"""First bytes, the format that is read, if any, and what they are."""


def format_of(name: str, data: bytes) -> str | None:
    """Return the format of a file; ``None`` for text of unknown format.

    The suffix of the name decides; for an unknown suffix, the first bytes do.

    Raises:
        Unreadable: if it is not text, or not of the type that its name says.
    """
    suffix = PurePath(name).suffix.lower()
    by_name = table().by_suffix.get(suffix) or ("code" if suffix in LANGUAGES else None)
    if by_name is None and suffix in _OF_FORMATS:
        raise Unreadable(_LEFT_OUT.format(suffix[1:].upper()))
    if by_name and (begins := table().by_name[by_name].begins):
        if not data.startswith(begins):
            _refuse(by_name, data)
        return by_name
    found, what = _detect(data)
    if by_name in _CHECKED:
        if found != by_name:
            _refuse(by_name, data)
        return by_name
    if found is not None and by_name is None:
        if named(found) is None:
            raise Unreadable(_LEFT_OUT.format(found))
        return found
    if what:
        raise Unreadable(what + NOT_TEXT)
    return by_name


def language_of(name: str) -> str | None:
    """Return the programming language of a file by its suffix; ``None`` if unknown."""
    return LANGUAGES.get(PurePath(name).suffix.lower()) if "." in name else None


def _detect(data: bytes) -> tuple[str | None, str]:
    """Return the readable format of the bytes, if any, and their type unless it is text."""
    if _PDF in data[:_HEAD] and not data.lstrip()[:1].isalnum():
        return "pdf", "a PDF file"
    if data.startswith(_ZIP):
        return _detect_archive(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "image", "a WebP image"
    if name := _detect_text(data):
        return name, ""
    found = (row[1:] for row in _MAGIC if data.startswith(row[0]))
    return next(found, (None, ""))


def _detect_text(data: bytes) -> str | None:
    if _MAILBOX.match(data):
        return "mbox"
    if data.startswith(_MESSAGE):
        return "email"
    return "odf" if _FLAT_ODF.match(data) else None


def _detect_archive(data: bytes) -> tuple[str | None, str]:
    place, member = _MIMETYPE
    if data.startswith(member, place):
        kind = data[place + len(member) : place + len(member) + _LONGEST_MIMETYPE]
        for mimetype, name in _MIMETYPES.items():
            if kind.startswith(mimetype):
                return name, f"an {name.upper()} file"
    for folder, name in _OFFICE.items():
        # The names of members are not compressed; their directory is at the end.
        if folder in data and b"[Content_Types].xml" in data:
            return name, f"a {name.upper()} file"
    return None, "a ZIP archive"


def _refuse(named: str, data: bytes) -> None:
    if not data:
        raise Unreadable(EMPTY)
    if data.startswith(_OLE) and named in ("docx", "pptx", "xlsx"):
        raise Unreadable("encrypted, or from before Office 2007")
    if data.startswith(_ZIP) and named in _ARCHIVES:
        return
    raise Unreadable(f"not a {named.upper()} file, though its name says so")
