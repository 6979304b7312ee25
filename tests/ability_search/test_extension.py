from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from tests.test_structure import STRUCTURE

from ability_search import extension, extensions
from ability_search.config.loader import chosen_extensions, load_settings
from ability_search.config.plugins import installed_plugins
from ability_search.config.settings_table import all_settings
from ability_search.errors import ConfigurationError
from ability_search.extension import Command, Extensions
from ability_search.extensions.formats.isolated_reader import IsolatedReader
from ability_search.files.file_documents import hashed
from ability_search.files.selection import select
from ability_search.text.chunkers.strategies import chunk
from ability_search.text.loaders import Bounds, Unreadable, extract, format_of
from ability_search.tools.table import (
    TOOLS,
    all_tools,
    families,
    family_of,
    listed_tools,
    offered_families,
    offered_tools,
)

BOUNDS = Bounds(1 << 20, 1 << 22)
PLUGIN = """
from ability_search.extension import Command, hookimpl

@hookimpl
def register_commands():
    return [Command("shout", "shouting.command", 85)]
"""


def install(directory: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """Install a package whose entry point is a plugin."""
    (directory / "shouting.py").write_text(source)
    about = directory / "shouting-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shouting\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text("[ability_search]\nshouting = shouting\n")
    monkeypatch.syspath_prepend(directory)
    monkeypatch.delitem(sys.modules, "shouting", raising=False)


def test_every_plugin_of_this_package_is_loaded() -> None:
    found = {each.name: each for each in Extensions().extensions}
    assert found.keys() == {each.name for each in pkgutil.iter_modules(extensions.__path__)}
    assert {"cli", "formats", "kinds", "understanding"} <= found.keys()
    assert {each.origin for each in found.values()} == {"built in"}
    assert found["kinds"].added == ("query_options", "stages", "steps")
    assert all(each.added for each in found.values())


def test_an_extension_with_a_minus_sign_adds_nothing() -> None:
    extensions, every = Extensions(["-kinds", "-evaluation"]), Extensions()
    left_out = {"kinds", "evaluation"}
    assert {e.name for e in every.extensions} - {e.name for e in extensions.extensions} == left_out
    assert every.commands.keys() - extensions.commands.keys() == {"eval"}
    options = {name for each in extensions.query_options for name in each.model_fields}
    assert "extended" not in options and {"decay", "graph", "temporal"} <= options
    assert len(extensions.stages) == len(every.stages) - 1
    assert len(extensions.steps) == len(every.steps) - 1


def test_what_is_added_is_in_the_order_of_the_extensions() -> None:
    names = [each.__name__ for each in Extensions().query_options]
    assert names == [
        *("ContextOptions", "KindOptions", "GraphOptions", "RerankingOptions"),
        *("DecayOptions", "UnderstandingOptions"),
    ]


def test_a_name_that_no_extension_has_is_refused_with_the_others() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Extensions(["-kind", "-cli"])
    assert "SEARCH_EXTENSIONS: kind: no such extension" in str(caught.value)
    assert "kinds" in caught.value.hint


def test_the_plugin_of_another_package_is_loaded_as_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, PLUGIN)
    extensions = Extensions()
    (shouting,) = [each for each in extensions.extensions if each.name == "shouting"]
    assert (shouting.origin, shouting.added) == ("shouting 1.2", ("commands",))
    names = list(extensions.commands)
    assert names[names.index("index") :][:3] == ["index", "shout", "watch"]
    assert extensions.commands["shout"] == Command("shout", "shouting.command", 85)
    assert "shout" not in Extensions(["-shouting"]).commands


def test_a_plugin_that_cannot_be_imported_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, "import nothing_of_this_name")
    with pytest.raises(ConfigurationError, match="shouting cannot be imported: .*this_name") as it:
        Extensions()
    assert "SEARCH_EXTENSIONS=-shouting" in it.value.hint
    assert Extensions(["-shouting"]).commands


SETTINGS_PLUGIN = """
from pydantic import SecretStr

from ability_search.config.setting_fields import Group, secret, setting
from ability_search.extension import hookimpl

class Shouting(Group):
    "Shouting."
    prefix = "shout_"
    volume: int = setting(3, about="Loudness.", le=11)
    token: SecretStr | None = secret(about="Token.")

@hookimpl
def register_settings():
    return [Shouting]
"""


@pytest.fixture(autouse=True)
def plugins_found_anew() -> Iterator[None]:
    installed_plugins.cache_clear()
    yield
    installed_plugins.cache_clear()


@pytest.fixture
def all_read_anew() -> Iterator[None]:
    all_settings.cache_clear()
    yield
    all_settings.cache_clear()


