"""The campaign: clients, faults and attacks at once over one stack, from one seed."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from mcp import Client as McpClient

from chaos.attacks import ATTACKS, Attacker
from chaos.callers import Caller, HttpCaller, KadiCaller, McpCaller
from chaos.clients import Client
from chaos.expectations import Violation
from chaos.faults import Faults
from chaos.inputs import BATCHES, Inputs
from chaos.ledger import Ledger
from chaos.proxy import Proxy, Upstream
from chaos.report import holds, report_of
from chaos.searches import search
from chaos.stack_process import StackProcess, resident_bytes, small_disk, users_of, zombies
from chaos.steps import Step, attack_step, client_step, fault_step, input_step
from kadi_client import Connection

BREAKING = 0.6
"""Part of the time after the start in which faults begin; the recovery from the last one, the
comparison in calm, the searches and the stop have the rest."""
STOPPING_SECONDS = 10.0
"""Time that the searches leave for the stop."""
SAMPLE_SECONDS = 2.0
STATUS_SECONDS = 60.0
ZOMBIE_SECONDS = 30.0
"""How long an ended process may wait for its parent, which may be paused."""
DISK_BYTES = 2 * 2**30
VIOLATIONS = 10
"""After so many violations the campaign ends."""


@dataclass(frozen=True)
class Plan:
    """The options of a campaign; the same plan makes the same steps."""

    seed: int
    minutes: float
    """Duration of all of it, from the start of the stack to its stop."""
    clients: int
    faults: tuple[str, ...]
    attacks: bool
    inputs: int
    """Hostile inputs to reach within the time."""
    queries: int
    """Searches afterwards, while nothing is broken."""

    @property
    def header(self) -> dict[str, Any]:
        """Return the plan as the first line of the log."""
        return {
            "seed": self.seed,
            "minutes": self.minutes,
            "clients": self.clients,
            "chosenFaults": list(self.faults),
            "withAttacks": self.attacks,
            "wantedInputs": self.inputs,
            "wantedQueries": self.queries,
        }


class Recorded:
    """The steps of a log, to run them again.

    Raises:
        ValueError: if the file is not a log, or its steps are not those that the seed makes today.
    """

    def __init__(self, file: Path) -> None:
        lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        header = lines[0]
        self.plan = Plan(
            header["seed"],
            header["minutes"],
            header["clients"],
            tuple(header["chosenFaults"]),
            header["withAttacks"],
            header["wantedInputs"],
            header["wantedQueries"],
        )
        self._after: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for line in lines[1:]:
            if "actor" in line:
                step = made(self.plan, line["actor"], line["step"])
                if step.digest != line["digest"]:
                    raise ValueError(
                        f"step {step.number} of {step.actor} is another one today: {step.operation}"
                    )
                self._after[step.actor][step.number] = line["after"]

    def steps(self, actor: str) -> Iterator[tuple[Step, int]]:
        """Yield the steps of an actor, and the number of steps of clients begun before each."""
        for number, after in sorted(self._after[actor].items()):
            yield made(self.plan, actor, number), after


def made(plan: Plan, actor: str, number: int) -> Step:
    """Return the step of an actor with this number."""
    if actor == "faults":
        return fault_step(plan.seed, number, plan.faults)
    if actor == "attacks":
        return attack_step(plan.seed, number, ATTACKS)
    if actor == "inputs":
        return input_step(plan.seed, number, tuple(BATCHES))
    return client_step(plan.seed, int(actor.removeprefix("client-")), number)


@dataclass(frozen=True)
class Actors:
    """Those that act beside the clients."""

    stack: StackProcess
    faults: Faults
    attacker: Attacker
    inputs: Inputs
    observer: KadiCaller


class Campaign:
    """One run of a plan; ``home`` receives the data, the logs and ``steps.jsonl``.

    ``tell`` receives a line with the counts each minute.
    """

    def __init__(
        self,
        plan: Plan,
        home: Path,
        recorded: Recorded | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._tell = tell
        self._home = home
        self._recorded = recorded
        self._ledger = Ledger(home / "steps.jsonl", plan.header)
        self._ends = 0.0
        """When the last fault begins, of the monotonic clock; :attr:`_until` is the end of all."""
        self._until = 0.0

    async def run(self) -> dict[str, Any]:
        """Run it and return the report."""
        began = time.monotonic()
        plan, disk = self._plan, self._home / "disk"
        self._until = began + plan.minutes * 60
        with small_disk(disk, DISK_BYTES if "disk-full" in plan.faults else 0) as mounted:
            if "disk-full" in plan.faults and not mounted:
                self._ledger.notes.append("no disk-full: a file system cannot be mounted here")
            stack = StackProcess(self._home, disk / "data")
            try:
                with self._ledger.phase("start"):
                    start = await stack.start()
                self._ledger.restarts["first start"].append(start)
                async with self._actors(stack, disk if mounted else None) as (clients, actors):
                    await self._act(clients, actors)
            finally:
                with self._ledger.phase("stop"):
                    code = await stack.stop()
            self._after_stop(stack, code)
            if mounted and self._ledger.violations:
                shutil.copytree(stack.data, self._home / "kept-data")
        self._note_excess()
        self._ledger.close()
        report: dict[str, Any] = report_of(
            self._ledger, plan.header, time.monotonic() - began, stack.log
        )
        return report

    async def _act(self, clients: Mapping[str, Client], actors: Actors) -> None:
        if self._plan.inputs:
            await actors.inputs.prepare()
        self._ends = time.monotonic() + (self._until - time.monotonic()) * BREAKING
        watching = asyncio.create_task(self._watch(actors.stack))
        try:
            with self._ledger.phase("faults"):
                async with asyncio.TaskGroup() as others:
                    for each in self._others(actors):
                        others.create_task(each)
                    async with asyncio.TaskGroup() as group:
                        for actor, client in clients.items():
                            group.create_task(self._client(actor, client))
                    await self._ledger.finish()
            with self._ledger.phase("comparison"):
                calm = await self._verify(clients, actors)
            if calm and self._plan.queries:
                seconds = self._until - STOPPING_SECONDS - time.monotonic()
                plan = self._plan
                with self._ledger.phase("searches"):
                    await search(actors.observer, self._ledger, plan.seed, plan.queries, seconds)
        finally:
            watching.cancel()
            await asyncio.wait([watching])

    async def _verify(self, clients: Mapping[str, Client], actors: Actors) -> bool:
        """Compare everything in calm; return False if there is none."""
        step = Step("end", 0, "verify", {})
        try:
            await actors.faults.recovered()
        except Violation as violation:
            self._ledger.violated(step, violation)
            return False
        await asyncio.gather(*(client.verify_all(step) for client in clients.values()))
        return True

    @asynccontextmanager
    async def _actors(
        self, stack: StackProcess, disk: Path | None
    ) -> AsyncIterator[tuple[dict[str, Client], Actors]]:
        async with AsyncExitStack() as exits:

            async def through(upstream: Upstream) -> Proxy:
                return await exits.enter_async_context(Proxy(upstream))

            async def connected(proxy: Proxy, name: str) -> KadiCaller:
                url = f"ws://127.0.0.1:{proxy.port}/kadi"
                connection = Connection(url, name=name, networks=stack.networks)
                return KadiCaller(await exits.enter_async_context(connection))

            async def over_http(proxy: Proxy) -> HttpCaller:
                client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{proxy.port}", timeout=None)
                return HttpCaller(await exits.enter_async_context(client))

            broker, gateway = await through(stack.broker), await through(stack.gateway)
            clean, clean_http = await through(stack.broker), await through(stack.gateway)
            mcp_url = f"http://127.0.0.1:{gateway.port}/mcp"
            schemas = await result_schemas(mcp_url)
            clients = {}
            for number in range(self._plan.clients):
                callers: dict[str, Caller] = {
                    "kadi": await connected(broker, f"chaos-{number}"),
                    "http": await over_http(gateway),
                    "mcp": McpCaller(mcp_url),
                }
                clients[f"client-{number}"] = Client(number, callers, schemas, stack, self._ledger)
            attacker = Attacker(
                await connected(clean, "attacker"), await over_http(clean_http), stack, self._ledger
            )
            observer = await connected(clean, "observer")
            proxies = {"broker": broker, "gateway": gateway}
            faults = Faults(stack, proxies, observer, disk, self._ledger)
            inputs = Inputs(await connected(clean, "inputs"), clean, stack, self._ledger)
            exits.push_async_callback(inputs.close)
            yield clients, Actors(stack, faults, attacker, inputs, observer)

    def _others(self, actors: Actors) -> Iterator[Any]:
        faults = self._plan.faults
        if actors.faults.disk is None:
            faults = tuple(name for name in faults if name != "disk-full")
        if faults:
            yield self._paced("faults", actors.faults.run, faults)
        if self._plan.attacks:
            yield self._paced("attacks", actors.attacker.run, ())
        if self._plan.inputs:
            yield self._inputs(actors.inputs)

    async def _client(self, actor: str, client: Client) -> None:
        if self._recorded is not None:
            for step, _ in self._recorded.steps(actor):
                await client.run(step)
            return
        number = 0
        while not self._over():
            await client.run(made(self._plan, actor, number))
            number += 1

    async def _paced(self, actor: str, run: Any, possible: tuple[str, ...]) -> None:
        """Run the steps of an actor, each after a number of steps of the clients."""
        if self._recorded is not None:
            for step, after in self._recorded.steps(actor):
                await self._ledger.reached(after)
                await run(step)
            return
        number = 0
        while not self._over():
            step = made(self._plan, actor, number)
            number += 1
            if possible and step.operation not in possible:
                continue
            if await self._ledger.reached(self._ledger.issued + step.parameters["gap"]):
                await run(step)

    async def _inputs(self, inputs: Inputs) -> None:
        """Send batches at the rate that reaches the number wanted."""
        if self._recorded is not None:
            for step, after in self._recorded.steps("inputs"):
                await self._ledger.reached(after)
                await inputs.run(step)
            return
        number, began = 0, time.monotonic()
        seconds = self._ends - began
        while not self._over():
            await inputs.run(made(self._plan, "inputs", number))
            number += 1
            due = seconds * self._ledger.answered / self._plan.inputs
            await asyncio.sleep(max(0.05, due - (time.monotonic() - began)))

    def _over(self) -> bool:
        return time.monotonic() >= self._ends or len(self._ledger.violations) >= VIOLATIONS

    async def _watch(self, stack: StackProcess) -> None:
        """Sample the memory of the components; look for children that nobody waits for."""
        seen: dict[int, float] = {}
        reported: set[int] = set()
        told = time.monotonic()
        while True:
            pids = {"supervisor": stack.pid, **stack.pids()}
            for component, pid in pids.items():
                size = resident_bytes(pid)
                if size is not None:
                    self._ledger.sampled(component, pid, size)
            now = time.monotonic()
            if now >= told + STATUS_SECONDS:
                told = now
                self._tell(self._ledger.status())
            seen = {pid: seen.get(pid, now) for pid in zombies(set(pids.values()))}
            lasting = {pid for pid, since in seen.items() if now - since > ZOMBIE_SECONDS}
            if lasting - reported:
                reported |= lasting
                violation = Violation("no zombies", f"processes {sorted(lasting)}")
                self._ledger.violated(Step("watch", 0, "zombies", {}), violation)
            await asyncio.sleep(SAMPLE_SECONDS)

    def _note_excess(self) -> None:
        """Say how much longer than planned it took, and which part had to be finished."""
        excess = time.monotonic() - self._until
        if self._recorded is None and excess > 0:
            phases = ", ".join(f"{name} {each:.0f} s" for name, each in self._ledger.phases.items())
            text = f"{excess:.0f} s longer than planned, since steps under way are finished"
            self._ledger.notes.append(f"{text}: {phases}")

    def _after_stop(self, stack: StackProcess, code: int) -> None:
        """Look at what the stack leaves behind."""
        for violation in holds(stack.log):
            self._ledger.violated(Step("end", 2, "log", {}), violation)
        step = Step("end", 1, "stop", {})
        left = users_of(stack.data)
        if code != 0 or left:
            self._ledger.violated(
                step,
                Violation(
                    "the stack to stop with exit code 0 and to leave no process",
                    f"exit code {code}, processes {sorted(left)}",
                ),
            )


async def result_schemas(url: str) -> dict[str, Draft202012Validator]:
    """Return the result schema of each tool, as the gateway lists it over MCP."""
    async with McpClient(url, read_timeout_seconds=30) as client:
        listed = await client.list_tools()
    return {
        tool.name: Draft202012Validator(tool.output_schema)
        for tool in listed.tools
        if tool.output_schema is not None
    }
