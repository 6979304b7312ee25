"""A worker that asks its deployer for secrets: in this process, and as a process."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.processes import foreign_environ, log_until, process, rest
from tests.kadi_client.deployer import PATIENCE, approving, deployer

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.deployment import add_deployed_secrets, complete_settings
from kadi_client import Connection, Identity, Tool
from kadi_localnet.broker import Broker, serve_broker

pytestmark = pytest.mark.process

VALUE = "sk-of-the-deployment"
ADDRESS = "http://embeddings.example:8000"
SECRETS = {"SEARCH_API_KEY": VALUE, "SEARCH_EMBEDDING_API_URL": ADDRESS}
API = {"SEARCH_EMBEDDING_TRANSPORT": "api"}
NONCE = "nonce-of-the-deployment"
WAITING = (
    "Waiting up to 60 s for the deployer to approve the secrets"
    " SEARCH_API_KEY, SEARCH_EMBEDDING_API_URL, SEARCH_CHUNK_SIZE"
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with serve_broker(port=0) as broker:
        yield broker


@pytest.fixture
def environ(broker: Broker, tmp_path: Path) -> dict[str, str]:
    """The environment of a deployed worker."""
    return {
        "HOME": str(tmp_path),
        "BROKER_URL": broker.url,
        "KADI_DEPLOY_NONCE": NONCE,
        "KADI_REQUIRED_SECRETS": "SEARCH_API_KEY,SEARCH_EMBEDDING_API_URL",
        "KADI_OPTIONAL_SECRETS": "SEARCH_CHUNK_SIZE",
    }


@pytest.fixture
def settings(
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> Settings:
    """Those of this process, whose environment is that of a deployed worker."""
    caplog.set_level(logging.DEBUG)
    return here(environ, tmp_path, monkeypatch)


def here(environ: Mapping[str, str], cwd: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name in os.environ.keys() - foreign_environ().keys():
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(cwd)
    return load_settings(os.environ, cwd)


async def refusal(settings: Settings) -> ConfigurationError:
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(ConfigurationError) as caught:
            await complete_settings(settings, wait=PATIENCE)
    assert VALUE not in f"{caught.value} {caught.value!r} {caught.value.hint}"
    return caught.value


# In this process


async def test_approved_secrets_become_settings(
    broker: Broker, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    deployed = {**SECRETS, "SEARCH_CHUNK_SIZE": "128", "OTHER": VALUE}
    async with deployer(broker.url, approving(deployed)) as known:
        completed = await complete_settings(settings, wait=PATIENCE)
    assert completed.embedding.api_key is not None
    assert completed.embedding.api_key.get_secret_value() == VALUE
    assert completed.embedding.api_url is not None
    assert completed.embedding.api_url.get_secret_value() == ADDRESS
    assert completed.chunking.size == 128
    (request,) = known.requests
    assert request["nonce"] == NONCE
    assert request["required"] == ["SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL"]
    assert request["optional"] == ["SEARCH_CHUNK_SIZE"]
    own = Identity.load_or_create(settings.files.identity_file)
    assert (request["agentId"], request["publicKey"]) == (own.agent_id, own.public_key)
    told = [
        record.getMessage() for record in caplog.records if record.name.startswith("ability_search")
    ]
    assert told == [
        WAITING,
        "The deployer approved; secrets received:"
        " SEARCH_API_KEY, SEARCH_EMBEDDING_API_URL, SEARCH_CHUNK_SIZE",
        "ignored from the deployer: OTHER; no setting has this name",
    ]
    assert VALUE not in caplog.text
    assert NONCE not in "\n".join(told)


async def test_the_environment_wins_over_the_deployer(
    broker: Broker, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = here({**environ, "SEARCH_API_KEY": "own"}, tmp_path, monkeypatch)
    async with deployer(broker.url, approving(SECRETS)):
        completed = await complete_settings(settings, wait=PATIENCE)
    assert completed.embedding.api_key is not None
    assert completed.embedding.api_key.get_secret_value() == "own"
    assert str(completed.embedding.api_url) == ADDRESS


@pytest.mark.parametrize("unset", ["KADI_DEPLOY_NONCE", "KADI_REQUIRED_SECRETS"])
async def test_without_a_deployment_nothing_is_asked(
    broker: Broker,
    environ: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unset: str,
) -> None:
    environ = {**environ, unset: "", "KADI_OPTIONAL_SECRETS": ""}
    settings = here(environ, tmp_path, monkeypatch)
    async with deployer(broker.url, approving(SECRETS)) as known:
        assert await complete_settings(settings, wait=PATIENCE) is settings
        assert known.requests == []
    assert broker.stats()["events_published"] == 0


async def test_the_rendezvous_broker_is_asked_with_its_own_networks(
    broker: Broker, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        serve_broker(port=0) as rendezvous,
        deployer(broker.url, approving({"SEARCH_API_KEY": "wrong"})) as other,
        deployer(rendezvous.url, approving(SECRETS), "deployments") as known,
        deployer(rendezvous.url, approving({"SEARCH_API_KEY": "wrong"}), "more"),
    ):
        config = f'[broker.default]\nURL = "{rendezvous.url}"\nNETWORKS = ["deployments", "more"]\n'
        (tmp_path / "config.toml").write_text(config, encoding="utf-8")
        environ["KADI_RENDEZVOUS_BROKER"] = rendezvous.url
        settings = here(environ, tmp_path, monkeypatch)
        completed = await complete_settings(settings, wait=PATIENCE)
        assert str(completed.embedding.api_url) == ADDRESS
        assert str(completed.broker.url) == broker.url
        assert len(known.requests) == 1
        assert rendezvous.stats()["events_delivered"] == 2, "a request, an answer"
        assert other.requests == []


async def test_a_rejection_ends_the_start_with_its_reason(
    broker: Broker, settings: Settings
) -> None:
    rejection = {"status": "rejected", "reason": "not my deployment"}
    async with deployer(broker.url, lambda _: [rejection]):
        error = await refusal(settings)
    assert str(error) == (
        "the secrets SEARCH_API_KEY, SEARCH_EMBEDDING_API_URL, SEARCH_CHUNK_SIZE were not received:"
        " the deployer refused: not my deployment"
    )
    assert "Deploy again" in error.hint


async def test_silence_ends_the_start_at_the_deadline(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    environ |= {"SEARCH_DEPLOY_SECRETS_TIMEOUT": "0.05", "BROKER_NETWORKS": "n,global"}
    error = await refusal(here(environ, tmp_path, monkeypatch))
    assert "no deployer answered within 0.05 s" in str(error)
    assert f"connected to {broker.url} in network n;" in error.hint
    assert "SEARCH_DEPLOY_SECRETS_TIMEOUT" in error.hint


@pytest.mark.parametrize("deployed", [{"SEARCH_API_KEY": VALUE}, {**SECRETS, "SEARCH_API_KEY": ""}])
async def test_a_required_secret_that_is_missing_or_blank_ends_the_start(
    broker: Broker, settings: Settings, deployed: dict[str, str]
) -> None:
    async with deployer(broker.url, approving(deployed)):
        error = await refusal(settings)
    missing = next(name for name in SECRETS if not deployed.get(name))
    assert str(error).endswith(f"the deployer did not send {missing}")


async def test_an_unusable_value_is_named_with_its_source(
    broker: Broker, settings: Settings
) -> None:
    async with deployer(broker.url, approving({**SECRETS, "SEARCH_EMBEDDING_API_URL": VALUE})):
        error = await refusal(settings)
    assert str(error).startswith("SEARCH_EMBEDDING_API_URL from the deployer: expected an address")


async def test_a_broker_that_is_away_is_named(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_broker(port=0) as gone:
        environ["KADI_RENDEZVOUS_BROKER"] = gone.url.replace("://", "://ada:pw@")
    settings = here(environ, tmp_path, monkeypatch)
    with pytest.raises(ConfigurationError) as caught:
        await add_deployed_secrets(settings, wait=0)
    assert "cannot reach the broker" in str(caught.value)
    assert f"Check the broker {gone.url}, set by KADI_RENDEZVOUS_BROKER" in caught.value.hint
    assert "pw" not in f"{caught.value} {caught.value.hint}"


# As a process


async def test_a_worker_starts_once_it_has_its_secrets(
    broker: Broker, environ: dict[str, str]
) -> None:
    # Without the token, which is a secret too, the metrics could not be served on this address.
    metrics = {"SEARCH_METRICS_PORT": "0", "SEARCH_METRICS_HOST": "0.0.0.0"}
    async with (
        deployer(broker.url, approving({**SECRETS, "SEARCH_METRICS_TOKEN": VALUE})) as known,
        Connection(broker.url) as client,
        process({**environ, **API, **metrics}, "worker") as worker,
    ):
        log = await log_until(worker, "metrics at http://")
        (query,) = [
            tool
            for tool in await client.list_tools(include_providers=True)
            if tool["name"] == "search-query"
        ]
        (provider,) = query["providers"]
        assert provider["agentId"] == known.requests[0]["agentId"]
        worker.send_signal(signal.SIGTERM)
        _, err = await rest(worker)
        assert worker.returncode == 0
        assert "ready: search-* tools" in log
        assert WAITING in log
        assert VALUE not in log + err
        assert NONCE not in log + err


async def test_a_supervised_worker_reports_a_rejection(
    broker: Broker, environ: dict[str, str]
) -> None:
    rejection = {"status": "rejected", "reason": "not my deployment"}
    async with (
        deployer(broker.url, lambda _: [rejection]),
        process({**environ, **API}, "worker", "--supervised") as worker,
    ):
        assert worker.stdout is not None
        report = json.loads(await worker.stdout.readline())
        assert "the deployer refused: not my deployment" in report["error"]
        await rest(worker)
        assert worker.returncode == 1


async def test_a_worker_over_standard_streams_gets_its_secrets(
    broker: Broker, environ: dict[str, str]
) -> None:
    async with (
        deployer(broker.url, approving(SECRETS)),
        process({**environ, **API}, "worker", "--stdio") as worker,
    ):
        request = {"jsonrpc": "2.0", "id": 1, "method": "readAgentJson", "params": {}}
        out, err = await worker.communicate(json.dumps(request).encode() + b"\n")
        answer = json.loads(out)
        assert answer["result"]["name"] == "ability-search"
        assert b"The deployer approved" in err
        assert VALUE.encode() not in out + err


@pytest.mark.parametrize("how", ["signal", "parent"])
async def test_a_worker_can_be_stopped_while_it_waits(
    broker: Broker, environ: dict[str, str], how: str
) -> None:
    arguments = ("worker", "--supervised") if how == "parent" else ("worker",)
    async with (
        deployer(broker.url, lambda _: []) as known,
        process({**environ, **API}, *arguments) as worker,
    ):
        await known.heard.wait()
        if how == "signal":
            worker.send_signal(signal.SIGTERM)
        # A supervised worker takes the end of standard input for the end of its parent.
        _, err = await rest(worker)
        assert worker.returncode == 0, err


async def test_other_commands_do_not_ask(broker: Broker, environ: dict[str, str]) -> None:
    async def collections(_input: Any, _call: Any) -> Any:
        return {"success": True, "collections": []}

    tool = Tool("search-collections", "List.", {"type": "object"}, collections)
    async with (
        deployer(broker.url, approving(SECRETS)) as known,
        Connection(broker.url, tools=[tool]),
        process({**environ, **API}, "call", "search-collections", "{}") as command,
    ):
        out, err = await rest(command)
        assert command.returncode == 0, err
        assert json.loads(out)["collections"] == []
        assert known.requests == []
        assert broker.stats()["events_published"] == 0
