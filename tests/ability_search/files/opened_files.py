"""The files of a selection, and those that are not read."""

from __future__ import annotations

from ability_search.files.file_documents import File, open_files
from ability_search.files.selection import Selection, Skipped


def load(selection: Selection, *, max_bytes: int) -> tuple[list[File], list[Skipped]]:
    found = [each for _, each in open_files(selection, max_bytes=max_bytes)]
    files = [each for each in found if isinstance(each, File)]
    return files, [each for each in found if isinstance(each, Skipped)]
