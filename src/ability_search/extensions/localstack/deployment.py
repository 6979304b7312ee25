"""The secrets of a worker that only the network provides: its deployer, or a secret ability."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr, ValidationError

from ability_search.client.tool_client import joined_environ
from ability_search.config.agent_card import API_KEY, VAULT
from ability_search.config.loader import errors_of, load_settings
from ability_search.config.model_settings import Embedding, Expansion, ModelServer, RerankerSettings
from ability_search.config.schema import Broker, Settings
from ability_search.config.settings_table import all_settings
from ability_search.config.vault import is_encrypted
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli import logs
from ability_search.extensions.cli.settings import Logging
from ability_search.extensions.localstack.settings import Deployment
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

Invoke = Callable[[str, dict[str, Any]], Awaitable[Any]]
"""``invoke(tool, input)`` on a connected session."""

_API_URLS: dict[str, type[ModelServer]] = {
    "SEARCH_EMBEDDING_API_URL": Embedding,
    "SEARCH_RERANKER_API_URL": RerankerSettings,
    "SEARCH_EXPANSION_API_URL": Expansion,
}
"""Addresses of APIs that are required if a group of settings chooses the API."""
_TOOLS = ("secret-get", "get")
"""Names that secret abilities in the field use for the tool ``{vault, key} -> {value}``."""


async def complete_settings(settings: Settings, *, wait: float) -> Settings:
    """Return the settings with the secrets of the deployer, then those of a secret ability.

    The deployer is asked only in a deployment, the secret ability only for missing secrets.

    Raises:
        ConfigurationError: if a required secret is not found.
        KadiError: if the broker cannot be reached.
    """
    settings = await add_deployed_secrets(settings, wait=wait)
    if not missing_secrets(settings):
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
    if not settings.of(Deployment).awaited:
        return settings
    environ = joined_environ(load_settings(os.environ, Path.cwd()), os.environ)
    # The broker where the deployer listens, with the networks configured for it.
    broker, named = settings.broker, settings.of(Deployment).rendezvous_broker
    if named is not None:
        url = {"BROKER_URL": named.get_secret_value()}
        broker = load_settings({**environ, **url}, Path.cwd()).broker
    secrets = await _receive(settings, broker, wait)
    completed = load_settings(environ, Path.cwd(), deployed=secrets)
    logging_now = completed.of(Logging)
    if logging_now != settings.of(Logging):
        logs.configure(logging_now.level, logging_now.format, component="worker")
    for warning in completed.warnings:
        if warning not in settings.warnings:
            log.warning("%s", warning)
    return completed


async def _receive(settings: Settings, broker: Broker, wait: float) -> dict[str, str]:
    deployment = settings.of(Deployment)
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


def missing_secrets(settings: Settings) -> tuple[str, ...]:
    """Return the secrets that this machine lacks: required ones, the key of the embedding API."""
    embedding = settings.embedding.transport == "api"
    required = (API_KEY, *settings.agent.required_secrets) if embedding else ()
    names = {name: None for name in required if name not in settings.present_secrets}
    for name, group in _API_URLS.items():
        chosen = settings.of(group)
        if chosen.api_url is not None:
            names.pop(name, None)
        elif chosen.transport == "api":
            names[name] = None
    return tuple(names)


def require_secrets(settings: Settings) -> None:
    """Check that every required secret was found.

    With ``embedding_transport`` ``api``, the secrets that the deploy blocks of agent.json list for
    vault ``models`` and the address of the API are required; with ``reranker_transport`` or
    ``expansion_transport`` ``api`` the address of that API. The key of the API is required only if
    agent.json lists it, or if secrets.toml has one that cannot be decrypted.

    Raises:
        ConfigurationError: naming each missing secret and the three places to set it.
    """
    missing = [name for name in missing_secrets(settings) if is_required(settings, name)]
    if missing:
        source = settings.agent.path or "agent.json"
        raise ConfigurationError(
            *(
                settings.undecrypted_secrets.get(name)
                or f"{name} is missing, {_reason(name, source)}:"
                f" set it in the environment (`kadi secret receive --vault {VAULT}`),"
                f" or in secrets.toml (`ability-search secret set {name}`),"
                f" or provide it in vault {VAULT} of a secret ability on the network"
                for name in missing
            ),
            hint=f"For an API that needs no key, remove {API_KEY} from the required secrets in"
            f" {source}."
            if API_KEY in missing and API_KEY in settings.agent.required_secrets
            else None,
        )


def is_required(settings: Settings, name: str) -> bool:
    """Return False for the key of the embedding API, if nothing says that the API needs one."""
    return (
        name != API_KEY
        or name in settings.agent.required_secrets
        or name in settings.undecrypted_secrets
    )


def _reason(name: str, source: Path | str) -> str:
    group = _API_URLS.get(name)
    if group is not None:
        return f"required because {group.prefix}transport is api"
    return f"required by {source} because embedding_transport is api"


async def complete_secrets(settings: Settings, invoke: Invoke, *, timeout: float = 5.0) -> Settings:
    """Fetch the missing secrets from a secret ability on the network.

    Makes no call if none is missing. ``timeout`` is in seconds, for all of them together.

    Raises:
        ConfigurationError: if a required secret is still missing, or one is invalid.
    """
    missing = missing_secrets(settings)
    if not missing:
        return settings
    found: dict[str, SecretStr] = {}
    try:
        async with asyncio.timeout(timeout), asyncio.TaskGroup() as tasks:
            for name in missing:
                tasks.create_task(_fetch(name, invoke, found))
    except TimeoutError:
        log.warning("secret ability: %d of %d secrets received in time", len(found), len(missing))
    for name, secret in found.items():
        spec = all_settings().by_env.get(name)
        if spec is None:
            continue
        group = settings.of(spec.group)
        values = dict(group) | {spec.attribute: secret.get_secret_value()}
        try:
            settings = settings.with_group(type(group).model_validate(values))
        except ValidationError as exc:
            text = "; ".join(message for _, message in errors_of(exc))
            raise ConfigurationError(f"{name} from the secret ability: {text}") from exc
    settings = replace(settings, present_secrets=settings.present_secrets.union(found))
    require_secrets(settings)
    return settings


async def _fetch(name: str, invoke: Invoke, found: dict[str, SecretStr]) -> None:
    for tool in _TOOLS:
        try:
            answer = await invoke(tool, {"vault": VAULT, "key": name})
        except (KadiError, OSError, TimeoutError) as exc:
            log.debug("no secret %s from %s: %s", name, tool, type(exc).__name__)
            continue
        value = answer.get("value") if isinstance(answer, Mapping) else answer
        if isinstance(value, str) and value.strip() and not is_encrypted(value):
            found[name] = SecretStr(value.strip())
            return
