"""What the workers of a stack offer, and what is printed of its networks."""

from __future__ import annotations

from pathlib import Path

import pytest

from ability_search.client.running_stack import RunningComponent, RunningStack
from ability_search.config.loader import load_settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.settings import LocalBroker
from ability_search.extensions.localstack.stack_commands import _print_stack
from ability_search.extensions.localstack.stack_plan import Plan, StackOptions

ALL = ("notes", "memory")


def plan(directory: Path, *offer: str, **environ: str) -> Plan:
    settings = load_settings({"HOME": str(directory), **environ}, directory)
    options = StackOptions(
        no_database=True, no_models=True, offer=list(offer) or None, data_dir=directory
    )
    return Plan(settings, options, "info", alone=True)


@pytest.mark.parametrize(
    ("option", "variable", "expected"),
    [
        ((), None, ALL),
        ((), "", ()),
        ((), "memory", ("memory",)),
        ((), "all", ALL),
        (("notes",), "memory", ("notes",)),
        (("",), "memory", ()),
        (("memory,notes",), None, ALL),
    ],
)
def test_a_stack_offers_all_unless_it_is_set(
    tmp_path: Path, option: tuple[str, ...], variable: str | None, expected: tuple[str, ...]
) -> None:
    environ = {} if variable is None else {"SEARCH_OFFER": variable}
    assert plan(tmp_path, *option, **environ).offer == expected


def test_a_stack_is_not_planned_with_what_no_extension_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="'memry'"):
        plan(tmp_path, "memry")


def test_a_blank_variable_takes_the_private_network_away(tmp_path: Path) -> None:
    assert plan(tmp_path).private_network == ("components",)
    opened = plan(tmp_path, SEARCH_LOCAL_BROKER_PRIVATE_NETWORK="")
    assert opened.private_network == ()
    assert opened.settings.of(LocalBroker).private_network == ""


def test_the_private_network_is_printed_with_the_variable_that_opens_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    worker = RunningComponent("worker-1", 7, "search-* tools")
    private = RunningStack(
        1,
        "ws://127.0.0.1:8080/kadi",
        ("global", "parts"),
        "now",
        parts=(worker,),
        private_network="parts",
        offer=ALL,
    )
    _print_stack(private)
    shown = capsys.readouterr().out.splitlines()
    assert "networks  global, parts" in shown
    assert (
        "private   parts; SEARCH_LOCAL_BROKER_PRIVATE_NETWORK= ability-search up opens it to all"
        " agents"
    ) in shown
    assert "offers    search-*, notes-*, memory-*" in shown
    _print_stack(RunningStack(1, "ws://127.0.0.1:8080/kadi", ("global",), "now"))
    shown = capsys.readouterr().out.splitlines()
    assert not any(line.startswith(("private", "offers")) for line in shown)
