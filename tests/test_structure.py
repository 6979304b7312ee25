"""The structure that the sources are to have, held by bounds and lists that only get smaller.

``data/structure.toml`` has them. What is not listed must not appear, and what no longer occurs must
leave its list, so that it cannot come back.
"""

from __future__ import annotations

import ast
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.syntax_trees import FILES, imported_modules, lines_of, tree_of, within

PACKAGES = ("kadi_client", "kadi_localnet", "ability_search")
TESTS = Path(__file__).parent
STRUCTURE: dict[str, Any] = tomllib.loads(
    (TESTS / "data" / "structure.toml").read_text(encoding="utf-8")
)
WRONG = STRUCTURE["wrong"]
"""What must not appear elsewhere, and what must leave its list once it is gone."""
CORE = "core"
CLIENT = "client"
"""Stands on the core, whose layers do not import it (test_architecture.py)."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def home(module: str) -> str:
    """The extension of a module, ``client``, ``core``, or its package if not ability_search."""
    package, *names = module.split(".")
    if package != "ability_search":
        return package
    if names[:1] == [CLIENT]:
        return CLIENT
    return names[1] if names[:1] == ["extensions"] and names[1:] else CORE


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


@cache
def all_functions() -> list[tuple[str, Function]]:
    return [named for module, path in FILES.items() for named in functions(tree_of(path), module)]


def parameters(function: Function) -> int:
    """Number of parameters without ``self``."""
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


WALL_CLOCKS = {"monotonic", "perf_counter", "time"}


def clocked(tree: ast.AST, polling: bool = False) -> Iterator[int]:
    """Lines of a test that wait for the clock or assert on it.

    A loop may sleep between two looks at what it waits for; a test of delays has virtual_time.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and not polling and sleeps(node):
            yield node.lineno
        if isinstance(node, ast.Assert) and any(map(is_duration, ast.walk(node.test))):
            yield node.lineno
        function = isinstance(node, Function | ast.Lambda)
        yield from clocked(node, (polling or isinstance(node, ast.While)) and not function)


def sleeps(call: ast.Call) -> bool:
    """Whether a call lets time pass: ``sleep(0)`` does not."""
    name = ast.unparse(call.func)
    if name.endswith("sleep"):
        seconds = call.args
    else:
        named = [each.value for each in call.keywords if each.arg == "timeout"]
        seconds = named if name.endswith(".wait") else []
    return any(not (isinstance(each, ast.Constant) and not each.value) for each in seconds)


def is_duration(node: ast.AST) -> bool:
    """Whether an expression is the time since another one, told by a clock."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub):
        return False
    left = node.left
    clock = isinstance(left, ast.Call) and ast.unparse(left.func).split(".")[-1]
    return clock in WALL_CLOCKS | {"clock", "now"}


def repeated(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_the_port_of_the_store_has_so_many_methods() -> None:
    methods = [name for name, _ in all_functions() if name.startswith("ability_search.store.port.")]
    assert len(methods) == STRUCTURE["port_methods"]


def test_the_core_imports_no_extension_and_an_extension_no_other() -> None:
    """But for what an extension needs by its nature, such as the command line for its commands."""
    reached = {
        (module, home(imported))
        for module in FILES
        for imported in imported_modules(module)
        if imported.startswith("ability_search.extensions.") and home(imported) != home(module)
    }
    needs = {
        (own, need)
        for table in ("needs", "adds_to")
        for own, needed in STRUCTURE[table].items()
        for need in needed
    }
    declared = {(module, other) for module, other in reached if (home(module), other) in needs}
    assert needs == {(home(module), other) for module, other in declared}
    held((f"{module} -> {other}" for module, other in reached - declared), WRONG["imports"])


def test_a_file_has_at_most_600_lines() -> None:
    assert {module for module in FILES if lines_of(module) > 600} == set()


@pytest.mark.slow
def test_no_test_waits_for_the_clock_or_asserts_on_it() -> None:
    files = {path.relative_to(TESTS).as_posix(): path for path in TESTS.rglob("*.py")}
    del files["virtual_time.py"]
    held((name for name, path in files.items() if any(clocked(tree_of(path)))), WRONG["clocks"])


@pytest.mark.parametrize(
    "line",
    [
        *("time.sleep(1)", "for _ in range(3): sleep(pause)", "asyncio.wait([task], timeout=0.3)"),
        *("assert perf_counter() - began < 1", "assert 0.1 < time.time() - began < 0.2"),
    ],
)
def test_a_test_that_waits_for_the_clock_is_found(line: str) -> None:
    assert [*clocked(ast.parse(line))] == [1]


@pytest.mark.parametrize(
    "line",
    [
        *("asyncio.sleep(0)", "while not done(): sleep(0.01)", "asyncio.wait([task], timeout=0)"),
        *("assert monotonic() < deadline", "assert process_time() - began < 1"),
    ],
)
def test_a_test_that_looks_until_something_is_true_is_none(line: str) -> None:
    assert [*clocked(ast.parse(line))] == []


def test_a_file_has_a_name_of_its_own() -> None:
    """Both pipelines are one idea, and so are the plugins and the settings of extensions."""
    stems = {package: [FILES[module].stem for module in within(package)] for package in PACKAGES}
    found = {
        f"{package}: {name}"
        for package in PACKAGES
        for name in repeated(stems[package])
        if name not in ("__init__", "pipeline", "plugin", "settings")
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
        for name, function in all_functions()
    }
    held({name: size for name, size in sizes.items() if size > 60}, WRONG["long_functions"])


def test_a_function_has_at_most_8_parameters() -> None:
    sizes = {name: parameters(function) for name, function in all_functions()}
    held({name: size for name, size in sizes.items() if size > 8}, WRONG["many_parameters"])
