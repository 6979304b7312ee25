"""Restricted networks and tool names, over the router and with connections."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kadi_localnet.test_broker_router import Desk

from kadi_client import Connection, Identity, NoProvider
from kadi_client.errors import KadiError
from kadi_client.identity import agent_id
from kadi_client.tools import Call, Tool
from kadi_localnet.broker import Access, serve_broker
from kadi_localnet.broker.session import Session

MEMBER = Identity.generate()
STRANGER = Identity.generate()
MEMBER_ID = agent_id(MEMBER.public_key)
PARTS = Access(members={"parts": [MEMBER_ID]}, providers={"arcade-*": [MEMBER_ID]})


def desk() -> Desk:
    return Desk(access=PARTS)


def test_only_members_join_a_restricted_network() -> None:
    at = desk()
    member = at.join(MEMBER, networks=["global", "parts"])
    stranger = at.join(STRANGER)
    answer = at.send(stranger, "kadi.agent.register", {"networks": ["global", "parts"]})
    assert answer["networks"] == ["global"]
    assert answer["droppedNetworks"] == ["parts"]
    assert member.networks == ("global", "parts")


def test_a_network_named_in_hello_is_joined_once_the_agent_is_known() -> None:
    for identity, joined in ((MEMBER, ("parts",)), (STRANGER, ())):
        at = desk()
        session = at.connect()
        asked = {"role": "agent", "networks": ["parts"]}
        nonce = at.send(session, "kadi.session.hello", asked)["nonce"]
        assert session.networks == ()
        proof = {"publicKey": identity.public_key, "signature": identity.sign(nonce)}
        at.send(session, "kadi.session.authenticate", proof)
        assert session.networks == joined


def test_the_tools_of_a_restricted_network_are_hidden_from_strangers() -> None:
    at = desk()
    at.join(MEMBER, networks=["parts"], tools=["arcade-query"])
    stranger = at.join(STRANGER, networks=["global"])
    assert at.send(stranger, "kadi.ability.list", {}) == {"tools": []}
    refused = at.send(stranger, "kadi.ability.request", {"toolName": "arcade-query"})
    assert "no provider for tool 'arcade-query'" in refused["message"]


@pytest.mark.parametrize("name", ["arcade-query", "arcade-", "arcade-command"])
def test_a_reserved_tool_name_is_refused_with_the_name_and_changes_nothing(name: str) -> None:
    at = desk()
    stranger = at.join(STRANGER, networks=["global"], tools=["own"])
    tools = [{"name": "other"}, {"name": name}]
    refused = at.send(stranger, "kadi.agent.register", {"tools": tools, "networks": ["lab"]})
    assert f"tools.1.name {name!r} may only be offered by listed agents" in refused["message"]
    assert stranger.tools == ("own",)
    assert stranger.networks == ("global",)


RESERVED = Access(providers=dict.fromkeys(["arcade-*", "search-query", "rerank"], [MEMBER_ID]))


@pytest.mark.parametrize(
    "name",
    [
        "Search-Query",
        "SEARCH-QUERY",
        "search-query ",
        "Rerank",
        "ARCADE-QUERY",
    ],
)
def test_a_reserved_name_is_refused_in_letters_of_either_case(name: str) -> None:
    at = Desk(access=RESERVED)
    stranger = at.join(STRANGER, networks=["global"])
    refused = at.send(stranger, "kadi.agent.register", {"tools": [{"name": name}]})
    assert "may only be offered by listed agents" in refused["message"]
    assert at.join(MEMBER, networks=["global"], tools=[name]).tools == (name,)


@pytest.mark.parametrize(
    "name",
    [
        "\tsearch-query",
        "search\u2010query",
        "search\u2212query",
        "search\u00adquery",
        "search-\u200bquery",
        "search-query\ufeff",
        "search-query\u202e",
        "search-que\u0301ry",
        "\uff53earch-query",
        "\uff33\uff25\uff21\uff32\uff23\uff28\uff0d\uff31\uff35\uff25\uff32\uff39",
        "\U0001d42c\U0001d41e\U0001d41a\U0001d42b\U0001d41c\U0001d421-query",
        "s\u0435arch-query",
        "se\u03b1rch-query",
        "search-qu\u3164ery",
        "arcade\u2011query",
        "arc\u0430de-anything",
        "arcade \u2013 query",
        "\u691c\u7d22",
        "\u043f\u043e\u0438\u0441\u043a",
        "caf\u00e9-search",
        "\U0001f50d",
        "kadi\u2024x",
        "\u200bkadi.x",
        "\uff4badi.x",
    ],
)
def test_a_name_that_is_not_printable_ascii_is_refused(name: str) -> None:
    at = desk()
    stranger = at.join(STRANGER, networks=["global"])
    refused = at.send(stranger, "kadi.agent.register", {"tools": [{"name": name}]})
    assert "tools.0.name" in refused["message"]
    assert "must be printable ASCII" in refused["message"]


@pytest.mark.parametrize("name", ["KADI.ability.list", " kadi.x", "Kadi.Agent.register"])
def test_a_name_that_looks_like_a_method_is_refused(name: str) -> None:
    at = desk()
    stranger = at.join(STRANGER, networks=["global"])
    refused = at.send(stranger, "kadi.agent.register", {"tools": [{"name": name}]})
    assert "is reserved" in refused["message"]


@pytest.mark.parametrize(
    "name",
    [
        "name",
        "search_query",
        "searchQuery",
        "search-queries",
        "my-search-query",
        "searchquery",
        "search-query-v2",
        "github.search/query",
        "arcade_list_tools",
        "arcades-nearby",
        "arcade",
        "kadi-deploy",
        "ranker",
    ],
)
def test_names_of_other_tools_are_free(name: str) -> None:
    at = Desk(access=RESERVED)
    assert at.join(STRANGER, networks=["global"], tools=[name]).tools == (name,)


def test_a_name_that_no_pattern_matches_is_free() -> None:
    at = desk()
    session = at.join(STRANGER, networks=["global"], tools=["arcade", "my-arcade-query"])
    assert session.tools == ("arcade", "my-arcade-query")


def test_an_agent_must_be_listed_for_every_pattern_that_matches() -> None:
    access = Access(providers={"arcade-*": [MEMBER_ID], "arcade-query": []})
    at = Desk(access=access)
    member = at.join(MEMBER, networks=["global"], tools=["arcade-command"])
    refused = at.send(member, "kadi.agent.register", {"tools": [{"name": "arcade-query"}]})
    assert "may only be offered by listed agents" in refused["message"]


async def test_a_squatter_receives_no_call_and_reads_no_event() -> None:
    async def serve(given: dict[str, Any], _call: Call) -> dict[str, Any]:
        return given

    tool = Tool("arcade-query", "Echo.", {"type": "object"}, serve)
    async with (
        serve_broker(port=0, access=PARTS) as broker,
        Connection(broker.url, identity=MEMBER, networks=["parts"], tools=[tool]) as member,
        Connection(broker.url, identity=STRANGER, networks=["parts", "global"]) as stranger,
    ):
        assert await member.invoke("arcade-query", {"a": 1}, timeout=5) == {"a": 1}
        with pytest.raises(NoProvider):
            await stranger.invoke("arcade-query", {}, timeout=5)
        with pytest.raises(KadiError, match="is not a network of this session"):
            await stranger.publish("search.done", {}, network="parts")


# --- what a refused caller learns --------------------------------------------------------------

SEARCHED = "no provider for tool 'echo' on the networks searched: global"
REMEDY = "its operator can list it"


def refusal(at: Desk, caller: Session, **params: Any) -> str:
    refused = at.send(caller, "kadi.ability.request", {"toolName": "echo", **params})
    text: str = refused["message"]
    return text


def test_a_tool_on_a_network_that_the_caller_may_join_is_named_with_it() -> None:
    at = Desk()
    provider = at.join(tools=["echo"], networks=["lab"])
    caller = at.join(networks=["global"])
    assert refusal(at, caller) == (
        f"{SEARCHED}; it is offered on network 'lab', which this agent may join and has not joined:"
        " add 'lab' to the networks that it registers with"
    )
    at.send(caller, "kadi.agent.register", {"networks": ["global", "lab"]})
    at.call(caller)
    assert len(provider.serving) == 1


def test_no_more_than_three_networks_are_named() -> None:
    at = Desk()
    for number in range(5):
        at.join(tools=["echo"], networks=[f"n{number}"])
    assert "it is offered on networks 'n0', 'n1', 'n2' and 2 more, which" in refusal(at, at.join())


def test_a_network_of_members_is_named_to_nobody_else() -> None:
    at = desk()
    at.join(MEMBER, networks=["parts"], tools=["echo"])
    stranger = at.join(STRANGER, networks=["global"])
    assert refusal(at, stranger) == SEARCHED
    member = at.join(MEMBER, networks=["global"])
    assert "offered on network 'parts', which this agent may join" in refusal(at, member)


def test_an_announced_network_of_members_is_named_with_the_remedy() -> None:
    at = Desk(access=Access(members={"parts": [MEMBER_ID]}, announced={"parts": REMEDY}))
    at.join(MEMBER, networks=["parts"], tools=["echo"])
    stranger = at.join(STRANGER, networks=["global"])
    assert refusal(at, stranger) == (
        f"{SEARCHED}; it is offered on network 'parts', which only listed agents may join, and"
        f" agent {agent_id(STRANGER.public_key)} is none of them: {REMEDY}"
    )
    unknown = at.send(stranger, "kadi.ability.request", {"toolName": "unheard-of"})
    assert unknown["message"] == SEARCHED.replace("echo", "unheard-of")


def test_of_a_named_agent_only_its_own_networks_are_named() -> None:
    at = Desk()
    lab = at.join(tools=["echo"], networks=["lab"])
    at.join(tools=["echo"], networks=["vault"])
    text = refusal(at, at.join(), targetAgent=lab.agent_id)
    assert text.startswith(f"no provider of agent '{lab.agent_id}' for tool 'echo'")
    assert "'lab'" in text
    assert "vault" not in text


def test_the_network_of_a_provider_that_has_left_is_not_named() -> None:
    at = Desk()
    provider = at.join(tools=["echo"], networks=["lab"])
    at.router.disconnect(provider)
    assert refusal(at, at.join()) == SEARCHED


async def test_our_client_recognises_the_refusal_and_keeps_its_text() -> None:
    async def serve(given: dict[str, Any], _call: Call) -> dict[str, Any]:
        return given

    tool = Tool("echo", "Echo.", {"type": "object"}, serve)
    access = Access(members={"parts": [MEMBER_ID]}, announced={"parts": REMEDY})
    async with (
        serve_broker(port=0, access=access) as broker,
        Connection(broker.url, identity=MEMBER, networks=["parts", "lab"], tools=[tool]),
        Connection(broker.url, identity=STRANGER, networks=["global"]) as stranger,
    ):
        with pytest.raises(NoProvider) as caught:
            await stranger.invoke("echo", {}, timeout=5)
    assert "it is offered on network 'lab', which this agent may join" in str(caught.value)
    assert REMEDY in str(caught.value)
