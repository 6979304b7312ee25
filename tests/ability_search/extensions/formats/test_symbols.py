"""Source code cut at its symbols."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.documents import Passage
from ability_search.extensions.formats import symbols
from ability_search.extensions.formats import symbols as symbols_module
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import EstimatedTokens

PYTHON = '''"""Module über alles 👩‍💻."""

import os
import sys

LIMIT = 3

# Opens the store.
# In two lines.
@cached
def open_store(path: Any) -> None:
    return path


class Store:
    """Keeps things."""

    size = 0

    def read(self, key):
        value = self.data[key]
        return value

    async def write(self, key, value):
        self.data[key] = value


if __name__ == "__main__":
    open_store(sys.argv[1])
'''


def cut(text: str, language: str | None, max_tokens: int = 500) -> list[Passage]:
    passages = chunk(text, format="code", language=language, max_tokens=max_tokens)
    assert_sound(text, passages, EstimatedTokens(), max_tokens)
    assert {each.language for each in passages} <= {language}
    return passages


def test_functions_and_classes_are_passages_with_their_comments() -> None:
    passages = cut(PYTHON, "python")
    assert [each.breadcrumb for each in passages] == ["", "open_store", "Store", ""]
    assert passages[1].content.startswith("# Opens the store.")
    assert passages[1].content.endswith("return path")
    assert passages[0].content.endswith("LIMIT = 3")


def test_a_long_class_is_cut_into_head_and_members() -> None:
    passages = cut(PYTHON, "python", 35)
    names = [each.breadcrumb for each in passages]
    assert names.index("Store") < names.index("Store.read") < names.index("Store.write")
    read = passages[names.index("Store.read")]
    assert read.content.startswith("    def read")


def test_a_long_function_is_cut_between_lines() -> None:
    body = "\n".join(f"    value_{n} = compute({n})" for n in range(60))
    passages = cut(f"def f():\n{body}\n", "python", 100)
    assert {each.breadcrumb for each in passages} == {"f"}
    assert all(each.content.endswith(")") for each in passages)


@pytest.mark.parametrize(
    ("language", "text", "names"),
    [
        ("js", "export class A {\n m() {}\n}\n\nconst f = () => {\n};\nfunction g() {}\n", "A f g"),
        ("ts", "namespace N {\n export interface I { a: string }\n class C {}\n}\n", "N N.I N.C"),
        ("tsx", "function App() { return <b/>; }\n", "App"),
        ("go", "package a\n\ntype S struct { x int }\n\nfunc (s *S) M() {}\n", "- S S.M"),
        ("go", "func (List[T, U]) Add() {}\nfunc (m *Map[K]) Get() {}\n", "List.Add Map.Get"),
        ("rust", "use a;\n\nimpl T for S {\n fn x() {}\n}\n\n/// Doc.\npub fn y() {}\n", "- S y"),
        ("java", "import a;\n\nclass A {\n int m() { return 1; }\n}\n", "- A"),
        ("c", "#ifndef H\n#define H\nstatic int *f(int a) { return 0; }\n#endif\n", "- f -"),
        ("c++", "void A::g() {}\n\ntemplate<class T> class B { };\n", "A::g B"),
        ("c#", "namespace N {\n class A { int M() { return 1; } }\n}\n", "N N.A"),
        ("ruby", "class A < B\n def m\n end\nend\n", "A"),
        ("php", "<?php\nclass A { function m() {} }\nfunction f() {}\n", "- A f"),
        (
            "kt",
            "import a\n\n/** Doc. */\nclass A {\n}\nfun String.b() = 1\nobject C {\n}\n",
            "- A b C",
        ),
        ("kt", "@X(1)\n@Y\nannotation class A\n\n@X\nenum class B { C }\n@X\nclass D\n", "A B D"),
        ("swift", "struct A { }\nprotocol B { }\nextension A { }\nfunc f() {}\n", "A B A f"),
        (
            "scala",
            "import a.b\n\nobject A { }\ntrait B\nenum C { case D }\ndef f = 1\n",
            "- A B C f",
        ),
        ("scala", "package object a {\n  type B = Int\n}\n\nclass C\n", "a C"),
        ("hs", "module M where\ndata A = B\nclass C a where\n  m :: a\ntype D = A\n", "- A C D"),
        ("bash", "set -e\nfoo() {\n echo\n}\n", "- foo"),
    ],
)
def test_symbols_of_all_languages_are_found(language: str, text: str, names: str) -> None:
    assert [each.breadcrumb or "-" for each in cut(text, language)] == names.split()


def test_equations_of_a_function_in_haskell_stay_together() -> None:
    text = "-- | Adds.\nadd :: Int -> Int\nadd 0 = 1\nadd n = n\nmain = print 1\n"
    passages = cut(text, "haskell")
    assert [each.breadcrumb for each in passages] == ["add", "main"]
    assert passages[0].content == text[: text.index("\nmain")]


@pytest.mark.parametrize(
    ("language", "head", "member", "names"),
    [
        ("kotlin", "class A {", "    fun m{}(): Int {{\n        return {}\n    }}", "A.m0"),
        ("kotlin", "class A {\n    companion object {", "        fun m{}() = {}", "A.Companion"),
        ("swift", "extension A {", "    init(a{}: Int) {{ self.a = {} }}", "A.init"),
        ("scala", "object A {", "  def m{}: Int = {{\n    {}\n  }}", "A.m0"),
        ("haskell", "instance A B where", "  m{} a =\n    {}", "A.m0"),
    ],
)
def test_members_of_a_long_type_are_passages(
    language: str, head: str, member: str, names: str
) -> None:
    members = "\n\n".join(member.format(n, n) for n in range(12))
    ends = "\n}" * head.count("{")
    passages = cut(f"{head}\n{members}{ends}\n", language, 60 if "companion" in head else 24)
    assert names in [each.breadcrumb for each in passages]
    assert len(passages) > 2


def test_a_comment_at_the_end_of_a_line_stays_with_the_line() -> None:
    first, second = cut("limit = 3  # as agreed\ndef f(): pass  # short\n", "python")
    assert (first.content, second.content) == ("limit = 3  # as agreed", "def f(): pass  # short")


def test_closing_brackets_belong_to_the_last_member() -> None:
    members = "\n\n".join(f"  int method{n}() {{\n    return {n};\n  }}" for n in range(12))
    passages = cut(f"class A {{\n{members}\n}}\n", "java", 40)
    assert passages[-1].breadcrumb == "A.method11"
    assert passages[-1].content.endswith("}\n}")


@pytest.mark.parametrize("language", [None, "cobol", "python"])
def test_without_a_grammar_code_is_cut_before_unindented_lines(
    language: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(symbols_module._PACKAGES, "python", "absent")
    symbols_module._parser.cache_clear()
    try:
        functions = [f"def f{n}():\n    a = {n}\n\n    return a" for n in range(20)]
        passages = cut("\n\n\n".join(functions) + "\n", language, 40)
    finally:
        symbols_module._parser.cache_clear()
    assert len(passages) > 5
    for passage in passages:
        assert passage.content.startswith("def f")
        assert passage.content.endswith("return a")


def test_broken_code_is_chunked_completely() -> None:
    cut(PYTHON[:-30] + "\n\ndef (((:\n  class \ud800\x00\n", "python", 20)


@pytest.mark.parametrize(
    ("language", "repeated"),
    [
        ("python", "<!--" * 12_000),
        ("ruby", "<!--" * 12_000),
        # Few steps, each of which reads to the end of the word.
        ("bash", "a?" * 40_000),
    ],
)
def test_code_with_too_many_parser_steps_is_cut_at_blank_lines(
    language: str, repeated: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = "def f():\n    pass\n\n" + repeated
    began = time.thread_time()
    with caplog.at_level(logging.WARNING):
        passages = chunk(text, format="code", language=language)

    assert time.thread_time() - began < 5
    assert_sound(text, passages, EstimatedTokens(), 500)
    assert "its parser takes too many steps" in caplog.text


def test_long_code_is_parsed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(symbols, "_PIECE", 200)
    monkeypatch.setattr(symbols, "_LONGEST_PIECE", 400)
    text = "".join(f"def größe_{n}():\n    a = {n}\n\n    return a\n\n\n" for n in range(100))

    passages = chunk(text, format="py", max_tokens=30)

    assert [each.breadcrumb for each in passages] == [f"größe_{n}" for n in range(100)]
    assert_sound(text, passages, EstimatedTokens(), 30)


def test_deeply_nested_conditional_compilation_is_cut() -> None:
    text = "#if X\n" * 3_000 + "int f(void) { return 1; }\n" + "#endif\n" * 3_000

    assert_sound(text, chunk(text, format="c"), EstimatedTokens(), 500)


@pytest.mark.parametrize(
    ("language", "before", "above", "item"),
    [
        ("rust", "use a;", "/// Doc.\n#[derive(Debug)]\n#[cfg(test)]", "pub struct A {}"),
        ("rust", "use a;", "#[inline]\n/// Doc.", "fn a() {}"),
        ("haskell", "module M where\n\nimport A", "-- | Doc.\n-- More.", "a :: Int\na = 1"),
        ("haskell", "b = 2", "-- | Doc.\n{-# INLINE a #-}", "a :: Int\na = 1"),
        ("csharp", "using A;", "/// Doc.\n[Obsolete]", "class A {}"),
        ("java", "import a;", "/** Doc. */\n@A", "class A {}"),
        ("kotlin", "import a", "/** Doc. */\n@A", "fun a() {}"),
        ("php", "<?php\n$b = 1;", "/** Doc. */\n#[A]", "function a() {}"),
        ("python", "import b", "# Doc.\n@b", "def a():\n    pass"),
        ("scala", "import a", "/** Doc. */\n@b", "def a = 1"),
        ("swift", "import B", "/// Doc.\n@objc", "func a() {}"),
        ("typescript", "b();", "/** Doc. */\n@b", "export class A {}"),
    ],
)
def test_documentation_and_attributes_stay_with_their_item(
    language: Any, before: Any, above: Any, item: Any
) -> None:
    text = f"{before}\n\n{above}\n{item}\n"

    contents = [each.content for each in chunk(text, format="code", language=language)]

    assert f"{above}\n{item}" in contents
