"""The documentation against the code: what it quotes exists, what is generated is current."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.command_lines import calls, problem, unknown_variables
from tests.snippets.blocks import blocks

from ability_search.config.settings_table import all_settings
from ability_search.extension import Extensions, Hooks
from ability_search.tools.table import TOOLS, all_tools

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CHANGELOG.md", "benchmarks/README.md")),
        *(ROOT / "docs").rglob("*.md"),
    ]
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def relative(page: Path) -> str:
    """Return the path of a page in the repository."""
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "generate_docs", ROOT / "scripts" / "generate_docs.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def command_lines(page: Path) -> Iterator[list[str]]:
    for block in blocks(page):
        if block.language in ("sh", "console"):
            yield from calls("\n".join(block.commands))
    for code in INLINE.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        yield from calls(code)


def anchors(page: Path) -> set[str]:
    """What headings can be linked to as, the way GitHub forms it."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }


def test_the_generated_parts_are_current(generator: ModuleType) -> None:
    assert [path.name for path, _ in generator.outdated()] == [], "run `make docs`"


def test_every_tool_and_every_setting_is_documented() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    tools = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    assert len(TOOLS) == 8
    assert all(f"`{row.name}`" in readme for row in TOOLS)
    assert all(f"### {row.name}\n" in tools for row in all_tools())
    settings = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert all(f"`{variable}`" in settings for variable in all_settings().by_env)


def test_the_table_has_every_setting_once(generator: ModuleType) -> None:
    table = generator.settings_tables()
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| config.yml `search.`")]
    assert len(rows) == len(all_settings().specs)
    for spec in all_settings().specs:
        (row,) = (row for row in rows if f"`{spec.env[0]}`" in row)
        has_key = spec.home is None and spec.kind != "secret"
        assert row.startswith(f"| `{spec.key}` |") == has_key
        assert (spec.field.description or "") in row
        cells = re.split(r"(?<!\\)\|", row)
        assert len(cells) == 7
        assert ("empty" in cells[4]) == bool(spec.empty_values)
    assert "| `chunk_size` | `SEARCH_CHUNK_SIZE` | `500` | ≥ 16, ≤ 8192 tokens |" in table
    assert "| `max_batch_bytes` | `SEARCH_MAX_BATCH_BYTES` | `24 MiB` | ≥ 1 KiB, ≤ 1 GiB |" in table


def test_every_extension_is_listed_with_what_it_needs() -> None:
    text = (ROOT / "docs" / "extensions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\| ([^|]*)\|", text, re.MULTILINE)
    needs = tomllib.loads((ROOT / "tests" / "data" / "structure.toml").read_text("utf-8"))["needs"]
    assert {name: set(re.findall(r"`(\w+)`", told)) for name, told in rows} == {
        each.name: set(needs.get(each.name, ())) for each in Extensions().extensions
    }
    assert all(f"`{name}(" in text for name in vars(Hooks) if not name.startswith("_"))


def test_every_field_of_a_tool_s_input_says_what_it_means() -> None:
    silent = [
        f"{owner}.{name}"
        for row in all_tools()
        for owner, schema in [
            (row.name, row.input_schema),
            *row.input_schema.get("$defs", {}).items(),
        ]
        for name, field in schema.get("properties", {}).items()
        if not field.get("description")
    ]
    assert silent == []


def test_the_readme_shows_the_two_commands_at_once() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:20]
    assert any(line.startswith("make demo") for line in first)
    assert any(line.startswith("make up") for line in first)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_command_is_a_real_one(page: Path) -> None:
    assert [found for words in command_lines(page) if (found := problem(words))] == []


def test_wrong_commands_would_be_noticed() -> None:
    assert list(calls("A=1 ability-search up --port 0 && ability-search nope")) == [
        ["up", "--port", "0"],
        ["nope"],
    ]
    assert problem(["up", "--port", "0"]) is None
    assert problem(["nope"])
    assert problem(["up", "--nope"])
    assert sum(len(list(command_lines(page))) for page in PAGES) > 20


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_variable_and_key_is_a_setting(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert unknown_variables(text) == set()
    limits = {word for word in INLINE.findall(text) if re.fullmatch(r"max_[a-z_]+", word)}
    assert limits <= all_settings().by_key.keys()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(file), target


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_no_page_names_a_place_on_somebody_s_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.~:])/(?:tmp|home|root|work|Users)\b\S*", text) == []
