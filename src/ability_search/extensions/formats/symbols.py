"""Source code: cut at functions, classes and methods, which tree-sitter finds.

The grammars are in the optional extra ``code``. Without it, for any other language, and for code
that takes the parser too many steps, code is cut at blank lines before unindented lines.

The parser holds the interpreter lock, and some texts of a few kilobytes take it minutes or
gigabytes of memory. A callback every hundred steps therefore lets other threads run, and stops the
parser after many more steps or reads than real code takes. A long text is parsed in pieces.
"""

from __future__ import annotations

import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ability_search.documents import Passage
from ability_search.text.chunkers import boundaries
from ability_search.text.chunkers.boundaries import Span
from ability_search.text.chunkers.chunk_packing import (
    BLOCK,
    BY_BLANK_LINES,
    GLUE,
    TOP_LEVEL,
    Ruler,
    Unit,
    Unstructured,
    clipped,
    pack,
)
from ability_search.text.loaders.file_types import LANGUAGES

if TYPE_CHECKING:
    from tree_sitter import Node

log = logging.getLogger(__name__)

_PIECE = 1 << 19
"""Approximate number of characters parsed in one call; a piece ends with a top-level block."""
_LONGEST_PIECE = 2 * _PIECE
"""Maximum characters of a piece; a text without a place to cut it is not parsed."""
_INTERRUPTIONS = 3_000
_INTERRUPTIONS_PER_BYTE = 0.01
"""Maximum callbacks up to a byte, per byte, in addition to ``_INTERRUPTIONS``. Real code has one
in 200 bytes, minified code one in 45."""
_READ = 1 << 10
"""Bytes passed to the parser in one read."""
_READS = 10_000
_READS_PER_BYTE = 0.05
"""Maximum reads up to a byte, per byte, in addition to ``_READS``: a step of some grammars reads to
the end of a word. Real code has one in 77 to 500 bytes."""

_GRAMMARS = frozenset(
    {"bash", "c", "cpp", "csharp", "go", "haskell", "java", "javascript", "kotlin", "php", "python"}
    | {"ruby", "rust", "scala", "swift", "tsx", "typescript"}
)
_PACKAGES = {"csharp": "c_sharp", "tsx": "typescript"}
"""Names in packages that are not those of the languages."""
_ENTRIES = {"php": "language_php", "tsx": "language_tsx", "typescript": "language_typescript"}
"""Functions of packages with several grammars."""
_ALIASES = {
    "c#": "csharp",
    "c++": "cpp",
    "cxx": "cpp",
    "golang": "go",
    "shell": "bash",
    "zsh": "bash",
}
"""Other names of languages, beside the suffixes of files."""

_DEFINITION = re.compile(
    r"(?:abstract_)?(?:function|method|class|struct|interface|enum|trait|impl|mod|module|namespace"
    r"|constructor|record|type|generator_function|object|protocol|protocol_function|init|deinit"
    r"|extension|given)_(?:definition|declaration|item)"
    r"|internal_module|class_specifier|struct_specifier|companion_object|secondary_constructor"
    r"|class|module|method|singleton_method"
    r"|instance|data_type|newtype|type_synonym|signature|function|bind|package_object"
)
_EQUATIONS = frozenset({"signature", "function", "bind"})
"""Definitions in Haskell; those of one name that follow each other are one symbol."""
_UNNAMED = {
    "companion_object": "Companion",
    "deinit_declaration": "deinit",
    "init_declaration": "init",
    "secondary_constructor": "constructor",
}
_WRAPPERS = {"decorated_definition": "definition", "export_statement": "declaration"}
_ENDS_IN_DEFINITION = frozenset({"annotated_expression", "template_declaration"})
_ANNOTATED_CLASS = "infix_expression"
"""Below an annotation, the grammar of Kotlin takes ``class`` in ``enum class A`` for an infix
function; likewise after ``annotation`` and ``inner``."""
_NAMESPACES = re.compile(r"namespace_\w+|internal_module|mod_item|module")
_TRANSPARENT = re.compile(
    r"preproc_(?:if|ifdef|else|elif)|linkage_specification|declaration_list|declarations|imports"
)
_ASSIGNMENTS = ("lexical_declaration", "variable_declaration")
_FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "class"})
_DEEPEST = 16
_BEFORE_DEFINITION = frozenset({"attribute_item", "haddock", "pragma"})
_AFTER_DEFINITION = re.compile(r"[ \t]*[;,]")
_AFTER_BLOCK = re.compile(
    r"(?:\r\n?+|\n)[)\]}][^\r\n]*+(?:\r\n?+|\n)[^\S\r\n]*+(?:\r\n?+|\n)(?=\S)"
)
"""Matches to the end of a blank line below an unindented closing bracket, which ends a block."""


