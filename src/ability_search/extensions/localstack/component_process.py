"""A component of the stack as a child process that is restarted when it ends.

The parent holds the write end of the child's standard input: end of file tells the child to stop,
whether the parent closed it or died. The child's first line on standard output is a JSON object,
``{"ready": {...}}`` with its addresses or ``{"error": ..., "hint": ...}``. After that it writes an
empty line every few seconds from its event loop (:mod:`.lifecycle`). If it is silent for too long,
it hangs: it is killed and restarted.

Other components may run in its process, as its guests, which the parent orders over that input
(:class:`.component_run.Guests`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ability_search.config.schema import Tracing
from ability_search.config.setting_fields import Url, has_credentials
from ability_search.config.settings_table import all_settings
from ability_search.errors import SearchError
from ability_search.extension import loaded
from ability_search.extensions.cli.settings import Metrics
from kadi_client.backoff import Backoff

log = logging.getLogger(__name__)

STOP_SECONDS = 20.0
"""Time until a component must have stopped; the worker gives running calls ten seconds."""

SILENCE_SECONDS = 30.0
"""Silence after which a component counts as hanging."""

STABLE_SECONDS = 5.0
"""A component that was ready for this long is restarted at once when it ends; only one that fails
again and again waits longer each time."""

_CHECKS = 6
"""Number of checks within that time."""
_KILL_SECONDS = 3.0
_LONGEST_LINE = 1024 * 1024


class ComponentFailed(SearchError):
    """A component of the stack did not start."""


WITHHELD = "withheld"
"""Replaces a secret, so that the component does not search secrets.toml for it: another program
may have encrypted it there and put the plain text into the environment."""

_OF_ALL = (Metrics, Tracing)
"""The groups of settings whose secrets every component uses."""

Notify = Callable[[str], None]
Arguments = Callable[[Mapping[str, Any]], Sequence[str]]
"""Returns the arguments of ``ability-search`` for a start of a component, given the details of its
previous start (``{}`` at first), so that it can keep its port."""
Environ = Callable[[Mapping[str, Any]], Mapping[str, str]]
"""Returns the environment of a component in the same way."""

_CAUSES = {
    3: "out of heap memory: increase arcadedb_heap, or index less at a time",
    70: "the engine answered no call any more",
}
"""Causes of the exit codes of a database."""


@dataclass(slots=True, eq=False)
class ComponentProcess:
    """A component; after :meth:`start` it is restarted whenever it ends."""

    name: str
    arguments: Arguments
    environ: Environ
    inherit: Sequence[int] = field(default=(), kw_only=True)
    """File descriptors to inherit."""
    notify: Notify = field(kw_only=True)
    """Receives a sentence when the component ends and when it is back."""
    changed: Callable[[], None] = field(kw_only=True)
    """Called when it is back."""
    ready_timeout: float = field(kw_only=True)
    """Seconds until it must be ready; the first start of the model builds its graph."""
    silence: float = field(default=SILENCE_SECONDS, kw_only=True)
    """Seconds of silence after which it is killed."""
    details: Mapping[str, Any] = field(default_factory=dict, init=False)
    """The object that the component reported when it was ready."""
    _heard: bool = field(default=False, init=False)
    """Whether it wrote anything since the last check."""
    _backoff: Backoff = field(init=False)
    _process: asyncio.subprocess.Process | None = field(default=None, init=False)
    _keeper: asyncio.Task[None] | None = field(default=None, init=False)
    _drain: asyncio.Task[None] | None = field(default=None, init=False)
    _guests: list[Guest] = field(default_factory=list, init=False)
    _reports: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue, init=False)
    """The lines that the process writes, and an empty one at the end."""
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    """Held while the process, or a guest of it, starts or stops."""

    def __post_init__(self) -> None:
        self._backoff = Backoff(base=0.25, cap=30.0, stable=STABLE_SECONDS)

    @property
    def pid(self) -> int:
        """Process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    async def start(self) -> Mapping[str, Any]:
        """Start it, wait until it is ready, and return the details that it reported.

        Raises:
            ComponentFailed: if it ended, or was not ready in time.
        """
        async with self._changing:
            await self._launch()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep-{self.name}")
        return self.details

    async def stop(self) -> None:
        """Stop it: close its input, then terminate, then kill it, each after a timeout."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if not await _ends(process, STOP_SECONDS):
            log.warning("%s does not stop; terminating it", self.name)
            with suppress(ProcessLookupError):
                process.terminate()
            if not await _ends(process, _KILL_SECONDS):
                self.kill()
                await _ends(process, _KILL_SECONDS)
        if self._drain is not None:
            await asyncio.wait([self._drain], timeout=_KILL_SECONDS)
            self._drain.cancel()

    def kill(self) -> None:
        """Kill it."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _launch(self) -> None:
        # -P: files of the working directory must not shadow modules.
        python = (sys.executable, "-P", "-m", "ability_search")
        # Its own process group: Ctrl-C reaches only the parent, which stops all in order.
        own_group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
        process = self._process = await asyncio.create_subprocess_exec(
            *python,
            *self.arguments(self.details),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self.environ(self.details),
            pass_fds=self.inherit,
            limit=_LONGEST_LINE,
            **own_group,
        )
        log.debug("%s is process %d", self.name, process.pid)
        self._reports = asyncio.Queue()
        reading = asyncio.create_task(self._read(process), name=f"read-{self.name}")
        self.details = await self._until_ready(self.name, self.arguments, None)
        self._drain = asyncio.create_task(self._listen(process, reading), name=f"drain-{self.name}")
        for guest in self._guests:
            guest.details = await self._admit(guest)

    async def run(self, guest: Guest) -> Mapping[str, Any]:
        """Run a guest, now and whenever the process is restarted; return its details.

        Raises:
            ComponentFailed: if it was not ready in time, or the process ended.
        """
        async with self._changing:
            details = await self._admit(guest)
            self._guests.append(guest)
            return details

    async def dismiss(self, guest: Guest) -> None:
        """Stop a guest; the process remains."""
        async with self._changing:
            if guest not in self._guests:
                return
            self._guests.remove(guest)
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._order({"stop": guest.name})
                    while (report := await self._report(guest.name)) and "stopped" not in report:
                        pass

    async def _admit(self, guest: Guest) -> Mapping[str, Any]:
        before = guest.details
        arguments, environ = guest.arguments(before), guest.environ(before)
        await self._order({"run": guest.name, "arguments": arguments, "environ": environ})
        return await self._until_ready(guest.name, guest.arguments, guest.name)

    async def _order(self, order: Mapping[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        with suppress(OSError):  # it has ended, as its report says
            await self._process.stdin.drain()

    async def _until_ready(
        self, name: str, arguments: Arguments, guest: str | None
    ) -> Mapping[str, Any]:
        """Wait until the component, or a guest, is ready; kill the process if it is not in time."""
        try:
            async with asyncio.timeout(self.ready_timeout):
                report = await self._report(guest)
                if isinstance(report.get("ready"), dict):
                    details: Mapping[str, Any] = report["ready"]
                    return details
                assert self._process is not None
                code = await self._process.wait()
                if "error" in report:
                    text = f"{name}: {report['error']}"
                    raise ComponentFailed(text, hint=str(report.get("hint") or ""))
                raise ComponentFailed(
                    f"{name} {_ending(name, code)} before it was ready",
                    hint=f"Its log is above; `ability-search {arguments({})[0]}` runs it alone.",
                )
        except BaseException as exc:
            self.kill()
            if isinstance(exc, TimeoutError):
                text = f"{name} was not ready in {self.ready_timeout:g} s"
                hint = "If it is only slow, set SEARCH_STACK_START_TIMEOUT to more seconds."
                raise ComponentFailed(text, hint=hint) from exc
            raise

    async def _report(self, of: str | None) -> Mapping[str, Any]:
        """Return the next report of the component itself or of a guest; empty if there is none."""
        while line := await self._reports.get():
            try:
                report = json.loads(line)
            except ValueError:
                return {}
            if isinstance(report, dict) and report.get("of") == of:
                return report
        return {}

    async def _listen(
        self, process: asyncio.subprocess.Process, reading: asyncio.Task[None]
    ) -> None:
        """Wait until its output ends; kill it when it is silent."""
        self._heard = True
        interval = self.silence / _CHECKS
        silent = 0
        try:
            # Counted, not timed: if this process was suspended too, its output is still unread.
            while not (await asyncio.wait([reading], timeout=interval))[0]:
                silent = 0 if self._heard else silent + 1
                self._heard = False
                if silent == _CHECKS:
                    self.notify(
                        f"{self.name} hangs: no sign of life for {self.silence:g} s; killing it"
                    )
                    with suppress(ProcessLookupError):
                        process.kill()
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        """Read its output as it comes, so that writing never blocks it."""
        assert process.stdout is not None
        reports = self._reports
        line = b"-"
        while line:
            try:
                line = await process.stdout.readline()
            except ValueError:  # too long
                continue
            self._heard = True
            if not line or line.startswith(b"{"):
                reports.put_nowait(line)

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        ready: float | None = clock()
        while self._process is not None:
            code = await self._process.wait()
            delay = self._backoff.delay(0.0 if ready is None else clock() - ready)
            guests = ", ".join(each.name for each in self._guests)
            what = f"{self.name} (with {guests})" if guests else self.name
            self.notify(f"{what} {_ending(self.name, code)}; restarting in {delay:.1f} s")
            await asyncio.sleep(delay)
            ready = None
            try:
                async with self._changing:
                    await self._launch()
                ready = clock()
                self.changed()
            except (ComponentFailed, OSError) as exc:
                self.notify(str(exc))
            else:
                self.notify(f"{what} is back as process {self.pid}")


@dataclass(slots=True, eq=False)
class Guest:
    """A component in the process of another one, with which it is restarted."""

    name: str
    arguments: Arguments
    environ: Environ
    host: ComponentProcess
    details: Mapping[str, Any] = field(default_factory=dict, init=False)
    """The object that the component reported when it was ready."""

    @property
    def pid(self) -> int:
        """Process id of its host."""
        return self.host.pid

    async def start(self) -> Mapping[str, Any]:
        """Start it, wait until it is ready, and return the details that it reported.

        Raises:
            ComponentFailed: if it was not ready in time, or the process ended.
        """
        self.details = await self.host.run(self)
        return self.details

    async def stop(self) -> None:
        """Stop it; its host remains."""
        await self.host.dismiss(self)


def child_environ(
    component: str, changes: Mapping[str, str], *, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a component such as ``worker-1``, without the secrets of others.

    Secrets that it does not use are replaced by ``WITHHELD``, or left out if no file can hold them;
    addresses lose their credentials.
    """
    needs = {*_OF_ALL, *loaded().components[component.partition("-")[0]].groups}
    child = {**environ, **changes}
    for spec in all_settings().specs:
        if spec.group not in needs:
            for name in child.keys() & set(spec.env):
                if spec.kind != "secret":
                    # A blank one stays: it may set the empty value.
                    parts = map(_without_credentials, child[name].split(","))
                    child[name] = ",".join(parts)
                elif spec.home is None and child[name].strip():
                    child[name] = WITHHELD
                else:
                    del child[name]
    return child


def _without_credentials(text: str) -> str:
    with suppress(ValueError):
        if "://" in text and has_credentials(text):
            return str(Url(text.strip()))
    return text


async def _ends(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _ending(name: str, code: int) -> str:
    if code >= 0:
        cause = _CAUSES.get(code) if name.partition("-")[0] == "database" else None
        return f"ended with exit code {code}" + (f" ({cause})" if cause else "")
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
