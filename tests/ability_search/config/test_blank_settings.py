"""Blank values of every setting from every source, and variables that no setting has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ability_search.config.loader import chosen_extensions, load_settings
from ability_search.config.schema import Broker, Settings
from ability_search.config.settings_table import Spec, all_settings
from ability_search.config.sources import set_variables
from ability_search.errors import ConfigurationError
from ability_search.extensions.cli.settings import Metrics
from ability_search.extensions.localstack.settings import LocalBroker

SPECS = all_settings().specs
FILED = [spec for spec in SPECS if spec.home is None and spec.kind != "secret"]
FILLED: dict[str, Any] = {
    "kinds": ["title"],
    "read_allow": ["docs/**"],
    "read_deny": ["secret/**"],
    "extensions": ["-evaluation"],
    "gateway_hosts": ["example.org"],
    "gateway_origins": ["https://example.org"],
    "local_broker_members": ["lab=0123456789abcdef"],
    "local_broker_providers": ["mail-*=0123456789abcdef"],
    "local_broker_announce": ["lab"],
    "local_broker_private_network": "parts",
    "local_broker_backplane": "nats://localhost:4222",
    "offer": ["memory"],
    "model_dirs": ["/models"],
    "arcadedb_urls": ["http://localhost:2480"],
    "arcadedb_heap": "1 GiB",
    "tokenizer": "/tokenizer.json",
    "embedding_query_prefix": "ask",
    "embedding_passage_prefix": "text",
}
"""Values of settings with an empty one; of those left out, see :func:`filled`."""
WITH_EMPTY = [spec for spec in FILED if spec.empty_values]
WITHOUT = [spec for spec in SPECS if not spec.empty_values and spec.kind != "secret"]
SECRETS = [spec for spec in SPECS if spec.kind == "secret"]


def filled(spec: Spec) -> Any:
    """A valid value of a setting that is not its default."""
    if spec.key in FILLED:
        return FILLED[spec.key]
    if spec.key.endswith(("url", "endpoint")):
        return "http://localhost:1"
    if spec.key.endswith("_agent"):
        return "model-manager@models"
    return "a-model" if spec.key.endswith("model") else 17


def load(directory: Path, config: str = "", /, **environ: str) -> Settings:
    (directory / "config.yml").write_text(config, encoding="utf-8")
    return load_settings({"HOME": str(directory / "home"), **environ}, directory)


def value_of(settings: Settings, spec: Spec) -> Any:
    group = settings.broker if spec.group is Broker else settings.of(spec.group)
    return getattr(group, spec.attribute)


def is_empty(value: object) -> bool:
    return value in (None, "", ())


def names(spec: Spec) -> str:
    return spec.key


def test_settings_with_an_empty_value_are_lists_texts_and_optional_ones() -> None:
    keys = {spec.key for spec in SPECS if spec.empty_values}
    assert {
        "read_deny",
        "local_broker_private_network",
        "embedding_api_url",
        "embedding_query_prefix",
        "metrics_port",
        "tokenizer",
        "offer",
    } <= keys
    assert keys.isdisjoint(
        {"chunk_size", "fusion", "database", "embedding_model", "allowed_roots", "api_key"}
        | {"gateway_token", "data_dir", "gateway_host", "networks", "url", "database_memory"}
    )


@pytest.mark.parametrize("spec", WITH_EMPTY, ids=names)
@pytest.mark.parametrize("blank", ["", " \t"])
def test_a_blank_variable_sets_the_empty_value(tmp_path: Path, spec: Spec, blank: str) -> None:
    config = f"search: {{{spec.key}: {json.dumps(filled(spec))}}}\n"
    assert not is_empty(value_of(load(tmp_path, config), spec))
    settings = load(tmp_path, config, **{spec.env[0]: blank})
    assert is_empty(value_of(settings, spec))
    assert settings.warnings == ()


@pytest.mark.parametrize("spec", WITHOUT, ids=names)
def test_a_blank_variable_without_an_empty_value_counts_as_unset(
    tmp_path: Path, spec: Spec
) -> None:
    environ = dict.fromkeys(spec.env, " ")
    assert value_of(load(tmp_path, **environ), spec) == value_of(load(tmp_path), spec)


@pytest.mark.parametrize("spec", SECRETS, ids=names)
def test_a_blank_variable_does_not_hide_the_secret_of_the_vault(tmp_path: Path, spec: Spec) -> None:
    name = spec.env[0]
    (tmp_path / "secrets.toml").write_text(f'[secrets.models]\n{name} = "hidden"\n')
    settings = load(tmp_path, **{name: ""})
    assert value_of(settings, spec).get_secret_value() == "hidden"
    assert name in settings.present_secrets


@pytest.mark.parametrize("spec", WITH_EMPTY, ids=names)
@pytest.mark.parametrize("written", ['""', "", "null", "~"])
def test_a_blank_value_in_config_is_the_empty_one(tmp_path: Path, spec: Spec, written: str) -> None:
    assert is_empty(value_of(load(tmp_path, f"search:\n  {spec.key}: {written}\n"), spec))


def test_null_in_config_means_unset_where_an_empty_text_means_something_else(
    tmp_path: Path,
) -> None:
    for written, prefix in (('""', ""), ("null", "search_query: ")):
        config = f"search: {{chunk_size: 200, embedding_query_prefix: {written}}}"
        embedding = load(tmp_path, config).embedding
        assert embedding.prefixes_of("nomic-embed-text")[0] == prefix


@pytest.mark.parametrize("spec", [spec for spec in WITHOUT if spec in FILED], ids=names)
@pytest.mark.parametrize("written", ['""', ""])
def test_a_blank_value_in_config_without_an_empty_one_is_refused(
    tmp_path: Path, spec: Spec, written: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, f"search:\n  {spec.key}: {written}\n")
    (problem,) = caught.value.problems
    assert problem.endswith(f"search.{spec.key}: has no value; remove the line to use the default")


@pytest.mark.parametrize("spec", [*FILED, *SECRETS], ids=names)
def test_a_blank_value_in_the_vault_or_of_the_deployer_is_as_a_blank_variable(
    tmp_path: Path, spec: Spec
) -> None:
    name = spec.env[0]
    config = ""
    if spec in WITH_EMPTY:
        config = f"search: {{{spec.key}: {json.dumps(filled(spec))}}}\n"
    expected = value_of(load(tmp_path, config, **{name: ""}), spec)
    (tmp_path / "secrets.toml").write_text(f'[secrets.models]\n{name} = " "\n')
    settings = load(tmp_path, config)
    assert value_of(settings, spec) == expected
    assert name not in settings.present_secrets
    (tmp_path / "secrets.toml").unlink()
    home = {"HOME": str(tmp_path / "home")}
    deployed = load_settings(home, tmp_path, deployed={name: ""})
    assert value_of(deployed, spec) == expected
    assert name not in deployed.present_secrets


def test_the_first_variable_that_is_not_blank_wins(tmp_path: Path) -> None:
    settings = load(tmp_path, BROKER_NETWORKS="", KADI_BROKER_NETWORKS="lab")
    assert settings.broker.networks == ("lab",)


def test_blank_variables_that_count_as_unset_replace_nothing() -> None:
    environ = {"SEARCH_EMBEDDING_MODEL": " ", "SEARCH_TOKENIZER": "", "PATH": "", "BROKER_URL": "x"}
    assert set_variables(environ) == {"SEARCH_TOKENIZER": "", "PATH": "", "BROKER_URL": "x"}


def test_a_private_network_is_opened_by_a_blank_variable(tmp_path: Path) -> None:
    settings = load(tmp_path, SEARCH_LOCAL_BROKER_PRIVATE_NETWORK="")
    assert settings.of(LocalBroker).private_network == ""


def test_a_blank_variable_loads_the_usual_extensions(tmp_path: Path) -> None:
    (tmp_path / "config.yml").write_text("search: {extensions: [-evaluation]}")
    assert chosen_extensions({}, tmp_path) == ("-evaluation",)
    assert chosen_extensions({"SEARCH_EXTENSIONS": ""}, tmp_path) == ()


def test_a_compose_file_that_passes_unset_variables_changes_nothing(tmp_path: Path) -> None:
    blank = {"SEARCH_METRICS_PORT": "", "SEARCH_METRICS_TOKEN": "", "SEARCH_GATEWAY_TOKEN": ""}
    assert load(tmp_path, **blank) == load(tmp_path)
    assert load(tmp_path, **blank).of(Metrics).port is None


# --- variables that no setting has -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("SEARCH_CANDIATES", "did you mean SEARCH_CANDIDATES?"),
        ("SEARCH_EMBEDING_MODEL", "did you mean SEARCH_EMBEDDING_MODEL?"),
        ("SEARCH_PRIVATE_NETWORK", "did you mean SEARCH_LOCAL_BROKER_PRIVATE_NETWORK?"),
        ("SEARCH_QQQQQQ", "docs/settings.md lists all of them"),
    ],
)
def test_a_variable_that_no_setting_has_is_a_warning(
    tmp_path: Path, name: str, remedy: str
) -> None:
    for value in ("5", ""):
        (warning,) = load(tmp_path, **{name: value}).warnings
        assert warning == f"{name} is ignored: no setting has this variable; {remedy}"


def test_a_warning_shows_no_value_and_no_line_of_its_own(tmp_path: Path) -> None:
    environ = {"HOME": "/h", "SEARCH_X\nforged": "sk-hidden"}
    (warning,) = load_settings(environ, tmp_path).warnings
    assert "\n" not in warning
    assert "sk-hidden" not in warning


def test_variables_of_settings_secrets_and_kubernetes_are_no_warnings(tmp_path: Path) -> None:
    blank = {name: "" for spec in SPECS for name in spec.env}
    services = {
        "SEARCH_SERVICE_HOST": "10.0.0.1",
        "SEARCH_SERVICE_PORT": "8070",
        "SEARCH_SERVICE_PORT_HTTP": "8070",
        "SEARCH_PORT": "tcp://10.0.0.1:8070",
        "SEARCH_PORT_8070_TCP": "tcp://10.0.0.1:8070",
        "SEARCH_BROKER_SERVICE_HOST": "10.0.0.2",
        "SEARCH_BROKER_PORT": "tcp://10.0.0.2:8080",
        "SEARCH_BROKER_PORT_8080_TCP_ADDR": "10.0.0.2",
    }
    card = {
        "name": "ability-search",
        "brokers": {},
        "deploy": {"x": {"secrets": {"vault": "models", "required": ["SEARCH_OTHER_KEY"]}}},
    }
    (tmp_path / "agent.json").write_text(json.dumps(card))
    settings = load(tmp_path, **blank, **services, SEARCH_OTHER_KEY="x", RESEARCH_X="1")
    assert settings.agent.required_secrets == ("SEARCH_OTHER_KEY",)
    assert settings.warnings == ()


def test_a_misspelt_port_is_a_warning_although_kubernetes_has_such_names(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, SEARCH_GATEWAI_PORT="8070").warnings
    assert "did you mean SEARCH_GATEWAY_PORT?" in warning


@pytest.mark.parametrize("line", ["candiates: 20", "Chunk_size: 20", "embeding_model: x"])
def test_a_section_with_one_misspelt_key_is_refused_with_the_nearest(
    tmp_path: Path, line: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, f"search:\n  {line}\n")
    (problem,) = caught.value.problems
    assert "unknown key; did you mean " in problem


def test_a_section_of_another_program_is_passed_over_with_its_keys(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "search: {provider: lunr, limit: 10, language: en}").warnings
    assert warning.endswith(
        "is ignored: most keys of its section `search` are no settings of this program:"
        " provider, limit, language"
    )