def is_code_language(name: str) -> bool:
    """Return whether a language, by name or file suffix, has a grammar here."""
    return _canonical(name) in _GRAMMARS


def chunk_code(ruler: Ruler, language: str | None) -> list[Passage]:
    """Cut source code at its symbols.

    A function or class that fits is one passage, with the comments directly above it; the
    breadcrumb is its path, such as ``Store.read``. A longer class is cut into its head and its
    members, a longer function at blank lines, then lines, words and characters. Code between
    definitions (imports, constants) is packed up to the limit.
    """
    try:
        groups = list(_by_symbol(ruler, language)) if language else _unparsed(ruler)
    except Unstructured as exc:
        log.warning(
            "%d characters of %s are cut at blank lines instead of symbols: %s",
            len(ruler.text),
            language,
            exc,
        )
        groups = _unparsed(ruler)
    return [
        ruler.passage(packed, breadcrumb=".".join(packed.path), language=language)
        for units in groups
        for packed in pack(ruler, units)
    ]


def _canonical(language: str) -> str:
    name = language.lower().lstrip(".")
    return _ALIASES.get(name) or LANGUAGES.get(f".{name}") or name


def _unparsed(ruler: Ruler) -> list[list[Unit]]:
    return [[_loose(0, len(ruler.text), ())]]


def _by_symbol(ruler: Ruler, language: str) -> Iterator[list[Unit]]:
    """Yield groups of units, see :meth:`_Walk.groups`.

    Raises:
        Unstructured: if the parser takes too many steps, or the text cannot be cut into pieces.
    """
    parse = _parser(_canonical(language))
    if parse is None:
        yield from _unparsed(ruler)
        return
    for start, end in _pieces(ruler.text):
        source = ruler.text[start:end].encode("utf-8", "replace")
        walk = _Walk(ruler, source, _offsets(ruler.text, start, end))
        yield from walk.groups(_parsed(parse, source), (start, end), ())


def _pieces(text: str) -> Iterator[Span]:
    """Cut a long text before top-level blocks.

    Raises:
        Unstructured: if a piece would be too long.
    """
    start = 0
    while len(text) - start > _LONGEST_PIECE:
        within = start + _PIECE, start + _LONGEST_PIECE
        found = _AFTER_BLOCK.search(text, *within) or TOP_LEVEL.search(text, *within)
        if found is None:
            raise Unstructured("no blank lines between its blocks")
        yield start, found.end()
        start = found.end()
    yield start, len(text)


def _parsed(parse: Callable[..., Any], source: bytes) -> Node:
    """Return the root of the syntax tree.

    Raises:
        Unstructured: if the parser takes too many steps or reads.
    """
    interruptions = reads = 0

    def read(offset: int, _point: object) -> bytes:
        nonlocal reads
        reads += 1
        return source[offset : offset + _READ]

    def is_stuck(offset: int, _has_error: bool) -> bool:
        # A Python callback also lets other threads run.
        nonlocal interruptions
        interruptions += 1
        return (
            interruptions > _INTERRUPTIONS + _INTERRUPTIONS_PER_BYTE * offset
            or reads > _READS + _READS_PER_BYTE * offset
        )

    try:
        root: Node = parse(read, progress_callback=is_stuck).root_node
    except ValueError as exc:
        raise Unstructured("its parser takes too many steps or reads") from exc
    return root


