"""What mkdocs.yml needs besides docs/: README.md as the first page, CHANGELOG.md as the last.

Links are written for a reader of the repository. Those that lead out of docs/ lead to a page of
the site where there is one, and are plain text where there is none.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md"}
EXAMPLES = ("*.py", "typescript/*.ts")
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any, **_: Any) -> Files:
    """Add the pages and the examples, which lie outside docs/."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    for pattern in EXAMPLES:
        for path in sorted((ROOT / "examples").glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links and pictures as the site has them."""
    folder = ROOT if page.file.src_uri in PAGES.values() else ROOT / "docs"

    def link(found: re.Match[str]) -> str:
        picture, text, target, anchor = found.groups("")
        path = (folder / target).resolve().relative_to(ROOT).as_posix()
        if path.startswith("docs/"):
            return f"{picture}[{text}]({path.removeprefix('docs/')}{anchor})"
        if path.startswith("examples/"):
            return f"[{text}]({path})"
        return f"[{text}]({PAGES[path]}{anchor})" if path in PAGES else text

    return LINK.sub(link, markdown)
