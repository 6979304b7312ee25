"""agent.json and config.toml: identity, brokers, networks; and this project's own files."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ability_search import __version__
from ability_search.config.agent_card import CARD, AgentCard, read_agent_card
from ability_search.config.config_files import Report, find_own
from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.tools.table import TOOLS

ROOT = Path(__file__).parents[3]


def load(
    directory: Path, agent: dict[str, Any] | None = None, toml: str = "", **environ: str
) -> Settings:
    if agent is not None:
        (directory / "agent.json").write_text(json.dumps(agent), encoding="utf-8")
    if toml:
        (directory / "config.toml").write_text(toml, encoding="utf-8")
    return load_settings({"HOME": "/home/ada", **environ}, directory)


def url(settings: Settings) -> str:
    return settings.broker.url.get_secret_value()


ALL = {"local": "ws://l/kadi", "default": "ws://d/kadi", "remote": {"url": "wss://r/kadi"}}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("local", "default", "remote"), "wss://r/kadi"),
        (("local", "default"), "ws://d/kadi"),
        (("local",), "ws://l/kadi"),
    ],
)
def test_the_first_of_remote_default_local_is_used(
    tmp_path: Path, names: tuple[str, ...], expected: str
) -> None:
    assert url(load(tmp_path, {"brokers": {name: ALL[name] for name in names}})) == expected


def test_the_environment_wins(tmp_path: Path) -> None:
    agent = {"brokers": ALL}
    assert url(load(tmp_path, agent, KADI_BROKER_URL="ws://k/kadi")) == "ws://k/kadi"
    both = load(tmp_path, agent, BROKER_URL="ws://b/kadi", KADI_BROKER_URL="ws://k/kadi")
    assert url(both) == "ws://b/kadi"


def test_networks_of_the_chosen_broker_are_used(tmp_path: Path) -> None:
    toml = (
        '[broker.local]\nURL = "ws://l/kadi"\nNETWORKS = ["search"]\nMODE = "native"\n'
        '[broker.remote]\nNETWORKS = ["far", "global"]\n'
    )
    settings = load(tmp_path, {"brokers": ALL}, toml)
    assert settings.broker.name == "remote"
    assert settings.broker.networks == ("far", "global")


def test_networks_stay_when_only_the_address_is_overridden(tmp_path: Path) -> None:
    toml = '[broker.local]\nURL = "ws://l/kadi"\nNETWORKS = ["search"]\n'
    settings = load(tmp_path, None, toml, BROKER_URL="ws://elsewhere/kadi")
    assert url(settings) == "ws://elsewhere/kadi"
    assert settings.broker.networks == ("search",)


def test_an_overriding_address_of_a_known_broker_brings_its_networks(tmp_path: Path) -> None:
    toml = '[broker.local]\nNETWORKS = ["near"]\n[broker.remote]\nNETWORKS = ["far"]\n'
    settings = load(tmp_path, {"brokers": ALL}, toml, BROKER_URL="ws://l/kadi")
    assert settings.broker.name == "local"
    assert settings.broker.networks == ("near",)


def test_networks_from_the_environment(tmp_path: Path) -> None:
    toml = '[broker.local]\nNETWORKS = ["near"]\n'
    settings = load(tmp_path, None, toml, BROKER_NETWORKS="one, two")
    assert settings.broker.networks == ("one", "two")


def test_config_toml_wins_over_agent_json_for_the_same_broker(tmp_path: Path) -> None:
    settings = load(tmp_path, {"brokers": ALL}, '[broker.remote]\nURL = "wss://mine/kadi"\n')
    assert url(settings) == "wss://mine/kadi"


def test_config_toml_may_add_a_broker(tmp_path: Path) -> None:
    toml = '[broker.remote]\nurl = "wss://mine/kadi"\n'
    assert url(load(tmp_path, {"brokers": {"local": "ws://l/kadi"}}, toml)) == "wss://mine/kadi"


def test_networks_in_agent_json(tmp_path: Path) -> None:
    agent = {"networks": ["all"], "brokers": {"local": "ws://l/kadi"}}
    assert load(tmp_path, agent).broker.networks == ("all",)
    agent["brokers"] = {"local": {"url": "ws://l/kadi", "networks": ["own"]}}
    assert load(tmp_path, agent).broker.networks == ("own",)


def test_a_file_without_brokers_leaves_the_local_one(tmp_path: Path) -> None:
    assert url(load(tmp_path, {"name": "ability-search"})) == "ws://localhost:8080/kadi"
    assert url(load(tmp_path, {"brokers": {"odd": "ws://o/kadi"}})) == "ws://o/kadi"


@pytest.mark.parametrize(
    ("agent", "toml", "expected"),
    [
        ({"brokers": {"remote": 5}}, "", "brokers.remote: expected an address"),
        ({"name": "ability-search", "brokers": []}, "", "brokers: expected an object"),
        ({"brokers": {"remote": "http://x"}}, "", "brokers.remote: expected an address that"),
        ({"brokers": {"local": {"url": "ws://x", "networks": "a"}}}, "", "local.networks: expec"),
        ({"name": "ability-search", "version": 3}, "", "version: expected a string"),
        ({"name": "ability-search", "deploy": []}, "", "deploy: expected an object"),
        (None, "[broker.local]\nURL = 5", "[broker.local] URL: expected an address"),
        (None, '[broker.local]\nURL = "x"', "[broker.local] URL: expected an address that"),
        (None, '[broker.local]\nNETWORKS = "a"', "NETWORKS: expected a list of names"),
        (None, "[broker.local]\nNETWORKS = []", "NETWORKS: expected a list of names"),
        (None, "[broker.local]\nMODE = 1", "MODE: expected a string"),
        (None, "[broker]\na = 1\n[broker.b]\nURL = 'ws://x'", "[broker.a]: expected a table"),
        (None, "[broker", "not valid TOML"),
    ],
)
def test_invalid_entries_are_reported_with_their_place(
    tmp_path: Path, agent: dict[str, Any] | None, toml: str, expected: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, agent, toml)
    (problem,) = caught.value.problems
    assert problem.startswith(str(tmp_path))
    assert expected in problem


def test_agent_json_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"brokers": ', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"agent\.json: not valid JSON \(line 1"):
        load_settings({}, tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", "broker = 1"),
        ("config.toml", '[broker]\nurl = "amqp://queue.example"'),
        ("config.toml", 'baseURL = "https://example.org"'),
        ("config.toml", "{{ not TOML"),
        ("agent.json", "[]"),
        ("agent.json", "{"),
        ("agent.json", '{"name": "planner", "skills": []}'),
    ],
)
def test_a_file_of_another_program_is_passed_over_with_a_warning(
    tmp_path: Path, name: str, content: str
) -> None:
    load(tmp_path, {"brokers": {"local": "ws://l/kadi"}}, '[broker.local]\nNETWORKS = ["n"]')
    below = tmp_path / "clone"
    below.mkdir()
    (below / name).write_text(content, encoding="utf-8")
    settings = load_settings({"HOME": "/home/ada"}, below)
    assert (url(settings), settings.broker.networks) == ("ws://l/kadi", ("n",))
    (warning,) = settings.warnings
    assert warning.startswith(f"{below / name} is ignored: ")


def test_ignored_keys_of_config_toml_cause_warnings(tmp_path: Path) -> None:
    toml = '[broker.local]\nNETWORK = ["a"]\nMODE = "bridge"\n'
    warnings = load(tmp_path, None, toml).warnings
    assert len(warnings) == 2
    assert "MODE: bridge is not supported" in warnings[0]
    assert "NETWORK ignored; valid keys are URL, NETWORKS, MODE" in warnings[1]


def test_all_brokers_are_joined_each_on_its_networks(tmp_path: Path) -> None:
    toml = (
        '[broker.local]\nURL = "ws://l/kadi"\nNETWORKS = ["search"]\n'
        '[broker.office]\nURL = "ws://o/kadi"\nNETWORKS = ["far"]\n'
        '[broker.same]\nURL = "wss://r/kadi"\nNETWORKS = ["more"]\n'
    )
    settings = load(tmp_path, {"brokers": ALL, "networks": ["team"]}, toml)
    joined = {each.name: (each.url.get_secret_value(), each.networks) for each in settings.brokers}
    assert joined == {
        "remote": ("wss://r/kadi", ("team", "more")),
        "default": ("ws://d/kadi", ("team",)),
        "local": ("ws://l/kadi", ("search",)),
        "office": ("ws://o/kadi", ("far",)),
    }
    assert list(joined) == ["remote", "default", "local", "office"]
    assert settings.broker is settings.brokers[0]


def test_an_address_in_the_environment_selects_a_single_broker(tmp_path: Path) -> None:
    settings = load(tmp_path, {"brokers": ALL}, BROKER_URL="ws://d/kadi")
    assert [each.name for each in settings.brokers] == ["default"]
    elsewhere = load(tmp_path, {"brokers": ALL}, BROKER_URL="ws://x/kadi")
    assert [str(each.url) for each in elsewhere.brokers] == ["ws://x/kadi"]


def test_networks_of_the_environment_apply_to_every_broker(tmp_path: Path) -> None:
    settings = load(tmp_path, {"brokers": ALL}, BROKER_NETWORKS="a,b")
    assert {each.networks for each in settings.brokers} == {("a", "b")}


def test_an_invalid_broker_address_is_reported_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, {"brokers": {"remote": "wss://r", "spare": "http://s"}}, BROKER_NETWORKS=",")
    assert [
        ("brokers.spare" in each, "BROKER_NETWORKS" in each) for each in caught.value.problems
    ] == [
        (False, True),
        (True, False),
    ]


def test_identity_is_read_from_agent_json(tmp_path: Path) -> None:
    agent = {"name": "renamed", "version": "9.9", "tools": [{"name": "search-query"}]}
    settings = load(tmp_path, agent)
    assert (settings.agent.name, settings.agent.version) == ("renamed", "9.9")


def test_another_agents_file_gives_its_brokers_only(tmp_path: Path) -> None:
    agent = {
        "name": "agent-chat",
        "version": "3",
        "brokers": {"remote": "wss://r/kadi"},
        "deploy": {"x": {"secrets": {"vault": "models", "required": ["CHAT_KEY"]}}},
    }
    settings = load(tmp_path, agent)
    assert settings.agent.name == "ability-search"
    assert settings.agent.required_secrets == AgentCard().required_secrets
    assert url(settings) == "wss://r/kadi"


def test_required_secrets_of_vault_models_only_in_both_spellings(tmp_path: Path) -> None:
    agent = {
        "name": "ability-search",
        "deploy": {
            "a": {"secrets": {"vault": "models", "required": ["ONE"]}},
            "b": {
                "secrets": {
                    "vaults": [
                        {"vault": "models", "required": ["TWO", "ONE"]},
                        {"vault": "tunnel", "required": ["OTHER"]},
                    ]
                }
            },
            "c": {"services": {}},
            "d": {"secrets": {"vault": "models"}},
        },
    }
    assert load(tmp_path, agent).agent.required_secrets == ("ONE", "TWO")


def test_own_manifest_agrees_with_the_package_and_the_built_in_one() -> None:
    card = read_agent_card(find_own(CARD, ROOT, Report()), [])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert card.name == project["name"]
    assert card.version == __version__ == project["version"]
    document = json.loads((ROOT / "agent.json").read_text(encoding="utf-8"))
    assert document["description"] == project["description"]
    built_in = AgentCard()
    (own,), (default,) = card.brokers, built_in.brokers
    assert (own.name, own.url) == (default.name, default.url)
    assert card.required_secrets == built_in.required_secrets


def test_own_manifest_lists_the_tools_and_its_images_have_the_version() -> None:
    document = json.loads((ROOT / "agent.json").read_text(encoding="utf-8"))
    assert set(document["tools"]) == {row.name for row in TOOLS}
    image = f"ability-search:{__version__}"
    assert document["build"]["default"]["image"] == image
    for block in document["deploy"].values():
        for service in block["services"].values():
            assert service["image"] == image
            assert service["command"] == ["ability-search", "worker"]


def test_own_files_load_without_a_warning() -> None:
    settings = load_settings({"HOME": "/home/ada"}, ROOT / "src")
    assert settings.warnings == ()
    assert settings.agent.path == ROOT / "agent.json"
    assert url(settings) == AgentCard().brokers[0].url
    assert settings.broker.networks == ("search", "global")
    assert settings.embedding.model == "nomic-embed-text"
