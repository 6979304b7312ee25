"""Client of a secret ability on the network, for secrets that no file or variable provides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from pydantic import SecretStr

from ability_search.config.vault import is_encrypted
from kadi_client.errors import KadiError

log = logging.getLogger(__name__)

Invoke = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""``invoke(tool, input)`` on a connected session."""

TOOLS = ("secret-get", "get")
"""Names that secret abilities in the field use for the tool ``{vault, key} -> {value}``."""


async def fetch_secrets(
    names: Collection[str], invoke: Invoke, *, vault: str, timeout: float
) -> dict[str, SecretStr]:
    """Request several secrets concurrently.

    Args:
        names: keys of the vault.
        invoke: calls a tool.
        vault: the vault.
        timeout: seconds for all of them together; secrets received in time are returned.

    Returns:
        The secrets that a provider knows; empty if there is no provider.
    """
    found: dict[str, SecretStr] = {}
    try:
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(_fetch(name, vault, invoke, found))
    except TimeoutError:
        log.warning("secret ability: %d of %d secrets received in time", len(found), len(names))
    return found


async def _fetch(name: str, vault: str, invoke: Invoke, found: dict[str, SecretStr]) -> None:
    for tool in TOOLS:
        try:
            answer = await invoke(tool, {"vault": vault, "key": name})
        except (KadiError, OSError, TimeoutError) as exc:
            log.debug("no secret %s from %s: %s", name, tool, type(exc).__name__)
            continue
        value = answer.get("value") if isinstance(answer, Mapping) else answer
        if isinstance(value, str) and value.strip() and not is_encrypted(value):
            found[name] = SecretStr(value.strip())
            return
