"""Every block of README.md and docs/: commands and programs are run, files are loaded."""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from mcp import Client, StdioServerParameters
from tests.snippets.blocks import PAGES, PLAIN, ROOT, Block, blocks
from tests.snippets.prepared import prepare
from tests.snippets.reader import SECONDS, Reader, scores, without_numbers

from ability_search.config.loader import load_settings
from ability_search.extensions.mcp.mcp_tools import ASK, READ
from ability_search.tools.table import all_tools
from kadi_client import Connection

pytestmark = [pytest.mark.engine, pytest.mark.model, pytest.mark.timeout(300)]

NOT_RUN = "not run"
ONLY_PARSED = "only parsed"
PART_OF = "part of"
UNRUN = {
    ("README.md", "needs a package index"): 1,
    ("docs/agents.md", "needs the package of the KADI client"): 1,
    ("docs/edges.md", "needs npm"): 1,
    ("docs/evaluation.md", "needs a package index"): 1,
    ("docs/formats.md", "needs a package index"): 1,
    ("docs/howto.md", "needs Ollama"): 1,
    ("docs/howto.md", "needs a broker elsewhere"): 1,
    ("docs/kadi-network.md", "needs a model manager with a key"): 1,
    ("docs/kadi-network.md", "needs a running ability-arcadedb"): 1,
    ("docs/kadi-network.md", "needs the sources of ability-arcadedb"): 1,
    ("docs/metrics.md", "needs a container engine"): 1,
    ("docs/operations.md", "needs a NATS server"): 1,
    ("docs/operations.md", "needs a database of the earlier ability"): 1,
    ("docs/operations.md", "needs a container engine"): 2,
    ("docs/operations.md", "needs a model hub"): 1,
    ("docs/operations.md", "needs a package index"): 1,
    ("docs/operations.md", "needs a package index and a collector"): 1,
    ("docs/operations.md", "needs a rebuild that lasts"): 1,
}
"""Why blocks are not run, and how many: further ones have to be put down here."""
READING: dict[str, Callable[[str], object]] = {
    ".json": json.loads,
    ".toml": tomllib.loads,
    ".yaml": yaml.safe_load,
    ".yml": yaml.safe_load,
}
"""How a file that is written is read."""
NEAR = 0.02
"""How far a score that a page shows may be from the one that is printed."""
SETTINGS = {"config.yml", "config.toml", "agent.json"}
CONTENTS = [page for page in PAGES if any(each.language not in PLAIN for each in blocks(page))]


@pytest.mark.process
@pytest.mark.parametrize("page", CONTENTS, ids=lambda page: page.name)
def test_what_a_page_says_works(page: Path, reader: Reader) -> None:
    prepare(page.name, reader)
    for block in blocks(page):
        if block.marker in (NOT_RUN, ONLY_PARSED) or block.language in PLAIN:
            continue
        try:
            follow(block, reader)
        except Exception as exc:
            raise AssertionError(f"{block.place}: {exc}") from exc


def test_what_is_not_run_says_why() -> None:
    found = Counter(
        (block.page, block.about)
        for page in PAGES
        for block in blocks(page)
        if block.marker == NOT_RUN
    )
    assert found == UNRUN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_overlooked(page: Path) -> None:
    fences = re.findall(r"^\s*(?:```|~~~)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(list(blocks(page)))


def follow(block: Block, reader: Reader) -> None:
    """Do what a block says.

    Raises:
        AssertionError: if it does not work, or if nobody knows how to do it.
    """
    if block.marker == PART_OF:
        assert block.text in outdented((ROOT / block.about).read_text("utf-8"), block.text)
    elif block.title:
        write(block, reader.directory)
    elif block.language == "sh":
        for line in block.commands:
            reader.run(line)
        reader.finish_block()
    elif block.language == "console":
        for command, shown in block.session:
            compare(shown, reader.run(command))
    elif block.language == "python":
        assert reader.run_program(block.text)
    elif block.language == "json":
        look_at(block, json.loads(block.text), reader)
    else:
        raise AssertionError(f"what is to be done with {block.language!r}? Say so in a comment")


def outdented(text: str, part: str) -> str:
    """A text in which lines are as little indented as in a part of it."""
    line = part.partition("\n")[0]
    indent = next((each for each in text.splitlines() if each.strip() == line), line).index(line[0])
    return re.sub(rf"^ {{{indent}}}", "", text, flags=re.MULTILINE)


def write(block: Block, directory: Path) -> None:
    """Make the file that a block is; settings have to load."""
    file = directory / block.title
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.text, encoding="utf-8")
    if file.name in SETTINGS:
        load_settings({"HOME": str(directory)}, file.parent)
    READING.get(file.suffix, str)(block.text)


def compare(shown: list[str], printed: str) -> None:
    """Each line that is shown is printed, in that order, but for numbers and what is cut off.

    Scores are printed as they are shown, or nearly so.
    """
    lines = iter(printed.splitlines())
    for line in shown:
        said = without_numbers(line)
        start = said.removesuffix("...")
        for each in lines:
            other = without_numbers(each)
            if other.startswith(start) if start != said else other == said:
                pairs = zip(scores(line), scores(each), strict=False)
                assert all(abs(one - two) <= NEAR for one, two in pairs), f"{line}\nnow: {each}"
                break
        else:
            raise AssertionError(f"not printed: {line}\n{printed}")


def test_a_score_that_is_another_one_now_is_noticed() -> None:
    shown = ["1. 0.428 a.md:9  semantic 0.539, keyword 5.445"]
    compare(shown, "1. 0.441 a.md:12  semantic 0.530, keyword 4.100")
    for score in ("0.461", "0.390"):
        with pytest.raises(AssertionError, match=f"now: 1. {score}"):
            compare(shown, f"1. {score} a.md:9  semantic 0.539, keyword 5.445")


def look_at(block: Block, value: Any, reader: Reader) -> None:
    """Start what a client's configuration starts, ask with a filter, or compare an answer."""
    if block.marker == "filter of":
        collection = {"collection": "*", "query": "backup", "filter": value}
        reader.run(f"ability-search call {block.about} '{json.dumps(collection)}'")
    elif block.marker == "answer of":
        answer = asyncio.run(answered(reader, block.about))
        assert answer == value
    else:
        assert "mcpServers" in value, "what is it? Say so in a comment"
        for server in value["mcpServers"].values():
            listed = asyncio.run(tools(server, reader))
            assert listed == len(all_tools()) + len((ASK, READ))


async def answered(reader: Reader, call: str) -> Any:
    """The answer of a tool, failures too; ``call`` is its name and its input."""
    tool, _, given = call.partition(" ")
    running = reader.machine.running
    assert running is not None
    async with Connection(running.url, networks=running.networks) as connection:
        return await connection.invoke(tool, json.loads(given), timeout=SECONDS, check=False)


async def tools(server: dict[str, Any], reader: Reader) -> int:
    """How many tools an assistant finds that is configured so."""
    environment = {**reader.environment, **server.get("env", {})}
    started = StdioServerParameters(
        command=server["command"], args=server["args"], env=environment, cwd=reader.directory
    )
    async with Client(started, mode="legacy", read_timeout_seconds=SECONDS) as client:
        return len((await client.list_tools()).tools)
