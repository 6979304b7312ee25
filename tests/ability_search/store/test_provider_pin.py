"""ProviderPin: which agent gets the statements, and when it is chosen again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from ability_search.errors import DatabaseUnavailable, EngineTooOld, StatementRefused
from ability_search.store.arcadedb.core import Statement
from ability_search.store.arcadedb.provider_pin import ProviderPin
from kadi_client import Agent, KadiError, NoProvider

NEW, OLD = "26.10.2 (build 1)", "26.2.1 (build 2)"


@dataclass
class Agents:
    """Agents that offer databases, by the ids of these."""

    ids: dict[str, str]
    silent: set[str] = field(default_factory=set)
    version: str = NEW
    listed: int = 0
    asked: list[str] = field(default_factory=list)
    """Agents that statements went to."""

    async def list(self, tool: str) -> list[Agent]:
        self.listed += tool == "arcade-query"
        return [Agent(id_, f"name of {id_}") for id_ in self.ids]

    async def run(self, statement: Statement, agent: str | None, _write: bool) -> Any:
        assert agent is not None
        self.asked.append(agent)
        if agent in self.silent:
            raise DatabaseUnavailable("no answer")
        assert agent in self.ids, "it was called although it is not listed"
        if "version()" in statement.text:
            return [{"version": self.version}]
        if "SELECT id" in statement.text:
            return [{"id": self.ids[agent]}]
        return []


def pin_of(agents: Agents) -> ProviderPin:
    return ProviderPin(agents.list, agents.run)


async def test_the_successor_of_an_agent_that_left_is_used_if_it_has_the_database() -> None:
    agents = Agents({"one": "db"})
    pin = pin_of(agents)
    assert await pin.agent() == "one"
    agents.ids.clear()
    pin.lost()
    for _ in range(3):
        with pytest.raises(DatabaseUnavailable, match="'name of one' \\(agent one\\) did") as away:
            await pin.agent()
        assert isinstance(away.value.__cause__, NoProvider)
    agents.ids["two"] = "other"
    with pytest.raises(DatabaseUnavailable, match="agent two offers other") as another:
        await pin.agent()
    assert isinstance(another.value.__cause__, NoProvider)
    agents.ids["two"] = "db"
    assert await pin.agent() == "two"


async def test_the_list_is_read_once_for_many_statements() -> None:
    agents = Agents({"one": "db", "two": "db"})
    pin = pin_of(agents)
    assert {await pin.agent() for _ in range(10)} == {"one", "two"}
    assert agents.listed == 1


async def test_a_silent_agent_is_chosen_again_only_if_it_is_no_longer_listed() -> None:
    agents = Agents({"one": "db", "two": "db"})
    pin = pin_of(agents)
    await pin.agent()
    asked = len(agents.asked)
    pin.doubt()
    await pin.agent()
    assert (agents.listed, len(agents.asked)) == (2, asked)
    del agents.ids["one"]
    pin.doubt()
    assert {await pin.agent() for _ in range(4)} == {"two"}


async def test_a_replica_that_hangs_does_not_keep_the_others_from_being_used() -> None:
    agents = Agents({"one": "db", "two": "db", "three": "db"})
    pin = pin_of(agents)
    await pin.agent()
    del agents.ids["one"]
    agents.silent.add("two")
    pin.lost()
    assert {await pin.agent() for _ in range(4)} == {"three"}


async def test_at_first_every_agent_must_answer() -> None:
    agents = Agents({"one": "db", "two": "db"}, silent={"two"})
    with pytest.raises(DatabaseUnavailable, match="no answer"):
        await pin_of(agents).agent()


async def test_an_engine_that_is_too_old_is_named_each_time_and_gets_no_statement() -> None:
    agents = Agents({"one": "db"}, version=OLD)
    pin = pin_of(agents)
    for _ in range(2):
        with pytest.raises(EngineTooOld) as old:
            await pin.agent()
    expected = "ArcadeDB 26.2.1 found at 'name of one' (agent one), 26.10.2 or later is needed"
    assert str(old.value) == expected
    agents.version = NEW
    assert await pin.agent() == "one"


async def test_without_a_database_yet_any_agent_may_be_called() -> None:
    agents = Agents({})
    pin = pin_of(agents)
    assert await pin.agent() is None


async def test_a_broker_that_lists_no_tools_chooses_itself() -> None:
    async def unlisted(_tool: str) -> list[Agent]:
        raise KadiError("not offered")

    pin = ProviderPin(unlisted, Agents({}).run)
    assert await pin.agent() is None
    assert pin.describe(None) == "the database ability"


async def test_an_error_of_the_database_itself_is_passed_on() -> None:
    async def run(_statement: Statement, _agent: str | None, _write: bool) -> Any:
        raise StatementRefused("rights", "no", problem="no rights", retryable=False)

    pin = ProviderPin(Agents({"one": "db"}).list, run)
    with pytest.raises(StatementRefused, match="no rights"):
        await pin.agent()
