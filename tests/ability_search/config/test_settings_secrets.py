"""Vault `models` as a source of settings, and the network as its last resort."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli.component_run import require_decrypted
from ability_search.extensions.cli.secret import locate_secrets, set_secret
from ability_search.extensions.localstack.deployment import (
    complete_secrets,
    missing_secrets,
    require_secrets,
)
from kadi_client.errors import NotConnected, RemoteError

SECRET = "sk-very-hidden"
API = {"SEARCH_EMBEDDING_TRANSPORT": "api"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def store(tmp_path: Path, environ: dict[str, str], key: str, value: str) -> None:
    files = locate_secrets(environ, tmp_path)
    set_secret(files.path, "models", key, value, key_file=files.key_file)


def api_key(settings: Settings) -> str | None:
    key = settings.embedding.api_key
    return None if key is None else key.get_secret_value()


class Network:
    """Answers secret calls from a table; records them."""

    def __init__(self, values: dict[str, Any], tool: str = "get") -> None:
        self.values = values
        self.tool = tool
        self.calls: list[tuple[str, str]] = []

    async def invoke(self, tool: str, data: dict[str, Any]) -> Any:
        assert data["vault"] == "models"
        self.calls.append((tool, data["key"]))
        if tool != self.tool or data["key"] not in self.values:
            raise RemoteError(f"no provider of {tool!r}")
        return self.values[data["key"]]


def test_vault_wins_over_config_and_loses_to_the_environment(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "config.yml").write_text(
        "search: {chunk_size: 300, database: from_config}", encoding="utf-8"
    )
    store(tmp_path, environ, "SEARCH_CHUNK_SIZE", "200")
    store(tmp_path, environ, "SEARCH_DATABASE", "from_vault")
    store(tmp_path, environ, "SEARCH_API_KEY", f"{SECRET}\n")
    settings = load_settings({**environ, "SEARCH_CHUNK_SIZE": "100"}, tmp_path)
    assert settings.chunking.size == 100
    assert settings.database.name == "from_vault"
    assert api_key(settings) == SECRET
    assert settings.warnings == ()


def test_secrets_are_found_by_walking_up(tmp_path: Path, environ: dict[str, str]) -> None:
    store(tmp_path, environ, "SEARCH_API_KEY", SECRET)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert api_key(load_settings(environ, below)) == SECRET
    assert locate_secrets(environ, below).path == tmp_path / "secrets.toml"


def test_the_path_of_the_key_file_is_a_setting(tmp_path: Path, environ: dict[str, str]) -> None:
    environ["SEARCH_SECRET_KEY_FILE"] = "mine.key"
    store(tmp_path, environ, "SEARCH_API_KEY", SECRET)
    assert (tmp_path / "mine.key").exists()
    assert api_key(load_settings(environ, tmp_path)) == SECRET
    del environ["SEARCH_SECRET_KEY_FILE"]
    (tmp_path / "config.yml").write_text("search: {secret_key_file: mine.key}", encoding="utf-8")
    assert api_key(load_settings(environ, tmp_path)) == SECRET


def test_secrets_encrypted_by_another_program_stop_only_what_needs_them(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text(
        "[secrets.models]\nSEARCH_API_KEY = 'ENC[age:xyz]'\n"
        "SEARCH_EMBEDDING_API_URL = 'ENC[age:xyz]'\nOTHERS_KEY = 'ENC[age:xyz]'\n",
        encoding="utf-8",
    )
    names = ["SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL"]
    local = load_settings(environ, tmp_path)
    assert api_key(local) is None
    assert [warning.split()[1] for warning in local.warnings] == names
    assert "ENC" not in str(local.warnings)
    require_secrets(local)
    require_decrypted(local)
    with pytest.raises(ConfigurationError) as caught:
        require_secrets(load_settings({**environ, **API}, tmp_path))
    assert [problem.split()[1] for problem in caught.value.problems] == names
    settings = load_settings(
        {**environ, "SEARCH_API_KEY": SECRET, "SEARCH_EMBEDDING_API_URL": "http://h"}, tmp_path
    )
    assert api_key(settings) == SECRET


def test_a_component_does_not_start_without_the_token_that_it_was_given(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text("[secrets.models]\nSEARCH_GATEWAY_TOKEN = 'ENC[age:x]'\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="SEARCH_GATEWAY_TOKEN cannot be decrypted"):
        require_decrypted(load_settings(environ, tmp_path))
    require_decrypted(load_settings({**environ, "SEARCH_GATEWAY_TOKEN": "t"}, tmp_path))


def test_a_secrets_file_encrypted_as_a_whole_is_passed_over_with_a_warning(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "secrets.toml"
    path.write_bytes(b"age-encryption.org/v1\n-> X25519 abc\n--- xyz\n\xff\xfe")
    (warning,) = load_settings(environ, tmp_path).warnings
    assert warning.startswith(f"{path} is ignored: ")


def test_secrets_can_be_set_even_if_loading_fails(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text("[secrets.models]\nSEARCH_API_KEY = 'ENC[age:xyz]'\n", encoding="utf-8")
    store(tmp_path, environ, "SEARCH_API_KEY", SECRET)
    assert api_key(load_settings(environ, tmp_path)) == SECRET


def test_an_invalid_config_prevents_locating_secrets(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    text = "search: {secret_key_fil: x, chunk_size: 9, candidates: 99}"
    (tmp_path / "config.yml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="did you mean secret_key_file"):
        locate_secrets(environ, tmp_path)
    (tmp_path / "config.yml").write_text("search: {secret_key_file: 5}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"search\.secret_key_file: expected a path"):
        locate_secrets(environ, tmp_path)


def test_an_unencrypted_secret_works_with_a_warning(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text(f"[secrets.models]\nSEARCH_API_KEY = '{SECRET}'\n", encoding="utf-8")
    settings = load_settings(environ, tmp_path)
    assert api_key(settings) == SECRET
    (warning,) = settings.warnings
    assert "SEARCH_API_KEY is not encrypted" in warning
    assert SECRET not in warning


def test_an_invalid_vault_value_is_reported_without_the_value(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    store(tmp_path, environ, "SEARCH_EMBEDDING_API_URL", SECRET)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(environ, tmp_path)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{tmp_path / 'secrets.toml'}: SEARCH_EMBEDDING_API_URL: expected")
    assert SECRET not in problem


def test_no_secret_is_required_with_the_model_manager(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    settings = load_settings(environ, tmp_path)
    assert missing_secrets(settings) == ()
    require_secrets(settings)


def test_missing_secrets_are_reported_with_the_three_places_to_set_them(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    require(tmp_path, "SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL")
    settings = load_settings({**environ, **API}, tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        require_secrets(settings)
    names = [problem.split()[0] for problem in caught.value.problems]
    assert names == ["SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL"]
    assert "remove SEARCH_API_KEY from the required secrets" in caught.value.hint
    for problem in caught.value.problems:
        assert "kadi secret receive --vault models" in problem
        assert "ability-search secret set" in problem
        assert "secret ability on the network" in problem


def require(directory: Path, *names: str) -> None:
    """Write an agent.json whose deploy block requires secrets."""
    deploy = {"x": {"secrets": {"vault": "models", "required": list(names)}}}
    document = {"name": "ability-search", "deploy": deploy}
    (directory / "agent.json").write_text(json.dumps(document), encoding="utf-8")


def test_agent_json_lists_the_required_secrets(tmp_path: Path, environ: dict[str, str]) -> None:
    require(tmp_path)
    keyless = load_settings({**environ, **API, "SEARCH_EMBEDDING_API_URL": "http://h"}, tmp_path)
    require_secrets(keyless)
    with pytest.raises(ConfigurationError) as caught:
        require_secrets(load_settings({**environ, **API}, tmp_path))
    assert [problem.split()[0] for problem in caught.value.problems] == ["SEARCH_EMBEDDING_API_URL"]
    require(tmp_path, "EXTRA", "SEARCH_API_KEY")
    environ |= {**API, "SEARCH_EMBEDDING_API_URL": "http://h", "SEARCH_API_KEY": SECRET}
    assert missing_secrets(load_settings(environ, tmp_path)) == ("EXTRA",)
    store(tmp_path, environ, "EXTRA", "x")
    assert missing_secrets(load_settings(environ, tmp_path)) == ()


def test_an_address_in_config_counts_as_found(tmp_path: Path, environ: dict[str, str]) -> None:
    config = "search: {embedding_transport: api, embedding_api_url: 'http://h:1'}"
    (tmp_path / "config.yml").write_text(config, encoding="utf-8")
    assert missing_secrets(load_settings(environ, tmp_path)) == ("SEARCH_API_KEY",)


async def test_an_api_without_a_key_needs_no_secret(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    network = Network({})
    environ |= {**API, "SEARCH_EMBEDDING_API_URL": "http://h:1"}
    settings = await complete_secrets(load_settings(environ, tmp_path), network.invoke)
    assert api_key(settings) is None
    assert {key for _, key in network.calls} == {"SEARCH_API_KEY"}


async def test_a_key_that_cannot_be_decrypted_stops_the_start_unless_the_network_has_it(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    path = tmp_path / "secrets.toml"
    path.write_text("[secrets.models]\nSEARCH_API_KEY = 'ENC[age:x]'\n", encoding="utf-8")
    settings = load_settings({**environ, **API, "SEARCH_EMBEDDING_API_URL": "http://h:1"}, tmp_path)
    with pytest.raises(ConfigurationError, match="SEARCH_API_KEY cannot be decrypted"):
        await complete_secrets(settings, Network({}).invoke)
    fetched = await complete_secrets(settings, Network({"SEARCH_API_KEY": SECRET}).invoke)
    assert api_key(fetched) == SECRET


async def test_fetched_secrets_leave_the_address_unchanged(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    environ |= {**API, "SEARCH_EMBEDDING_API_URL": "http://ada:pw@h:1"}
    network = Network({"SEARCH_API_KEY": {"value": SECRET}})
    settings = await complete_secrets(load_settings(environ, tmp_path), network.invoke)
    assert api_key(settings) == SECRET
    assert settings.embedding.api_url is not None
    assert settings.embedding.api_url.get_secret_value() == "http://ada:pw@h:1"


@pytest.mark.parametrize("tool", ["get", "secret-get"])
async def test_missing_secrets_are_fetched_from_the_network(
    tmp_path: Path, environ: dict[str, str], tool: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    network = Network(
        {"SEARCH_API_KEY": {"value": SECRET}, "SEARCH_EMBEDDING_API_URL": "http://h:1"}, tool
    )
    before = load_settings({**environ, **API}, tmp_path)
    settings = await complete_secrets(before, network.invoke)
    assert api_key(settings) == SECRET
    assert str(settings.embedding.api_url) == "http://h:1"
    assert missing_secrets(settings) == ()
    assert settings.embedding.batch_texts == before.embedding.batch_texts
    assert SECRET not in caplog.text


async def test_a_required_secret_that_is_not_a_setting_must_only_exist(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    require(tmp_path, "EXTRA")
    environ |= {**API, "SEARCH_EMBEDDING_API_URL": "http://h:1"}
    network = Network({"EXTRA": {"value": "x"}})
    settings = await complete_secrets(load_settings(environ, tmp_path), network.invoke)
    assert missing_secrets(settings) == ("SEARCH_API_KEY",)


async def test_only_missing_secrets_are_requested(tmp_path: Path, environ: dict[str, str]) -> None:
    network = Network({"SEARCH_EMBEDDING_API_URL": {"value": "http://h:1"}})
    environ |= {**API, "SEARCH_API_KEY": SECRET}
    await complete_secrets(load_settings(environ, tmp_path), network.invoke)
    assert {key for _, key in network.calls} == {"SEARCH_EMBEDDING_API_URL"}


async def test_no_request_is_made_if_no_secret_is_missing(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    network = Network({})
    settings = load_settings(environ, tmp_path)
    assert await complete_secrets(settings, network.invoke) is settings
    assert network.calls == []


@pytest.mark.parametrize(
    "answer", [None, "", {"value": None}, {"value": " "}, {"value": "ENC[x]"}, {"error": "no"}, 5]
)
async def test_after_an_answer_without_a_value_the_secret_stays_missing(
    tmp_path: Path, environ: dict[str, str], answer: Any
) -> None:
    require(tmp_path, "SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL")
    network = Network({"SEARCH_API_KEY": answer})
    environ |= {**API, "SEARCH_EMBEDDING_API_URL": "http://h:1"}
    with pytest.raises(ConfigurationError, match="SEARCH_API_KEY is missing"):
        await complete_secrets(load_settings(environ, tmp_path), network.invoke)


async def test_without_a_session_the_secret_stays_missing(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    require(tmp_path, "SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL")

    async def invoke(tool: str, data: dict[str, Any]) -> Any:
        raise NotConnected("closed")

    with pytest.raises(ConfigurationError, match="SEARCH_API_KEY is missing"):
        await complete_secrets(load_settings({**environ, **API}, tmp_path), invoke)


async def test_a_secret_ability_that_does_not_answer_does_not_block_the_start(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    require(tmp_path, "SEARCH_API_KEY", "SEARCH_EMBEDDING_API_URL")

    async def invoke(tool: str, data: dict[str, Any]) -> Any:
        if data["key"] == "SEARCH_EMBEDDING_API_URL":
            return {"value": "http://h:1"}
        return await asyncio.Event().wait()

    settings = load_settings({**environ, **API}, tmp_path)
    async with asyncio.timeout(5):
        with pytest.raises(ConfigurationError) as caught:
            await complete_secrets(settings, invoke, timeout=0.05)
    assert [problem.split()[0] for problem in caught.value.problems] == ["SEARCH_API_KEY"]


async def test_an_invalid_value_from_the_network_is_reported_without_the_value(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    network = Network({"SEARCH_EMBEDDING_API_URL": {"value": SECRET}})
    environ |= {**API, "SEARCH_API_KEY": "x"}
    with pytest.raises(ConfigurationError, match="SEARCH_EMBEDDING_API_URL from the") as caught:
        await complete_secrets(load_settings(environ, tmp_path), network.invoke)
    assert SECRET not in str(caught.value)


def test_a_vault_file_that_cannot_be_read_stops_the_start(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "secrets.toml").write_text("[secrets", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"secrets\.toml: not valid TOML"):
        load_settings(environ, tmp_path)
