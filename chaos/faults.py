"""Faults: what breaks, for how long, and when the stack has recovered."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from chaos.callers import KadiCaller
from chaos.expectations import Violation
from chaos.ledger import Ledger
from chaos.proxy import Proxy
from chaos.stack_process import POLL_SECONDS, StackProcess, ended
from chaos.steps import Parameters, Step
from kadi_client import Connection, Identity, KadiError, Tool

RECOVERY_SECONDS = 120.0
PROBE = "observer"
"""Collection of the calls that show whether the stack works."""
SLOW_SECONDS = 0.05
"""Delay of each block through a slow connection."""
FREE_BYTES = 100 * 2**20
"""What is left of a full disk: less than the reserve of the database ability."""


class Faults:
    """Breaks one thing at a time and waits until the stack has recovered.

    Args:
        stack: The stack.
        proxies: The proxies before ``broker`` and ``gateway``.
        observer: A connection that no fault cuts, to see whether the stack has recovered.
        disk: Mount point of the small disk; ``None`` if there is none.
        ledger: Receives what happens.
    """

    def __init__(
        self,
        stack: StackProcess,
        proxies: Mapping[str, Proxy],
        observer: KadiCaller,
        disk: Path | None,
        ledger: Ledger,
    ) -> None:
        self._stack = stack
        self._proxies = proxies
        self._observer = observer
        self.disk = disk
        self._ledger = ledger
        self._kinds: Mapping[str, Callable[[Parameters], Awaitable[None]]] = {
            "pause": self._pause,
            "cut": self._cut,
            "slow": self._slow,
            "hold": self._hold,
            "burst": self._burst,
            "kill-supervisor": self._kill_supervisor,
            "disk-full": self._fill_disk,
            "second-database": self._second_database,
            "squatters": self._squat,
        }

    async def run(self, step: Step) -> None:
        """Run one fault until the stack has recovered, and record it."""
        after = self._ledger.issued
        began = time.monotonic()
        outcome = "recovered"
        self._ledger.weather.begin(step.operation)
        try:
            handler = self._kinds.get(step.operation)
            if handler is None:
                await self._kill(step.operation.removeprefix("kill-"))
            else:
                await handler(step.parameters)
            broken = time.monotonic()
            await self.recovered()
            self._ledger.recoveries[step.operation].append(time.monotonic() - broken)
        except Violation as violation:
            outcome = "violation"
            self._ledger.violated(step, violation)
        finally:
            self._ledger.weather.end()
        self._ledger.wrote(step, after, outcome, time.monotonic() - began)

    async def recovered(self) -> None:
        """Wait until every component is up, and a document can be indexed and found.

        Raises:
            Violation: if that takes too long.
        """
        deadline = time.monotonic() + RECOVERY_SECONDS
        seen: Any = None
        async with httpx.AsyncClient(timeout=10.0) as client:
            while time.monotonic() < deadline:
                with suppress(OSError, httpx.HTTPError, ValueError):
                    host, port = await self._stack.gateway()
                    response = await client.get(f"http://{host}:{port}/health")
                    seen = response.json()
                    if response.status_code == httpx.codes.OK and await self._works():
                        return
                await asyncio.sleep(POLL_SECONDS)
        raise Violation(f"a recovery within {RECOVERY_SECONDS:g} s", str(seen))

    async def _works(self) -> bool:
        """Return whether a document can be embedded, stored and found by meaning."""
        text = "The lighthouse keeper counts the ships."
        document = {"source": "probe", "title": "Probe", "content": text}
        sent = {"collection": PROBE, "documents": [document], "force": True}
        indexed = await self._observer.call("search-index", sent, 30.0)
        if indexed.answer is None or indexed.answer["failed"]:
            return False
        query = {"collection": PROBE, "query": text, "mode": "semantic"}
        found = await self._observer.call("search-query", query, 30.0)
        return found.answer is not None and found.answer["count"] == 1

    async def _kill(self, component: str) -> None:
        pid = self._stack.pids().get(component)
        if pid is None:
            raise Violation(f"{component} to run", str(self._stack.pids()))
        self._strike(component, pid)
        await self._back(component, pid)

    def _strike(self, component: str, pid: int) -> bool:
        """Kill a component; return False if it has ended already."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._ledger.kills[component] += 1
            return True
        return False

    async def _back(self, component: str, pid: int) -> None:
        seconds = await self._stack.replaced(component, pid, timeout=RECOVERY_SECONDS)
        if seconds is None:
            raise Violation(f"{component} to be started again", f"not in {RECOVERY_SECONDS:g} s")
        self._ledger.restarts[component].append(seconds)

    async def _burst(self, parameters: Parameters) -> None:
        """Kill one component after another, also while they or others are starting.

        If the one to kill is down, the next one that has a process is killed.
        """
        restarts = []
        for first, seconds in parameters["kills"]:
            await asyncio.sleep(seconds)
            running, processes = self._stack.pids(), self._stack.processes()
            for name in sorted(processes, key=lambda name: (name != first, name < first, name)):
                pid = processes[name]
                if self._strike(name, pid):
                    if running.get(name) == pid:
                        restarts.append(asyncio.create_task(self._back(name, pid)))
                    else:
                        self._ledger.kills_while_starting += 1
                    break
        await asyncio.gather(*restarts)

    async def _kill_supervisor(self, _: Parameters) -> None:
        pids = self._stack.pids().values()
        await self._stack.kill()
        self._ledger.kills["supervisor"] += 1
        ending = asyncio.create_task(ended(pids))
        self._ledger.restarts["supervisor"].append(await self._stack.start())
        # The new stack starts once these have ended.
        self._ledger.restarts["end of its components"].append(await ending)

    async def _pause(self, parameters: Parameters) -> None:
        pid = self._stack.pids().get(parameters["component"])
        if pid is None:
            return
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(parameters["seconds"])
            finally:
                os.kill(pid, signal.SIGCONT)

    async def _cut(self, parameters: Parameters) -> None:
        proxy = self._proxies[parameters["proxy"]]
        for _ in range(3):
            proxy.cut()
            await asyncio.sleep(parameters["seconds"] / 3)

    async def _slow(self, parameters: Parameters) -> None:
        proxy = self._proxies[parameters["proxy"]]
        proxy.delay = SLOW_SECONDS
        await asyncio.sleep(parameters["seconds"])
        proxy.release()

    async def _hold(self, parameters: Parameters) -> None:
        proxy = self._proxies[parameters["proxy"]]
        proxy.hold()
        await asyncio.sleep(parameters["seconds"])
        proxy.release()

    async def _fill_disk(self, parameters: Parameters) -> None:
        assert self.disk is not None
        ballast = self.disk / "ballast"
        usage = os.statvfs(self.disk)
        size = usage.f_bavail * usage.f_frsize - FREE_BYTES
        try:
            with ballast.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(1, size))
            await asyncio.sleep(parameters["seconds"])
        finally:
            ballast.unlink(missing_ok=True)

    async def _second_database(self, parameters: Parameters) -> None:
        state = self._stack.state()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ability_search", "database"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=self._stack.work,
            env={
                **self._stack.environ,
                "SEARCH_DATA_DIR": str(self._stack.home / "second"),
                "BROKER_URL": state.get("url", ""),
                "BROKER_NETWORKS": ",".join(self._networks(parameters)),
            },
        )
        try:
            await asyncio.sleep(5.0 + parameters["seconds"])
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def _squat(self, parameters: Parameters) -> None:
        """Offer tools of the stack under their names, with answers that are made up."""

        async def handle(_input: dict[str, Any], _call: Any) -> dict[str, Any]:
            return {"success": True, "result": [], "results": [], "count": 0}

        names = ("search-query", "search-index", "arcade-query", "arcade-command", "arcade-batch")
        tools = [
            Tool(name, "A squatter.", {"type": "object"}, handle)
            for name in (*names, "create-embedding")
        ]
        state = self._stack.state()
        # The broker may refuse it: what counts is what the clients notice.
        with suppress(KadiError):
            async with Connection(
                state["url"],
                identity=Identity.generate(),
                networks=self._networks(parameters),
                role="ability",
                tools=tools,
            ):
                await asyncio.sleep(parameters["seconds"])

    def _networks(self, parameters: Parameters) -> tuple[str, ...]:
        """Return the networks that an intruder joins: also that of the components, or not."""
        every = tuple(self._stack.state().get("networks", ()))
        return every if parameters["private"] and every else self._stack.networks
