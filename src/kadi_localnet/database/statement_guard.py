"""Checks statements before the embedded engine runs them.

The engine's own parser parses a statement, and every part of the tree must be on the allowlist,
including nested statements, subqueries and blocks of scripts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any

import jpype

from kadi_localnet.database import allowlist
from kadi_localnet.database.backend import DatabaseError, Statement

log = logging.getLogger(__name__)

_CACHED = 1024
_LONGEST_CACHED = 16 * 1024

_WHY = (
    "statements may use the records and types of their database, but no files, addresses,"
    " settings, code or other databases"
)
_WORD = re.compile(r"[A-Z][a-z]+")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_KEY = re.compile(r"\w+", re.ASCII)
_CLASS = re.compile(re.escape(allowlist.ANALYZERS) + r"[\w.]+", re.ASCII)
_QUOTED = re.compile(r"'[^'\"\\`]*'|\"[^'\"\\`]*\"")
_QUOTE = re.compile(r"['\"\\`]")
_SEPARATOR = re.compile(r"[/\\\0]")
_CONTEXT = "StmtContext"
_GENERATED = re.compile(r"(?<=_)[0-9a-f]{12,}\b")
"""End of a name that a program made up. No function, method, setting or class that a decision
depends on ends so, and one such word stands for all."""


def confine(name: str, database: Any) -> None:
    """Restrict a newly opened database that may have been used without a guard.

    Triggers and functions are kept, as they may be needed, and logged, because their code is not
    checked.
    """
    schema = database.getSchema()
    triggers = [str(trigger.getName()) for trigger in schema.getTriggers()]
    libraries = [str(library.getName()) for library in schema.getFunctionLibraries()]
    if triggers or libraries:
        log.warning(
            "%s has triggers (%s) or functions (%s), whose code is not checked",
            name,
            ", ".join(triggers) or "none",
            ", ".join(libraries) or "none",
        )


class StatementGuard:
    """Refuses statements that reach beyond their database; thread-safe.

    The JVM must be running. Decisions are cached by the text of the statement, in which all names
    that a program made up are the same.
    """

    def __init__(self) -> None:
        self._grammar = _Grammar()
        self._cached = lru_cache(_CACHED)(self._objection)

    def check(self, statement: Statement) -> None:
        """Check a statement.

        Raises:
            DatabaseError: naming the part that is not allowed.
            jpype.JException: the engine's own error if the statement cannot be parsed.
        """
        if len(statement.text) <= _LONGEST_CACHED:
            text = _GENERATED.sub("0", statement.text)
            if self._cached(text, statement.is_script) is None:
                return
        objection = self._objection(statement.text, statement.is_script)
        if objection is not None:
            raise DatabaseError(f"{objection} is not allowed: {_WHY}")

    def _objection(self, text: str, is_script: bool) -> str | None:
        return next(_objections(self._grammar.parse(text, is_script)), None)


statement_guard = cache(StatementGuard)
"""Returns the guard of all engines of this process, which have one grammar."""


class _Tree:
    """A node of a parsed statement; ``rules`` are the numbers of the grammar's rules by name."""

    def __init__(self, node: Any, find: Any, rules: dict[str, int]) -> None:
        self._node = node
        self._find = find
        self._rules = rules

    @property
    def kind(self) -> str:
        """Return the name of the alternative of its rule, without the suffix."""
        return str(self._node.getClass().getSimpleName()).removesuffix(_CONTEXT)

    @property
    def text(self) -> str:
        """Return its tokens, joined without spaces."""
        return str(self._node.getText())

    def all(self, rule: str) -> Iterator[_Tree]:
        """Yield the nodes of a rule of the grammar, itself included."""
        for node in self._find(self._node, self._rules[rule]):
            yield _Tree(node, self._find, self._rules)

    def texts(self) -> list[str]:
        """Return the texts of its children."""
        return [str(self._node.getChild(i).getText()) for i in range(self._node.getChildCount())]


