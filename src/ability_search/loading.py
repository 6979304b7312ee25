"""Files as documents: their bytes first, their text where it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePath

from ability_search import formats
from ability_search.configuration import Settings
from ability_search.documents import Document
from ability_search.extraction import Extractor
from ability_search.files import Selection, Skipped, shown


@dataclass(frozen=True, slots=True)
class File:
    """A file in memory."""

    source: str
    """Its path relative to the root, with ``/``."""
    data: bytes
    format: str | None

    @property
    def hash(self) -> str | None:
        """Of what decides its text, for formats whose text costs much; else ``None``."""
        if self.format not in formats.FOREIGN:
            return None
        return sha256(f"{formats.VERSION} {self.format} ".encode() + self.data).hexdigest()

    def document(self, found: formats.Extracted | None = None) -> Document:
        """The document of what was read of it; without that, one to be compared by its hash."""
        path = PurePath(self.source)
        own = {"path": self.source, "extension": path.suffix.lower().removeprefix(".")}
        return Document(
            source=self.source,
            title=(found and found.title) or path.name,
            content=found.text if found else "",
            metadata={**found.metadata, **own} if found else own,
            format=found.format if found else None,
            language=found.language if found else None,
            file=True,
            file_hash=self.hash,
        )


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
    """What reads files within the limits of the settings; to be closed."""
    limits = settings.limits
    bounds = formats.Bounds(int(limits.document_bytes), int(limits.unpacked_bytes))
    return Extractor(bounds, timeout=settings.files.timeout)


def load(selection: Selection, *, max_bytes: int, format: str | None = None) -> Loaded:
    """Read the bytes of the files of a selection.

    Args:
        selection: Which files.
        max_bytes: Of one file; larger ones are skipped.
        format: What all of them are; by their names and bytes unless given.
    """
    loaded = Loaded()
    for path in selection.files:
        source = path.relative_to(selection.root).as_posix()
        if shown(source) != source:
            loaded.skipped.append(Skipped(shown(source), "its name is not valid UTF-8"))
            continue
        try:
            size = path.stat().st_size
            if size > max_bytes:
                problem = f"{size} bytes, more than the {max_bytes} allowed (max_file_bytes)"
                raise formats.Unreadable(problem)
            data = path.read_bytes()
            kind = format or formats.format_of(source, data)
        except (OSError, formats.Unreadable) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            loaded.skipped.append(Skipped(source, reason))
        else:
            loaded.files.append(File(source, data, kind))
    return loaded


def readings(files: Iterable[File], extractor: Extractor, *, most_bytes: int) -> Iterator[Reading]:
    """Read the text of files, in parts of at most ``most_bytes`` bytes of text.

    A text that alone is longer is a part of its own. The last part may be empty.
    """
    reading = Reading()
    room = most_bytes
    for file in files:
        try:
            found = extractor.extract(file.source, file.data, file.format)
        except formats.Unreadable as exc:
            reading.skipped.append(Skipped(file.source, str(exc)))
            continue
        size = len(found.text.encode())
        if reading.documents and size > room:
            yield reading
            reading, room = Reading(), most_bytes
        reading.documents.append(file.document(found))
        room -= size
    yield reading
