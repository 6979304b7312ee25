"""Admission control: the maximum number of queued texts and the timeout of a model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kadi_localnet.models.errors import DeadlinePassed, ModelsError, Overloaded
from kadi_localnet.models.lanes import LanesClosed


class Admission:
    """The queue length of the model ``name``, limited to ``most`` texts."""

    def __init__(self, name: str, *, most: int) -> None:
        self._name = name
        self._most = most
        self.queued = 0
        """Number of texts in progress or waiting."""

    @asynccontextmanager
    async def admit(self, count: int, *, timeout: float) -> AsyncIterator[None]:
        """Count ``count`` texts as queued during the block, for at most ``timeout`` seconds.

        Raises:
            Overloaded: if more texts would be queued than allowed. An idle model accepts a
                request of any size.
            DeadlinePassed: after ``timeout`` seconds.
            ModelsError: if the lanes are closed meanwhile.
        """
        if self.queued and self.queued + count > self._most:
            raise Overloaded(
                f"{self.queued} texts are queued for {self._name}; try again shortly",
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
