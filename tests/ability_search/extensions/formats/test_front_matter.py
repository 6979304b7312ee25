"""Front matter with malformed lines: the others are read, and the malformed ones are named."""

from typing import Any

import pytest

from ability_search.extensions.formats.front_matter import front_matter_warnings, read_front_matter

GOOD = "tags: [a, b]\naliases:\n  - One\n  - Two\nyear: 2026\n"


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("subject: Foo: bar", "subject", "Foo: bar"),
        ("author: @me", "author", "@me"),
        ("related: [[A]], [[B|C]]", "related", ["[[A]]", "[[B|C]]"]),
        ("share: %5", "share", "%5"),
        ('quote: "a" b', "quote", '"a" b'),
        ("day: 2026-02-31", "day", "2026-02-31"),
        ("open: [a, b", "open", None),
        ("names:\n  - @a\n  - b: c: d", "names", ["@a", "b: c: d"]),
        ("link: *other", "link", None),
        ("stars: *very* good", "stars", "*very* good"),
        ("made by: me: you", "made by", "me: you"),
        ("link: [here](http://a.b)", "link", "[here](http://a.b)"),
        ("made: {{ date }}", "made", "{{ date }}"),
        ("sum: one\n  two: three", "sum", "one two: three"),
        ("names:\n- @a\n-b", "names", ["@a", "b"]),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_malformed_entry_loses_nothing_else(line: Any, key: Any, value: Any, place: Any) -> None:
    parts = [GOOD, "name: N\n"]
    parts.insert(place, f"{line}\n")
    text = f"---\n{''.join(parts)}---\nText"

    found = read_front_matter(text)

    assert found.metadata.get(key) == value
    assert found.metadata["tags"] == ["a", "b"]
    assert found.metadata["aliases"] == ["One", "Two"]
    assert (found.metadata["year"], found.title) == (2026, "N")
    number = text[: text.index(line)].count("\n") + 1
    assert found.malformed == (number,)
    assert f"line {number};" in front_matter_warnings("a.md", text)[0]


def test_malformed_toml_names_its_line() -> None:
    found = read_front_matter('+++\ntags = ["a"]\nauthor = @me\nyear = 2026\n+++\nText')

    assert found.metadata == {"tags": ["a"], "year": 2026}
    assert found.malformed == (3,)


@pytest.mark.parametrize("start", ["\n", "\n  \n", "  ", "\r\n"])
def test_front_matter_may_begin_with_blanks(start: Any) -> None:
    assert read_front_matter(f"---\n{start}tags: [a]\n---\nText").metadata == {"tags": ["a"]}


def test_well_formed_front_matter_has_no_warning() -> None:
    assert front_matter_warnings("a.md", f"---\n{GOOD}---\nText") == []


@pytest.mark.parametrize("body", ["# Title\n> quote", "# Title\n```py", "a: !!timestamp x"])
def test_what_is_no_front_matter_is_text(body: Any) -> None:
    assert read_front_matter(f"---\n{body}\n---\n").end == 0
