"""Authentication of a session: hello and authenticate."""

from __future__ import annotations

import secrets
from typing import Any

from kadi_client.errors import INVALID_REQUEST, AuthenticationError
from kadi_client.identity import agent_id, verify
from kadi_client.messages import Raw, encode
from kadi_localnet.broker.access import Networks, check_name
from kadi_localnet.broker.limits import Limits
from kadi_localnet.broker.outbox import text_bytes
from kadi_localnet.broker.params import Authenticate, Hello
from kadi_localnet.broker.session import CloseCode, Refused, Session

_NONCE_BYTES = 32


def hello(
    session: Session, params: Hello, limits: Limits, networks: Networks, now: float
) -> dict[str, Any]:
    """Issue a nonce; an earlier unused nonce becomes invalid.

    Raises:
        Refused: if the session is already authenticated, or a name is invalid.
    """
    if session.agent_id is not None:
        raise Refused(
            "already authenticated: open another connection to authenticate again",
            code=INVALID_REQUEST,
        )
    if params.name:
        check_name("name", params.name, limits)
    if params.networks is not None:
        session.networks, _ = networks.admitted(params.networks, None)
        session.asked_networks = tuple(params.networks)
        session.keep("networks", sum(map(text_bytes, session.asked_networks)))
    session.display_name = params.name
    session.nonce = secrets.token_urlsafe(_NONCE_BYTES)
    session.nonce_expires = now + limits.nonce_lifetime
    return {
        "nonce": session.nonce,
        "requiredSteps": ["kadi.session.authenticate"],
        "heartbeatInterval": round(limits.heartbeat) or 1,
        "directReplies": True,
    }


def authenticate(
    session: Session, params: Authenticate, networks: Networks, now: float
) -> dict[str, Any]:
    """Accept an identity if its private key signed the nonce; the nonce is used up either way.

    The session joins the networks of its hello, as far as this agent may.

    Raises:
        Refused: ending the session, if the nonce is unknown or expired, or the signature is
            invalid.
    """
    nonce, session.nonce = session.nonce, None
    if nonce is None:
        raise _failed("no valid nonce, each allows one attempt: send kadi.session.hello")
    if params.nonce is not None and params.nonce != nonce:
        raise _failed("the nonce was not issued to this session")
    if now >= session.nonce_expires:
        raise _failed("the nonce has expired: send kadi.session.hello")
    try:
        verify(params.public_key, params.signature, nonce)
        session.agent_id = agent_id(params.public_key)
        shown = {"sessionId": session.id, "publicKey": params.public_key}
        session.credentials = Raw(encode(shown))
    except AuthenticationError as exc:
        raise _failed(str(exc)) from exc
    session.networks, _ = networks.admitted(session.asked_networks, session.agent_id)
    session.asked_networks = ()
    return {"agentId": session.agent_id}


def _failed(why: str) -> Refused:
    return Refused(f"authentication failed: {why}", close=CloseCode.POLICY_VIOLATION)
