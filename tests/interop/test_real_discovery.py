"""Discovery between the real KADI client and our broker, in both directions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.interop.conftest import CreatePython, CreateReal
from tests.interop.real_client import ClientError, NodeProcess, RealClient, needs_real_client
from tests.interop.relay import Relay

from kadi_client import Call, Connection, Identity, RemoteError, Tool
from kadi_localnet.broker import Access, serve_broker

pytestmark = [pytest.mark.process, pytest.mark.asyncio(loop_scope="module"), needs_real_client]

SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


async def echo(tool_input: dict[str, Any], _call: Call) -> Any:
    return tool_input


def tools(*names: str, networks: list[str] | None = None) -> list[Tool]:
    return [Tool(name, f"the {name}", SCHEMA, echo, networks=networks) for name in names]


def names(listing: Any) -> list[str]:
    return [each["name"] for each in listing["tools"]]


# --- by method ---------------------------------------------------------------------------------


async def test_the_list_is_the_same_as_a_method_and_as_a_call(
    real: CreateReal, python: CreatePython
) -> None:
    ours = await python(name="ours", tools=tools("find", "count"), networks=["lab", "global"])
    await python(tools=tools("hidden"), networks=["elsewhere"])
    caller = await real()
    params = {"networks": ["global"], "includeProviders": True}
    listing = await caller.invoke_remote("kadi.ability.list", params)
    assert await caller.request("kadi.ability.list", **params) == listing
    assert names(listing) == ["count", "find"]
    found = listing["tools"][1]
    (provider,) = found.pop("providers")
    assert found == {"name": "find", "description": "the find", "inputSchema": SCHEMA}
    assert provider.pop("sessionId")
    assert provider == {
        "agentId": ours.agent_id,
        "displayName": "ours",
        "source": "kadi-agent",
        "networks": ["global"],
    }


async def test_the_list_names_providers_only_if_asked(
    real: CreateReal, python: CreatePython
) -> None:
    await python(tools=tools("find"))
    caller = await real()
    for params in ({}, {"includeProviders": False}):
        (found,) = (await caller.request("kadi.ability.list", **params))["tools"]
        assert "providers" not in found
        assert await caller.invoke_remote("kadi.ability.list", params) == {"tools": [found]}


async def test_one_tool_is_discovered_by_method_and_by_call(
    real: CreateReal, python: CreatePython
) -> None:
    await python(tools=tools("find", "count"))
    caller = await real()
    params = {"tool": "find", "includeProviders": True}
    discovered = await caller.invoke_remote("kadi.discover", params)
    assert names(discovered) == ["find"]
    assert len(discovered["tools"][0]["providers"]) == 1
    assert await caller.request("kadi.discover", **params) == discovered
    assert await caller.request("kadi.discover", tool="absent") == {"tools": []}


async def test_listing_leaves_no_call_behind(real: CreateReal, relay: Relay) -> None:
    caller = await real(url=relay.url)
    for _ in range(3):
        assert await caller.invoke_remote("kadi.ability.list", {}) == {"tools": []}
    answers = relay.calls("kadi.ability.response")
    asked = relay.calls("kadi.ability.request")
    assert [each["params"]["requestId"] for each in answers] == [
        each["params"]["requestId"] for each in asked
    ]
    for each in asked:
        pending = {"status": "pending", "requestId": each["params"]["requestId"]}
        assert relay.answer_to(each)["result"] == pending


async def test_our_client_lists_the_tools_of_the_real_one(
    real: CreateReal, python: CreatePython
) -> None:
    provider = await real(connected=False)
    await provider.register_tool("add", a="number", b="number", label="string")
    await provider.connect()
    ours = await python()
    (found,) = await ours.list_tools(include_providers=True)
    schema = found["inputSchema"]
    assert schema["type"] == "object"
    assert schema["properties"] == {
        "a": {"type": "number"},
        "b": {"type": "number"},
        "label": {"type": "string"},
    }
    assert schema["required"] == ["a", "b", "label"]
    assert schema["additionalProperties"] is False
    (listed,) = found["providers"]
    assert (listed["agentId"], listed["displayName"]) == (provider.agent_id, provider.name)
    (agent,) = await ours.agents("add")
    assert (agent.id, agent.name) == (provider.agent_id, provider.name)
    assert agent.networks == {"global"}


# --- by name -----------------------------------------------------------------------------------


async def test_an_ability_is_loaded_by_its_display_name(
    real: CreateReal, python: CreatePython
) -> None:
    await python(name="finder", tools=tools("find", "count"))
    await python(name="other", tools=tools("find", "other"))
    caller = await real()
    ability = await caller.load_broker("finder")
    assert await ability.describe() == {
        "name": "finder",
        "transport": "broker",
        "tools": [
            {"name": "count", "description": "the count", "inputSchema": SCHEMA},
            {"name": "find", "description": "the find", "inputSchema": SCHEMA},
        ],
    }
    assert await ability.invoke("find", {"q": "x"}) == {"q": "x"}
    with pytest.raises(ClientError, match="no provider of agent"):
        await ability.invoke("other", {})


async def test_the_calls_of_a_loaded_ability_all_go_to_it(
    real: CreateReal, python: CreatePython, relay: Relay
) -> None:
    asked: list[str] = []

    def noting(name: str) -> list[Tool]:
        async def handle(tool_input: dict[str, Any], _call: Call) -> Any:
            asked.append(name)
            return tool_input

        return [Tool("find", "", SCHEMA, handle)]

    wanted = await python(name="wanted", tools=noting("wanted"))
    await python(name="other", tools=noting("other"))
    caller = await real(url=relay.url)
    ability = await caller.load_broker("wanted")
    for number in range(5):
        assert await ability.invoke("find", {"n": number}) == {"n": number}
    assert asked == ["wanted"] * 5
    sent = relay.calls("kadi.ability.request")
    assert [each["params"]["toolInput"]["_kadi"] for each in sent] == [
        {"requireAgent": wanted.agent_id}
    ] * 5


async def test_an_ability_that_is_not_there_is_named_with_those_that_are(
    real: CreateReal, python: CreatePython
) -> None:
    await python(name="finder", tools=tools("find"))
    await python(name="hidden", tools=tools("hide"), networks=["elsewhere"])
    caller = await real()
    with pytest.raises(ClientError) as raised:
        await caller.load_broker("searcher")
    assert raised.value.code == "ABILITY_NOT_FOUND"
    assert raised.value.context["availableAgents"] == ["finder"]


async def test_a_loaded_ability_survives_its_provider_connecting_anew(
    real: CreateReal, relay: Relay
) -> None:
    provider = await real(url=relay.url, connected=False)
    await provider.register_tool("find")
    await provider.connect()
    caller = await real()
    ability = await caller.load_broker(provider.name)
    await provider.disconnect()
    await provider.connect()
    assert await ability.invoke("find", {"n": 1}) == {"n": 1}


async def test_our_client_calls_the_real_one_by_its_agent_id(
    real: CreateReal, python: CreatePython
) -> None:
    asked: list[str] = []

    async def provider(name: str) -> RealClient:
        async def note(tool_input: Any, _context: dict[str, Any]) -> Any:
            asked.append(name)
            return tool_input

        client = await real(connected=False)
        await client.register_tool("find", note)
        await client.connect()
        return client

    await provider("first")
    second = await provider("second")
    ours = await python()
    for number in range(4):
        answer = await ours.invoke("find", {"n": number}, target_agent=second.agent_id)
        assert answer == {"n": number}  # without the routing hint
    assert asked == ["second"] * 4


# --- networks ----------------------------------------------------------------------------------


async def test_tools_are_visible_where_their_provider_is(
    real: CreateReal, python: CreatePython
) -> None:
    await python(name="lab", tools=tools("in_lab"), networks=["lab"])
    outside, inside = await real(), await real(networks=["lab"])
    assert names(await outside.request("kadi.ability.list")) == []
    assert names(await inside.request("kadi.ability.list")) == ["in_lab"]
    assert await inside.invoke_remote("in_lab", {"q": "x"}) == {"q": "x"}
    told = "no provider for tool 'in_lab' .*: global; it is offered on network 'lab', which this"
    with pytest.raises(ClientError, match=told):
        await outside.invoke_remote("in_lab", {"q": "x"})
    with pytest.raises(ClientError, match="not found"):
        await outside.load_broker("lab")


async def test_a_tool_of_the_real_client_with_networks_of_its_own_is_visible_there_only(
    real: CreateReal, python: CreatePython
) -> None:
    provider = await real(connected=False, networks=["global", "lab", "vault"])
    await provider.register_tool("anywhere")
    await provider.register_tool("in_lab", networks=["lab"])
    await provider.register_tool("in_two", networks=["lab", "vault"])
    await provider.connect()
    visible = {
        "global": ["anywhere"],
        "lab": ["anywhere", "in_lab", "in_two"],
        "vault": ["anywhere", "in_two"],
    }
    for network, expected in visible.items():
        theirs, ours = await real(networks=[network]), await python(networks=[network])
        listing = await theirs.request("kadi.ability.list", includeProviders=True)
        assert names(listing) == expected
        assert [tool["providers"][0]["networks"] for tool in listing["tools"]] == [
            [network] for _ in expected
        ]
        assert sorted(tool["name"] for tool in await ours.list_tools()) == expected
        for name in visible["lab"]:
            if name in expected:
                assert await ours.invoke(name, {"n": 1}) == {"n": 1}
                assert await theirs.invoke_remote(name, {"n": 2}) == {"n": 2}
            else:
                with pytest.raises(RemoteError, match="no provider"):
                    await ours.invoke(name, {})
                with pytest.raises(ClientError, match="no provider"):
                    await theirs.invoke_remote(name, {})


async def test_a_tool_of_ours_with_networks_of_its_own_is_visible_there_only(
    real: CreateReal, python: CreatePython
) -> None:
    offered = [*tools("anywhere"), *tools("in_lab", networks=["lab"])]
    await python(name="ours", networks=["global", "lab"], tools=offered)
    outside, inside = await real(), await real(networks=["lab"])
    assert names(await outside.request("kadi.ability.list")) == ["anywhere"]
    assert names(await inside.request("kadi.ability.list")) == ["anywhere", "in_lab"]
    ability = await outside.load_broker("ours")
    assert [tool["name"] for tool in (await ability.describe())["tools"]] == ["anywhere"]
    with pytest.raises(ClientError, match="no provider"):
        await ability.invoke("in_lab", {})


async def test_a_refused_caller_learns_of_an_announced_network_and_of_no_other(
    node: NodeProcess, real: CreateReal
) -> None:
    member = Identity.generate()
    access = Access(
        members={"vault": [member.agent_id], "cellar": [member.agent_id]},
        announced={"vault": "ask its operator"},
    )
    async with (
        serve_broker(port=0, access=access) as broker,
        Connection(
            broker.url,
            identity=member,
            networks=["vault", "cellar"],
            tools=[
                *tools("in_vault", networks=["vault"]),
                *tools("in_cellar", networks=["cellar"]),
            ],
        ),
    ):
        caller = await real(url=broker.url)
        with pytest.raises(ClientError) as raised:
            await caller.invoke_remote("in_vault", {})
        assert (
            "no provider for tool 'in_vault' on the networks searched: global; it is offered on"
            f" network 'vault', which only listed agents may join, and agent {caller.agent_id} is"
            " none of them: ask its operator"
        ) in str(raised.value)
        with pytest.raises(ClientError, match="for tool 'in_cellar' .*searched: global\n"):
            await caller.invoke_remote("in_cellar", {})
        await caller.disconnect()


async def test_networks_that_an_agent_may_not_join_are_dropped_with_a_warning(
    node: NodeProcess, real: CreateReal, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_broker(port=0, access=Access(members={"vault": (), "cellar": ()})) as broker:
        provider = await real(
            url=broker.url, connected=False, networks=["global", "lab", "vault", "cellar"]
        )
        await provider.register_tool("anywhere")
        await provider.register_tool("in_vault", networks=["vault"])
        await provider.register_tool("in_both", networks=["lab", "cellar"])
        await provider.connect()
        (warning,) = node.logs
        assert warning.startswith(
            'warn [KADI] Broker "local" dropped networks ["vault","cellar"] during registration.'
        )
        node.logs.clear()
        caller = await real(url=broker.url, networks=["global", "lab"])
        listing = await caller.request("kadi.ability.list", includeProviders=True)
        assert [(each["name"], each["providers"][0]["networks"]) for each in listing["tools"]] == [
            ("anywhere", ["global", "lab"]),
            ("in_both", ["lab"]),
        ]
        with pytest.raises(ClientError, match="for tool 'in_vault' .*searched: global, lab\n"):
            await caller.invoke_remote("in_vault", {})
        assert await provider.invoke_remote("anywhere", {"n": 1}) == {"n": 1}
        async with Connection(broker.url, networks=["lab", "vault"]) as ours:
            assert "did not let this agent join vault" in caplog.text
            assert await ours.invoke("in_both", {"n": 2}) == {"n": 2}
        for client in (provider, caller):
            await client.disconnect()
    assert node.logs == []
