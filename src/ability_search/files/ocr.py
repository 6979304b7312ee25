"""Text recognition in images, by the program tesseract if it is installed."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable

from ability_search.text.loaders import OUT_OF_TIME, Unreadable

_TESSERACT = "tesseract"
_ORIENTATION = "osd"
"""The model of tesseract that recognises which way up a page is."""
_NO_LANGUAGES = frozenset({_ORIENTATION, "equ", "snum"})
"""Models of tesseract that do not read words."""
_UPRIGHT = "1"
"""Page segmentation mode of tesseract that turns a page upright first."""
_SHARE = 0.9
"""Share of the time for a file or page after which its recognition stops."""


def is_installed() -> bool:
    """Return whether images can be read."""
    return shutil.which(_TESSERACT) is not None


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
