"""The checks of `doctor` in a whole network in which something is away."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, document
from tests.foreign_models import ForeignModels

from ability_search.client.tool_client import Target
from ability_search.config.schema import Settings
from ability_search.config.setting_fields import Url
from ability_search.extensions.localstack import health_checks
from ability_search.extensions.localstack.check_results import Check, Checks
from ability_search.extensions.localstack.health_checks import check_network
from kadi_localnet.broker import serve_broker

COUNT = 9
"""Collections, each under another model."""


async def made(network: Network, settings: Settings | None = None) -> list[Check]:
    settings = settings or network.settings
    target = Target(network.url, settings.broker.networks, "test")
    checks = Checks()
    await check_network(checks, settings, target)
    return checks.made


def named(checks: list[Check], name: str) -> list[Check]:
    return [check for check in checks if check.name == name]


async def fill(network: Network) -> None:
    """Make a collection under each of several models, and forget how often they were asked."""
    for number in range(COUNT):
        model = f"m{number}"
        network.model.models[model] = 32
        await network.call(
            "search-index", collection=f"c{number}", documents=[document("a", "text")], model=model
        )
    network.model.requests = 0


async def test_checks_of_a_healthy_network_name_each_model(network: Network) -> None:
    await fill(network)
    checks = await made(network)
    assert {check.state for check in checks} == {"ok"}
    assert len(named(checks, "model")) == COUNT


async def test_a_model_server_that_fails_is_asked_for_one_model(start: Start) -> None:
    async with start() as network:
        await fill(network)

        def fail(_: dict[str, Any]) -> None:
            raise RuntimeError("out of memory")

        network.model.failure = fail
        checks = await made(network)
        assert [check.state for check in named(checks, "embedding")] == ["fail"]
        (skipped,) = named(checks, "model")
        assert (skipped.state, skipped.text) == ("skip", "not checked, as embedding failed")
        # A failure is followed by a known text, which tells a failing server from a text.
        assert network.model.requests == 2


async def test_a_model_server_that_fails_at_other_models_is_asked_for_the_first(
    start: Start,
) -> None:
    async with start() as network:
        await fill(network)

        def fail(tool_input: dict[str, Any]) -> None:
            if tool_input["model"] != MODEL:
                raise RuntimeError("out of memory")

        network.model.failure = fail
        first, rest = named(await made(network), "model")
        assert (first.state, rest.state) == ("warn", "skip")
        assert "--model" not in first.remedy
        assert network.model.requests == 3


async def test_models_that_nobody_serves_have_one_remedy(network: Network) -> None:
    await fill(network)

    def refuse(tool_input: dict[str, Any]) -> None:
        if tool_input["model"] != MODEL:
            raise ValueError(f"model {tool_input['model']!r} is not served")

    network.model.failure = refuse
    checks = named(await made(network), "model")
    assert [check.state for check in checks] == COUNT * ["warn"]
    (remedy,) = Counter(check.remedy for check in checks)
    assert "ability-search reindex COLLECTION --model MODEL" in remedy


async def test_checks_that_take_too_long_are_ended(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_checks, "_ALL_SECONDS", 0.0)
    (check,) = await made(network)
    assert (check.name, check.state) == ("doctor", "fail")


KEYED = {
    "BROKER_NETWORKS": "global,models",
    "SEARCH_API_KEY": "sk-for-one",
    "SEARCH_EMBEDDING_AGENT": "model-manager@models",
}


async def agents(network: Network) -> list[Check]:
    """The checks of the agents that offer models."""
    return named(await made(network), "agents")


async def test_the_agents_that_offer_models_are_named(start: Start) -> None:
    others = ForeignModels(name="others", tools=["rerank", "chat-completion"])
    async with start(SEARCH_RERANKER_API_KEY="sk-of-rerankers") as network:
        async with others.running(network.url):
            embedding, reranker, chat = await agents(network)
        assert {check.state for check in (embedding, reranker, chat)} == {"ok"}
        assert f"'parts' ({network.parts.agent_id}) on global" in embedding.text
        assert "no API key is set" in embedding.text
        listed = f"'others' ({others.ids[0]}) on global"
        assert f"SEARCH_RERANKER_API_KEY go to {listed}" in reranker.text
        assert "SEARCH_RERANKER_AGENT" in reranker.remedy
        assert listed in chat.text
        (_, missing) = await agents(network)
        assert (missing.state, "no agent" in missing.text) == ("warn", True)


async def test_the_agent_that_the_settings_trust_is_named_or_missed(start: Start) -> None:
    models, double = (
        ForeignModels(networks=["models"], key="sk-for-one", tools=["create-embedding"])
        for _ in range(2)
    )
    async with start(**KEYED) as network:
        (missed,) = await agents(network)
        assert missed.state == "fail"
        assert "'model-manager' on network 'models' (SEARCH_EMBEDDING_AGENT)" in missed.text
        assert f"'parts' ({network.parts.agent_id}) on global" in missed.text
        async with models.running(network.url):
            (trusted,) = await agents(network)
            assert trusted.state == "ok"
            assert f"SEARCH_API_KEY go to 'model-manager' ({models.ids[0]})" in trusted.text
            assert "SEARCH_EMBEDDING_AGENT=model-manager@models" in trusted.text
            async with double.running(network.url):
                (several,) = await agents(network)
            assert several.state == "fail"
            assert models.ids[0] in several.text
            assert double.ids[0] in several.text
    assert double.received == []
    assert not any("sk-" in str(check) for check in (missed, trusted, several))


async def test_a_worker_answers_from_a_model_manager_that_restarts_under_new_ids(
    start: Start,
) -> None:
    """By semantic queries, whose vectors only the trusted agent makes."""
    models = ForeignModels(networks=["models"], key="sk-for-one")
    async with start(**KEYED) as network:
        async with models.running(network.url):
            documents = [document("a", "cats and dogs"), document("b", "rain on the roof")]
            await network.call("search-index", collection="docs", documents=documents)
        for number in range(3):
            async with models.running(network.url), asyncio.timeout(5):
                query = {"collection": "docs", "query": f"cats {number}", "mode": "semantic"}
                found = await network.call("search-query", **query)
            assert found["results"][0]["source"] == "a"
        assert network.model.requests == 0, "the other model manager received nothing"
    assert models.keys == {"sk-for-one"}
    assert len(set(models.ids)) == 4


async def test_a_worker_whose_key_goes_to_nobody_is_found_by_a_query(start: Start) -> None:
    """The model manager answers ``doctor``, but has another agent id than the worker knows."""
    models = ForeignModels(key="sk-for-one", tools=["create-embedding"])
    async with start(SEARCH_API_KEY="sk-for-one") as network:
        others = [tool for tool in network.tools if tool.name != "create-embedding"]
        await network.parts.serve(others)
        async with models.running(network.url):
            assert named(await made(network), "query") == [], "there is nothing to search"
            await network.call("search-index", collection="docs", documents=[document("a", "cats")])
            (well,) = named(await made(network), "query")
        async with models.running(network.url):
            checks = await made(network)
    assert (well.state, "semantic search of docs" in well.text) == ("ok", True)
    assert [check.state for check in named(checks, "embedding")] == ["ok"]
    (query,) = named(checks, "query")
    assert query.state == "fail"
    assert models.ids[0] in query.text
    assert models.ids[1] in query.text
    assert "SEARCH_EMBEDDING_AGENT" in query.remedy
    assert not any("sk-for-one" in str(check) for check in checks)


async def test_models_of_another_broker_of_the_worker_are_found(start: Start) -> None:
    models = ForeignModels(tools=["create-embedding"])
    async with start() as network, serve_broker("127.0.0.1", 0) as second:
        others = [tool for tool in network.tools if tool.name != "create-embedding"]
        await network.parts.serve(others)
        settings = with_broker(network.settings, second.url)
        (missing,) = named(await made(network, settings), "models")
        async with models.running(second.url):
            checks = await made(network, settings)
    assert (missing.state, "create-embedding" in missing.text) == ("fail", True)
    assert [check.state for check in named(checks, "models")] == ["ok"]
    assert [check.state for check in named(checks, "embedding")] == ["ok"]
    assert [check.state for check in named(checks, "broker second")] == ["ok"]
    (offered,) = named(checks, "agents")
    assert models.ids[0] in offered.text


def with_broker(settings: Settings, url: str) -> Settings:
    """Return settings with a second broker."""
    second = settings.broker.model_copy(update={"url": Url(url), "name": "second"})
    return replace(settings, brokers=(*settings.brokers, second))
