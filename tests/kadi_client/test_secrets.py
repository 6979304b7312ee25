"""The secrets of a deployment, from a scripted deployer over the real broker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kadi_client.deployer import (
    PATIENCE,
    Script,
    approval,
    approving,
    deployer,
    sealed,
)

from kadi_client import (
    Connection,
    Identity,
    NotConnected,
    SecretsError,
    SecretsMissing,
    SecretsRejected,
    SecretsTimeout,
    SecretsUnreadable,
    request_secrets,
)
from kadi_localnet.broker import Broker, serve_broker

VALUE = "sk-of-the-deployment"
SECRETS = {"SEARCH_API_KEY": VALUE}
NONCE = "nonce-of-the-deployment"


@pytest.fixture
async def broker(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Broker]:
    """A broker; nothing that is logged at any level holds the value."""
    caplog.set_level(logging.DEBUG)
    async with serve_broker(port=0) as broker:
        yield broker
    records = caplog.get_records("call")
    assert any(record.name == "kadi_client.reconnection" for record in records)
    assert [record for record in records if VALUE in logging.Formatter().format(record)] == []


@pytest.fixture
def identity() -> Identity:
    return Identity.generate()


@asynccontextmanager
async def agent(broker: Broker, identity: Identity, *networks: str) -> AsyncIterator[Connection]:
    async with (
        asyncio.timeout(PATIENCE),
        Connection(
            broker.url, identity=identity, role="ability", networks=networks or ("global",)
        ) as connection,
    ):
        yield connection


async def received(broker: Broker, identity: Identity, script: Script, **options: Any) -> Any:
    """What an agent gets from a deployer with that script."""
    given = {"nonce": NONCE, "required": ["SEARCH_API_KEY"], "timeout": PATIENCE, **options}
    async with deployer(broker.url, script), agent(broker, identity) as connection:
        return await request_secrets(connection, identity, **given)


async def refusal(broker: Broker, identity: Identity, script: Script) -> SecretsError:
    """The error that it gets, which neither shows nor carries the value."""
    with pytest.raises(SecretsError) as caught:
        await received(broker, identity, script)
    error: BaseException | None = caught.value
    while error is not None:
        assert VALUE not in f"{error} {error!r} {vars(error)}"
        error = error.__cause__ or error.__context__
    return caught.value


# The exchange


async def test_approved_secrets_are_received(broker: Broker, identity: Identity) -> None:
    async with (
        deployer(broker.url, approving({**SECRETS, "EXTRA": "x"})) as known,
        agent(broker, identity) as connection,
    ):
        secrets = await request_secrets(
            connection, identity, nonce=NONCE, required=["SEARCH_API_KEY"], optional=["OTHER"]
        )
        assert secrets == {**SECRETS, "EXTRA": "x"}
        assert known.requests == [
            {
                "nonce": NONCE,
                "agentId": connection.agent_id,
                "publicKey": identity.public_key,
                "required": ["SEARCH_API_KEY"],
                "optional": ["OTHER"],
            }
        ]


async def test_missing_optional_secrets_are_no_error(broker: Broker, identity: Identity) -> None:
    options: dict[str, Any] = {"required": [], "optional": ["OTHER"]}
    assert await received(broker, identity, approving({}), **options) == {}


async def test_the_request_reaches_the_named_network_only(
    broker: Broker, identity: Identity
) -> None:
    async with (
        deployer(broker.url, approving({"SEARCH_API_KEY": "wrong"}), "first") as other,
        deployer(broker.url, approving(SECRETS), "second", "third") as known,
        agent(broker, identity, "first", "second", "third") as connection,
    ):
        secrets = await request_secrets(
            connection, identity, nonce=NONCE, required=["SEARCH_API_KEY"], network="second"
        )
        assert secrets == SECRETS
        assert len(known.requests) == 1
        assert other.requests == []


async def test_only_the_first_answer_counts(broker: Broker, identity: Identity) -> None:
    def script(request: Any) -> Iterator[Any]:
        yield approval(request, SECRETS)
        yield approval(request, {"SEARCH_API_KEY": "second"})
        yield {"status": "rejected", "reason": "asked twice"}

    assert await received(broker, identity, script) == SECRETS


async def test_malformed_and_foreign_answers_are_ignored(
    broker: Broker, identity: Identity
) -> None:
    def script(request: Any) -> Iterator[Any]:
        yield from (None, [], "approved", 5, {}, {"status": None}, {"status": ["approved"]})
        yield {"status": "maybe", "encrypted": sealed(request["publicKey"], {"A": "b"})}
        yield {"encrypted": sealed(request["publicKey"], {"A": "b"})}
        yield "secrets.response.feedfacefeedface", {"status": "rejected", "reason": "not you"}
        yield "secrets.response", {"status": "rejected", "reason": "nobody"}
        yield approval(request, SECRETS)

    assert await received(broker, identity, script) == SECRETS


async def test_a_rejection_gives_the_reason(broker: Broker, identity: Identity) -> None:
    def script(_request: Any) -> list[Any]:
        return [{"status": "rejected", "reason": "wrong nonce\x1b[2J\n"}]

    error = await refusal(broker, identity, script)
    assert isinstance(error, SecretsRejected)
    assert str(error) == "the deployer refused: wrong nonce [2J"


@pytest.mark.parametrize("reason", [None, "", " ", 5, {"no": "text"}])
async def test_a_rejection_without_a_reason_says_so(
    broker: Broker, identity: Identity, reason: Any
) -> None:
    error = await refusal(broker, identity, lambda _: [{"status": "rejected", "reason": reason}])
    assert str(error) == "the deployer refused: it gave no reason"


async def test_a_long_reason_is_cut(broker: Broker, identity: Identity) -> None:
    error = await refusal(
        broker, identity, lambda _: [{"status": "rejected", "reason": "x" * 10_000}]
    )
    assert len(str(error)) < 600


async def test_silence_ends_at_the_deadline(broker: Broker, identity: Identity) -> None:
    async with agent(broker, identity) as connection:
        with pytest.raises(SecretsTimeout, match=r"no deployer answered within 0\.05 s"):
            await request_secrets(connection, identity, nonce=NONCE, required=["A"], timeout=0.05)
        assert not connection._subscriptions


async def test_a_closed_connection_ends_the_wait(broker: Broker, identity: Identity) -> None:
    async with (
        deployer(broker.url, lambda _: []) as known,
        agent(broker, identity) as connection,
        asyncio.TaskGroup() as tasks,
    ):
        waiting = tasks.create_task(_not_connected(connection, identity))
        await known.heard.wait()
        await connection.close()
        await waiting


async def _not_connected(connection: Connection, identity: Identity) -> None:
    with pytest.raises(NotConnected):
        await request_secrets(connection, identity, nonce=NONCE, required=["A"])


# What the answer holds


async def test_secrets_for_another_agent_are_refused(broker: Broker, identity: Identity) -> None:
    other = {"publicKey": Identity.generate().public_key}
    error = await refusal(broker, identity, lambda _: [approval(other, SECRETS)])
    assert isinstance(error, SecretsUnreadable)
    assert "encrypted for another agent" in str(error)


@pytest.mark.parametrize("encrypted", ["AAAA", "!", "\N{SNOWMAN}", "A" * 400, "a"])
async def test_garbage_is_refused(broker: Broker, identity: Identity, encrypted: str) -> None:
    answer = {"status": "approved", "encrypted": encrypted}
    error = await refusal(broker, identity, lambda _: [answer])
    assert isinstance(error, SecretsUnreadable)
    assert "cannot be decrypted" in str(error)


@pytest.mark.parametrize("encrypted", [None, "", 5, {"data": "x"}])
async def test_an_approval_without_secrets_is_refused(
    broker: Broker, identity: Identity, encrypted: Any
) -> None:
    answer = {"status": "approved", "encrypted": encrypted}
    error = await refusal(broker, identity, lambda _: [answer])
    assert isinstance(error, SecretsUnreadable)
    assert "sent no secrets" in str(error)


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"\xff" + VALUE.encode(),
        json.dumps(SECRETS).encode()[:-1],
        json.dumps([VALUE]).encode(),
        json.dumps(VALUE).encode(),
        b"[" * 100_000,
    ],
    ids=["empty", "no-utf8", "cut", "list", "text", "deep"],
)
async def test_what_is_no_object_is_refused_without_showing_it(
    broker: Broker, identity: Identity, plain: bytes
) -> None:
    error = await refusal(broker, identity, lambda request: [approval(request, plain)])
    assert isinstance(error, SecretsUnreadable)
    assert "not a JSON object" in str(error)
    assert error.__cause__ is error.__context__ is None, "the parser's error holds the secrets"


async def test_values_that_are_no_text_are_named_not_shown(
    broker: Broker, identity: Identity
) -> None:
    script = approving({"B\n": [VALUE], "A": None, "SEARCH_API_KEY": VALUE})
    error = await refusal(broker, identity, script)
    assert isinstance(error, SecretsUnreadable)
    assert str(error).endswith("as value of 'A', 'B\\n'")


async def test_missing_required_secrets_are_named(broker: Broker, identity: Identity) -> None:
    with pytest.raises(SecretsMissing, match="did not send A, C") as caught:
        await received(broker, identity, approving({"B": VALUE}), required=["A", "B", "C"])
    assert caught.value.names == ("A", "C")
    assert VALUE not in repr(caught.value)
