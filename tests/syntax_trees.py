"""The sources as modules with their syntax trees and imports, for the tests that read them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
FILES = {
    ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SRC.rglob("*.py"))
}


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def lines_of(module: str) -> int:
    """Blank lines, comments and docstrings included."""
    return len(FILES[module].read_text(encoding="utf-8").splitlines())


def within(package: str) -> list[str]:
    return [module for module in FILES if module.split(".")[0] == package]


@cache
def imports(module: str) -> frozenset[str]:
    """Full names of what a module imports anywhere; ``a.b`` for ``from a import b``."""
    names: set[str] = set()
    for node in ast.walk(tree_of(FILES[module])):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


@cache
def imported_modules(module: str) -> frozenset[str]:
    """Those modules of the sources that a module imports anywhere, without itself."""
    found = {name if name in FILES else name.rpartition(".")[0] for name in imports(module)}
    return frozenset((found & FILES.keys()) - {module})
