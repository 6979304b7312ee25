"""Texts for people read as plain technical English; a word list keeps the worst out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from tests.syntax_trees import tree_of

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

ODD = re.compile(
    r"\b(is|are) told\b|\bwho offers\b|\ball that is\b|\bgoes by words\b|\bgone on with\b"
    r"|\bnobody does\b|\bis no object\b"
    r"|\bgo(es)? by\b|\bat hand\b|\bfor sure\b|\bfor ever\b|\bsmall letters?\b|\bsign by sign\b"
    r"|\bfrom the outermost in\b|\bmakes? nothing of\b|\bparted by\b|\bleft to them\b"
    r"|\bis looked at\b|\bseldom seen\b|\bcosts? (itself|the file) only\b|\bgives none\b"
    r"|\bas somebody wants\b|\bis no (text|prose|notebook|tokenizer) (that|and)\b",
    re.IGNORECASE,
)
NOUN_PHRASE = re.compile(
    r"(Whether|The|A|An|All|Every|Each|One|Whole|Pieces|Those|This|That|Of|For|If|Why|Texts?|Rows?|Numbers?|Names)\b"
)
ODD_NAME = re.compile(
    r"_*(told|tell|beside|look|settled|mending|mended|anew|\w*aspects?|aspects?_\w+)", re.IGNORECASE
)
NO_SUMMARY = re.compile(r"(What|Who|How|Which|Where)\b(?!.*\?)")
"""First words of a question in place of a summary."""


def texts_of(path: Path) -> list[tuple[int, str]]:
    """Every string of a module with its line, docstrings included."""
    return [
        (node.lineno, node.value)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_no_text_of_the_source_has_an_odd_phrase() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path in SOURCES
        for line, text in texts_of(path)
        for match in ODD.finditer(text)
    ]
    assert found == []


def names_of(path: Path) -> list[tuple[int, str]]:
    """Every name that a module defines, with its line."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.append((node.lineno, node.name))
            case ast.arg():
                found.append((node.lineno, node.arg))
            case ast.Name(ctx=ast.Store()):
                found.append((node.lineno, node.id))
            case ast.Attribute(ctx=ast.Store()):
                found.append((node.lineno, node.attr))
            case _:
                pass
    return found


def test_no_name_of_the_source_is_an_odd_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in SOURCES
        for line, name in names_of(path)
        if ODD_NAME.fullmatch(name)
    ]
    assert found == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_an_odd_phrase(page: Path) -> None:
    assert not [match[0] for match in ODD.finditer(page.read_text(encoding="utf-8"))]


def docstrings_of(path: Path) -> list[tuple[int, str]]:
    """Every docstring with its line: of the module, its classes, functions and attributes."""
    return [
        (statement.lineno, statement.value.value)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in node.body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ]


def test_a_docstring_is_a_statement() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in SOURCES
        for line, text in docstrings_of(path)
        if NO_SUMMARY.match(text)
    ]
    assert found == []


def test_the_summary_of_a_function_begins_with_a_verb() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path in SOURCES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and not any(isinstance(each, ast.Name) for each in node.decorator_list)
        and NOUN_PHRASE.match(ast.get_docstring(node) or "")
    ]
    assert found == []
