"""No regular expression of the source takes time that grows faster than the text it reads.

Every pattern of every module is run against pumped strings derived from it, the way the source
runs it: as a search where it is searched for, anchored where it is matched.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from math import inf
from types import FrameType, ModuleType
from typing import Any

import pytest
from tests.examples import examples
from tests.pumping import Attack, attacks

import ability_search
import kadi_client
import kadi_localnet
from ability_search.filters.wildcards import glob_regex, like_regex, substring_regex

_PACKAGES = (ability_search, kadi_client, kadi_localnet)
_MOST = examples(300)
"""Attacks on one pattern."""
_PARTS = 3
"""Tests that the patterns are spread over, so that each keeps the time limit beside others."""
_SCREENED = 1_000
"""Characters of the text by which the slowest attacks are found."""
_COMPARED = 5
"""Attacks whose growth is measured."""
_SMALL = 2_000
"""Characters of the text that is compared with one four times as long."""
_NOISE_S = 0.0004
"""What a pattern may take for the small text without being run on the long one."""
_GROWTH = 8.0
"""Four times the text may take this many times the time; quadratic is 16."""
_INTERRUPTED_S = 0.5
"""Processor time; texts this short take milliseconds."""
_METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub")
_ANY_METHOD = ("finditer", "match", "fullmatch")
"""For a pattern whose methods are called by another name, as that of a loop."""


@dataclass(frozen=True, slots=True)
class Use:
    """One pattern of the source and a method that the source calls on it."""

    place: str
    pattern: re.Pattern[Any]
    method: str

    def __str__(self) -> str:
        return f"{self.place} {self.method} {self.pattern.pattern[:60]!r}"


def _modules() -> Iterator[ModuleType]:
    for package in _PACKAGES:
        yield package
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def _held(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    """Yield the patterns that a global is or holds."""
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, Mapping):
        for inner in value.values():
            yield from _held(inner, depth - 1)
    elif depth and isinstance(value, Sequence | set | frozenset) and not isinstance(value, str):
        for inner in value:
            yield from _held(inner, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _held(getattr(value, each.name, None), depth - 1)


@cache
def _uses() -> list[Use]:
    """Return every pattern of the source once with every method that it is used with."""
    found: dict[tuple[re.Pattern[Any], str], Use] = {}
    modules = {module.__name__: module for module in _modules()}
    trees = {name: ast.parse(inspect.getsource(module)) for name, module in modules.items()}
    for name, module in modules.items():
        own = _methods(trees[name])
        for attribute, value in vars(module).items():
            for pattern in dict.fromkeys(_held(value)):
                for method in own.get(attribute) or _ANY_METHOD:
                    found.setdefault((pattern, method), Use(f"{name}:{attribute}", pattern, method))
        for call, method in _inline(trees[name]):
            pattern = _evaluated(call, module)
            found.setdefault((pattern, method), Use(f"{name}:{call.lineno}", pattern, method))
    return list(found.values())


def _methods(tree: ast.Module) -> dict[str, set[str]]:
    """Return which methods of a pattern are called on each name of a module."""
    called: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.attr in _METHODS
        ):
            called.setdefault(node.value.id, set()).add(node.attr)
    return called


def _inline(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls of functions of ``re`` other than ``compile``."""
    for node in ast.walk(tree):
        function = node.func if isinstance(node, ast.Call) else None
        if (
            isinstance(node, ast.Call)
            and isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "re"
            and function.attr in _METHODS
        ):
            yield node, function.attr


def _evaluated(call: ast.Call, module: ModuleType) -> re.Pattern[Any]:
    code = compile(ast.Expression(call.args[0]), module.__name__, "eval")
    return re.compile(eval(code, vars(module)))


class _Interrupted(Exception):
    pass


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise _Interrupted


def _seconds(use: Use, attack: Attack, size: int, *, runs: int) -> float:
    """Return the least time that one run takes; infinity if it has to be interrupted."""
    text: Any = attack.text(size)
    if isinstance(use.pattern.pattern, bytes):
        text = text.encode("latin1", "replace")
    method = getattr(use.pattern, use.method)
    arguments = (text[:0], text) if use.method == "sub" else (text,)
    least = inf
    for _ in range(runs):
        signal.setitimer(signal.ITIMER_PROF, _INTERRUPTED_S)
        try:
            began = time.thread_time()
            result = method(*arguments)
            if use.method == "finditer":
                for _match in result:
                    pass
            least = min(least, time.thread_time() - began)
        except _Interrupted:
            return least
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    return least


def _worst(use: Use) -> tuple[float, Attack | None]:
    """Return the highest growth among the slowest attacks; infinity for one without end."""
    timed: list[tuple[float, Attack]] = []
    for attack in attacks(use.pattern, most=_MOST):
        seconds = _seconds(use, attack, _SCREENED, runs=1)
        if seconds == inf:
            return inf, attack
        timed.append((seconds, attack))
    timed.sort(key=lambda each: each[0], reverse=True)
    worst: tuple[float, Attack | None] = (0.0, None)
    for _, attack in timed[:_COMPARED]:
        worst = max(worst, (_growth(use, attack), attack), key=lambda each: each[0])
        if worst[0] > _GROWTH:
            break
    return worst


def _growth(use: Use, attack: Attack) -> float:
    """Return how many times the time four times the text takes; 0 where it takes next to none."""
    small = _seconds(use, attack, _SMALL, runs=3)
    if small < _NOISE_S:
        return 0.0
    return inf if small == inf else _seconds(use, attack, 4 * _SMALL, runs=2) / small


@pytest.fixture
def interruptible() -> Iterator[None]:
    before = signal.signal(signal.SIGPROF, _interrupt)
    yield
    signal.signal(signal.SIGPROF, before)


def _built() -> list[Use]:
    """Return patterns that functions write, of texts that come over the network."""
    written = (
        glob_regex("**/src/*/[a-z]*_test.p?")[0],
        glob_regex("docs/**/a*a*a*a/**.md")[0],
        like_regex("%a%b_a%a%_b%")[0],
        substring_regex("straße aaab"),
    )
    return [
        Use("ability_search.filters.predicate", re.compile(regex), "fullmatch") for regex in written
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("part", range(_PARTS))
def test_no_pattern_takes_time_that_grows_faster_than_the_text(part: int) -> None:
    uses = [*_uses(), *_built()]
    assert len(uses) > 200
    found = [(use, *_worst(use)) for use in uses[part::_PARTS]]

    superlinear = [
        f"{use}: {growth:.0f} times the time for four times the text, with {attack}"
        for use, growth, attack in found
        if growth > _GROWTH
    ]

    assert superlinear == []


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("regex", "method"),
    [
        (r"(?:a+)+b", "match"),
        (r"\s+$", "search"),
        (r"x\s*,?\s*y", "fullmatch"),
        (r'"[^"\\]*(?:\\.[^"\\]*)*"', "finditer"),
        (r"<!--.*?-->", "finditer"),
        (r"(?<=\S)(?:\s+-[a-z]{3,})+$", "search"),
        (r"[\w.]+\Z", "search"),
    ],
)
def test_a_pattern_that_backtracks_is_found(regex: str, method: str) -> None:
    growth, _ = _worst(Use("here", re.compile(regex, re.DOTALL), method))

    assert growth > _GROWTH
