"""Markdown cut at headings and at fences."""

from __future__ import annotations

import pytest
from tests.ability_search.text.chunkers.invariants import assert_sound

from ability_search.documents import Passage
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.token_counter import TokenCounter


def headers(text: str, max_tokens: int = 500) -> list[Passage]:
    return chunk(text, strategy="markdown-headers", max_tokens=max_tokens)


def test_breadcrumbs_have_the_headings_outermost_first() -> None:
    text = "# Guide\n\nintro\n\n## Install\n\nrun it\n\n### Linux\n\napt\n\n## Use\n\ncall it\n"
    assert [(each.breadcrumb, each.start_line, each.end_line) for each in headers(text)] == [
        ("Guide", 1, 3),
        ("Guide > Install", 5, 7),
        ("Guide > Install > Linux", 9, 11),
        ("Guide > Use", 13, 15),
    ]


def test_setext_headings_and_skipped_levels_count() -> None:
    text = "Title\n=====\n\na\n\n#### Deep\n\nb\n\nSecond\n------\n\nc\n"
    assert [each.breadcrumb for each in headers(text)] == [
        "Title",
        "Title > Deep",
        "Title > Second",
    ]


def test_a_heading_is_plain_text() -> None:
    text = "# The `run` *method* of [it][x] &amp; ![more](y.png) #\n\ntext\n\n[x]: http://z.org\n"
    assert headers(text)[0].breadcrumb == "The run method of it & more"


def test_text_before_the_first_heading_has_no_breadcrumb() -> None:
    assert [each.breadcrumb for each in headers("intro\n\n# A\n\ntext")] == ["", "A"]


def test_a_heading_without_text_shares_the_passage_of_its_first_child() -> None:
    (passage,) = headers("# A\n\n## B\n\ntext")
    assert passage.breadcrumb == "A > B"
    assert passage.content.startswith("# A")


def test_a_heading_without_text_and_children_is_a_passage() -> None:
    passages = headers("## A\n\n## B\n\ntext")
    assert [(each.breadcrumb, each.content) for each in passages] == [
        ("A", "## A"),
        ("B", "## B\n\ntext"),
    ]


@pytest.mark.parametrize(
    "fence",
    [
        "```sh\n# no heading\n```",
        "~~~\n# no heading\n```\n# nor this\n~~~",
        "````md\n```\n# no heading\n```\n````",
        "```\n# no heading, and the fence is never closed",
        "   ```\n   # no heading\n   ```",
        "- item\n\n  ```\n# outside of the item's fence only if unindented\n",
    ],
)
def test_a_number_sign_in_a_fence_is_not_a_heading(fence: str) -> None:
    breadcrumbs = [each.breadcrumb for each in headers(f"# A\n\n{fence}")]
    expected = ["A", "outside of the item's fence only if unindented"]
    assert breadcrumbs == (expected if "item" in fence else ["A"])


def test_headings_in_quotations_and_lists_do_not_begin_sections() -> None:
    assert [each.breadcrumb for each in headers("# A\n\n> # quoted\n\n- # listed\n")] == ["A"]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("strategy", ["auto", "markdown-headers", "paragraph", "sliding-window"])
def test_front_matter_is_in_no_passage(newline: str, mark: str, strategy: str) -> None:
    text = mark + newline.join(["---", "title: x # y", "---", "# A", "", "text"])
    (passage,) = chunk(text, format="markdown", strategy=strategy)
    assert passage.content == text[text.index("# A") :]
    assert (passage.start, passage.end) == (text.index("# A"), len(text))
    assert (passage.start_line, passage.end_line) == (4, 6)


def test_the_first_passage_begins_with_the_description_of_the_front_matter(
    counter: TokenCounter,
) -> None:
    body = "# A\n\n" + "Some words of the text, and some more of them. " * 30
    text = f"---\nname: a\ndescription: Finds slow queries\n---\n{body}"
    first, second, *_ = chunk(text, format="markdown", max_tokens=60, count=counter)
    assert first.content.startswith("Finds slow queries\n\n# A\n\nSome words")
    assert first.content[first.preface :] == text[first.start : first.end]
    assert first.tokens == counter.count(first.content) <= 60
    assert not second.preface


def test_a_text_of_nothing_but_front_matter_is_a_passage() -> None:
    text = "---\nname: a\ndescription: Finds slow queries\n---\n"
    (passage,) = chunk(text, format="markdown")
    assert "Finds slow queries" in passage.content


def test_yaml_documents_of_unknown_format_keep_their_first_document() -> None:
    text = "---\nkind: Service\n---\nkind: Deployment\nname: x\n"
    assert "Service" in "".join(each.content for each in chunk(text))


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_every_passage_of_a_table_begins_with_its_header(
    newline: str, counter: TokenCounter
) -> None:
    header = ["| Item | Price |", "|---|---|"]
    rows = [f"| Screw number {n} | {n} cents |" for n in range(60)]
    wide = "| Long | " + "very " * 100 + "|"
    text = newline.join(
        ["# Prices", "", "Words.", "", *header, *rows, wide, "", "# Next", "", "After."]
    )
    passages = chunk(text, format="markdown", max_tokens=60, count=counter)
    assert_sound(text, passages, counter, 60)
    later = [each for each in passages[1:] if "Screw" in each.content or "very" in each.content]
    assert len(later) > 5
    assert all(each.content.startswith("| Item | Price |\n|---|---|\n") for each in later)
    assert not passages[0].preface
    assert not passages[-1].preface


