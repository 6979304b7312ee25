"""A deployer as a source of settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ability_search.config.loader import load_settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli.secret import locate_secrets, set_secret
from ability_search.extensions.cli.settings import Logging
from ability_search.extensions.localstack.deployment import missing_secrets
from ability_search.extensions.localstack.settings import Deployment

SECRET = "sk-very-hidden"
API = {"SEARCH_EMBEDDING_TRANSPORT": "api"}
DEPLOYMENT = {
    "KADI_DEPLOY_NONCE": "nonce-of-the-deployment",
    "KADI_REQUIRED_SECRETS": "SEARCH_API_KEY, SEARCH_EMBEDDING_API_URL,",
    "KADI_OPTIONAL_SECRETS": "SEARCH_RERANKER_API_KEY,SEARCH_API_KEY",
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def test_the_variables_of_a_deployment_are_read(tmp_path: Path, environ: dict[str, str]) -> None:
    rendezvous = {"KADI_RENDEZVOUS_BROKER": "wss://ada:pw@broker.example/kadi"}
    settings = load_settings({**environ, **DEPLOYMENT, **rendezvous}, tmp_path)
    deployment = settings.of(Deployment)
    assert deployment.awaited == (
        "SEARCH_API_KEY",
        "SEARCH_EMBEDDING_API_URL",
        "SEARCH_RERANKER_API_KEY",
    )
    assert deployment.nonce is not None
    assert deployment.nonce.get_secret_value() == "nonce-of-the-deployment"
    assert deployment.rendezvous_broker is not None
    assert deployment.rendezvous_broker.get_secret_value().endswith("pw@broker.example/kadi")
    assert "nonce-of-the-deployment" not in repr(settings)
    assert "pw@" not in repr(settings)


@pytest.mark.parametrize(
    "missing",
    [
        ("KADI_DEPLOY_NONCE",),
        ("KADI_REQUIRED_SECRETS", "KADI_OPTIONAL_SECRETS"),
    ],
)
def test_no_secrets_are_requested_without_a_nonce_or_names(
    tmp_path: Path, environ: dict[str, str], missing: tuple[str, ...]
) -> None:
    environ |= {**DEPLOYMENT, **dict.fromkeys(missing, " ")}
    assert load_settings(environ, tmp_path).of(Deployment).awaited == ()


def test_an_invalid_rendezvous_address_is_reported(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["KADI_RENDEZVOUS_BROKER"] = "broker.example"
    with pytest.raises(ConfigurationError, match="^KADI_RENDEZVOUS_BROKER: expected an address"):
        load_settings(environ, tmp_path)


def test_the_deployer_wins_over_the_vault_and_loses_to_the_environment(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    config = "search: {chunk_size: 300, chunk_overlap: 30, log_level: debug}"
    (tmp_path / "config.yml").write_text(config, encoding="utf-8")
    files = locate_secrets(environ, tmp_path)
    for key in ("SEARCH_CHUNK_SIZE", "SEARCH_DATABASE", "SEARCH_LOG_LEVEL"):
        value = {"SEARCH_CHUNK_SIZE": "200", "SEARCH_LOG_LEVEL": "error"}.get(key, "from_vault")
        set_secret(files.path, "models", key, value, key_file=files.key_file)
    deployed = {"SEARCH_CHUNK_SIZE": "150", "SEARCH_DATABASE": "deployed", "SEARCH_API_KEY": SECRET}
    settings = load_settings({**environ, "SEARCH_CHUNK_SIZE": "100"}, tmp_path, deployed=deployed)
    assert settings.chunking.size == 100
    assert settings.database.name == "deployed"
    assert settings.of(Logging).level == "error"
    assert settings.chunking.overlap == 30
    assert settings.embedding.api_key is not None
    assert settings.embedding.api_key.get_secret_value() == SECRET
    assert SECRET not in repr(settings)


def test_deployed_secrets_are_not_missing(tmp_path: Path, environ: dict[str, str]) -> None:
    deploy = {"x": {"secrets": {"vault": "models", "required": ["EXTRA", "SEARCH_API_KEY"]}}}
    document = {"name": "ability-search", "deploy": deploy}
    (tmp_path / "agent.json").write_text(json.dumps(document), encoding="utf-8")
    environ |= {**API, "SEARCH_RERANKER_TRANSPORT": "api"}
    assert missing_secrets(load_settings(environ, tmp_path)) == (
        "SEARCH_API_KEY",
        "EXTRA",
        "SEARCH_EMBEDDING_API_URL",
        "SEARCH_RERANKER_API_URL",
    )
    deployed = {
        "SEARCH_API_KEY": f"{SECRET}\n",
        "SEARCH_EMBEDDING_API_URL": "http://h:1",
        "SEARCH_RERANKER_API_URL": "http://h:2",
        "EXTRA": "x",
    }
    settings = load_settings(environ, tmp_path, deployed=deployed)
    assert missing_secrets(settings) == ()
    assert settings.embedding.api_key is not None
    assert settings.embedding.api_key.get_secret_value() == SECRET
    assert str(settings.reranker.api_url) == "http://h:2"


def test_a_blank_deployed_secret_counts_as_missing(tmp_path: Path, environ: dict[str, str]) -> None:
    deployed = {"SEARCH_API_KEY": " \n", "SEARCH_EMBEDDING_API_URL": "http://h:1"}
    settings = load_settings({**environ, **API}, tmp_path, deployed=deployed)
    assert missing_secrets(settings) == ("SEARCH_API_KEY",)
    assert settings.embedding.api_key is None


def test_an_invalid_deployed_value_is_reported_without_the_value(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    deployed = {"SEARCH_EMBEDDING_API_URL": SECRET, "SEARCH_CHUNK_SIZE": SECRET}
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ, tmp_path, deployed=deployed)
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "SEARCH_CHUNK_SIZE from the deployer",
        "SEARCH_EMBEDDING_API_URL from the deployer",
    ]
    assert SECRET not in str(caught.value)


def test_a_secret_from_the_deployer_is_not_decrypted_from_the_vault(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    vault = "[secrets.models]\nSEARCH_API_KEY = 'ENC[age:xyz]'\n"
    (tmp_path / "secrets.toml").write_text(vault, encoding="utf-8")
    settings = load_settings(environ, tmp_path, deployed={"SEARCH_API_KEY": SECRET})
    assert settings.embedding.api_key is not None
    assert settings.embedding.api_key.get_secret_value() == SECRET


def test_deployed_names_that_are_not_settings_cause_warnings(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    names = ("DATABASE_URL", "SEARCH_API_KEYS", "two\nlines", "x" * 1000)
    deployed: dict[str, Any] = dict.fromkeys(names, SECRET)
    (warning,) = load_settings(environ, tmp_path, deployed=deployed).warnings
    assert warning.startswith(
        "ignored from the deployer: DATABASE_URL, SEARCH_API_KEYS, 'two\\nlines', xxxx"
    )
    assert warning.endswith("; no setting has this name")
    assert len(warning) < 250
    assert SECRET not in warning


def test_deployed_values_needed_before_the_request_cause_warnings(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    deployed = {
        "BROKER_URL": "wss://other.example/kadi",
        "KADI_BROKER_NETWORKS": "other",
        "SEARCH_DEPLOY_SECRETS_TIMEOUT": "5",
        "SEARCH_DATABASE": "used",
    }
    settings = load_settings(environ, tmp_path, deployed=deployed)
    assert settings.database.name == "used"
    assert str(settings.broker.url) == "ws://localhost:8080/kadi"
    assert settings.broker.networks == ("global",)
    assert settings.of(Deployment).secrets_timeout == 60
    (warning,) = settings.warnings
    assert "BROKER_URL, KADI_BROKER_NETWORKS, SEARCH_DEPLOY_SECRETS_TIMEOUT;" in warning
    assert warning.endswith("set it in the environment")
