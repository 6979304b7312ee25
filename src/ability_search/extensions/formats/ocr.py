"""Text recognition in images, by the program tesseract if it is installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec

from ability_search.extensions.formats.foreign_files import NO_RECOGNITION
from ability_search.ops.locks import replace_file
from ability_search.text.formats import OUT_OF_TIME, Unreadable

_TESSERACT = "tesseract"
_ORIENTATION = "osd"
"""The model of tesseract that recognises which way up a page is."""
_NO_LANGUAGES = frozenset({_ORIENTATION, "equ", "snum"})
"""Models of tesseract that do not read words."""
_UPRIGHT = "1"
"""Page segmentation mode of tesseract that turns a page upright first."""
_SHARE = 0.9
"""Share of the time for a file or page after which its recognition stops."""


class PageTexts:
    """Texts of the images of files that were not read to their end, so that reading goes on there.

    They are kept on the disk until the file is read to its end. A directory that cannot be written
    is no error: the next reading begins anew.

    Args:
        directory: Where they are kept; ``None`` keeps nothing.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory

    def load(self, data: bytes) -> dict[str, str]:
        """Return the texts kept for a file with these bytes, by the hashes of images."""
        with suppress(OSError, msgspec.DecodeError):
            if file := self._file(data):
                return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
        return {}

    def keep(self, data: bytes, texts: Mapping[str, str]) -> None:
        """Keep the texts of a file; if there are none, those kept before are deleted."""
        if (file := self._file(data)) is None:
            return
        with suppress(OSError):
            if not texts:
                file.unlink(missing_ok=True)
                return
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(file, msgspec.json.encode(texts))

    def _file(self, data: bytes) -> Path | None:
        return self._directory and self._directory / f"{sha256(data).hexdigest()}.json"


def is_installed() -> bool:
    """Return whether images can be read."""
    return shutil.which(_TESSERACT) is not None


def image_problem() -> str:
    """Return why images cannot be read; empty with tesseract."""
    return "" if is_installed() else f"an image; {NO_RECOGNITION}"


def recognizer(timeout: float) -> Callable[[bytes], str] | None:
    """Return a function from an image to its text; ``None`` without tesseract.

    All installed languages are recognised, and pages are turned upright. The function raises
    :class:`Unreadable` for a corrupt image, and for one that takes most of ``timeout``, in seconds.
    """
    if not is_installed():
        return None

    def recognize(image: bytes) -> str:
        try:
            return _run([*_options(), "-", "-"], image, _SHARE * timeout)
        except subprocess.TimeoutExpired as exc:
            problem = f"no text recognised within {timeout:g} seconds {OUT_OF_TIME}"
            raise Unreadable(problem) from exc
        except subprocess.CalledProcessError as exc:
            raise Unreadable("an image that tesseract cannot read: corrupt, or too large") from exc

    return recognize


@functools.cache
def _options() -> list[str]:
    _, *names = _run(["--list-langs"], b"", 10).splitlines()
    languages = "+".join(sorted(set(names) - _NO_LANGUAGES)) or "eng"
    return ["-l", languages, *(["--psm", _UPRIGHT] if _ORIENTATION in names else [])]


def _run(arguments: list[str], data: bytes, timeout: float) -> str:
    # One thread is faster than several for a page.
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    done = subprocess.run(
        [_TESSERACT, *arguments],
        input=data,
        capture_output=True,
        timeout=timeout,
        check=True,
        env=environment,
    )
    return done.stdout.decode("utf-8", "replace")
