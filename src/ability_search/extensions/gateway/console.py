"""The console: a web page and its assets, served from files of this package."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

PAGE = "/"
ASSETS = "/console/"
"""Prefix of the paths of all other files."""

_INDEX = "index.html"
_MEDIA_TYPES = {
    "css": "text/css",
    "html": "text/html",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
_POLICY = (
    *("default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'"),
    *("connect-src 'self'", "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"),
)
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "; ".join(_POLICY),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def is_console(path: str) -> bool:
    """Return whether a path belongs to the console, which shows no data without a token."""
    return path == PAGE or path.startswith(ASSETS)


def routes() -> Iterator[Route]:
    """Yield a route for each file of the console."""
    for name, file in _files(files(__package__).joinpath("page")):
        path = PAGE if name == _INDEX else f"{ASSETS}{name}"
        media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
        yield Route(path, _File(file.read_bytes(), media_type).answer, methods=["GET"])


def _files(directory: Traversable, within: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yield the relative path and file of everything below a directory."""
    for each in sorted(directory.iterdir(), key=lambda each: each.name):
        if each.is_dir():
            yield from _files(each, f"{within}{each.name}/")
        else:
            yield f"{within}{each.name}", each


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media_type: str

    async def answer(self, request: Request) -> Response:
        """Return the file, or 304 if the client already has it."""
        tag = f'"{blake2b(self.body, digest_size=16).hexdigest()}"'
        headers = {**_HEADERS, "ETag": tag}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type=self.media_type)
