"""Secrets from a deployer that is written with the real KADI client."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, word_vector
from tests.ability_search.model_servers import http_api
from tests.ability_search.processes import log_until, process, rest
from tests.interop.real_client import MODULE, NODE, PATIENCE, needs_real_client
from tests.kadi_client.deployer import encryption_key

from kadi_client import (
    Connection,
    Identity,
    SecretsError,
    SecretsMissing,
    SecretsRejected,
    SecretsTimeout,
    SecretsUnreadable,
    request_secrets,
)
from kadi_localnet.broker import Broker, serve_broker
from kadi_localnet.database.embedded import EmbeddedDatabases
from kadi_localnet.database.tools import database_tools

pytestmark = [pytest.mark.process, needs_real_client]

SCRIPT = Path(__file__).with_name("real_deployer.mjs")
NONCE = "nonce-of-the-deployment"
VALUE = "sk-of-the-deployment"
SECRETS = {"SEARCH_API_KEY": VALUE}


@dataclass
class RealDeployer:
    """A running `real_deployer.mjs`."""

    process: Process
    agent_id: str = ""

    async def note(self) -> dict[str, Any]:
        """The next thing that it tells."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = await self.process.stdout.readline()
        assert line, "the deployer has ended"
        return dict(json.loads(line))


@asynccontextmanager
async def deployer(url: str, *answers: str, **plan: Any) -> AsyncIterator[RealDeployer]:
    """A deployer that gives these answers; on leaving it ends in order, without an error."""
    plan = {"url": url, "nonce": NONCE, "secrets": SECRETS, "answers": answers, **plan}
    started = await asyncio.create_subprocess_exec(
        NODE, SCRIPT, MODULE, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert started.stdin is not None
    try:
        started.stdin.write(json.dumps(plan).encode() + b"\n")
        known = RealDeployer(started)
        known.agent_id = (await known.note())["ready"]
        yield known
        async with asyncio.timeout(PATIENCE):
            _, err = await started.communicate(b"")
        assert (started.returncode, err) == (0, b"")
    finally:
        if started.returncode is None:
            started.kill()
            await started.communicate()


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with serve_broker(port=0) as broker:
        yield broker


async def ask(broker: Broker, identity: Identity, *names: str, **options: Any) -> dict[str, str]:
    given = {"nonce": NONCE, "network": "global", "timeout": PATIENCE, **options}
    async with Connection(broker.url, identity=identity, role="ability") as connection:
        return await request_secrets(connection, identity, required=names, **given)


async def test_a_real_deployer_and_our_client_understand_each_other(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    identity = Identity.generate()
    async with deployer(broker.url, "withoutStatus", "text", "approval", "rejection") as known:
        secrets = await ask(broker, identity, "SEARCH_API_KEY", optional=["OTHER"])
        assert secrets == SECRETS
        told = await known.note()
        assert told["request"] == {
            "nonce": NONCE,
            "agentId": identity.agent_id,
            "publicKey": identity.public_key,
            "required": ["SEARCH_API_KEY"],
            "optional": ["OTHER"],
        }
        assert told["source"] == identity.agent_id
        assert "answered" in await known.note()
    assert caplog.text
    assert VALUE not in caplog.text


async def test_both_clients_convert_keys_alike(broker: Broker) -> None:
    identities = [Identity.generate() for _ in range(20)]
    async with deployer(broker.url, "approval") as known:
        for identity in identities:
            assert await ask(broker, identity, "SEARCH_API_KEY") == SECRETS
            told = await known.note()
            assert told["encryptionKey"] == encryption_key(identity.public_key).hex()
            assert "answered" in await known.note()


@pytest.mark.parametrize(
    ("answers", "expected", "text"),
    [
        (["rejection", "approval"], SecretsRejected, "the deployer refused: not approved"),
        (["forAnother"], SecretsUnreadable, "encrypted for another agent"),
        (["garbage"], SecretsUnreadable, "or is damaged"),
        (["approval"], SecretsMissing, "did not send OTHER"),
    ],
    ids=["rejected", "for-another", "garbage", "incomplete"],
)
async def test_what_a_real_deployer_does_not_give_is_an_error(
    broker: Broker, answers: list[str], expected: type[SecretsError], text: str
) -> None:
    async with deployer(broker.url, *answers):
        with pytest.raises(expected, match=text):
            await ask(broker, Identity.generate(), "SEARCH_API_KEY", "OTHER")


async def test_a_real_deployer_that_does_not_answer_is_waited_for_no_longer_than_said(
    broker: Broker,
) -> None:
    async with deployer(broker.url) as known:
        with pytest.raises(SecretsTimeout):
            await ask(broker, Identity.generate(), "SEARCH_API_KEY", timeout=0.2)
        assert "request" in await known.note()


async def test_a_real_deployer_in_another_network_hears_nothing(broker: Broker) -> None:
    async with deployer(broker.url, "approval", networks=["elsewhere"]):
        with pytest.raises(SecretsTimeout):
            await ask(broker, Identity.generate(), "SEARCH_API_KEY", timeout=0.2)


# The worker as a process


def environ(home: Path, url: str, **further: str) -> dict[str, str]:
    return {
        "HOME": str(home),
        "BROKER_URL": url,
        "SEARCH_EMBEDDING_TRANSPORT": "api",
        "SEARCH_EMBEDDING_MODEL": MODEL,
        "KADI_DEPLOY_NONCE": NONCE,
        "KADI_REQUIRED_SECRETS": "SEARCH_API_KEY,SEARCH_EMBEDDING_API_URL",
        **further,
    }


def embeddings(body: Mapping[str, Any]) -> dict[str, Any]:
    vectors = [word_vector(text).tolist() for text in body["input"]]
    return {
        "data": [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)],
        "model": body["model"],
    }


@pytest.mark.engine
async def test_a_deployed_worker_works_with_the_secrets_of_a_real_deployer(
    broker: Broker, tmp_path: Path
) -> None:
    async with (
        serve_broker(port=0) as rendezvous,
        EmbeddedDatabases(tmp_path / "databases") as engine,
        Connection(broker.url, role="ability", tools=database_tools(engine)),
        http_api(embeddings) as api,
        deployer(
            rendezvous.url,
            "approval",
            secrets={**SECRETS, "SEARCH_EMBEDDING_API_URL": api.url},
        ) as known,
        process(
            environ(tmp_path, broker.url, KADI_RENDEZVOUS_BROKER=rendezvous.url), "worker"
        ) as worker,
        Connection(broker.url) as client,
    ):
        log = await log_until(worker, "ready: search-* tools")
        text = "Reciprocal rank fusion joins rankings."
        documents = [{"title": "Fusion", "source": "fusion.md", "content": text}]
        indexed = await client.invoke(
            "search-index", {"collection": "docs", "documents": documents}, timeout=PATIENCE
        )
        assert indexed["indexed"], indexed
        found = await client.invoke(
            "search-query",
            {"collection": "docs", "query": "rank fusion", "mode": "semantic"},
            timeout=PATIENCE,
        )
        assert [hit["source"] for hit in found["results"]] == ["fusion.md"]
        worker.send_signal(signal.SIGTERM)
        out, err = await rest(worker)
        assert worker.returncode == 0, err
        assert (await known.note())["request"]["nonce"] == NONCE
        assert len(api.seen) >= 2
        assert {headers["authorization"] for _, headers, _ in api.seen} == {f"Bearer {VALUE}"}
        assert "Waiting up to 60 s for the deployer" in log
        assert VALUE not in log + out + err


async def test_a_worker_with_another_nonce_is_rejected_by_a_real_deployer(
    broker: Broker, tmp_path: Path
) -> None:
    given = environ(tmp_path, broker.url, KADI_DEPLOY_NONCE="of-another")
    async with deployer(broker.url, "approval"), process(given, "worker") as worker:
        out, err = await rest(worker)
        assert worker.returncode == 1
        assert "the deployer refused: unknown nonce" in err
        assert VALUE not in out + err
