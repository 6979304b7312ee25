"""The real KADI client asks for its secrets through our broker; our deployer answers.

The other direction is in test_real_deployer.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.conftest import CreateReal
from tests.interop.real_client import ClientError, needs_real_client
from tests.kadi_client.deployer import approving, deployer, sealed
from tests.networks import Network

from kadi_client import Identity
from kadi_localnet.broker import serve_broker

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), needs_real_client]

ENVIRONMENT = {
    "KADI_DEPLOY_NONCE": "nonce-of-the-deployment",
    "KADI_REQUIRED_SECRETS": "API_KEY,API_URL",
    "KADI_OPTIONAL_SECRETS": "REGION",
}
SECRETS = {"API_KEY": "sk-\U0001f5dd", "API_URL": "http://embeddings.example"}


async def test_the_real_client_gets_its_secrets(real: CreateReal, broker: Network) -> None:
    agent = await real()
    async with deployer(broker.url, approving(SECRETS)) as known:
        assert await agent.request_secrets(ENVIRONMENT) == SECRETS
    assert known.requests == [
        {
            "nonce": "nonce-of-the-deployment",
            "agentId": agent.agent_id,
            "publicKey": agent.public_key,
            "required": ["API_KEY", "API_URL"],
            "optional": ["REGION"],
        }
    ]


async def test_the_real_client_gets_its_secrets_at_the_rendezvous(real: CreateReal) -> None:
    async with serve_broker(port=0) as work, serve_broker(port=0) as rendezvous:
        both = {"local": {"url": work.url}, "rendezvous": {"url": rendezvous.url}}
        agent = await real(brokers=both)
        there = {**ENVIRONMENT, "KADI_RENDEZVOUS_BROKER": rendezvous.url}
        async with deployer(rendezvous.url, approving(SECRETS)):
            assert await agent.request_secrets(there) == SECRETS
        await agent.disconnect()


async def test_the_real_client_gets_only_answers_to_itself(
    real: CreateReal, broker: Network
) -> None:
    def for_another(request: Any) -> list[Any]:
        data = {"status": "approved", "encrypted": sealed(request["publicKey"], {"API_KEY": "no"})}
        return [("secrets.response.0123456789abcdef", data), *approving(SECRETS)(request)]

    agent = await real()
    async with deployer(broker.url, for_another):
        assert await agent.request_secrets(ENVIRONMENT) == SECRETS


async def test_the_real_client_is_told_why_it_gets_none(real: CreateReal, broker: Network) -> None:
    agent = await real()
    rejection = {"status": "rejected", "reason": "not today"}
    async with deployer(broker.url, lambda _request: [rejection]):
        with pytest.raises(ClientError, match="not today") as raised:
            await agent.request_secrets(ENVIRONMENT)
        assert raised.value.code == "SECRETS_REJECTED"


async def test_secrets_for_another_key_are_unreadable(real: CreateReal, broker: Network) -> None:
    box = {"status": "approved", "encrypted": sealed(Identity.generate().public_key, SECRETS)}
    agent = await real()
    async with deployer(broker.url, lambda _request: [box]):
        with pytest.raises(ClientError) as raised:
            await agent.request_secrets(ENVIRONMENT)
        assert raised.value.code == "SECRETS_DECRYPTION_FAILED"


async def test_without_a_deployer_the_real_client_gives_up(real: CreateReal) -> None:
    agent = await real()
    with pytest.raises(ClientError) as raised:
        await agent.request_secrets(ENVIRONMENT, timeout=50)
    assert raised.value.code == "SECRETS_TIMEOUT"


async def test_without_a_nonce_nothing_is_asked(real: CreateReal) -> None:
    agent = await real()
    assert await agent.request_secrets({}) is None
