"""The checks of `doctor` that ask the components of a stack."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ability_search.client.running_stack import RunningComponent, RunningStack
from ability_search.client.tool_client import Target
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.extensions.cli.prometheus_meter import PrometheusMeter, serve_metrics
from ability_search.extensions.localstack.check_results import Check, Checks
from ability_search.extensions.localstack.health_checks import check_network
from ability_search.tools.table import TOOLS, offered_tools
from kadi_client import Call, Connection, Tool
from kadi_localnet.broker import Broker, serve_broker

LOCAL = "127.0.0.1"


async def made(settings: Settings, target: Target) -> list[Check]:
    checks = Checks()
    await check_network(checks, settings, target)
    return checks.made


@pytest.mark.parametrize(
    ("token", "up", "state", "text"),
    [
        ("t", True, "ok", "of 1 component"),
        ("other", True, "warn", "no metrics from worker-1"),
        ("t", False, "warn", "no metrics from worker-1"),
    ],
)
async def test_metrics_are_served_refused_or_gone(
    tmp_path: Path, token: str, up: bool, state: str, text: str
) -> None:
    settings = load_settings(
        {"SEARCH_DATA_DIR": str(tmp_path), "SEARCH_METRICS_TOKEN": token}, tmp_path
    )
    meter = PrometheusMeter("worker", "1")
    async with serve_broker(LOCAL, 0) as broker:
        async with serve_metrics(meter.text, LOCAL, 0, token="t") as url:
            part = RunningComponent("worker-1", 1, metrics=url)
            stack = RunningStack(1, broker.url, ("global",), "now", parts=(part,))
            target = Target(broker.url, ("global",), "test", stack)
            if up:
                checks = await made(settings, target)
        if not up:
            checks = await made(settings, target)
    (found,) = [each for each in checks if each.name == "metrics"]
    assert (found.state, found.text) == (state, text)
    assert ("SEARCH_METRICS_TOKEN" in found.remedy) is (token == "other")


@asynccontextmanager
async def offering(*names: str) -> AsyncIterator[Broker]:
    """A broker with a worker that offers some tools, which all list no collection."""

    async def answer(_given: dict[str, Any], _call: Call) -> dict[str, Any]:
        return {"collections": []}

    tools = [Tool(name, name, {"type": "object"}, answer) for name in names]
    async with serve_broker(LOCAL, 0) as broker, Connection(broker.url, tools=tools):
        yield broker


EIGHT = [row.name for row in TOOLS]
MEMORY = [row.name for row in offered_tools(["memory"])[8:]]
REMEDY = (
    "Start the worker with --offer {0}, or set SEARCH_OFFER={0} for it"
    " (config.yml: `offer: [{1}]`)."
)


@pytest.mark.parametrize(
    ("tools", "offer", "worker", "offered"),
    [
        (
            EIGHT,
            None,
            ("ok", "8 tools", ""),
            (
                "the eight tools; not notes-*, memory-*",
                f"Optional: {REMEDY.format('notes,memory', 'notes, memory')}",
            ),
        ),
        (
            EIGHT + MEMORY,
            "memory",
            ("ok", "12 tools", ""),
            ("tools memory-*; not notes-*", f"Optional: {REMEDY.format('notes', 'notes')}"),
        ),
        (
            EIGHT,
            "memory",
            ("fail", f"{', '.join(MEMORY)} not found in global", REMEDY.format("memory", "memory")),
            None,
        ),
        (
            EIGHT[1:],
            "memory",
            (
                "fail",
                f"{', '.join(EIGHT[:1] + MEMORY)} not found in global",
                "Start the stack with `ability-search up`, or only this with `ability-search"
                " worker`.",
            ),
            None,
        ),
    ],
)
async def test_what_a_worker_offers_is_compared_with_the_setting(
    tmp_path: Path,
    tools: list[str],
    offer: str | None,
    worker: tuple[str, str, str],
    offered: tuple[str, str] | None,
) -> None:
    environ = {"SEARCH_DATA_DIR": str(tmp_path)}
    if offer is not None:
        environ["SEARCH_OFFER"] = offer
    async with offering(*tools) as broker:
        target = Target(broker.url, ("global",), "test")
        checks = await made(load_settings(environ, tmp_path), target)
    (check,) = [check for check in checks if check.name == "worker"]
    assert (check.state, check.text, check.remedy) == worker
    found = [(check.text, check.remedy) for check in checks if check.name == "offer"]
    assert found == ([] if offered is None else [offered])


async def test_what_a_stack_offers_is_expected_of_its_workers(tmp_path: Path) -> None:
    settings = load_settings({"SEARCH_DATA_DIR": str(tmp_path)}, tmp_path)
    async with offering(*EIGHT) as broker:
        stack = RunningStack(1, broker.url, ("global",), "now", offer=("memory",))
        checks = await made(settings, Target(broker.url, ("global",), "test", stack))
    (check,) = [check for check in checks if check.name == "worker"]
    assert (check.state, check.remedy) == ("fail", REMEDY.format("memory", "memory"))


COLLECTION = {"name": "docs", "chunks": 1, "model": "words", "dimensions": 2}


@asynccontextmanager
async def answering(answers: Mapping[str, Any]) -> AsyncIterator[Broker]:
    """A broker with an agent that answers each of some tools with one answer."""

    def tool(name: str) -> Tool:
        async def answer(_given: dict[str, Any], _call: Call) -> Any:
            return answers[name]

        return Tool(name, name, {"type": "object"}, answer)

    async with (
        serve_broker(LOCAL, 0) as broker,
        Connection(broker.url, tools=[tool(name) for name in answers]),
    ):
        yield broker


async def test_a_degraded_query_is_a_warning_with_its_reason(tmp_path: Path) -> None:
    degraded = {"reason": "the index is being checked", "code": "index", "mode": "keyword"}
    answers = {
        "search-collections": {"collections": [COLLECTION]},
        "search-query": {"results": [], "degraded": degraded},
        "create-embedding": {"data": [{"index": 0, "embedding": [0.6, 0.8]}]},
    }
    settings = load_settings({"SEARCH_DATA_DIR": str(tmp_path)}, tmp_path)
    async with answering(answers) as broker:
        checks = await made(settings, Target(broker.url, ("global",), "test"))
    (query,) = [check for check in checks if check.name == "query"]
    assert (query.state, query.text) == ("warn", "docs: the index is being checked")


async def test_what_depends_on_a_failed_database_is_skipped(tmp_path: Path) -> None:
    down = {"success": False, "error": "Server is not accessible: fetch failed"}
    database = ("arcade-query", "arcade-command", "arcade-db-list", "arcade-db-create")
    answers = {**dict.fromkeys(database, down), "search-collections": {"collections": []}}
    settings = load_settings({"SEARCH_DATA_DIR": str(tmp_path)}, tmp_path)
    async with answering(answers) as broker:
        checks = await made(settings, Target(broker.url, ("global",), "test"))
    states = {check.name: check.state for check in checks if check.name in ("search", "migration")}
    assert states == {"search": "skip", "migration": "skip"}
    listed, asked = [check for check in checks if check.name == "database"]
    assert listed.state == "ok", "arcade-batch is none of what a worker calls"
    assert "does not reach its ArcadeDB server" in asked.text
    assert "fetch failed" in asked.text


async def test_a_gateway_that_accepts_no_calls_is_quoted(tmp_path: Path) -> None:
    settings = load_settings({"SEARCH_DATA_DIR": str(tmp_path)}, tmp_path)
    async with serve_broker(LOCAL, 0) as broker:
        async with serve_metrics(lambda: b"", LOCAL, 0, token="t") as url:
            address = url.removesuffix("/metrics")
            part = RunningComponent("gateway", 1, address=address)
            stack = RunningStack(1, broker.url, ("global",), "now", parts=(part,))
            target = Target(broker.url, ("global",), "test", stack)
            (refused,) = [
                check for check in await made(settings, target) if check.name == "gateway"
            ]
        (away,) = [check for check in await made(settings, target) if check.name == "gateway"]
    assert refused.text.startswith(f"{address} accepts no calls: HTTP 404: ")
    assert away.text.startswith(f"{address} does not answer: ConnectError: ")
    assert away.text.endswith("failed")
