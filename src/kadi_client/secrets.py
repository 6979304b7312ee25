"""The secrets of a deployment, asked of the deployer when an agent starts.

::

    agent -> deployer   secrets.request              {nonce, agentId, publicKey, required, optional}
    deployer -> agent   secrets.response.<agentId>   {status: "approved", encrypted}
                                                     {status: "rejected", reason?}

``encrypted`` is base64 of a libsodium sealed box for the X25519 form of the agent's key; in it is
a JSON object, name -> value. The ``nonce`` shows that the request comes from the deployment. A
sealed box does not show who made it: any other agent in the network could answer.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from kadi_client.connection import Connection
from kadi_client.errors import (
    DecryptionError,
    NotConnected,
    SecretsMissing,
    SecretsRejected,
    SecretsTimeout,
    SecretsUnreadable,
)
from kadi_client.identity import Identity
from kadi_client.subscriptions import Subscription

logger = logging.getLogger(__name__)

REQUEST = "secrets.request"
RESPONSE = "secrets.response"
_MAX_REASON_CHARS = 500


async def request_secrets(
    connection: Connection,
    identity: Identity,
    *,
    nonce: str,
    required: Sequence[str],
    optional: Sequence[str] = (),
    network: str | None = None,
    timeout: float = 60.0,
) -> dict[str, str]:
    """Ask the deployer of this agent for secrets and wait for its answer.

    Example:
        identity = Identity.generate()
        async with Connection("ws://localhost:8080/kadi", identity=identity) as broker:
            secrets = await request_secrets(
                broker, identity, nonce="from-the-deployer", required=["SEARCH_API_KEY"]
            )
            print(list(secrets))

    The first answer with a known status counts; anything else on the channel is ignored.

    Args:
        connection: An open connection.
        identity: The identity of that connection.
        nonce: What the deployer gave to this deployment.
        required: Names of the secrets that there must be.
        optional: Names of those that there may be.
        network: Network to ask in; the broker's choice if not given.
        timeout: Seconds for all of it.

    Returns:
        Name -> value of all that the deployer sent, whether it was asked for or not.

    Raises:
        SecretsTimeout: if no deployer answered in time.
        SecretsRejected: if it refused.
        SecretsUnreadable: if its answer was made for another identity, or is malformed.
        SecretsMissing: if a required secret is not in it.
        NotConnected: if the connection was closed.
        CallTimeout, RemoteError: if the broker did not take the subscription or the request.
    """
    request = {
        "nonce": nonce,
        "agentId": connection.agent_id,
        "publicKey": identity.public_key,
        "required": list(required),
        "optional": list(optional),
    }
    try:
        async with (
            asyncio.timeout(timeout),
            connection.subscribe(f"{RESPONSE}.{connection.agent_id}") as events,
        ):
            await connection.publish(REQUEST, request, network=network)
            answer = await _first_answer(events)
    except TimeoutError as exc:
        raise SecretsTimeout(timeout) from exc
    return _approved(answer, identity, required)


async def _first_answer(events: Subscription) -> dict[str, Any]:
    async for event in events:
        if isinstance(event.data, dict) and event.data.get("status") in ("approved", "rejected"):
            return event.data
        logger.debug("event on %s ignored: it has no known status", event.channel)
    raise NotConnected("the connection was closed while waiting for secrets")


def _approved(
    answer: Mapping[str, Any], identity: Identity, required: Sequence[str]
) -> dict[str, str]:
    """Return the secrets in an answer; raises as :func:`request_secrets`."""
    if answer["status"] == "rejected":
        given = answer.get("reason")
        text = given.strip() if isinstance(given, str) else ""
        text = "".join(char if char.isprintable() else " " for char in text)
        if len(text) > _MAX_REASON_CHARS:
            text = f"{text[:_MAX_REASON_CHARS]}..."
        raise SecretsRejected(text or None)
    encrypted = answer.get("encrypted")
    if not isinstance(encrypted, str) or not encrypted:
        raise SecretsUnreadable("the deployer approved, but sent no secrets")
    try:
        plain = identity.unseal(base64.b64decode(encrypted))
    except (DecryptionError, ValueError) as exc:
        raise SecretsUnreadable(
            "the deployer's answer cannot be decrypted: it was encrypted for another agent,"
            " or is damaged"
        ) from exc
    # The parser's own error would contain all of the text.
    secrets: object = None
    with suppress(ValueError, RecursionError):
        secrets = json.loads(plain)
    if not isinstance(secrets, dict):
        raise SecretsUnreadable("the deployer's answer is not a JSON object of names and values")
    wrong = sorted(repr(name) for name, value in secrets.items() if not isinstance(value, str))
    if wrong:
        raise SecretsUnreadable(f"the deployer's answer has no text as value of {', '.join(wrong)}")
    if missing := [name for name in required if name not in secrets]:
        raise SecretsMissing(missing)
    return secrets
