"""Files as documents: the hash of their bytes first, their text where it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path, PurePath

from ability_search.config.schema import Limits, Settings
from ability_search.documents import Document
from ability_search.files.isolated_reader import Extractor
from ability_search.files.selection import Selection, Skipped, parts, shown
from ability_search.text import loaders


@dataclass(frozen=True, slots=True)
class File:
    """A file in memory."""

    source: str
    """Its path relative to the root, with ``/``."""
    data: bytes
    format: str | None

    @property
    def hash(self) -> str:
        """Of what decides its text."""
        digest = sha256(f"{loaders.VERSION} {self.format} ".encode())
        digest.update(self.data)
        return digest.hexdigest()

    def document(self, found: loaders.Extracted) -> Document:
        """The document of what was read of it."""
        path = PurePath(self.source)
        own = {"path": self.source, "extension": path.suffix.lower().removeprefix(".")}
        return Document(
            source=self.source,
            title=found.title or path.name,
            content=found.text,
            metadata={**found.metadata, **own},
            format=found.format,
            language=found.language,
            file=True,
            file_hash=self.hash,
        )


@dataclass(frozen=True, slots=True)
class Print:
    """What a file is recognised by, without its bytes."""

    path: Path
    source: str
    hash: str

    def document(self) -> Document:
        """A document to be compared with what is stored, see :attr:`Document.unread`."""
        return Document(self.source, PurePath(self.source).name, "", file=True, file_hash=self.hash)


@dataclass(slots=True)
class Prints:
    """Files that were recognised, and those that could not be read."""

    files: list[Print] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(slots=True)
class Loaded:
    """Files whose bytes were read, and those that could not be."""

    files: list[File] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


@dataclass(slots=True)
class Reading:
    """Documents read, and files that could not be."""

    documents: list[Document] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def open_extractor(settings: Settings) -> Extractor:
    """Return a reader of files within the limits of the settings; close it after use."""
    limits = settings.limits
    bounds = loaders.Bounds(int(limits.document_bytes), int(limits.unpacked_bytes))
    return Extractor(bounds, timeout=settings.files.timeout)


def load(selection: Selection, *, max_bytes: int, format: str | None = None) -> Loaded:
    """Read the bytes of the files of a selection.

    Args:
        selection: Which files.
        max_bytes: Of one file; larger ones are skipped.
        format: What all of them are; by their names and bytes unless given.
    """
    loaded = Loaded()
    for _, found in _opened(selection, max_bytes, format):
        if isinstance(found, Skipped):
            loaded.skipped.append(found)
        else:
            loaded.files.append(found)
    return loaded


def prints(selection: Selection, *, max_bytes: int, format: str | None = None) -> Prints:
    """Hash the files of a selection; as :func:`load`, with one of them in memory at a time."""
    printed = Prints()
    for path, found in _opened(selection, max_bytes, format):
        if isinstance(found, Skipped):
            printed.skipped.append(found)
        else:
            printed.files.append(Print(path, found.source, found.hash))
    return printed


def _opened(
    selection: Selection, max_bytes: int, format: str | None
) -> Iterator[tuple[Path, File | Skipped]]:
    for path in selection.files:
        source = path.relative_to(selection.root).as_posix()
        if shown(source) != source:
            yield path, Skipped(shown(source), "its name is not valid UTF-8")
            continue
        try:
            size = path.stat().st_size
            if size > max_bytes:
                problem = f"{size} bytes, more than the {max_bytes} allowed (max_file_bytes)"
                raise loaders.Unreadable(problem)
            data = path.read_bytes()
            kind = format or loaders.format_of(source, data)
        except (OSError, loaders.Unreadable) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            yield path, Skipped(source, reason)
        else:
            yield path, File(source, data, kind)


def read_files(
    selection: Selection,
    extractor: Extractor,
    limits: Limits,
    *,
    most: int,
    most_bytes: int,
    format: str | None = None,
) -> Iterator[Reading]:
    """Read the text of the files of a selection, when it is asked for.

    Args:
        selection: Which files.
        extractor: Reads them.
        limits: Of a file.
        most: Files in a part.
        most_bytes: Bytes of files, and of their text, in a part.
        format: What all of them are; by their names and bytes unless given.
    """
    for part in parts(selection, most=most, most_bytes=most_bytes):
        loaded = load(part, max_bytes=limits.file_bytes, format=format)
        if loaded.skipped:
            yield Reading([], loaded.skipped)
        yield from readings(loaded.files, extractor, most_bytes=most_bytes)


def readings(files: Iterable[File], extractor: Extractor, *, most_bytes: int) -> Iterator[Reading]:
    """Read the text of files, in parts of at most ``most_bytes`` bytes of text.

    A text that alone is longer is a part of its own. The last part may be empty.
    """
    reading = Reading()
    room = most_bytes
    for file in files:
        try:
            found = extractor.extract(file.source, file.data, file.format)
        except loaders.Unreadable as exc:
            reading.skipped.append(Skipped(file.source, str(exc)))
            continue
        size = len(found.text.encode())
        if reading.documents and size > room:
            yield reading
            reading, room = Reading(), most_bytes
        reading.documents.append(file.document(found))
        room -= size
    yield reading
