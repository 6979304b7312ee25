"""Calls of the embedded engine, as far as they need no engine."""

from __future__ import annotations

from pathlib import Path

from kadi_client.context import call_id, handling
from kadi_localnet.database.embedded import EmbeddedDatabases


async def test_work_in_a_thread_is_still_part_of_the_call(tmp_path: Path) -> None:
    databases = EmbeddedDatabases(tmp_path)
    with handling({"callId": "call-1"}):
        of_the_call = await databases._in_thread(lambda _: call_id())
    of_no_call = await databases._in_thread(lambda _: call_id())
    await databases.close()
    assert (of_the_call, of_no_call) == ("call-1", None)
