"""The structure that the sources are to have, held by bounds and lists that only get smaller.

``data/structure.toml`` has them. What is not listed must not appear, and what no longer occurs must
leave its list, so that it cannot come back.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.syntax_trees import FILES, imported_modules, lines_of, tree_of, within

PACKAGES = ("kadi_client", "kadi_localnet", "ability_search")
STRUCTURE: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "data" / "structure.toml").read_text(encoding="utf-8")
)
WRONG = STRUCTURE["wrong"]
"""What must not appear elsewhere, and what must leave its list once it is gone."""
CORE = "core"
NEWCOMERS = tuple(
    f"ability_search.{part}" for part in ("worker", "tools", "search", "index", "store.port")
)
"""What somebody new has to read."""
SLACK = 500
"""Lines by which a part may be smaller than its bound before the bound is to be lowered."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def home(module: str) -> str:
    """The extension of a module, ``core``, or its package if that is not ability_search."""
    package, *names = module.split(".")
    if package != "ability_search":
        return package
    return names[1] if names[:1] == ["extensions"] and names[1:] else CORE


def core_of(*parts: str) -> list[str]:
    """The modules of the core that are one of these or lie below it."""
    starts = tuple(f"{part}." for part in parts)
    return [m for m in FILES if home(m) == CORE and f"{m}.".startswith(starts)]


def held(found: Iterable[str] | Mapping[str, int], listed: list[str] | dict[str, int]) -> None:
    """Fail for what is not listed, or larger than listed, and for what is listed in vain."""
    now = found if isinstance(found, Mapping) else dict.fromkeys(found, 0)
    allowed = listed if isinstance(listed, dict) else dict.fromkeys(listed, 0)
    new = {name: size for name, size in now.items() if size > allowed.get(name, -1)}
    assert not new, f"not in structure.toml, or larger than there: {new}"
    gone = sorted(allowed.keys() - now.keys())
    assert not gone, f"take these off structure.toml: {gone}"


def functions(tree: ast.AST, scope: str) -> Iterator[tuple[str, Function]]:
    """Every function with its full name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Function | ast.ClassDef):
            if isinstance(node, Function):
                yield f"{scope}.{node.name}", node
            yield from functions(node, f"{scope}.{node.name}")
        else:
            yield from functions(node, scope)


FUNCTIONS = [named for module, path in FILES.items() for named in functions(tree_of(path), module)]


def parameters(function: Function) -> int:
    """Number of parameters without ``self``."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


@pytest.mark.parametrize(
    ("part", "modules"),
    [
        ("src", list(FILES)),
        ("core", core_of("ability_search")),
        ("newcomers", core_of(*NEWCOMERS)),
        ("arcadedb", core_of("ability_search.store.arcadedb")),
    ],
)
def test_a_part_has_fewer_lines_than_its_bound(part: str, modules: list[str]) -> None:
    bound, lines = STRUCTURE["lines"][part], sum(map(lines_of, modules))
    assert lines <= bound
    assert lines >= bound - SLACK, f"lower the bound of {part} to {lines}"


def test_the_port_of_the_store_has_so_many_methods() -> None:
    methods = [name for name, _ in FUNCTIONS if name.startswith("ability_search.store.port.")]
    assert len(methods) == STRUCTURE["port_methods"]


def test_the_core_imports_no_extension_and_an_extension_no_other() -> None:
    """But for what an extension needs by its nature, such as the command line for its commands."""
    reached = {
        (module, home(imported))
        for module in FILES
        for imported in imported_modules(module)
        if imported.startswith("ability_search.extensions.") and home(imported) != home(module)
    }
    needs = {(own, need) for own, needed in STRUCTURE["needs"].items() for need in needed}
    declared = {(module, other) for module, other in reached if (home(module), other) in needs}
    assert needs == {(home(module), other) for module, other in declared}
    held((f"{module} -> {other}" for module, other in reached - declared), WRONG["imports"])


def test_a_file_has_at_least_80_lines_and_at_most_600() -> None:
    modules = {m for m, path in FILES.items() if path.stem not in ("__init__", "__main__")}
    assert {module for module in FILES if lines_of(module) > 600} == set()
    held((module for module in modules if lines_of(module) < 80), WRONG["small_files"])


def test_a_file_has_a_name_of_its_own() -> None:
    """Both pipelines are one idea."""
    stems = {package: [FILES[module].stem for module in within(package)] for package in PACKAGES}
    found = {
        f"{package}: {name}"
        for package in PACKAGES
        for name in repeated(stems[package])
        if name not in ("__init__", "pipeline")
    }
    held(found, WRONG["file_names"])


def test_a_class_has_a_name_of_its_own() -> None:
    found = {
        f"{package}: {name}"
        for package in PACKAGES
        for name in repeated(
            node.name
            for module in within(package)
            for node in ast.walk(tree_of(FILES[module]))
            if isinstance(node, ast.ClassDef)
        )
    }
    held(found, WRONG["class_names"])


def test_a_function_has_at_most_60_lines() -> None:
    sizes = {
        name: (function.end_lineno or function.lineno) - function.lineno + 1
        for name, function in FUNCTIONS
    }
    held({name: size for name, size in sizes.items() if size > 60}, WRONG["long_functions"])


def test_a_function_has_at_most_8_parameters() -> None:
    sizes = {name: parameters(function) for name, function in FUNCTIONS}
    held({name: size for name, size in sizes.items() if size > 8}, WRONG["many_parameters"])