@pytest.mark.usefixtures("all_read_anew")
def test_a_setting_of_another_package_is_read_as_one_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, SETTINGS_PLUGIN)
    config = tmp_path / "config.yml"
    config.write_text("search: {shout_volume: 5}")
    group = import_module("shouting").Shouting
    assert load_settings({}, tmp_path).of(group).volume == 5
    assert load_settings({"SEARCH_SHOUT_VOLUME": "7"}, tmp_path).of(group).volume == 7
    config.write_text("search: {shout_volume: 12, shout_token: x}")
    with pytest.raises(ConfigurationError) as caught:
        load_settings({}, tmp_path)
    assert caught.value.problems[0].startswith(f"{config}: search.shout_token: secrets are not")
    config.write_text("search: {shout_volume: 12}")
    with pytest.raises(ConfigurationError, match="shout_volume: .*less than or equal to 11"):
        load_settings({}, tmp_path)


@pytest.mark.usefixtures("all_read_anew")
@pytest.mark.parametrize("plugin", [SETTINGS_PLUGIN, "import nothing_of_this_name"])
def test_what_chooses_extensions_loads_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plugin: str
) -> None:
    install(tmp_path, monkeypatch, plugin)
    monkeypatch.setattr(extension, "_loaded", None)
    (tmp_path / "config.yml").write_text("search: {extensions: [-shouting], chunk_size: 300}")
    assert chosen_extensions({}, tmp_path) == ("-shouting",)
    assert load_settings({}, tmp_path).chunking.size == 300
    assert extension._loaded is None


def test_a_setting_of_an_extension_that_is_left_out_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extension, "_loaded", Extensions(["-answers", "-mcp", "-gateway"]))
    (tmp_path / "config.yml").write_text("search: {answer_floor: 0.5, gateway_port: 8000}")
    assert load_settings({"SEARCH_MCP_PROFILE": "full"}, tmp_path).warnings == ()


@pytest.mark.parametrize("by", ["environment", "file"])
def test_the_setting_leaves_an_extension_out_of_a_process(tmp_path: Path, by: str) -> None:
    environ = {**os.environ, "HOME": str(tmp_path)}
    if by == "environment":
        environ["SEARCH_EXTENSIONS"] = "-evaluation,-mcp"
    else:
        (tmp_path / "config.yml").write_text("search:\n  extensions: ['-evaluation', '-mcp']\n")
    command = [sys.executable, "-P", "-m", "ability_search", "extensions", "--json"]
    shown = subprocess.check_output(command, cwd=tmp_path, env=environ, text=True, timeout=60)
    names = {each["name"] for each in json.loads(shown)}
    assert "cli" in names
    assert not {"evaluation", "mcp"} & names


LEFT_OUT = """
import asyncio, os, sys
from pathlib import Path

import numpy as np

from ability_search.config.loader import chosen_extensions, load_settings
from ability_search.extension import load, loaded

load(chosen_extensions(os.environ, Path.cwd()))

from ability_search.store.memory import MemoryStore
from ability_search.tools.handlers import served_tools
from ability_search.worker import build_services
from kadi_client.messages import decode


class Lengths:
    async def embed(self, model, texts, *, timeout):
        return np.array([[len(text), 1] for text in texts], np.float32)


class Asked:
    remaining = None

    async def publish(self, channel, data):
        pass


async def answers():
    settings = load_settings(os.environ, Path.cwd())
    services = build_services(
        settings, MemoryStore(), Lengths(), None, None, base=Path.cwd()
    )
    tools = {tool.name: tool.handler for tool in served_tools(services)}
    pump = {"source": "a", "content": "The pump was replaced in May 2026."}
    given = {"collection": "docs", "documents": [pump]}
    indexed = decode(bytes(await tools["search-index"](given, Asked())))
    asked = {"collection": "docs", "query": "when was the pump replaced", "limit": 1}
    found = decode(bytes(await tools["search-query"](asked, Asked())))
    await services.queries.close()
    assert indexed["added"] == 1, indexed
    assert [hit["source"] for hit in found["results"]] == ["a"], found


asyncio.run(answers())
if "cli" in {each.name for each in loaded().extensions}:
    from ability_search.extensions.cli import main

    for arguments in (["--help"], ["extensions"]):
        sys.argv[1:] = arguments
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, ended.code
print(*sys.modules)
"""


def those_that_need(name: str) -> set[str]:
    """An extension, and all that stand on it."""
    needing = {own for own, needed in STRUCTURE["needs"].items() if name in needed}
    return {name}.union(*map(those_that_need, needing))


