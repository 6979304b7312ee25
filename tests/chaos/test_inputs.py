"""Batches of hostile input: what is sent is hostile, and an answer that lets it in is noticed."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from chaos.callers import KadiCaller
from chaos.expectations import Violation
from chaos.inputs import BATCHES, Inputs, check_copies, malformed, message
from chaos.ledger import Ledger
from chaos.proxy import Proxy
from chaos.stack_process import StackProcess
from chaos.steps import Step

from chaos import inputs
from kadi_client import Connection
from kadi_localnet.broker.access import Access
from kadi_localnet.broker.server import serve_broker

PRIVATE = "components"
ACCESS = Access(
    members={PRIVATE: ("somebody",)},
    providers=dict.fromkeys(("arcade-*", "search-*", "create-embedding", "rerank"), ("somebody",)),
)


class BrokerOnly(StackProcess):
    """A stack of which only the broker runs."""

    url = ""

    async def broker(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("ws://").removesuffix("/kadi").partition(":")
        return host, int(port)

    def state(self) -> dict[str, Any]:
        return {"url": self.url, "networks": ["global", PRIVATE]}


@asynccontextmanager
async def against(
    tmp_path: Path, access: Access | None, kind: str, size: int
) -> AsyncIterator[Ledger]:
    """Send one batch to a broker; yield what was recorded."""
    stack = BrokerOnly(tmp_path, tmp_path / "data")
    ledger = Ledger(tmp_path / "steps.jsonl", {})
    async with serve_broker(port=0, access=access) as broker, Proxy(stack.broker) as proxy:
        stack.url = broker.url
        caller = KadiCaller(Connection(broker.url))
        BATCHES[kind], before = size, BATCHES[kind]
        try:
            await Inputs(caller, proxy, stack, ledger).run(Step("inputs", 0, kind, {"seed": 3}))
        finally:
            BATCHES[kind] = before
        yield ledger
    ledger.close()


def test_malformed_text_is_no_object_of_json() -> None:
    chance = random.Random(1)
    whole = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"a": ["b", {}]}})
    for _ in range(3_000):
        text = malformed(chance, whole)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            continue
        assert not isinstance(value, dict), text


def test_messages_are_json_with_an_answer_unless_they_are_answers() -> None:
    chance = random.Random(1)
    for number in range(500):
        text, check = message(chance, number, PRIVATE)
        assert ("method" in json.loads(text)) == (check is not None)


@pytest.mark.parametrize("kind", ["frames", "messages"])
async def test_a_broker_refuses_each_and_goes_on(tmp_path: Path, kind: str) -> None:
    async with against(tmp_path, ACCESS, kind, 400) as ledger:
        assert ledger.violations == []
        # The signature or the ping at the end is one more.
        assert ledger.answered == 401
        assert ledger.inputs[kind]["unanswered"] == 0


async def test_a_broker_that_lets_a_stranger_in_is_noticed(tmp_path: Path) -> None:
    async with against(tmp_path, None, "messages", 400) as ledger:
        (found,) = ledger.violations
        assert found["kind"] == "let in"


@pytest.mark.slow
async def test_a_receiver_that_ends_without_a_fault_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def deaf(socket: websockets.ServerConnection) -> None:
        await socket.recv()

    monkeypatch.setattr(inputs, "BATCH_SECONDS", 0.5)
    stack = BrokerOnly(tmp_path, tmp_path / "data")
    ledger = Ledger(tmp_path / "steps.jsonl", {})
    async with websockets.serve(deaf, "127.0.0.1", 0) as server, Proxy(stack.broker) as proxy:
        stack.url = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/kadi"
        caller = KadiCaller(Connection(stack.url))
        await Inputs(caller, proxy, stack, ledger).run(Step("inputs", 0, "frames", {"seed": 3}))
    ledger.close()
    (found,) = ledger.violations
    assert found["expected"] == "an answer to each of the frames"


def test_a_copy_that_is_accepted_though_damaged_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = tmp_path / "artifact"
    artifact.mkdir()
    for name in ("chunks.jsonl", "sources.jsonl", "vectors.f32"):
        (artifact / name).write_bytes(b"content")
    monkeypatch.setattr(inputs, "read_manifest", lambda _: None)
    with pytest.raises(Violation, match="accepted"):
        check_copies(artifact, random.Random(1), 5)
