from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ability_search.errors import ConfigurationError
from ability_search.extension import Command, Extensions

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
    assert names == ["KindOptions", "GraphOptions", "DecayOptions", "UnderstandingOptions"]


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
