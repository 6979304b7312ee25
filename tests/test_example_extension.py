"""The example of an extension, installed from its own package into a directory and used."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.ability_search.extensions.localstack.test_up import Machine

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "helpdesk"
CAPTIONS = """1
00:00:01,000 --> 00:00:04,000
How do I get into my account again?

2
00:00:05,500 --> 00:00:09,000
Ask for a new password
on the page of your profile.
"""
ANSWERS = {
    "profile.md": "---\npinned: true\n---\n# Profile\n\nA new password is set in the profile.\n",
    "account.md": "# Account\n\nA new password for the account: ask for a new password.\n",
}

pytestmark = [pytest.mark.process, pytest.mark.model, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that the package is installed into."""
    target = tmp_path_factory.mktemp("packages")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(target), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return target


async def test_its_format_its_option_and_its_command_work(tmp_path: Path, installed: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, text in {"call.srt": CAPTIONS, **ANSWERS}.items():
        (work / name).write_text(text)
    machine = Machine(tmp_path, {"PYTHONPATH": str(installed)})
    listed = {each["name"]: each for each in (await machine.run("extensions", "--json")).json}
    assert listed["helpdesk"]["origin"] == "ability-search-helpdesk 0.1.0"
    assert set(listed["helpdesk"]["adds"]) == {
        *("checks", "commands", "formats", "query_options", "settings", "stages")
    }
    async with asyncio.timeout(200), machine.up("--memory"):
        indexed = (await machine.run("index", ".", "-c", "calls", "--json")).json
        assert (indexed["added"], indexed["skipped"]) == (3, [])
        spoken = (await machine.run("search", "get into my account", "-c", "calls", "--json")).json
        (captions,) = [hit for hit in spoken["results"] if hit["source"] == "work/call.srt"]
        assert captions["metadata"]["begins"] == "00:00:01"
        assert "-->" not in captions["content"]
        asked = ("search", "a new password for the account", "-c", "calls", "--json")
        assert (await machine.run(*asked)).json["results"][0]["source"] != "work/profile.md"
        preferred = (await machine.run(*asked, "--pinned", "0.9", "--explain")).json
        assert preferred["results"][0]["source"] == "work/profile.md"
        assert preferred["results"][0]["explain"]["pinned"]["pinned"] is True
        pinned = await machine.run("pinned", "calls", "password")
        assert (pinned.code, pinned.out) == (0, "work/profile.md  Profile\n")
        checks = (await machine.run("doctor", "--json")).json
        found = {each["name"]: (each["state"], each["text"].partition(", ")[0]) for each in checks}
        assert found["pinned"] == ("ok", "there are pinned documents")
        assert found["gateway"][0] == "ok"
        assert found["gateway"][1].endswith("accepts calls")
        (work / "config.yml").write_text("search: {helpdesk_listed: 0}")
        refused = await machine.run("pinned", "calls", "password")
        assert (refused.code, refused.out) == (1, "")
        assert "search.helpdesk_listed: " in refused.err


async def test_it_can_be_left_out(tmp_path: Path, installed: Path) -> None:
    (tmp_path / "work").mkdir()
    further = {"PYTHONPATH": str(installed), "SEARCH_EXTENSIONS": "-helpdesk"}
    machine = Machine(tmp_path, further)
    names = {each["name"] for each in (await machine.run("extensions", "--json")).json}
    assert "helpdesk" not in names
    assert (await machine.run("pinned", "calls", "password")).code == 2
    (tmp_path / "work" / "config.yml").write_text("search: {helpdesk_listed: 5}")
    assert (await machine.run("status")).code == 3
