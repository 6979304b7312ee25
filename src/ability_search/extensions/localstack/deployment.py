"""The secrets of a worker that only the network provides: its deployer, or a secret ability."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path

from ability_search.client.tool_client import joined_environ
from ability_search.config.loader import complete_secrets, load_settings
from ability_search.config.schema import Broker, Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import logs
from ability_search.network import worker_connection
from kadi_client import (
    Identity,
    KadiError,
    SecretsError,
    SecretsMissing,
    SecretsTimeout,
    request_secrets,
)

log = logging.getLogger(__name__)


async def complete_settings(settings: Settings, *, wait: float) -> Settings:
    """Return the settings with the secrets of the deployer, then those of a secret ability.

    The deployer is asked only in a deployment, the secret ability only for missing secrets.

    Raises:
        ConfigurationError: if a required secret is not found.
        KadiError: if the broker cannot be reached.
    """
    settings = await add_deployed_secrets(settings, wait=wait)
    if not settings.missing_secrets:
        return settings
    identity = Identity.load_or_create(settings.files.identity_file)
    connection = worker_connection(settings, settings.broker, identity, connect_timeout=wait)
    async with connection:
        return await complete_secrets(settings, connection.invoke)


async def add_deployed_secrets(settings: Settings, *, wait: float) -> Settings:
    """Return the settings with the secrets of the deployer; unchanged if there are none to receive.

    Args:
        settings: Settings of this process.
        wait: Seconds to wait for the broker.

    Raises:
        ConfigurationError: if the secrets are not received, or are invalid.
    """
    if not settings.deployment.awaited:
        return settings
    environ = joined_environ(load_settings(os.environ, Path.cwd()), os.environ)
    secrets = await _receive(settings, _rendezvous(settings, environ), wait)
    completed = load_settings(environ, Path.cwd(), deployed=secrets)
    if completed.logging != settings.logging:
        logs.configure(completed.logging.level, completed.logging.format, component="worker")
    for warning in completed.warnings:
        if warning not in settings.warnings:
            log.warning("%s", warning)
    return completed


def _rendezvous(settings: Settings, environ: Mapping[str, str]) -> Broker:
    """Return the broker where the deployer listens, with the networks configured for it."""
    named = settings.deployment.rendezvous_broker
    if named is None:
        return settings.broker
    url = {"BROKER_URL": named.get_secret_value()}
    return load_settings({**environ, **url}, Path.cwd()).broker


async def _receive(settings: Settings, broker: Broker, wait: float) -> dict[str, str]:
    deployment = settings.deployment
    assert deployment.nonce is not None
    identity = Identity.load_or_create(settings.files.identity_file)
    connection = worker_connection(settings, broker, identity, connect_timeout=wait)
    seconds = deployment.secrets_timeout
    names = ", ".join(deployment.awaited)
    log.info("Waiting up to %g s for the deployer to approve the secrets %s", seconds, names)
    try:
        async with connection:
            secrets = await request_secrets(
                connection,
                identity,
                nonce=deployment.nonce.get_secret_value(),
                required=deployment.required_secrets,
                optional=deployment.optional_secrets,
                network=broker.networks[0],
                timeout=seconds,
            )
        blank = [name for name in deployment.required_secrets if not secrets[name].strip()]
        if blank:
            raise SecretsMissing(blank)
    except KadiError as exc:
        raise ConfigurationError(
            f"the secrets {names} were not received: {exc}", hint=_hint(exc, broker)
        ) from exc
    received = [name for name in deployment.awaited if name in secrets]
    log.info("The deployer approved; secrets received: %s", ", ".join(received) or "none")
    return secrets


def _hint(exc: KadiError, broker: Broker) -> str:
    if isinstance(exc, SecretsTimeout):
        return (
            f"Keep `kadi deploy` running, connected to {broker.url} in network"
            f" {broker.networks[0]}; SEARCH_DEPLOY_SECRETS_TIMEOUT sets how long to wait."
        )
    if isinstance(exc, SecretsError):
        return "Deploy again: the nonce of a deployment can be used only once."
    return f"Check the broker {broker.url}, set by KADI_RENDEZVOUS_BROKER or BROKER_URL."
