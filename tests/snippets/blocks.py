"""The fenced blocks of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PLAIN = {"", "text"}
"""Languages of what is no snippet: layouts, usages."""
_BLOCK = re.compile(
    r"(?:^<!-- (?P<marker>[^:\n]+): (?P<about>[^\n]+) -->\n+)?"
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"\n]+)\")?[^\n]*\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """A block, where it stands, and what the comment before it says."""

    page: str
    line: int
    language: str
    title: str
    """Name of the file that a reader makes of it; empty if it is none."""
    marker: str
    about: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def commands(self) -> list[str]:
        """Commands of a shell block, or of a session, each on one line."""
        text = self.text.replace("\\\n", " ")
        if self.language == "console":
            return re.findall(r"^\$ (.*)$", text, re.MULTILINE)
        lines = (line.strip() for line in text.splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    @property
    def session(self) -> list[tuple[str, list[str]]]:
        """Commands of a session, each with the lines that are shown to come of it."""
        parts = re.split(r"^\$ (.*)$", self.text, flags=re.MULTILINE)[1:]
        return [
            (command, [line.strip() for line in shown.splitlines() if line.strip()])
            for command, shown in zip(parts[::2], parts[1::2], strict=True)
        ]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT).as_posix()
    for found in _BLOCK.finditer(text):
        parts = {key: value or "" for key, value in found.groupdict().items()}
        yield Block(name, text.count("\n", 0, found.start("text")), **parts)
