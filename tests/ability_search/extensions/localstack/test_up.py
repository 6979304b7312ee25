"""The real stack, as a person starts it: found, used, hurt, stopped and started again."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.ability_search.metric_readings import Reading, parse
from tests.networks import free_ports

from ability_search.client.running_stack import CLIENT, RunningStack, identity_file, read_running
from ability_search.extensions.localstack import stack_metrics
from ability_search.extensions.localstack.supervisor import released
from ability_search.ops.metrics import metric_table as table
from ability_search.tools.table import TOOLS, all_tools
from kadi_client import Call, Connection, Identity, NoProvider, RemoteError, Tool, ToolError

ROOT = Path(__file__).resolve().parents[4]

pytestmark = [pytest.mark.process, pytest.mark.engine, pytest.mark.model, pytest.mark.timeout(240)]

TEXTS = {
    "backup.md": "# Backup\n\nEvery night the archive is copied to a tape in the cellar.\n",
    "kitchen/bread.md": "# Bread\n\nThe dough rests for an hour before it goes into the oven.\n",
    "kitchen/soup.md": "# Soup\n\nOnions are fried until golden, then stock is added.\n",
}
START_SECONDS = 60.0
COMMAND_SECONDS = 30.0


@dataclass(frozen=True)
class Ran:
    """A command that ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


