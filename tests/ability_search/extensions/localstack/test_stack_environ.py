"""The environment of a component."""

from __future__ import annotations

import pytest

from ability_search.config.settings_table import all_settings
from ability_search.extensions.localstack.component_process import WITHHELD, child_environ

COMPONENTS = ("broker", "database", "models", "gateway", "worker-1", "worker-12")
SECRETS = {
    name: f"secret of {name}"
    for spec in all_settings().specs
    if spec.kind == "secret"
    for name in spec.env
}
USED = {
    "SEARCH_API_KEY": {"worker"},
    "SEARCH_RERANKER_API_KEY": {"worker"},
    "SEARCH_EXPANSION_API_KEY": {"worker"},
    "KADI_DEPLOY_NONCE": {"worker"},
    "SEARCH_MODEL_HTTP_TOKEN": {"models"},
    "SEARCH_ARCADEDB_PASSWORD": {"database"},
    "SEARCH_GATEWAY_TOKEN": {"gateway"},
    "SEARCH_METRICS_TOKEN": {"broker", "database", "models", "gateway", "worker"},
}
"""Every secret, and who uses it."""


def test_every_secret_has_known_users() -> None:
    assert SECRETS.keys() == USED.keys()


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_gets_only_the_secrets_that_it_uses(component: str) -> None:
    kind = component.partition("-")[0]
    given = {"PATH": "/bin", "SEARCH_CHUNK_SIZE": "100", **SECRETS}
    environ = child_environ(component, {"SEARCH_LOG_LEVEL": "info"}, environ=given)
    expected = {name for name, users in USED.items() if kind in users}
    assert {name for name in SECRETS if environ.get(name) == SECRETS[name]} == expected
    assert set(environ.values()) - set(given.values()) <= {"info", WITHHELD}
    assert environ["PATH"] == "/bin"
    assert environ["SEARCH_CHUNK_SIZE"] == "100"
    assert environ["SEARCH_LOG_LEVEL"] == "info"


def test_a_secret_that_is_not_set_stays_unset() -> None:
    environ = child_environ("broker", {}, environ={"SEARCH_API_KEY": " ", "HOME": "/"})
    assert environ == {"HOME": "/"}


def test_a_blank_variable_that_is_no_secret_reaches_every_component() -> None:
    blank = {"SEARCH_READ_DENY": "", "SEARCH_LOCAL_BROKER_PRIVATE_NETWORK": "", "BROKER_URL": ""}
    for component in COMPONENTS:
        assert child_environ(component, {}, environ=blank) == blank


def test_changes_override_the_environment_and_lose_foreign_secrets_too() -> None:
    changes = {"SEARCH_API_KEY": "new", "SEARCH_MODEL_HTTP_TOKEN": "new"}
    environ = child_environ("worker-1", changes, environ={"SEARCH_API_KEY": "old"})
    assert environ == {"SEARCH_API_KEY": "new", "SEARCH_MODEL_HTTP_TOKEN": WITHHELD}


def test_addresses_lose_the_credentials_that_a_component_does_not_use() -> None:
    given = {
        "SEARCH_ARCADEDB_URLS": "http://root:pw@one:2480, http://two:2480/x?key=1",
        "SEARCH_EMBEDDING_API_URL": "https://user:pw@models.example/v1?key=1",
        "SEARCH_MODEL_DIRS": "a,b",
        "BROKER_URL": "ws://user:pw@broker:8080/kadi",
    }
    worker = child_environ("worker-1", {}, environ=given)
    assert worker == given | {
        "SEARCH_ARCADEDB_URLS": "http://one:2480, http://two:2480/x?key=1".replace(", ", ", ")
    }
    broker = child_environ("broker", {}, environ=given)
    assert broker["SEARCH_EMBEDDING_API_URL"] == "https://models.example/v1"
    assert broker["BROKER_URL"] == "ws://broker:8080/kadi"
    assert child_environ("database", {}, environ=given)["BROKER_URL"] == given["BROKER_URL"]
