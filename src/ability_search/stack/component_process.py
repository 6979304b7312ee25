"""One part of the stack as a process that is kept running.

The parent holds the write end of the child's standard input and never writes to it: its end means
that the child is to stop, whether the parent asks for it or is gone. The child's first line on
standard output is a JSON object: ``{"ready": {...}}`` with what the parent needs to know of it, or
``{"error": ..., "hint": ...}``. From then on it writes something every few seconds from its event
loop, see :mod:`.heartbeat`; one that is silent hangs, and is ended and started again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ability_search.errors import SearchError
from kadi_client.backoff import Backoff

log = logging.getLogger(__name__)

READY_SECONDS = 120.0
"""How long a part may take to be ready; the first start of the model builds its graph."""

STOP_SECONDS = 20.0
"""How long a part may take to stop by itself; the worker gives running calls ten of them."""

SILENCE_SECONDS = 30.0
"""How long a part may be silent."""

_CHECKS = 6
"""How often the silence is looked at within that time."""
_KILL_SECONDS = 3.0
_LONGEST_LINE = 1024 * 1024


class PartFailed(SearchError):
    """A part of the stack did not start."""


Tell = Callable[[str], None]


class Child:
    """A part of the stack; :meth:`start` it, then it is started again whenever it ends.

    Args:
        name: What it is called.
        arguments: Of ``ability-search``; asked for at each start with what the part said when it
            was ready before, ``{}`` at first, so that it can have its port again.
        environ: Its environment, asked for as the arguments are.
        inherit: Descriptors that it inherits.
        tell: Receives a sentence when the part ends and when it is back.
        changed: Is called when it is back.
        ready_timeout: Seconds until it has to be ready.
        silence: Seconds after which a silent one is ended.
    """

    def __init__(
        self,
        name: str,
        arguments: Callable[[Mapping[str, Any]], Sequence[str]],
        environ: Callable[[Mapping[str, Any]], Mapping[str, str]],
        *,
        inherit: Sequence[int] = (),
        tell: Tell,
        changed: Callable[[], None],
        ready_timeout: float = READY_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self.name = name
        self.details: Mapping[str, Any] = {}
        """What the part said when it was ready."""
        self._arguments = arguments
        self._environ = environ
        self._inherit = tuple(inherit)
        self._tell = tell
        self._changed = changed
        self._ready_timeout = ready_timeout
        self._silence = silence
        self._heard = False
        """Whether it wrote anything since that was last looked at."""
        self._backoff = Backoff(base=0.25, cap=30.0)
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._drain: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int:
        """Process id; 0 before the first start."""
        return self._process.pid if self._process else 0

    async def start(self) -> Mapping[str, Any]:
        """Start it and wait until it is ready.

        Returns:
            What it said.

        Raises:
            PartFailed: if it ended, or was not ready in time.
        """
        await self._launch()
        self._keeper = asyncio.create_task(self._keep(), name=f"keep-{self.name}")
        return self.details

    async def stop(self) -> None:
        """End it: ask, then insist; at most ``STOP_SECONDS`` and twice three more."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        if not await _ends(process, STOP_SECONDS):
            log.warning("%s does not stop, it is terminated", self.name)
            with suppress(ProcessLookupError):
                process.terminate()
            if not await _ends(process, _KILL_SECONDS):
                self.kill()
                await _ends(process, _KILL_SECONDS)
        if self._drain is not None:
            await asyncio.wait([self._drain], timeout=_KILL_SECONDS)
            self._drain.cancel()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _launch(self) -> None:
        # -P: what lies in the working directory must not take the place of a module.
        python = (sys.executable, "-P", "-m", "ability_search")
        # A group of its own: Ctrl-C in the terminal is for the parent, which stops all in order.
        own_group: dict[str, Any] = {} if sys.platform == "win32" else {"process_group": 0}
        process = self._process = await asyncio.create_subprocess_exec(
            *python,
            *self._arguments(self.details),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environ(self.details),
            pass_fds=self._inherit,
            limit=_LONGEST_LINE,
            **own_group,
        )
        log.debug("%s is process %d", self.name, process.pid)
        try:
            async with asyncio.timeout(self._ready_timeout):
                self.details = await self._report(process)
        except BaseException as exc:
            self.kill()
            if isinstance(exc, TimeoutError):
                text = f"{self.name} was not ready in {self._ready_timeout:g} s"
                raise PartFailed(text) from exc
            raise
        self._drain = asyncio.create_task(self._listen(process), name=f"drain-{self.name}")

    async def _report(self, process: asyncio.subprocess.Process) -> Mapping[str, Any]:
        assert process.stdout is not None
        try:
            report = json.loads(await process.stdout.readline())
        except ValueError:
            report = None
        if isinstance(report, dict) and isinstance(report.get("ready"), dict):
            details: Mapping[str, Any] = report["ready"]
            return details
        code = await process.wait()
        if isinstance(report, dict) and "error" in report:
            raise PartFailed(f"{self.name}: {report['error']}", hint=str(report.get("hint") or ""))
        raise PartFailed(
            f"{self.name} {_ending(code)} before it was ready",
            hint=f"Its log is above; `ability-search {self._arguments({})[0]}` runs it alone.",
        )

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Read what else the part writes, so that it never waits; end it when it is silent."""
        self._heard = True
        reading = asyncio.create_task(self._read(process), name=f"read-{self.name}")
        interval = self._silence / _CHECKS
        silent = 0
        try:
            # Counted, not timed: where this process was held too, the signs are still to be read.
            while not (await asyncio.wait([reading], timeout=interval))[0]:
                silent = 0 if self._heard else silent + 1
                self._heard = False
                if silent == _CHECKS:
                    self._tell(
                        f"{self.name} hangs: no sign of life for {self._silence:g} s; it is ended"
                    )
                    with suppress(ProcessLookupError):
                        process.kill()
        finally:
            reading.cancel()
            await asyncio.wait([reading])

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while await process.stdout.read(_LONGEST_LINE):
            self._heard = True

    async def _keep(self) -> None:
        clock = asyncio.get_running_loop().time
        started = clock()
        while self._process is not None:
            code = await self._process.wait()
            delay = self._backoff.delay(clock() - started)
            self._tell(f"{self.name} {_ending(code)}; it is started again in {delay:.1f} s")
            await asyncio.sleep(delay)
            started = clock()
            try:
                await self._launch()
                self._changed()
            except (PartFailed, OSError) as exc:
                self._tell(str(exc))
            else:
                self._tell(f"{self.name} is back as process {self.pid}")


async def _ends(process: asyncio.subprocess.Process, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