class _Grammar:
    """The engine's parser."""

    def __init__(self) -> None:
        self._engine = jpype.JClass("com.arcadedb.query.sql.antlr.SQLAntlrParser")(None)
        self._lexer = jpype.JClass("com.arcadedb.query.sql.grammar.SQLLexer")
        self._parser = jpype.JClass("com.arcadedb.query.sql.grammar.SQLParser")
        self._characters = jpype.JClass("org.antlr.v4.runtime.CharStreams").fromString
        self._tokens = jpype.JClass("org.antlr.v4.runtime.CommonTokenStream")
        self._bail = jpype.JClass("org.antlr.v4.runtime.BailErrorStrategy")
        self._find = jpype.JClass("org.antlr.v4.runtime.tree.Trees").findAllRuleNodes
        self._rules = {str(name): i for i, name in enumerate(self._parser.ruleNames)}

    def parse(self, text: str, is_script: bool) -> _Tree:
        if is_script:
            # The engine returns no tree, but it limits the depth and has better error texts.
            self._engine.parseScript(text)
            lexer = self._lexer(self._characters(text))
            lexer.removeErrorListeners()
            parser = self._parser(self._tokens(lexer))
            parser.removeErrorListeners()
            parser.setErrorHandler(self._bail())
            tree = parser.parseScript()
        else:
            tree = self._engine.parseWithTree(text).tree()
        return _Tree(tree, self._find, self._rules)


def _objections(tree: _Tree) -> Iterator[str]:
    """Yield descriptions of the parts of a statement that are not allowed."""
    for rule in ("scriptStatement", "statement"):
        for each in tree.all(rule):
            if each.kind not in allowlist.STATEMENTS:
                yield " ".join(_WORD.findall(each.kind)).upper()
    yield from _calls(tree)
    yield from _settings(tree)
    yield from _classes(tree)
    yield from _names(tree)
    yield from _defaults(tree)


def _calls(tree: _Tree) -> Iterator[str]:
    for call in tree.all("functionCall"):
        name = call.texts()[0]
        if _plain(name).lower() not in allowlist.CALLS:
            yield f"the function {name}()"
    for rule in ("methodCall", "modifier", "nestedMatchMethod"):
        for call in tree.all(rule):
            parts = call.texts()
            name = parts[parts.index("(") - 1] if "(" in parts else ""
            if name and _plain(name).lower() not in allowlist.DOTTED_CALLS:
                yield f"the method {name}()"


def _settings(tree: _Tree) -> Iterator[str]:
    for item in tree.all("alterDatabaseItem"):
        name, value = item.texts()
        if _plain(name) not in allowlist.SETTINGS or not _NUMBER.fullmatch(value):
            yield f"ALTER DATABASE {name}"
    for catalogue in tree.all("schemaIdentifier"):
        name = catalogue.text.partition(":")[2].lower()
        if name not in allowlist.CATALOGUES and not name.startswith("index:"):
            yield catalogue.text


def _classes(tree: _Tree) -> Iterator[str]:
    """Yield names that the engine would load as Java classes."""
    for item in tree.all("alterTypeItem"):
        keyword, *given = item.texts()
        if keyword.upper() == "BUCKETSELECTIONSTRATEGY":
            name = _plain(given[0])
            if name.partition("(")[0].lower() not in allowlist.BUCKET_SELECTIONS:
                yield f"BUCKETSELECTIONSTRATEGY {name}"
    for index in tree.all("createIndexBody"):
        for entry in index.all("mapEntry"):
            key, _, value = entry.texts()
            name = _plain(key)
            wrong = name.endswith("analyzer") and not _CLASS.fullmatch(_plain(value))
            if wrong or not _KEY.fullmatch(name):
                yield f"METADATA {key}: {value}"


def _names(tree: _Tree) -> Iterator[str]:
    """Yield names that could be paths, where the engine creates files of that name."""
    for rule in _CREATING:
        for part in tree.all(rule):
            for name in part.all("identifier"):
                if _SEPARATOR.search(name.text):
                    yield f"the name {name.text}"


_CREATING = (
    "createTypeBody",
    "createEdgeTypeBody",
    "createBucketBody",
    "createPropertyBody",
    "createIndexBody",
    "alterTypeItem",
    "alterPropertyItem",
    "alterBucketItem",
)


def _defaults(tree: _Tree) -> Iterator[str]:
    """Yield defaults of properties that the engine may parse differently after a restart."""
    for rule in ("propertyAttribute", "alterPropertyItem"):
        for attribute in tree.all(rule):
            name, *value = attribute.texts()
            # The engine reads an expression again if it has only simple quoted texts.
            given = "".join(value)
            if _plain(name).lower() == "default" and _QUOTE.search(_QUOTED.sub("", given)):
                yield f"DEFAULT {given}"


def _plain(name: str) -> str:
    """Return an identifier or a text without its quotes."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] and name[0] in "`'\"" else name
