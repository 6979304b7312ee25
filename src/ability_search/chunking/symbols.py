"""Source code by symbol: functions, classes and methods as tree-sitter finds them.

The grammars come with the optional extra ``code``. Without it, or for another language, code is cut
at blank lines before unindented ones.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ability_search.chunking import boundaries
from ability_search.chunking.boundaries import Span
from ability_search.chunking.packing import (
    BLOCK,
    GLUE,
    ITEM,
    VERBATIM,
    Cut,
    Passages,
    Ruler,
    Unit,
    pack,
)
from ability_search.documents import Passage

_GRAMMARS = {
    "bash": ("tree_sitter_bash", "language"),
    "c": ("tree_sitter_c", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "csharp": ("tree_sitter_c_sharp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "python": ("tree_sitter_python", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}
_ALIASES = {
    "c#": "csharp",
    "c++": "cpp",
    "cc": "cpp",
    "cjs": "javascript",
    "cs": "csharp",
    "cxx": "cpp",
    "golang": "go",
    "h": "c",
    "hpp": "cpp",
    "js": "javascript",
    "jsx": "javascript",
    "mjs": "javascript",
    "py": "python",
    "pyi": "python",
    "rb": "ruby",
    "rs": "rust",
    "sh": "bash",
    "shell": "bash",
    "ts": "typescript",
    "zsh": "bash",
}

_DEFINITION = re.compile(
    r"(?:abstract_)?(?:function|method|class|struct|interface|enum|trait|impl|mod|module|namespace"
    r"|constructor|record|type|generator_function)_(?:definition|declaration|item)"
    r"|internal_module|class_specifier|struct_specifier"
    r"|class|module|method|singleton_method"
)
_WRAPPERS = {
    "decorated_definition": "definition",
    "export_statement": "declaration",
}
_NAMESPACES = re.compile(r"namespace_\w+|internal_module|mod_item|module")
_TRANSPARENT = re.compile(r"preproc_(?:if|ifdef|else|elif)|linkage_specification|declaration_list")
_ASSIGNMENTS = ("lexical_declaration", "variable_declaration")
_FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "class"})
_DEEPEST = 16
_AFTER_DEFINITION = re.compile(r"[ \t]*[;,]")
_TOP_LEVEL = re.compile(r"(?:\r\n?+|\n)[^\S\r\n]*+(?:\r\n?+|\n)(?=[^\s)\]}])")


class Node(Protocol):
    """What is used of a tree-sitter node."""

    type: str
    start_byte: int
    end_byte: int
    text: bytes
    named_children: Sequence[Node]

    def child_by_field_name(self, name: str, /) -> Node | None:
        """The child in a field of the grammar."""


def is_code_language(name: str) -> bool:
    """Whether this is a language, by name or file suffix, whose symbols can be known."""
    return _canonical(name) in _GRAMMARS


def chunk_code(ruler: Ruler, language: str | None) -> list[Passage]:
    """Cut source code by its symbols.

    A function or class that fits is one passage, with the comments right above it; its breadcrumb
    is its path, as ``Store.read``. A class that does not fit is cut into its head and its members,
    a function that does not fit at its blank lines, then lines, words and signs. What is between
    definitions (imports, constants) is put together up to the limit.
    """
    passages = Passages(ruler.text)
    root = _parse(ruler.text, language) if language else None
    if root is None:
        groups = [[_loose(0, len(ruler.text), ())]]
    else:
        groups = _Walk(ruler).groups(root, (0, len(ruler.text)), ())
    return [
        passages.make(packed, breadcrumb=".".join(packed.path), language=language)
        for units in groups
        for packed in pack(ruler, units)
    ]


def _canonical(language: str) -> str:
    name = language.lower().lstrip(".")
    return _ALIASES.get(name, name)


def _parse(text: str, language: str) -> Node | None:
    parse = _parser(_canonical(language))
    root: Node | None = parse(text.encode("utf-8", "replace")).root_node if parse else None
    return root


@functools.cache
def _parser(language: str) -> Callable[[bytes], Any] | None:
    """The parse function of a language, if its grammar is known and installed."""
    if language not in _GRAMMARS:
        return None
    module, entry = _GRAMMARS[language]
    try:
        grammar = getattr(importlib.import_module(module), entry)()
        tree_sitter = importlib.import_module("tree_sitter")
    except ImportError:
        return None
    loaded = tree_sitter.Language(grammar)
    # A parser is not safe to share between threads, and costs microseconds to make.
    return lambda source: tree_sitter.Parser(loaded).parse(source)


class _Walk:
    """Goes through the syntax tree of one text."""

    def __init__(self, ruler: Ruler) -> None:
        self._ruler = ruler
        self._text = ruler.text
        self._offsets: Callable[[int], int] = _offsets(ruler.text)

    def groups(self, container: Node, span: Span, path: tuple[str, ...]) -> list[list[Unit]]:
        """Units that may share a passage, group by group; together they cover ``span``."""
        groups: list[list[Unit]] = []
        done, end = span
        children = list(_children(container))
        for index, node in enumerate(children):
            definition = _definition(node)
            if definition is None:
                continue
            start = self._with_comments(children, index, done)
            stop = self._to_line_end(children, index, end)
            groups += self._between(done, start, path)
            groups += self._define(definition, (start, stop), path)
            done = stop
        tail = self._between(done, end, path)
        if tail and groups and not any(map(str.isalnum, self._text[done:end])):
            # Closing brackets say nothing by themselves.
            unit = tail[0][0]
            groups[-1].append(unit._replace(rank=GLUE, path=groups[-1][-1].path))
            return groups
        return groups + tail

    def _define(self, node: Node, span: Span, path: tuple[str, ...]) -> list[list[Unit]]:
        name = _name(node)
        inner = (*path, name) if name else path
        start, end = boundaries.trim_lines(self._text, *span)
        body = node.child_by_field_name("body")
        whole = self._ruler.fits(start, end) and not _NAMESPACES.fullmatch(node.type)
        if whole or body is None or len(path) >= _DEEPEST:
            return [[_loose(start, end, inner)]]
        return self.groups(body, (start, end), inner)

    def _between(self, start: int, end: int, path: tuple[str, ...]) -> list[list[Unit]]:
        first, last = boundaries.trim_lines(self._text, start, end)
        return [[_loose(first, last, path)]] if first < last else []

    def _with_comments(self, children: Sequence[Node], index: int, floor: int) -> int:
        """Where a definition begins, with the comments that touch it from above."""
        start = self._offsets(children[index].start_byte)
        while index > 0 and "comment" in children[index - 1].type:
            index -= 1
            gap = self._text[self._offsets(children[index].end_byte) : start]
            begin = self._offsets(children[index].start_byte)
            touches = not gap.strip() and gap.replace("\r\n", "\n").count("\n") <= 1
            line = max(floor, self._text.rfind("\n", floor, begin) + 1)
            if not touches or begin < floor or self._text[line:begin].strip():
                break
            start = begin
        indent = len(self._text[floor:start].rstrip(" \t"))
        return floor + indent

    def _to_line_end(self, children: Sequence[Node], index: int, limit: int) -> int:
        """Where a definition ends, with what else is on its last line unless that is a symbol."""
        end = self._offsets(children[index].end_byte)
        mark = _AFTER_DEFINITION.match(self._text, end, limit)
        end = mark.end() if mark else end
        index += 1
        while index < len(children) and "comment" in children[index].type:
            index += 1
        bound = self._offsets(children[index].start_byte) if index < len(children) else limit
        newline = self._text.find("\n", end, bound)
        if newline >= 0:
            return newline
        return end if bound < limit else limit


def _top_level(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    """What blank lines before an unindented line separate; a closing bracket begins nothing."""
    cuts = [match.end() for match in _TOP_LEVEL.finditer(ruler.text, start, end)]
    for stop in (*cuts, end):
        span = boundaries.trim_lines(ruler.text, start, stop)
        if span[0] < span[1]:
            yield span
        start = stop


def _line_groups(ruler: Ruler, start: int, end: int) -> Iterator[Span]:
    return boundaries.line_groups(ruler.text, start, end)


_BY_BLANK_LINES = (Cut(BLOCK, _top_level), Cut(ITEM, _line_groups), *VERBATIM)


def _loose(start: int, end: int, path: tuple[str, ...]) -> Unit:
    return Unit(start, end, BLOCK, _BY_BLANK_LINES, path)


def _children(container: Node) -> Iterator[Node]:
    """The statements of a container, also those within conditional compilation."""
    for node in container.named_children:
        if _TRANSPARENT.fullmatch(node.type):
            yield from _children(node)
        elif node.type == "expression_statement" and len(node.named_children) == 1:
            yield node.named_children[0]
        else:
            yield node


def _definition(node: Node) -> Node | None:
    """The definition that a statement is or holds."""
    inner: Node | None = node
    if node.type in _WRAPPERS:
        inner = node.child_by_field_name(_WRAPPERS[node.type])
    elif node.type == "template_declaration":
        inner = node.named_children[-1]
    if inner is None:
        return None
    if inner.type in _ASSIGNMENTS:
        value = _field_of_first(inner, "value")
        return inner if value is not None and value.type in _FUNCTION_VALUES else None
    return inner if _DEFINITION.fullmatch(inner.type) else None


def _field_of_first(node: Node, field: str) -> Node | None:
    children = node.named_children
    return children[0].child_by_field_name(field) if children else None


def _name(node: Node) -> str:
    """The name that a definition gives, as it is written; empty if it gives none."""
    if node.type in _ASSIGNMENTS or node.type == "type_declaration":
        named = _field_of_first(node, "name")
    elif node.type == "impl_item":
        named = node.child_by_field_name("type")
    else:
        named = node.child_by_field_name("name")
        declarator = node.child_by_field_name("declarator")
        while named is None and declarator is not None:
            deeper = declarator.child_by_field_name("declarator")
            named, declarator = (declarator, None) if deeper is None else (None, deeper)
    return " ".join(named.text.decode("utf-8", "replace").split()) if named is not None else ""


def _offsets(text: str) -> Callable[[int], int]:
    """Turns offsets into the UTF-8 form of ``text`` into offsets in characters."""
    if text.isascii():
        return int
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    # A lone surrogate has become one question mark.
    lone = (codes >= 0xD800) & (codes < 0xE000)
    widths = 1 + (codes >= 0x80) + ((codes >= 0x800) & ~lone) + (codes >= 0x10000) - lone
    ends = np.cumsum(widths)
    return lambda byte: int(np.searchsorted(ends, byte, side="right"))
