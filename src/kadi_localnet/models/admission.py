"""How much work a model lets wait, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kadi_localnet.models.errors import DeadlinePassed, ModelsError, Overloaded
from kadi_localnet.models.lanes import LanesClosed


class Admission:
    """Counts the texts that wait for a model called ``name``, at most ``most`` of them."""

    def __init__(self, name: str, *, most: int) -> None:
        self._name = name
        self._most = most
        self.queued = 0
        """Texts that are worked on or wait."""

    @asynccontextmanager
    async def admit(self, count: int, *, timeout: float) -> AsyncIterator[None]:
        """Work on ``count`` texts in the block, for ``timeout`` seconds at most.

        Raises:
            Overloaded: if more texts would be queued than allowed. An idle model takes any
                request that is within the limits of one.
            DeadlinePassed: after the time.
            ModelsError: if the lanes were closed meanwhile.
        """
        if self.queued and self.queued + count > self._most:
            raise Overloaded(
                f"{self.queued} texts are queued for {self._name}; call again shortly",
                retry_after=1.0,
            )
        self.queued += count
        try:
            async with asyncio.timeout(timeout):
                yield
        except TimeoutError:
            raise DeadlinePassed(timeout) from None
        except LanesClosed as exc:
            raise ModelsError(str(exc)) from exc
        finally:
            self.queued -= count