@pytest.mark.slow
@pytest.mark.parametrize("name", [each.name for each in pkgutil.iter_modules(extensions.__path__)])
def test_the_rest_works_without_an_extension_and_imports_its_settings_only(
    tmp_path: Path, name: str
) -> None:
    gone = those_that_need(name)
    chosen = ",".join(f"-{each}" for each in sorted(gone))
    environ = {**os.environ, "HOME": str(tmp_path), "SEARCH_EXTENSIONS": chosen}
    environ["SEARCH_OFFER"] = "all"
    command = [sys.executable, "-P", "-c", LEFT_OUT]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    *shown, modules = ended.stdout.splitlines()
    if name != "cli":
        assert shown[0].startswith("Usage: ability-search")
        listed = {line.partition(" ")[0] for line in shown if " built in " in line}
        assert listed == {each.name for each in Extensions().extensions} - gone
    reached = {each.rpartition(" ")[2] for each in STRUCTURE["wrong"]["imports"]}
    home = f"{extensions.__name__}.{name}."
    settings = {f"{home}plugin", f"{home}settings"}
    if name not in reached:
        assert {each for each in modules.split() if each.startswith(home)} <= settings


TOOLED = """
from pydantic import BaseModel
from ability_search.extension import hookimpl
from ability_search.tools.tool_row import ToolRow

class Words(BaseModel):
    text: str = ""

@hookimpl
def register_tools():
    about = {"title": "Shout", "summary": "Shout.", "usage": "Loudly.", "params": Words}
    return [ToolRow(name=name, result=Words, **about) for name in ("shout", "shout-twice")]

@hookimpl
def open_tools(services):
    services.opened.append("shouting")

    async def shout(value, call):
        return value

    return {"shout": shout, "shout-twice": shout}
"""


class Opened:
    """Stands for the services of a worker; plugins that are asked for handlers enter themselves."""

    def __init__(self) -> None:
        self.opened: list[str] = []


def test_the_tools_of_a_package_are_offered_by_their_family(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    install(tmp_path, monkeypatch, TOOLED)
    installed_plugins.cache_clear()
    request.addfinalizer(installed_plugins.cache_clear)
    loaded = Extensions(["-notes", "-sessions"])
    monkeypatch.setattr(extension, "_loaded", loaded)
    assert families() == ("shout",)
    assert [row.name for row in offered_tools(["shout"])[8:]] == ["shout", "shout-twice"]
    assert offered_tools(None) == offered_tools([]) == TOOLS
    idle, asked = Opened(), Opened()
    assert loaded.handlers(cast(Any, idle), []) == {}
    assert loaded.handlers(cast(Any, asked), ["shout"]).keys() == {"shout", "shout-twice"}
    assert (idle.opened, asked.opened) == ([], ["shouting"])


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        (None, ()),
        ((), ()),
        (("memory",), ("memory",)),
        (("memory", "notes", "memory"), ("notes", "memory")),
        (("all",), ("notes", "memory")),
        (("all", "memory"), ("notes", "memory")),
    ],
)
def test_the_families_of_an_offer(offer: tuple[str, ...] | None, expected: tuple[str, ...]) -> None:
    assert offered_families(offer) == expected
    names = [family_of(row.name) for row in offered_tools(offer)]
    assert names == ["search"] * 8 + [name for name in expected for _ in range(4)]
    assert listed_tools(offer) == (all_tools() if offer is None else offered_tools(offer))


def test_an_offer_of_what_no_extension_has_names_what_is_possible() -> None:
    with pytest.raises(
        ConfigurationError, match="no extension that is loaded has .*'memry'"
    ) as bad:
        offered_tools(["memry", "notes"])
    assert "Use names among notes, memory, all" in bad.value.hint


def test_a_family_of_an_extension_that_is_left_out_cannot_be_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extension, "_loaded", Extensions(["-sessions"]))
    assert offered_families(["all"]) == ("notes",)
    with pytest.raises(ConfigurationError, match="'memory'"):
        offered_tools(["memory"])


def test_the_gateway_has_no_route_of_an_extension_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ability_search.extensions.gateway.operations import operations

    every = {item.path for item in operations()}
    monkeypatch.setattr(extension, "_loaded", Extensions(["-answers", "-notes"]))
    own = {item.path for item in operations()}
    assert every - own == {
        "/ask",
        "/collections/{name}/graph",
        *(f"/tools/notes-{name}" for name in ("analyze", "consolidate", "overview", "paths")),
    }


def test_a_stack_without_the_extension_of_the_gateway_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ability_search.extensions.localstack.stack_plan import added_ports

    assert added_ports(8070) == {"gateway": 8070}
    assert added_ports(None) == {}
    monkeypatch.setattr(extension, "_loaded", Extensions(["-gateway"]))
    assert added_ports(8070) == {}