@functools.cache
def _parser(language: str) -> Callable[..., Any] | None:
    """Return the parse function of a language; ``None`` without an installed grammar."""
    if language not in _GRAMMARS:
        return None
    module = f"tree_sitter_{_PACKAGES.get(language, language)}"
    entry = _ENTRIES.get(language, "language")
    try:
        grammar = getattr(importlib.import_module(module), entry)()
        tree_sitter = importlib.import_module("tree_sitter")
    except ImportError:
        return None
    loaded = tree_sitter.Language(grammar)
    # A parser must not be shared between threads; creating one takes microseconds.
    return lambda *source, **options: tree_sitter.Parser(loaded).parse(*source, **options)


class _Walk:
    """A walk through the syntax tree of one text.

    Args:
        ruler: Has the text.
        source: The parsed part of it, in UTF-8.
        offsets: Converts an offset in ``source`` to an offset in the text.
    """

    def __init__(self, ruler: Ruler, source: bytes, offsets: Callable[[int], int]) -> None:
        self._ruler = ruler
        self._text = ruler.text
        self._source = source
        self._offsets = offsets

    def groups(self, container: Node, span: Span, path: tuple[str, ...]) -> list[list[Unit]]:
        """Return groups of units that cover ``span``; units of one group may share a passage."""
        groups: list[list[Unit]] = []
        done, end = span
        children = list(_children(container))
        first: int | None = None
        for index, node in enumerate(children):
            definition = _definition(node)
            if definition is None:
                continue
            start = self._with_comments(children, index, done) if first is None else first
            if self._is_continued(children, index):
                first = start
                continue
            first = None
            stop = self._to_line_end(children, index, end)
            groups += self._between(done, start, path)
            groups += self._define(definition, (start, stop), path)
            done = stop
        tail = self._between(done, end, path)
        if tail and groups and not any(map(str.isalnum, self._text[done:end])):
            # A passage of closing brackets alone would be useless.
            unit = tail[0][0]
            groups[-1].append(unit._replace(rank=GLUE, path=groups[-1][-1].path))
            return groups
        return groups + tail

    def _is_continued(self, children: Sequence[Node], index: int) -> bool:
        """Return whether the next statement is another equation of the same function."""
        pair = children[index : index + 2]
        if len(pair) < 2 or not all(each.type in _EQUATIONS for each in pair):
            return False
        return self._name(pair[0]) == self._name(pair[1]) != ""

    def _define(self, node: Node, span: Span, path: tuple[str, ...]) -> list[list[Unit]]:
        name = self._name(node)
        inner = (*path, name) if name else path
        start, end = boundaries.trim_lines(self._text, *span)
        body = _body(node)
        whole = self._ruler.fits(start, end) and not _NAMESPACES.fullmatch(node.type)
        if whole or body is None or len(path) >= _DEEPEST:
            return [[_loose(start, end, inner)]]
        return self.groups(body, (start, end), inner)

    def _name(self, node: Node) -> str:
        """Return the name in a definition as written; empty if it has none."""
        named = _naming(node)
        if named is None:
            return _UNNAMED.get(node.type, "")
        # The type that a method of Go belongs to.
        receiver = node.child_by_field_name("receiver")
        while receiver is not None and receiver.type != "type_identifier":
            deeper = receiver.child_by_field_name("type")
            receiver = deeper or (receiver.named_child(0) if receiver.named_child_count else None)
        names = (named,) if receiver is None else (receiver, named)
        written = b".".join(self._source[each.start_byte : each.end_byte] for each in names)
        return clipped(" ".join(written.decode("utf-8", "replace").split()))

    def _between(self, start: int, end: int, path: tuple[str, ...]) -> list[list[Unit]]:
        first, last = boundaries.trim_lines(self._text, start, end)
        return [[_loose(first, last, path)]] if first < last else []

    def _with_comments(self, children: Sequence[Node], index: int, floor: int) -> int:
        """Return the start of a definition with the comments directly above it."""
        start = self._offsets(children[index].start_byte)
        while index > 0 and _is_comment(children[index - 1]):
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
        """Return the end of a definition with the rest of its last line, up to the next symbol."""
        end = self._offsets(children[index].end_byte)
        mark = _AFTER_DEFINITION.match(self._text, end, limit)
        end = mark.end() if mark else end
        index += 1
        while index < len(children) and _is_comment(children[index]):
            index += 1
        bound = self._offsets(children[index].start_byte) if index < len(children) else limit
        newline = self._text.find("\n", end, bound)
        if newline >= 0:
            return newline
        return end if bound < limit else limit