def test_a_header_longer_than_half_a_passage_is_not_repeated(counter: TokenCounter) -> None:
    names = "| " + " | ".join(f"column {n}" for n in range(9)) + " |"
    text = "\n".join([names, "|---" * 9 + "|", *("| 1" * 9 + " |" for _ in range(20))])
    passages = chunk(text, format="markdown", max_tokens=40, count=counter)
    assert_sound(text, passages, counter, 40)
    assert len(passages) > 2
    assert not any(each.preface for each in passages)


def test_a_thematic_break_at_the_top_is_not_front_matter() -> None:
    (passage,) = headers("---\n\nSome text.\n\n---\n\nMore text.\n")
    assert passage.content.endswith("More text.")


def test_a_fence_that_fits_is_never_cut(counter: TokenCounter) -> None:
    code = "\n".join(f"value_{n} = compute({n})" for n in range(8))
    fence = f"```python\n{code}\n```"
    nested = "\n".join("  " + line for line in fence.splitlines())
    prose = "A sentence that takes up some room in the chunk before. " * 9
    text = (
        f"# A\n\n{prose}\n\n{fence}\n\n{prose}\n\n- item {prose}\n\n{nested}\n\n- other {prose}\n"
    )
    size = counter.count(nested) + 12
    passages = chunk(text, strategy="markdown-headers", max_tokens=size, count=counter)
    assert_sound(text, passages, counter, size)
    assert sum(fence in each.content for each in passages) == 1
    assert sum(nested in each.content for each in passages) == 1


def test_a_fence_longer_than_a_chunk_is_cut_between_lines() -> None:
    lines = [f"value_{n} = compute({n})" for n in range(60)]
    passages = headers("```python\n" + "\n".join(lines) + "\n```", 100)
    assert len(passages) > 2
    assert {line for each in passages for line in each.content.splitlines()} == {
        "```python",
        *lines,
        "```",
    }


def test_a_heading_stays_with_its_text_when_that_is_cut() -> None:
    for body in ("One sentence follows another here. " * 40, "word " * 300, "x" * 900):
        passages = headers(f"# Heading\n\n{body}", 60)
        assert passages[0].content.startswith("# Heading\n\n" + body[:4])
        assert {each.breadcrumb for each in passages} == {"Heading"}


def test_a_paragraph_that_fits_only_alone_is_cut_to_stay_with_its_heading() -> None:
    body = "One more cat sat. " * 12
    first, *_ = headers(f"# Heading\n\n{body}", 61)
    assert first.content != "# Heading"


def test_long_lists_and_tables_are_cut_between_items_and_rows() -> None:
    items = [f"- item {n} with some words\n  that go on" for n in range(20)]
    rows = [f"| {n} | some words |" for n in range(30)]
    table = "| n | words |\n|---|---|\n" + "\n".join(rows)
    for passage in headers("\n".join(items) + "\n\n" + table, 80):
        assert passage.content.startswith(("- item", "|"))
        assert passage.content.endswith(("that go on", "|"))


def test_link_definitions_and_html_blocks_are_kept() -> None:
    text = "[a]: http://x.org\n\n<div>\n# no heading\n</div>\n\n# A\n\ntext\n\n[b]: http://y.org\n"
    passages = headers(text)
    assert [each.breadcrumb for each in passages] == ["", "A"]
    assert "http://y.org" in passages[1].content


def test_code_blocks_have_language_context_and_fence_characters() -> None:
    text = (
        "# Setup\n\nOld news. First install   the\npackage. Then start it:\n\n"
        "```sh title=x\nmake\n```\n\n~~~\nplain\n~~~\n\n## Use\n\n```py\ncall()\n```\n"
    )
    passages = chunk(text, strategy="code-blocks")
    fences = [each for each in passages if each.content[:3] in ("```", "~~~")]
    context = "First install the package. Then start it:"
    assert [(each.content, each.language, each.context, each.breadcrumb) for each in fences] == [
        ("```sh title=x\nmake\n```", "sh", context, "Setup"),
        ("~~~\nplain\n~~~", None, context, "Setup"),
        ("```py\ncall()\n```", "py", "", "Setup > Use"),
    ]
    assert passages[0].content.startswith("# Setup")
    assert passages[0].context == ""


def test_every_part_of_a_long_fence_has_language_and_context() -> None:
    text = "Do this:\n\n```py\n" + "\n".join(f"call({n})" for n in range(60)) + "\n```\n"
    parts = chunk(text, strategy="code-blocks", max_tokens=50)[1:]
    assert len(parts) > 3
    assert {(each.language, each.context) for each in parts} == {("py", "Do this:")}


def test_context_is_at_most_a_quarter_of_a_chunk(counter: TokenCounter) -> None:
    text = "word " * 400 + "end\n\n```py\nx\n```\n"
    last = chunk(text, strategy="code-blocks", max_tokens=80, count=counter)[-1]
    assert last.context.endswith("word end")
    assert 10 < counter.count(last.context) <= 20


def test_fences_within_lists_are_passages() -> None:
    text = "- first do\n\n  ```sh\n  one\n  ```\n\n- then do\n\n  ```sh\n  two\n  ```\n"
    passages = chunk(text, strategy="code-blocks")
    assert [(each.language, each.context) for each in passages] == [
        (None, ""),
        ("sh", "- first do"),
        (None, ""),
        ("sh", "- then do"),
    ]
