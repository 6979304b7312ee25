"""Hooks of mkdocs.yml: README.md becomes the first page of the site, CHANGELOG.md the last.

Links in the sources are relative to the repository. A link to a file outside docs/ becomes a link
to its page of the site, or plain text if the site has no such page.
"""

import os.path
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
EXAMPLES = ("*.py", "typescript/*.ts")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages and examples that are outside docs/."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for pattern in EXAMPLES:
        for path in sorted((ROOT / "examples").glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the Markdown of a page with links and pictures relative to the site."""
    here = os.path.dirname(page.file.src_uri)
    folder = ROOT if page.file.src_uri in PAGES.values() else ROOT / "docs" / here

    def place(uri: str) -> str:
        return Path(os.path.relpath(uri, here or ".")).as_posix()

    def link(found: re.Match[str]) -> str:
        picture, text, target, anchor = found.groups("")
        path = (folder / target).resolve().relative_to(ROOT).as_posix()
        if path.startswith("docs/"):
            return f"{picture}[{text}]({place(path.removeprefix('docs/'))}{anchor})"
        if path.startswith("examples/"):
            return f"[{text}]({place(path)})"
        return f"[{text}]({place(PAGES[path])}{anchor})" if path in PAGES else text

    return LINK.sub(link, markdown)