@dataclass
class Machine:
    """A data directory, a working directory with texts, and the commands over them."""

    home: Path
    further: dict[str, str] = field(default_factory=dict)
    """Further variables of the environment."""

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def environ(self) -> dict[str, str]:
        mine = ("SEARCH_", "BROKER_", "KADI_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(mine)}
        own = {"SEARCH_DATA_DIR": str(self.data), "NO_COLOR": "1", "COLUMNS": "200"}
        return {**kept, **own, **self.further}

    async def spawn(self, *arguments: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ability_search", *arguments),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            cwd=self.home / "work",
            env=self.environ,
        )

    async def run(self, *arguments: str, given: str = "") -> Ran:
        process = await self.spawn(*arguments)
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                out, err = await process.communicate(given.encode())
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        return Ran(process.returncode or 0, out.decode(), err.decode())

    @asynccontextmanager
    async def up(self, *options: str) -> AsyncIterator[Up]:
        process = await self.spawn("up", "--port", "0", *options)
        up = Up(process)
        try:
            await up.told(process.stdout, "ready in")
            yield up
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            assert await released(self.data, timeout=COMMAND_SECONDS), "a part outlived its stack"

    def pids(self) -> dict[str, int]:
        running = read_running(self.data)
        assert running is not None
        return {part.name: part.pid for part in running.parts}


@dataclass
class Up:
    """A stack that runs."""

    process: asyncio.subprocess.Process

    async def told(self, stream: asyncio.StreamReader | None, *words: str) -> str:
        """Read until a line holds all of the words."""
        assert stream is not None
        seen = []
        try:
            async with asyncio.timeout(START_SECONDS):
                while line := (await stream.readline()).decode():
                    seen.append(line)
                    if all(word in line for word in words):
                        return line
        except TimeoutError:
            pass
        raise AssertionError(f"not told {words}: {''.join(seen)}")


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    for name, text in TEXTS.items():
        file = tmp_path / "work" / "notes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return Machine(tmp_path)


def sources(answer: dict[str, Any]) -> list[str]:
    return [hit["source"] for hit in answer["results"]]


def held_mb(pid: int) -> float:
    """The memory of a process, of what it shares its part."""
    sizes = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    return int(sizes.partition("Pss:")[2].split()[0]) / 1024


async def kill_and_wait_until_back(machine: Machine, up: Up, names: Sequence[str]) -> None:
    before = machine.pids()
    for name in names:
        os.kill(before[name], signal.SIGKILL)
        await up.told(up.process.stderr, name, "was ended by SIGKILL")
        await up.told(up.process.stderr, name, "is back")
    after = machine.pids()
    killed = {before[name] for name in names}
    assert [name for name in before if before[name] != after[name]] == [
        name for name in before if before[name] in killed
    ]


async def the_lines_of_the_readme_work_over_http(machine: Machine) -> None:
    running = read_running(machine.data)
    assert running is not None
    address = next(part.address for part in running.parts if part.name == "gateway")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^curl -s http://127\.0\.0\.1:8070/.*$", readme, re.MULTILINE)
    assert len(lines) == 3
    answers = []
    for line in lines:
        process = await asyncio.create_subprocess_shell(
            line.replace("http://127.0.0.1:8070", address), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(COMMAND_SECONDS):
            out, _ = await process.communicate()
        answers.append(json.loads(out))
    assert answers[0]["added"] == 1
    assert "Backups" in sources(answers[1])
    assert [item["sources"] for item in answers[2]["collections"]] == [4]


async def the_parts_count_what_was_done(machine: Machine) -> None:
    """What is new was asked for, sent, and asked for once more; three chunks were stored."""
    running = read_running(machine.data)
    assert running is not None
    assert len({part.metrics for part in running.parts}) == len(running.parts)
    parts = await metrics_of(running)
    assert list(parts) == [part.name for part in running.parts]
    worker, database = parts["worker-1"], parts["database"]
    assert worker.total(table.TOOL_CALLS, tool="search-index") == 3
    assert worker.total(table.TOOL_CALLS, tool="search-index", code="ok") == 3
    assert worker.total(table.TOOL_CALL_SECONDS, tool="search-index") == 3
    assert worker.total(table.CHUNKS_INDEXED) == 3
    assert worker.total(table.CHUNKS_DELETED) == 0
    assert worker.total(table.EMBEDDING_TEXTS, origin="embedded") == 3
    assert parts["models"].by(stack_metrics.MODEL_QUEUED_TEXTS, "model")["all-MiniLM-L6-v2"] == 0
    embedded = parts["models"].total(table.TOOL_CALLS, tool="create-embedding")
    assert worker.total(table.RPC_CALLS, tool="create-embedding") == embedded > 0
    heap = database.total(stack_metrics.DATABASE_HEAP_USED)
    assert 0 < heap < database.total(stack_metrics.DATABASE_HEAP_MAX)
    written = database.total(table.TOOL_CALLS, tool="arcade-command")
    assert database.total(stack_metrics.DATABASE_STATEMENTS) >= written > 0
    assert parts["broker"].total(stack_metrics.BROKER_SESSIONS) >= 4


async def metrics_of(running: RunningStack) -> dict[str, Reading]:
    async with httpx.AsyncClient(trust_env=False, timeout=COMMAND_SECONDS) as client:
        return {
            part.name: parse((await client.get(part.metrics)).raise_for_status().text)
            for part in running.parts
            if part.metrics
        }


async def strangers_call_the_tools_of_the_worker_and_offer_none(machine: Machine) -> None:
    running = read_running(machine.data)
    assert running is not None
    assert running.networks == ("global", "components")
    squatted = ("search-query", "arcade-command", "create-embedding", "rerank")

    async def nothing(_given: dict[str, Any], _call: Call) -> dict[str, Any]:
        raise AssertionError("a squatter was called")

    async with Connection(running.url, networks=running.networks) as stranger:
        assert {tool["name"] for tool in await stranger.list_tools()} == {
            row.name for row in all_tools()
        }
        with pytest.raises(NoProvider) as refused:
            await stranger.invoke("arcade-db-list", {}, timeout=COMMAND_SECONDS)
        assert str(refused.value) == (
            "no provider for tool 'arcade-db-list' on the networks searched: global; it is offered"
            " on network 'components', which only listed agents may join, and agent"
            f" {stranger.agent_id} is none of them: its operator can list it with"
            " SEARCH_LOCAL_BROKER_MEMBERS=components=AGENT_ID, or open the network with"
            " SEARCH_LOCAL_BROKER_PRIVATE_NETWORK="
        )
        for name in squatted:
            with pytest.raises(RemoteError, match=f"'{name}' may only be offered by listed"):
                await stranger.serve([Tool(name, "Nothing.", {"type": "object"}, nothing)])
    listed = (await machine.run("call", "arcade-db-list")).json
    assert listed["databases"] == ["kadi_memory"]


async def pruning_removes_the_text_of_a_deleted_document(machine: Machine) -> None:
    def holding() -> list[str]:
        files = [path for path in (machine.data / "databases").rglob("*") if path.is_file()]
        return [path.suffix for path in files if b"quetzalcoatl" in path.read_bytes()]

    note = machine.home / "work" / "note.md"
    note.write_text("Quetzalcoatl: quetzalcoatl keeps a secret.")
    assert (await machine.run("index", "note.md", "-c", "gone")).code == 0
    assert (await machine.run("delete", "gone", "--source", "note.md", "--yes")).code == 0
    assert ".wal" in holding()
    assert (await machine.run("prune")).out == "pruned\n"
    assert holding() == []
    assert (await machine.run("delete", "gone", "--yes")).code == 0


@pytest.mark.parametrize(
    ("shared", "killed"),
    [
        ("true", ["broker", "models", "database"]),
        ("false", ["broker", "models", "database", "worker-1", "gateway"]),
    ],
)
async def test_a_stack_survives_killed_components_and_keeps_its_data(
    machine: Machine, shared: str, killed: list[str]
) -> None:
    machine.further["SEARCH_LOCAL_BROKER_SHARED_PROCESS"] = shared
    async with machine.up() as up:
        assert len(set(machine.pids().values())) == len(killed)
        indexed = (await machine.run("index", "notes", "--json")).json
        assert (indexed["collection"], indexed["added"]) == ("notes", 3)
        again = (await machine.run("index", "notes", "--json")).json
        assert (again["unchanged"], again["chunks"]) == (3, 0)
        await the_parts_count_what_was_done(machine)
        await pruning_removes_the_text_of_a_deleted_document(machine)
        await strangers_call_the_tools_of_the_worker_and_offer_none(machine)

        await kill_and_wait_until_back(machine, up, killed)

        question = "where are copies of the data kept"
        found = await machine.run("search", question, "--semantic", "--json", "-k", "1")
        assert sources(found.json) == ["notes/backup.md"]
        await the_lines_of_the_readme_work_over_http(machine)
        running = read_running(machine.data)
        assert running is not None
        assert len(await metrics_of(running)) == len(running.parts)

        request = {"jsonrpc": "2.0", "id": 1, "method": "kadi.ability.request"}
        call = {"toolName": "search-collections", "toolInput": {}}
        line = json.dumps({**request, "params": call}) + "\n"
        piped = (await machine.run("worker", "--stdio", given=line)).json
        assert [found["name"] for found in piped["result"]["collections"]] == ["notes"]

        refused = await machine.run("up", "--port", "0")
        assert refused.code == 1
        assert f"process {up.process.pid}" in refused.err

        assert (await machine.run("down")).code == 0
        async with asyncio.timeout(COMMAND_SECONDS):
            assert await up.process.wait() == 0
        assert read_running(machine.data) is None


async def test_a_stack_is_opened_and_offers_the_eight_tools_by_blank_variables(
    machine: Machine,
) -> None:
    machine.further |= {"SEARCH_LOCAL_BROKER_PRIVATE_NETWORK": "", "SEARCH_OFFER": ""}
    async with machine.up() as up:
        running = read_running(machine.data)
        assert running is not None
        assert (running.networks, running.private_network) == (("global",), "")
        shown = (await machine.run("status")).out
        assert "offers    search-*\n" in shown
        assert "private" not in shown
        async with Connection(running.url) as stranger:
            listed = await stranger.invoke("arcade-db-list", {}, timeout=COMMAND_SECONDS)
            assert listed["success"]
            names = {tool["name"] for tool in await stranger.list_tools()}
        eight = {row.name for row in TOOLS}
        assert {name for name in names if name.startswith(("search-", "memory-"))} == eight
        refused = await machine.run("memory", "scratch", "list")
        assert refused.code == 1
        assert "no worker offers memory-read" in refused.err
        assert "SEARCH_OFFER=memory" in refused.err
        well = await machine.run("doctor", "--quiet")
        assert (well.code, well.out) == (0, "")
        # What a worker offers that joins is its own decision.
        joined = await machine.spawn("worker", "--offer", "memory")
        try:
            await up.told(joined.stderr, "ready: search-*, memory-* tools")
            assert (await machine.run("memory", "scratch", "set", "k", "text")).code == 0
        finally:
            joined.terminate()
            await joined.communicate()


async def test_one_agent_is_admitted_to_the_private_network(machine: Machine) -> None:
    identity = Identity.generate()
    machine.further["SEARCH_LOCAL_BROKER_MEMBERS"] = f"components={identity.agent_id}"
    async with machine.up("--no-gateway"):
        running = read_running(machine.data)
        assert running is not None
        async with Connection(running.url, identity=identity) as outside:
            with pytest.raises(NoProvider, match="'components', which this agent may join"):
                await outside.invoke("arcade-db-list", {}, timeout=COMMAND_SECONDS)
        networks = ["global", "components"]
        async with Connection(running.url, identity=identity, networks=networks) as inside:
            listed = await inside.invoke("arcade-db-list", {}, timeout=COMMAND_SECONDS)
            assert listed["success"]


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="sizes are no files")
async def test_an_idle_stack_on_a_given_port_takes_little_memory(machine: Machine) -> None:
    [port] = free_ports(1)
    async with machine.up("--port", str(port)) as up:
        running = read_running(machine.data)
        assert running is not None
        assert running.url == f"ws://127.0.0.1:{port}/kadi"
        assert sum(map(held_mb, {up.process.pid, *machine.pids().values()})) <= 500


async def test_data_survives_the_stack_and_no_component_survives_a_killed_parent(
    machine: Machine,
) -> None:
    async with machine.up() as up:
        assert (await machine.run("index", "notes")).code == 0
        up.process.kill()
        await up.process.wait()
        # Not a moment is lost: the new one waits for the parts of the killed one by itself.
        async with machine.up("--workers", "2", "--no-gateway") as second:
            parts = ["broker", "database", "models", "worker-1", "worker-2"]
            assert list(machine.pids()) == parts
            found = await machine.run("search", "dough", "--keyword", "--json")
            assert sources(found.json) == ["notes/kitchen/bread.md"]
            nothing = await machine.run("search", "zeppelin", "--keyword", "--json")
            assert (nothing.code, json.loads(nothing.out)["results"]) == (3, [])
            well = await machine.run("doctor", "--quiet")
            assert (well.code, well.out) == (0, "")
            second.process.send_signal(signal.SIGINT)
            async with asyncio.timeout(COMMAND_SECONDS):
                assert await second.process.wait() == 0
    missing = await machine.run("search", "dough")
    assert missing.code == 1
    assert "ability-search up" in missing.err


async def test_the_time_for_components_to_be_ready_is_a_setting(machine: Machine) -> None:
    machine.further["SEARCH_STACK_START_TIMEOUT"] = "0.01"
    ran = await machine.run("up", "--port", "0", "--models-port", "0", "--gateway-port", "0")
    assert (ran.code, "broker was not ready in 0.01 s" in ran.err) == (1, True)


async def test_a_stack_in_memory_needs_no_database_to_be_healthy(machine: Machine) -> None:
    async with machine.up("--memory"):
        well = await machine.run("doctor", "--quiet")
        assert (well.code, well.out) == (0, "")
        running = read_running(machine.data)
        assert running is not None
        gateway = next(part.address for part in running.parts if part.name == "gateway")
        async with httpx.AsyncClient(trust_env=False, timeout=COMMAND_SECONDS) as http:
            answer = await http.get(f"{gateway}/health")
        assert (answer.status_code, answer.json()["status"]) == (200, "up")
        assert set(answer.json()["parts"]) == {"broker", "models", "worker"}


def environ_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="environments are no files")
@pytest.mark.parametrize("shared", ["true", "false"])
async def test_no_component_can_read_the_secrets_of_another(machine: Machine, shared: str) -> None:
    users = {
        "SEARCH_API_KEY": {"worker"},
        "SEARCH_GATEWAY_TOKEN": {"gateway"},
        "SEARCH_MODEL_HTTP_TOKEN": {"models"},
        "SEARCH_ARCADEDB_PASSWORD": {"database"},
    }
    machine.further = {name: f"secret-of-{name}" for name in users}
    machine.further["SEARCH_LOCAL_BROKER_SHARED_PROCESS"] = shared
    machine.further["SEARCH_ARCADEDB_STATEMENT_TIMEOUT"] = "2"
    machine.further["SEARCH_DATABASE_TIMEOUT"] = "1"
    async with machine.up("--models-port", "0", "--gateway-port", "0", "--workers", "0"):
        running = read_running(machine.data)
        assert running is not None
        for part in running.parts:
            environ = environ_of(part.pid)
            found = {name for name in users if f"secret-of-{name}" in environ}
            used = {name for name, parts in users.items() if part.name in parts}
            if shared == "true" and part.name == "gateway":
                used = set()  # its environment is not that of its process
            assert found == used, part.name
        identity = Identity.load_or_create(identity_file(machine.data, CLIENT))
        async with Connection(running.url, networks=running.networks, identity=identity) as agent:
            await agent.invoke("arcade-db-create", {"name": "d"}, timeout=COMMAND_SECONDS)
            for text, language, expected in [
                (
                    "LOAD CSV FROM 'file:///proc/self/environ' AS l RETURN l",
                    "opencypher",
                    "only sql",
                ),
                ("BACKUP DATABASE", "sql", "BACKUP DATABASE is not allowed"),
                ("LET x = 1; WHILE ($x = 1) { LET x = 1; }", "sqlscript", "no answer within 2 s"),
            ]:
                asked = {"database": "d", "query": text, "language": language}
                with pytest.raises(ToolError, match=expected):
                    await agent.invoke("arcade-query", asked, timeout=3600)
