"""Retries of idempotent calls."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    stop_never,
    wait_random_exponential,
)
from tenacity.stop import stop_base

from ability_search.ops.metrics.meter import UNMETERED, Meter
from ability_search.ops.metrics.metric_table import RETRIES

T = TypeVar("T")

Pause = Callable[[RetryCallState], float]
"""Returns the seconds to wait after a failed call."""


async def retry(
    run: Callable[[], Awaitable[T]],
    *,
    when: Callable[[BaseException], bool],
    attempts: int | None,
    pause: Pause,
    within: float | None = None,
    meter: Meter = UNMETERED,
    target: str = "database",
) -> T:
    """Call ``run`` until it succeeds, at most ``attempts`` times if that is a number.

    Args:
        run: The call; it must be idempotent.
        when: Returns True for an exception after which another attempt may succeed; called once
            for each.
        attempts: Maximum number of calls; ``None`` for no limit.
        pause: Pause between calls, unless the error has a ``retry_after`` in seconds.
        within: Seconds after which no further call is started; ``None`` for no limit.
        meter: Counts the retries.
        target: Name of the called component in the metric.

    Raises:
        BaseException: as from the last call.
    """
    started = time.monotonic()
    # Nearly every call succeeds at once, for a tenth of the cost of the loop below.
    try:
        return await run()
    except Exception as exc:  # noqa: BLE001 - the loop raises it again, or calls once more
        failure = exc
    stop: stop_base = stop_never if attempts is None else stop_after_attempt(attempts)
    if within is not None:
        stop |= stop_before_delay(within - (time.monotonic() - started))

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        named: float | None = getattr(error, "retry_after", None)
        return pause(state) if named is None else float(named)

    async for attempt in AsyncRetrying(
        stop=stop,
        wait=wait,
        retry=retry_if_exception(when),
        before_sleep=lambda _: meter.add(RETRIES, 1, target),
        reraise=True,
    ):
        with attempt:
            if attempt.retry_state.attempt_number == 1:
                raise failure
            return await run()
    raise AssertionError("unreachable: the last attempt raises")


def growing(first: float, *, longest: float) -> Pause:
    """Return random pauses of at most ``first`` seconds, twice as much each time."""
    return wait_random_exponential(multiplier=first, max=longest)
