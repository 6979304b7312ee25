"""The checks of `doctor` in a whole network in which something is away."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.ability_search.flows.conftest import MODEL, Network, Start, document

from ability_search.client.tool_client import Target
from ability_search.extensions.localstack import health_checks
from ability_search.extensions.localstack.health_checks import Check, Checks, check_network

COUNT = 9
"""Collections, each under another model."""


async def made(network: Network) -> list[Check]:
    target = Target(network.url, ("global",), "test")
    checks = Checks()
    await check_network(checks, network.settings, target)
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
