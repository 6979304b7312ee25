"""Model managers that restart, over a real broker: who is asked, and who receives the key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.foreign_models import ForeignModels

from ability_search.config.loader import load_settings
from ability_search.config.trusted_agent import TrustedAgent
from ability_search.errors import ConfigurationError, SearchError
from ability_search.providers.model_calls import ModelClient
from ability_search.providers.model_servers import ModelServers
from kadi_client import Agent, Brokers, Connection, Endpoint, Identity
from kadi_localnet.broker import Limits, serve_broker

KEY = "sk-for-one-agent"
NAMED = "model-manager@models"
SOON = 2.0
"""Seconds within which an agent that is listed must be asked, far below any timeout here."""
NO_HOLD = Limits(absence=0.001)
"""The limits of a broker that does not hold calls for agents that have left."""


@dataclass
class Caller:
    """The clients of model servers as a worker has them, and what they cost."""

    servers: ModelServers
    clients: Mapping[str, ModelClient]
    calls: list[str | None] = field(default_factory=list)
    """The agent that each call named."""
    sent: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    """The tool of each call."""
    listings: int = 0

    async def ask(self, group: str, timeout: float = 20.0) -> Any:
        """Send a request of a group of settings."""
        client: Any = self.clients[group]
        if group == "embedding":
            return await client.embed("any", ["some words"], timeout=timeout)
        if group == "reranker":
            return await client.rerank(None, "words", ["some words", "more"], timeout=timeout)
        return await client.complete("s", "u", model=None, timeout=timeout, enough=9)

    async def refusal(self, group: str) -> SearchError:
        """Send a request that must fail, and return the error."""
        with pytest.raises(SearchError) as raised:
            await self.ask(group, timeout=0.3)
        return raised.value


@asynccontextmanager
async def calling(
    connection: Connection | Brokers, environ: Mapping[str, str]
) -> AsyncIterator[Caller]:
    """Yield the clients over a connection, with settings from the environment."""
    home = Path("/nonexistent")
    limits = {f"SEARCH_{group}_TIMEOUT": "20" for group in ("EMBEDDING", "RERANKER", "EXPANSION")}
    settings = load_settings({"HOME": str(home), **limits, **environ}, home)

    async def invoke(tool: str, tool_input: Mapping[str, Any], **options: Any) -> Any:
        caller.calls.append(options.get("target_agent"))
        caller.sent.put_nowait(tool)
        return await connection.invoke(tool, tool_input, **options)

    async def agents(tool: str) -> list[Agent]:
        caller.listings += 1
        return await connection.agents(tool)

    async with AsyncExitStack() as stack:
        servers = ModelServers(settings, invoke, agents=agents)
        clients: dict[str, ModelClient] = {
            "embedding": await stack.enter_async_context(servers.embedder()),
            "reranker": await stack.enter_async_context(servers.reranker()),
            "expansion": await stack.enter_async_context(servers.chat()),
        }
        caller = Caller(servers, clients)
        yield caller


@asynccontextmanager
async def network(
    environ: Mapping[str, str], limits: Limits | None = None
) -> AsyncIterator[tuple[str, Caller]]:
    """Yield the address of a broker and a caller in the networks ``models`` and ``global``."""
    async with (
        serve_broker(port=0, limits=limits) as broker,
        Connection(broker.url, networks=["global", "models"]) as connection,
        calling(connection, environ) as caller,
    ):
        yield broker.url, caller


def with_key(agent: str | None = NAMED) -> dict[str, str]:
    """Return settings with a key for each service, and the agent that is trusted."""
    environ = {"SEARCH_API_KEY": KEY, "SEARCH_RERANKER_API_KEY": KEY}
    environ["SEARCH_EXPANSION_API_KEY"] = KEY
    if agent is not None:
        for group in ("EMBEDDING", "RERANKER", "EXPANSION"):
            environ[f"SEARCH_{group}_AGENT"] = agent
    return environ


def on_models(**options: Any) -> ForeignModels:
    """Return a model manager on the network ``models`` that demands the key."""
    return ForeignModels(networks=["models"], key=KEY, **options)


async def soon(work: Awaitable[Any]) -> Any:
    """Return the result of some work that must be quick."""
    async with asyncio.timeout(SOON):
        return await work


services = pytest.mark.parametrize("group", ["embedding", "reranker", "expansion"])
holding = pytest.mark.parametrize("limits", [None, NO_HOLD], ids=["held", "not held"])


@services
@holding
async def test_without_a_key_a_model_manager_that_restarts_is_used_at_once(
    group: str, limits: Limits | None
) -> None:
    models = ForeignModels()
    async with network({}, limits) as (url, caller):
        for _ in range(3):
            async with models.running(url):
                await soon(caller.ask(group))
        assert (caller.calls, caller.listings) == ([None] * 3, 0)
    assert models.keys == {None}


@services
@holding
async def test_a_trusted_name_gets_the_key_under_every_id(
    group: str, limits: Limits | None
) -> None:
    models = on_models()
    async with network(with_key(), limits) as (url, caller):
        for _ in range(3):
            async with models.running(url):
                for _ in range(4):
                    await soon(caller.ask(group))
        assert caller.listings == 3, "agents are listed once for each start"
        assert len(caller.calls) == 12 + 2
        assert set(caller.calls) == set(models.ids)
    assert models.keys == {KEY}


@services
@holding
async def test_a_request_made_while_the_trusted_agent_is_away_is_answered_by_the_next_one(
    group: str, limits: Limits | None
) -> None:
    models = on_models()
    async with network(with_key(), limits) as (url, caller):
        async with models.running(url):
            await caller.ask(group)
            await caller.sent.get()
        waiting = [asyncio.create_task(caller.ask(group)) for _ in range(8)]
        # Until each of them is held by the broker, or is about to find nobody.
        for _ in waiting:
            await caller.sent.get()
        async with models.running(url):
            await soon(asyncio.gather(*waiting))
    assert models.keys == {KEY}


@holding
@pytest.mark.parametrize("environ", [{}, with_key()], ids=["no key", "key"])
async def test_requests_in_flight_when_the_model_manager_leaves_are_sent_to_the_next_one(
    limits: Limits | None, environ: Mapping[str, str]
) -> None:
    models = on_models() if environ else ForeignModels()
    async with network(environ, limits) as (url, caller):
        models.gate = asyncio.Event()
        async with models.running(url):
            waiting = [asyncio.create_task(caller.ask("embedding")) for _ in range(8)]
            for _ in waiting:
                await models.arrivals.get()
        models.gate.set()
        async with models.running(url):
            await asyncio.wait_for(asyncio.gather(*waiting), 5 * SOON)
            assert not caller.clients["embedding"].breaker.any_open
            await soon(caller.ask("embedding"))


@services
async def test_no_request_is_held_back_after_requests_that_found_no_agent(group: str) -> None:
    models = on_models()
    async with network(with_key(), NO_HOLD) as (url, caller):
        async with models.running(url):
            await caller.ask(group)
        for _ in range(20):
            await caller.refusal(group)
        async with models.running(url):
            await soon(caller.ask(group))


@pytest.mark.parametrize("environ", [{}, with_key()], ids=["no key", "key"])
async def test_requests_that_the_broker_held_in_vain_say_that_there_is_no_agent(
    environ: Mapping[str, str],
) -> None:
    models = on_models() if environ else ForeignModels()
    async with network(environ) as (url, caller):
        async with models.running(url):
            await caller.ask("embedding")
        for _ in range(8):
            error = await caller.refusal("embedding")
            assert "create-embedding" in str(error)
            assert error.retryable
        assert not caller.clients["embedding"].breaker.any_open
        async with models.running(url):
            await soon(caller.ask("embedding"))


@services
async def test_with_a_key_alone_another_agent_gets_nothing_and_the_error_names_both(
    group: str,
) -> None:
    first, second = on_models(), on_models(name="newcomer")
    async with network(with_key(None)) as (url, caller):
        async with first.running(url):
            await caller.ask(group)
        async with second.running(url):
            error = await soon(caller.refusal(group))
            for _ in range(10):
                await caller.refusal(group)
        assert second.received == []
        assert f"'model-manager' ({first.ids[0]}) on models" in str(error)
        assert f"'newcomer' ({second.ids[0]}) on models" in str(error)
        assert f"SEARCH_{group.upper()}_AGENT" in error.hint
        assert "restart the worker" in error.hint
        assert KEY not in f"{error} {error.hint}"


async def test_with_a_key_alone_an_agent_with_a_stored_identity_may_restart() -> None:
    models = on_models(identity=Identity.generate())
    async with network(with_key(None)) as (url, caller):
        for _ in range(3):
            async with models.running(url):
                await soon(caller.ask("embedding"))
    assert len(set(models.ids)) == 1


@services
async def test_an_agent_of_that_name_on_another_network_gets_nothing(group: str) -> None:
    models, impostor = on_models(), ForeignModels(networks=["global"])
    async with network(with_key()) as (url, caller), impostor.running(url):
        error = await caller.refusal(group)
        assert "'model-manager' on network 'models'" in str(error)
        assert f"({impostor.ids[0]}) on global" in str(error)
        for _ in range(2):
            async with models.running(url):
                await soon(caller.ask(group))
    assert impostor.received == []
    assert models.keys == {KEY}


@services
async def test_several_agents_of_that_name_get_nothing_until_one_is_left(group: str) -> None:
    models, impostor = on_models(), on_models()
    async with network(with_key()) as (url, caller):
        async with models.running(url):
            async with impostor.running(url):
                error = await caller.refusal(group)
                assert models.ids[0] in str(error)
                assert impostor.ids[0] in str(error)
            assert (models.received, impostor.received) == ([], [])
            await soon(caller.ask(group))
        assert impostor.received == []


async def test_the_agent_that_has_the_key_keeps_it_when_another_takes_its_name() -> None:
    models, impostor = on_models(), on_models()
    async with network(with_key()) as (url, caller), models.running(url):
        await caller.ask("embedding")
        async with impostor.running(url):
            for _ in range(5):
                await caller.ask("embedding")
    assert impostor.received == []


@services
async def test_a_name_that_nobody_has_sends_nothing_to_anybody(group: str) -> None:
    models = on_models()
    async with network(with_key("manager-of-models@models")) as (url, caller):
        error = await caller.refusal(group)
        assert "nobody else does" in str(error)
        async with models.running(url):
            error = await caller.refusal(group)
    assert models.received == []
    assert "'manager-of-models' on network 'models'" in str(error)
    assert f"'model-manager' ({models.ids[0]}) on models" in str(error)
    assert f"SEARCH_{group.upper()}_AGENT" in error.hint


async def test_a_trusted_id_gets_the_key_whatever_else_is_there() -> None:
    models = on_models(identity=Identity.generate(), name="any name")
    async with serve_broker(port=0) as broker, models.running(broker.url):
        pass
    async with network(with_key(models.ids[0].upper())) as (url, caller):
        impostor = on_models(name=models.ids[0])
        async with impostor.running(url):
            await caller.refusal("embedding")
            async with models.running(url):
                await soon(caller.ask("embedding"))
    assert impostor.received == []


async def test_a_trusted_agent_is_asked_without_a_key_too() -> None:
    models, other = ForeignModels(networks=["models"]), ForeignModels(name="other")
    environ = {"SEARCH_EMBEDDING_AGENT": NAMED}
    async with network(environ) as (url, caller), other.running(url):
        for _ in range(2):
            async with models.running(url):
                await soon(caller.ask("embedding"))
                await soon(caller.ask("embedding"))
    assert other.received == []
    assert models.keys == {None}


async def test_an_agent_that_says_that_it_has_no_provider_keeps_the_key() -> None:
    """A model manager may pass on requests to servers of its own."""
    models = on_models(failure="no provider for this model is available")
    async with network(with_key()) as (url, caller), models.running(url):
        error = await caller.refusal("reranker")
        assert "no provider for this model" in str(error)
        assert error.retryable
        models.failure = ""
        await soon(caller.ask("reranker"))


async def test_several_brokers_are_searched_for_the_trusted_agent() -> None:
    models, impostor = on_models(), ForeignModels(networks=["team", "models"], key=KEY)
    async with serve_broker(port=0) as near, serve_broker(port=0) as far:
        endpoints = {
            "near": Endpoint(near.url, ["team"]),
            "far": Endpoint(far.url, ["models"]),
        }
        async with (
            Brokers(endpoints) as brokers,
            calling(brokers, with_key()) as caller,
            impostor.running(near.url),  # this worker has joined no network "models" there
        ):
            for _ in range(3):
                async with models.running(far.url):
                    for group in ("embedding", "reranker", "expansion"):
                        await soon(caller.ask(group))
    assert impostor.received == []
    assert models.keys == {KEY}


@pytest.mark.parametrize("text", ["model-manager", "@models", "model-manager@", "@", "0123"])
def test_an_agent_without_a_network_is_refused(text: str) -> None:
    environ = {"HOME": "/nonexistent", "SEARCH_EMBEDDING_AGENT": text}
    with pytest.raises(ConfigurationError) as raised:
        load_settings(environ, Path("/nonexistent"))
    (problem,) = raised.value.problems
    assert "SEARCH_EMBEDDING_AGENT" in problem
    assert "NAME@NETWORK" in problem


def test_an_id_that_yaml_reads_as_a_number_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    config.write_text("search:\n  embedding_agent: 1234567890123456\n", encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        load_settings({"HOME": str(tmp_path)}, tmp_path)
    (problem,) = raised.value.problems
    assert "search.embedding_agent" in problem
    assert "in quotes" in problem
    config.write_text("search:\n  embedding_agent: '1234567890123456'\n", encoding="utf-8")
    settings = load_settings({"HOME": str(tmp_path)}, tmp_path)
    assert settings.embedding.agent == TrustedAgent(id="1234567890123456")


def test_names_may_contain_what_networks_do_not() -> None:
    assert TrustedAgent.parse(" a@b@models ") == TrustedAgent(name="a@b", network="models")
    assert TrustedAgent.parse("0123456789ABCDEF") == TrustedAgent(id="0123456789abcdef")
    assert str(TrustedAgent.parse("a@b@models")) == "a@b@models"