def test_without_the_extension_of_formats_plain_texts_are_read_and_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extension, "_loaded", Extensions(["-formats"]))
    read = extract("a.md", b"# Title\n\nText.", format_of("a.md", b"# Title"), BOUNDS)
    assert (read.title, read.format) == ("Title", "markdown")
    assert format_of("a.json", b"{}") is None
    assert [each.content for each in chunk("a = 1\n", format="code")] == ["a = 1"]
    assert [each.content for each in chunk('{"a": 1}', format="json")] == ['{"a": 1}']
    with pytest.raises(Unreadable, match="the extension formats reads other encodings"):
        extract("a.txt", "Größe".encode("cp1252"), None, BOUNDS)
    with pytest.raises(Unreadable, match="no extension reads the format pdf; loaded are markdown"):
        extract("a.pdf", b"%PDF-1.7\n", "pdf", BOUNDS)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.pdf", b"%PDF-1.7\n"),
        ("a", b"%PDF-1.7\n"),
        ("a.html", b"<p>Text."),
        ("a.XHTML", b"<html/>"),
        ("a.eml", b"From: ann\n\nText."),
        ("1234.host", b"Return-Path: <ann>\nFrom: ann\n\nText."),
        ("a.mbox", b"From ann Mon Mar  2 10:00:00 2026\nFrom: ann\n\nText."),
        ("a.docx", b"PK\3\4[Content_Types].xml word/"),
        ("a", b"PK\3\4[Content_Types].xml word/"),
        ("a.xlsx", b"PK\3\4"),
        ("a.odt", b"PK\3\4"),
        ("a.epub", b"PK\3\4"),
        ("a.rtf", b"{\\rtf1 Text."),
        ("a.svg", b"<svg/>"),
        ("a.png", b"\x89PNG\r\n"),
    ],
)
def test_without_the_extension_of_formats_its_files_are_not_read_as_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, data: bytes
) -> None:
    monkeypatch.setattr(extension, "_loaded", Extensions(["-formats"]))
    (tmp_path / name).write_bytes(data)
    (tmp_path / "b.txt").write_text("Text.")
    documents, (skipped,) = hashed(select(tmp_path, tmp_path), max_bytes=1000)
    assert [each.source for each in documents.values()] == ["b.txt"]
    assert skipped.path == name
    assert skipped.reason.endswith("which the extension formats reads; it is left out")


SIGNED_PLUGIN = """
from ability_search.extension import hookimpl
from ability_search.text.formats import Format
from ability_search.text.loaders import Extracted

@hookimpl
def register_formats():
    return [
        Format(name="comic", suffixes=(".cbz",), binary="shouting:read", begins=(b"PK\\3\\4",)),
        Format(name="sound", suffixes=(".wav",), binary="shouting:read", begins=(b"RIFF",)),
    ]

def read(name, data, bounds):
    return Extracted(f"{len(data)} bytes", "text")
"""


def test_a_format_of_another_package_may_begin_with_bytes_that_are_refused_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, SIGNED_PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(extension, "_loaded", Extensions())
    assert format_of("a.cbz", b"PK\3\4") == "comic"
    assert format_of("a.wav", b"RIFF....WAVE") == "sound"
    with IsolatedReader(BOUNDS, timeout=30) as extractor:
        assert extractor.extract("a.cbz", b"PK\3\4", "comic").text == "4 bytes"
    for name, data in (("a.wav", b"ID3\3"), ("a.wav", b"text"), ("a.wav", b"PK\3\4")):
        with pytest.raises(Unreadable, match="not a SOUND file, though its name says so"):
            format_of(name, data)
    with pytest.raises(Unreadable, match="a ZIP archive, not text"):
        format_of("a.zip", b"PK\3\4")
    monkeypatch.setattr(extension, "_loaded", Extensions(["-shouting"]))
    with pytest.raises(Unreadable, match="a ZIP archive, not text"):
        format_of("a.cbz", b"PK\3\4")


FORMAT_PLUGIN = """
from ability_search.extension import hookimpl
from ability_search.text.formats import Format
from ability_search.text.loaders import Extracted

@hookimpl
def register_formats():
    read = "shouting:read"
    return [Format(name="shouted", suffixes=(".shout",), binary=read)]

def read(name, data, bounds):
    import os, sys
    words = [data.decode().upper(), os.getpid(), "ability_search.extensions.cli" in sys.modules]
    return Extracted(" ".join(map(str, words)), "text")
"""


def test_a_format_of_another_package_is_read_in_the_process_for_foreign_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, FORMAT_PLUGIN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(extension, "_loaded", Extensions())
    assert format_of("a.shout", b"hello") == "shouted"
    with IsolatedReader(BOUNDS, timeout=30) as extractor:
        shouted, process, loads_all = extractor.extract("a.shout", b"hello", "shouted").text.split()
    assert (shouted, loads_all) == ("HELLO", "False")
    assert process != str(os.getpid())
    monkeypatch.setattr(extension, "_loaded", Extensions(["-shouting"]))
    missing = pytest.raises(Unreadable, match="no extension reads the format shouted")
    with IsolatedReader(BOUNDS, timeout=30) as extractor, missing:
        extractor.extract("a.shout", b"hello", "shouted")
