"""Calls of the embedded engine, as far as they need no engine."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from kadi_client.context import call_id, handling
from kadi_localnet.database.tickets import Ticket


async def test_work_in_a_thread_is_still_part_of_the_call() -> None:
    with ThreadPoolExecutor(1) as pool, handling({"callId": "call-1"}):
        ticket = Ticket()
        of_the_ticket, of_the_thread = [
            await asyncio.wrap_future(future)
            for future in (pool.submit(ticket.run, lambda _: call_id()), pool.submit(call_id))
        ]
    assert (of_the_ticket, of_the_thread) == ("call-1", None)
