"""Files as documents: hashing first, extraction of the text only where needed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Protocol, Self

from ability_search.bounded_batches import batches, text_bytes
from ability_search.documents import Document
from ability_search.files.credentials import holds_credentials
from ability_search.files.regular_files import open_beneath
from ability_search.files.selection import SECRET, Selection, Skipped, is_secret, shown
from ability_search.text import loaders
from ability_search.text.formats import function, named, table

if TYPE_CHECKING:
    from ability_search.config.schema import Limits, Settings


@dataclass(frozen=True, slots=True)
class File:
    """A file in memory."""

    source: str
    """Path relative to the root, with ``/``."""
    data: bytes
    format: str | None

    @property
    def hash(self) -> str:
        """Hash of everything that determines the extracted text."""
        digest = sha256(f"{loaders.VERSION} {self.format} ".encode())
        digest.update(self.data)
        return digest.hexdigest()

    def documents(self, found: loaders.Extracted) -> tuple[list[Document], list[Skipped]]:
        """Return the documents of the extracted text, that of the file last, and unread parts."""
        skipped = [
            Skipped(f"{self.source}#{part}", reason, part=True) for part, reason in found.unread
        ]
        documents = []
        for part, child in found.children:
            name = child.metadata.get("attachment", "")
            if child.source is None and is_secret(name):
                skipped.append(Skipped(f"{self.source}#{part}", SECRET, part=True))
            else:
                source = child.source or f"{self.source}#{part}"
                document = self._document(source, child, child.source or name)
                documents.append(replace(document, of=self.source))
        children = tuple(each.source for each in documents)
        kind = named(self.format)
        # With another hash than that of its bytes, the next indexing reads the file again.
        text_hash = sha256(f"{self.hash} {found.text}".encode()).hexdigest()
        own = replace(
            self._document(self.source, found, self.source),
            file=True,
            file_hash=text_hash if found.late else self.hash,
            children=children if kind is not None and kind.holds_documents else None,
        )
        return [*documents, own], skipped

    def _document(self, source: str, found: loaders.Extracted, name: str) -> Document:
        path = PurePath(name)
        own = {"path": self.source, "extension": path.suffix.lower().removeprefix(".")}
        return Document(
            source=source,
            title=found.title or path.name,
            content=found.text,
            metadata={**found.metadata, **own},
            format=found.format,
            language=found.language,
        )


@dataclass(slots=True)
class FileBatch:
    """Documents, and files that could not be read."""

    documents: list[Document] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


class Extractor:
    """A reader of text files; one that an extension opens reads foreign formats too.

    Args:
        bounds: Limits for one file.
    """

    def __init__(self, bounds: loaders.Bounds) -> None:
        self._bounds = bounds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def extract(self, name: str, data: bytes, format: str | None) -> loaders.Extracted:
        """Read the text of a file, as :func:`ability_search.text.loaders.extract` does.

        Raises:
            Unreadable: if the file has no readable text, or is in a foreign format.
        """
        if loaders.is_foreign(format):
            raise loaders.Unreadable(
                f"{format} is read in a process of its own, which needs the extension formats"
            )
        return loaders.extract(name, data, format, self._bounds)

    def close(self) -> None:
        """End a read in progress."""


def open_extractor(
    settings: Settings, advance: Callable[[str], None] = lambda _: None
) -> Extractor:
    """Return an extractor with the limits of the settings; close it after use."""
    limits = settings.limits
    bounds = loaders.Bounds(int(limits.document_bytes), int(limits.unpacked_bytes))
    files = settings.files
    isolate = table().isolate
    if isolate is None:
        return Extractor(bounds)
    kept = files.cache_dir / "recognised"
    opened: Extractor = function(isolate)(bounds, timeout=files.timeout, kept=kept, advance=advance)
    return opened


class FileTarget(Protocol):
    """The destination of the documents of files."""

    def skip(self, files: Sequence[Skipped]) -> None:
        """Take the files that cannot be read."""

    def reading(self, file: str) -> None:
        """Take the name of the file that is being read, from any thread."""

    async def send(self, documents: Sequence[Document]) -> Collection[str]:
        """Store documents; return the sources of which the text is needed.

        A document without its text, see :attr:`Document.unread`, is only compared.
        """


async def send_changed(
    selections: Iterable[Selection],
    target: FileTarget,
    settings: Settings,
    *,
    most: int,
    most_bytes: int,
    format: str | None = None,
) -> None:
    """Send the files whose bytes differ from what is stored; the others are not extracted.

    Args:
        selections: The files.
        target: Where they go.
        settings: Their limits.
        most: Maximum number of documents sent at a time, and about that of files compared.
        most_bytes: Maximum bytes of the files read at a time, and of the text sent.
        format: Format of all files. Default: detected for each file.
    """
    limits = settings.limits
    with open_extractor(settings, target.reading) as extractor:
        for selection in selections:
            async for changed in _changed(selection, target, limits.file_bytes, most, format):
                readings = read_files(
                    changed, extractor, limits, most=most, most_bytes=most_bytes, format=format
                )
                while (reading := await asyncio.to_thread(next, readings, None)) is not None:
                    target.skip(reading.skipped)
                    if reading.documents:
                        await target.send(reading.documents)


async def _changed(
    selection: Selection, target: FileTarget, max_bytes: int, most: int, format: str | None
) -> AsyncIterator[Selection]:
    """Yield the files of which the text is needed, in batches of about ``most``."""
    changed: list[Path] = []
    for start in range(0, len(selection.files), most):
        part = replace(selection, files=selection.files[start : start + most])
        documents, skipped = await asyncio.to_thread(
            hashed, part, max_bytes=max_bytes, format=format
        )
        target.skip(skipped)
        needed = await target.send([*documents.values()]) if documents else ()
        changed += [path for path, document in documents.items() if document.source in needed]
        if len(changed) >= most:
            yield replace(selection, files=tuple(changed))
            changed = []
    if changed:
        yield replace(selection, files=tuple(changed))


def hashed(
    selection: Selection, *, max_bytes: int, format: str | None = None
) -> tuple[dict[Path, Document], list[Skipped]]:
    """Return documents without texts, see :attr:`Document.unread`, and the files that failed.

    One file is in memory at a time.
    """
    documents: dict[Path, Document] = {}
    skipped: list[Skipped] = []
    for path, found in open_files(selection, max_bytes=max_bytes, format=format):
        if isinstance(found, Skipped):
            skipped.append(found)
        else:
            name = PurePath(found.source).name
            documents[path] = Document(found.source, name, "", file=True, file_hash=found.hash)
    return documents, skipped


def open_files(
    selection: Selection, *, max_bytes: int, format: str | None = None
) -> Iterator[tuple[Path, File | Skipped]]:
    """Yield each path of a selection with the bytes of its file, or why they are not read.

    Args:
        selection: The files.
        max_bytes: Maximum size of a file; larger files are skipped.
        format: Format of all files. Default: detected for each file.
    """
    for path in selection.files:
        source = path.relative_to(selection.root).as_posix()
        if shown(source) != source:
            yield path, Skipped(shown(source), "its name is not valid UTF-8")
            continue
        try:
            data = _read(path, selection, max_bytes)
            kind = format or loaders.format_of(source, data)
            known = named(kind)
            if known and known.refused and (problem := function(known.refused)()):
                raise loaders.Unreadable(problem)
        except (OSError, loaders.Unreadable) as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
            yield path, _unread(source, reason)
        else:
            yield path, File(source, data, kind)


def _read(path: Path, selection: Selection, max_bytes: int) -> bytes:
    """Return the bytes of a file; links may have replaced it since it was selected.

    Raises:
        Unreadable: if the file is too large, is a secret, or lies outside the directory.
        OSError: if it cannot be opened, or is not a regular file.
    """
    real = Path(os.path.realpath(path, strict=True))
    if not real.is_relative_to(selection.within):
        raise loaders.Unreadable("a link leads outside the directory that may be read")
    with open_beneath(selection.within, real) as file:
        about = os.fstat(file.fileno())
        named = is_secret(real.relative_to(selection.within).as_posix())
        named = named or (real.name != path.name and is_secret(path.name))
        if named or (about.st_dev, about.st_ino) in selection.secrets:
            raise loaders.Unreadable(SECRET)
        if about.st_size <= max_bytes:
            # One byte more than there should be, because the file may be growing.
            data = file.read(about.st_size + 1)
            data += file.read(max_bytes + 1 - len(data)) if len(data) > about.st_size else b""
            if holds_credentials(data):
                raise loaders.Unreadable(SECRET)
            if len(data) <= max_bytes:
                return data
    size = max(about.st_size, max_bytes + 1)
    raise loaders.Unreadable(f"{size} bytes, more than the {max_bytes} allowed (max_file_bytes)")


def read_files(
    selection: Selection,
    extractor: Extractor,
    limits: Limits,
    *,
    most: int,
    most_bytes: int,
    format: str | None = None,
) -> Iterator[FileBatch]:
    """Yield the documents of a selection, in parts; one file is in memory at a time.

    A larger file or text is a part of its own; the last part may have no documents. A file comes
    after the documents in it, so that it is not stored without them.

    Args:
        selection: The files.
        extractor: Extracts their text.
        limits: Limits for a file.
        most: Maximum documents of a part.
        most_bytes: Maximum bytes of the files of a part, and of its text.
        format: Format of all files. Default: detected for each file.
    """
    skipped: list[Skipped] = []

    def sized() -> Iterator[tuple[Document, int]]:
        for _, file in open_files(selection, max_bytes=limits.file_bytes, format=format):
            if isinstance(file, Skipped):
                skipped.append(file)
                continue
            try:
                found = extractor.extract(file.source, file.data, file.format)
            except loaders.Unreadable as exc:
                skipped.append(_unread(file.source, str(exc)))
                continue
            documents, unread = file.documents(found)
            skipped.extend(unread)
            for document in documents:
                own = len(file.data) if document.file else 0
                yield document, max(own, text_bytes(document.content))

    for part in batches(sized(), lambda each: each[1], most=most, most_bytes=most_bytes):
        yield FileBatch([document for document, _ in part], skipped.copy())
        skipped.clear()
    if skipped:
        yield FileBatch([], skipped)


def _unread(source: str, reason: str) -> Skipped:
    """Return why a file is not read; the earlier text of one that is no text now is stale."""
    stale = reason in (loaders.EMPTY, SECRET) or reason.endswith(loaders.NOT_TEXT)
    return Skipped(source, reason, stale=stale)
