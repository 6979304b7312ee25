"""The command `worker`, as the real client finds it on a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.ability_search.processes import log_until, process
from tests.interop.real_client import ClientError, NodeProcess, needs_real_client

from ability_search.extensions.cli.app import USAGE
from kadi_localnet.broker import serve_broker

pytestmark = [
    pytest.mark.process,
    pytest.mark.asyncio(loop_scope="module"),
    needs_real_client,
]

CARD = Path(__file__).resolve().parents[2] / "agent.json"
MEMORY = {"memory-write", "memory-read", "memory-search", "memory-delete"}
NOTES = {"notes-overview", "notes-paths", "notes-analyze", "notes-consolidate"}


def eight() -> set[str]:
    """The tools that agent.json promises."""
    return set(json.loads(CARD.read_text(encoding="utf-8"))["tools"])


@pytest.mark.parametrize(
    ("options", "config", "variable", "added"),
    [
        ((), "", None, set()),
        ((), "search: {offer: [memory]}", None, MEMORY),
        ((), "search: {offer: [memory]}", "", set()),
        ((), "search: {offer: [memory]}", "notes", NOTES),
        (("--offer", "memory", "--offer", "notes"), "", None, MEMORY | NOTES),
        (("--offer", "memory,notes"), "", "", MEMORY | NOTES),
        (("--offer", ""), "", "all", set()),
        (("--offer", "all"), "", None, MEMORY | NOTES),
    ],
)
async def test_a_worker_offers_the_eight_tools_and_what_it_is_told_to(
    node: NodeProcess,
    tmp_path: Path,
    options: tuple[str, ...],
    config: str,
    variable: str | None,
    added: set[str],
) -> None:
    (tmp_path / "config.yml").write_text(config, encoding="utf-8")
    async with serve_broker(port=0) as broker:
        environ = {"HOME": str(tmp_path), "BROKER_URL": broker.url}
        if variable is not None:
            environ["SEARCH_OFFER"] = variable
        async with process(environ, "worker", "--memory", *options) as worker:
            await log_until(worker, "ready: search-*")
            caller = await node.create(broker.url)
            await caller.connect()
            ability = await caller.load_broker("ability-search")
            tools = {tool["name"] for tool in (await ability.describe())["tools"]}
            assert len(eight()) == 8
            assert tools == eight() | added
            assert await ability.invoke("search-collections", {}) == {"collections": []}
            if not added:
                with pytest.raises(ClientError, match="no provider .*for tool 'memory-write'"):
                    await ability.invoke("memory-write", {"agentId": "ada"})
            await caller.disconnect()


async def test_a_worker_that_is_to_offer_what_no_extension_has_does_not_start(
    tmp_path: Path,
) -> None:
    environ = {"HOME": str(tmp_path), "BROKER_URL": "ws://127.0.0.1:9/kadi"}
    for options in (("--offer", "memry"), ("--offer", "memry", "--stdio", "--memory")):
        async with process(environ, "worker", *options) as worker:
            _, err = await worker.communicate(b"")
            assert worker.returncode not in (0, USAGE)
            assert "no extension that is loaded has tools 'memry'" in err.decode()
            assert "Use names among notes, memory, all" in err.decode()