def _loose(start: int, end: int, path: tuple[str, ...]) -> Unit:
    return Unit(start, end, BLOCK, BY_BLANK_LINES, path)


def _children(container: Node) -> Iterator[Node]:
    """Yield the statements of a container, including those in conditional compilation."""
    cursor = container.walk()
    depth = 0
    more = cursor.goto_first_child()
    while more and (node := cursor.node) is not None:
        if _TRANSPARENT.fullmatch(node.type) and cursor.goto_first_child():
            depth += 1
            continue
        if node.is_named:
            alone = node.type == "expression_statement" and node.named_child_count == 1
            yield (node.named_child(0) if alone else None) or node
        more = cursor.goto_next_sibling()
        while not more and depth:
            cursor.goto_parent()
            depth -= 1
            more = cursor.goto_next_sibling()


def _definition(node: Node) -> Node | None:
    """Return the definition that a statement is or contains; ``None`` if there is none."""
    inner: Node | None = node
    if node.type in _WRAPPERS:
        inner = node.child_by_field_name(_WRAPPERS[node.type])
    while inner is not None and inner.type in _ENDS_IN_DEFINITION:
        inner = inner.named_child(inner.named_child_count - 1)
    if inner is None:
        return None
    if inner.type == _ANNOTATED_CLASS and inner is not node:
        return inner
    if inner.type in _ASSIGNMENTS:
        value = _field_of_first(inner, "value")
        return inner if value is not None and value.type in _FUNCTION_VALUES else None
    return inner if _DEFINITION.fullmatch(inner.type) else None


def _field_of_first(node: Node, field: str) -> Node | None:
    first = node.named_child(0)
    return first.child_by_field_name(field) if first is not None else None


def _is_comment(node: Node) -> bool:
    return "comment" in node.type or node.type in _BEFORE_DEFINITION


def _body(node: Node) -> Node | None:
    """Return the node of the members in a definition; ``None`` if there is none."""
    body = node.child_by_field_name("body") or node.child_by_field_name("declarations")
    return body or next((each for each in node.children if each.type.endswith("class_body")), None)


def _naming(node: Node) -> Node | None:
    """Return the node of the name in a definition; ``None`` if it has no name."""
    if node.type in _ASSIGNMENTS or node.type == "type_declaration":
        return _field_of_first(node, "name")
    if node.type == "impl_item":
        return node.child_by_field_name("type")
    if node.type == _ANNOTATED_CLASS:
        last = node.named_child(node.named_child_count - 1)
        return last if last is None or last.type == "identifier" else last.named_child(0)
    named = node.child_by_field_name("name")
    declarator = node.child_by_field_name("declarator")
    while named is None and declarator is not None:
        deeper = declarator.child_by_field_name("declarator")
        named, declarator = (declarator, None) if deeper is None else (None, deeper)
    return named


def _offsets(text: str, start: int, end: int) -> Callable[[int], int]:
    """Return a function from offsets in ``text[start:end]`` as UTF-8 to offsets in ``text``."""
    piece = text[start:end]
    if piece.isascii():
        return lambda byte: start + byte
    codes = np.frombuffer(piece.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    # A lone surrogate was encoded as one question mark.
    lone = (codes >= 0xD800) & (codes < 0xE000)
    widths = 1 + (codes >= 0x80) + ((codes >= 0x800) & ~lone) + (codes >= 0x10000) - lone
    ends = np.cumsum(widths)
    return lambda byte: start + int(np.searchsorted(ends, byte, side="right"))
