"""Texts for measurements: the documentation strings of the Python standard library."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

_WORDS = 100


@cache
def sentences() -> tuple[str, ...]:
    """Lines of prose from the documentation strings, in a fixed order."""
    found: dict[str, None] = {}
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        for text in _docstrings(path):
            for line in text.split(". "):
                line = " ".join(line.split())
                if len(line) > 30:
                    found[line] = None
    return tuple(found)


def _docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text(encoding="utf-8", errors="replace"))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def documents(count: int, *, seed: int = 1) -> Iterator[dict[str, object]]:
    """Documents of one chunk each, about 100 words, no two alike."""
    rng = random.Random(seed)
    lines = sentences()
    for number in range(count):
        words: list[str] = []
        while len(words) < _WORDS:
            words += rng.choice(lines).split()
        yield {
            "source": f"text-{number}",
            "title": f"Text {number}",
            "content": " ".join(words[:_WORDS]),
            "metadata": {"group": number % 100},
        }


def queries(count: int, *, seed: int = 2) -> list[str]:
    """Questions of three to ten words that occur together."""
    rng = random.Random(seed)
    lines = sentences()
    chosen = []
    for _ in range(count):
        words = rng.choice(lines).split()
        length = rng.randint(3, 10)
        start = rng.randrange(max(1, len(words) - length))
        chosen.append(" ".join(words[start : start + length]))
    return chosen
