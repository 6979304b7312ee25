"""Imports between packages."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Sequence
from graphlib import TopologicalSorter

import pytest
from tests.syntax_trees import FILES, imported_modules, imports, tree_of, within

PURE = {
    "bounded_batches",
    "documents",
    "errors",
    "extensions.kinds.chat_kinds",
    "extensions.kinds.extracted_kinds",
    "extensions.kinds.keyphrases",
    "extensions.notes.consolidation",
    "extensions.notes.consolidation_report",
    "extensions.notes.contradictions",
    "extensions.notes.graph_analysis",
    "extensions.notes.graph_measures",
    "extensions.notes.note_tools",
    "extensions.notes.vector_measures",
    "extensions.sessions.memory_tools",
    "extensions.understanding.exclusion_forms",
    "extensions.understanding.exclusions",
    "extensions.understanding.periods",
    "extensions.understanding.requested_period",
    "extensions.understanding.sentence_types",
    "extensions.understanding.time_forms",
    "extensions.understanding.time_words",
    "extensions.understanding.written_dates",
    "filters",
    "index.preparation",
    "search.fusion",
    "search.options",
    "search.query",
    "search.response",
    "search.retrievers",
    "search.stage",
    "search.wants",
    "store.arcadedb.core",
    "store.arcadedb.search",
    "store.arcadedb.write",
    "store.records",
    "text",
    "tools.inputs",
    "tools.requests",
    "tools.responses",
    "tools.results",
    "tools.table",
    "tools.tool_row",
    "wire",
}
"""Parts of ability_search that know no socket, no clock and no environment."""

PLAN = """
from pathlib import Path
from ability_search.config.loader import load_settings
from ability_search.extensions.localstack import stack_commands, supervisor
settings, options = load_settings({}, Path.cwd()), stack_commands.StackOptions(port=0)
supervisor.Stack(stack_commands.Plan(settings, options, "info"), lock=0, notify=print)
supervisor.offered_tools(["all"])
"""
"""What the supervisor of a stack does before it starts a component."""
COMPONENTS = (
    *("numpy", "scipy", "onnxruntime", "tokenizers", "jpype", "arcadedb_embedded"),
    *("starlette", "uvicorn", "httpx", "mcp", "opentelemetry.sdk", "prometheus_client"),
    *("pypdf", "openpyxl", "docx", "lxml", "PIL", "markdown_it", "snowballstemmer"),
    *("ability_search.store", "ability_search.worker", "kadi_localnet.broker"),
)
"""What the components of a stack load."""

CHUNKERS = {
    f"ability_search.extensions.formats.{name}"
    for name in (
        "conversation_turns",
        "json_members",
        "restructured_sections",
        "semantic",
        "symbols",
    )
}

OUTSIDE_WORLD = (
    "asyncio",
    "http",
    "httpx",
    "jpype",
    "kadi_client",
    "kadi_localnet",
    "os",
    "random",
    "secrets",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "sys",
    "tempfile",
    "time",
    "typer",
    "urllib.request",
    "websockets",
)
CLOCKS = {"now", "utcnow", "today"}

LAYERS = (
    {"documents", "errors", "wire", "bounded_batches", "unanswered", "ops"},
    {"retry", "compute_turns"},
    {"filters"},
    {"collection"},
    {"text"},
    {"ports", "config"},
    {"store", "providers"},
    {"files"},
    {"index", "search"},
    {"tools.calls", "tools.tool_row"},
    {"extension"},
    {"tools"},
    {"network"},
    {"worker"},
    {"client"},
    {"__main__"},
)
"""Parts of the core: each imports what stands above it, or beside it in its own group."""

LEVELS = {name: level for level, layer in enumerate(LAYERS) for name in layer}


def part(module: str) -> str:
    """``search`` of ``ability_search.search.fusion``; empty for the package itself."""
    return [*module.split("."), ""][1]


def level(module: str) -> int | None:
    """The layer of a module; ``None`` for extensions, the package itself and other packages."""
    first, *names = module.split(".")
    if first != "ability_search":
        return None
    ends = range(len(names), 0, -1)
    return next((LEVELS[name] for end in ends if (name := ".".join(names[:end])) in LEVELS), None)


def pure(module: str) -> bool:
    return any(f"{module}.".startswith(f"ability_search.{name}.") for name in PURE)


def imported_from(module: str, *packages: str) -> list[str]:
    """Those imports of a module that come from these packages or lie below them."""
    return sorted(
        name
        for name in imports(module)
        if any(name == package or name.startswith(f"{package}.") for package in packages)
    )


def offences(modules: list[str], *packages: str) -> dict[str, list[str]]:
    """The modules that import from any of these packages, and what."""
    found = {module: imported_from(module, *packages) for module in modules}
    return {module: names for module, names in found.items() if names}


def test_the_packages_are_there() -> None:
    assert all(within(package) for package in ("kadi_client", "kadi_localnet", "ability_search"))
    assert imported_from("ability_search.tools.handlers", "kadi_client") == [
        "kadi_client.Raw",
        "kadi_client.tools.Call",
        "kadi_client.tools.Tool",
        "kadi_client.tools.encoded",
    ]


def test_the_client_knows_nothing_of_search_or_of_the_local_stack() -> None:
    assert not offences(within("kadi_client"), "ability_search", "kadi_localnet")


def test_the_local_parts_know_nothing_of_search() -> None:
    assert not offences(within("kadi_localnet"), "ability_search")


def test_the_local_parts_know_nothing_of_each_other() -> None:
    parts = {part(module) for module in within("kadi_localnet")} - {""}
    assert {"broker", "database", "models"} <= parts
    for own in parts:
        others = [f"kadi_localnet.{other}" for other in parts - {own}]
        assert not offences([m for m in within("kadi_localnet") if part(m) == own], *others)


def test_one_extension_runs_local_parts() -> None:
    assert {
        ".".join(module.split(".")[:3])
        for module in offences(within("ability_search"), "kadi_localnet")
    } == {"ability_search.extensions.localstack"}


def test_one_module_creates_connections() -> None:
    created = {
        module
        for module in within("ability_search")
        for node in ast.walk(tree_of(FILES[module]))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Brokers", "Connection")
    }
    assert created == {"ability_search.network"}


def test_only_the_exporter_of_traces_needs_the_sdk_of_opentelemetry() -> None:
    extra = offences(list(FILES), "opentelemetry.sdk", "opentelemetry.exporter")
    assert extra.keys() == {"ability_search.extensions.cli.traces"}
    assert offences(list(FILES), *extra).keys() == {"ability_search.extensions.cli.component_run"}


def test_the_edges_reach_the_tools_over_the_network_only() -> None:
    home = "ability_search.extensions"
    own = (f"{home}.gateway.", f"{home}.mcp.")
    edges = [module for module in FILES if module.startswith(own)]
    # The commands and the plugins are not the servers.
    own_commands = {f"{home}.{name}.{name}_command" for name in ("gateway", "mcp")}
    modules = set(edges) - own_commands - {f"{home}.{name}.plugin" for name in ("gateway", "mcp")}
    assert len(modules) > len(own)
    allowed = {"client", "config", "errors", "extension", "ops", "tools", "wire"}
    further = (
        *own,
        f"{home}.answers.",
        *(
            f"{home}.cli.{name}."
            for name in ("extras", "http_access", "prometheus_meter", "tool_calls")
        ),
        f"{home}.notes.graph_analysis.",
        "ability_search.search.options.",
    )
    reached = {
        (module, name)
        for module in modules
        for name in imported_from(module, "ability_search")
        if part(name) not in allowed | {"__version__"} and not name.startswith(further)
    }
    assert not reached


def test_the_core_reaches_no_socket_no_clock_and_no_environment() -> None:
    modules = [module for module in within("ability_search") if pure(module)]
    assert {part(module) for module in modules} == {name.partition(".")[0] for name in PURE}
    assert not offences(modules, *OUTSIDE_WORLD)
    asked = {
        module: node.attr
        for module in modules
        for node in ast.walk(tree_of(FILES[module]))
        if isinstance(node, ast.Attribute) and node.attr in CLOCKS
    }
    assert not asked


def test_search_and_index_do_not_import_each_other() -> None:
    for own, other in (("search", "index"), ("index", "search")):
        modules = [module for module in within("ability_search") if part(module) == own]
        assert modules
        assert not offences(modules, f"ability_search.{other}")


def test_only_the_store_of_arcadedb_has_its_statements() -> None:
    statements = ("Statement", "Predicate", "Scripts")
    core = "ability_search.store.arcadedb.core"
    inside = "ability_search.store.arcadedb"
    migration = "ability_search.extensions.migration."
    modules = [m for m in within("ability_search") if not m.startswith((inside, migration))]
    assert not offences(modules, *(f"{core}.{name}" for name in statements))


def test_a_method_of_a_store_without_docstring_implements_a_port() -> None:
    """The docstring of such a method is that of the port."""
    documented = {
        method.name
        for each in tree_of(FILES["ability_search.store.port"]).body
        if isinstance(each, ast.ClassDef) and "Protocol" in map(ast.unparse, each.bases)
        for method in each.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(method)
    }
    bare = {
        f"{module}.{method.name}": method.name
        for module in within("ability_search")
        if module.startswith(("ability_search.store.memory", "ability_search.store.arcadedb."))
        for each in tree_of(FILES[module]).body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
        for method in each.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and not ast.get_docstring(method)
    }
    assert documented and bare
    assert set(bare.values()) <= documented


def test_imports_point_one_way() -> None:
    modules = [m for m in within("ability_search") if part(m) not in ("", "extensions")]
    levels = {module: level(module) for module in modules if module != "ability_search.index"}
    assert None not in levels.values(), "a part has no layer yet"
    upwards = {
        (module, name)
        for module, own in levels.items()
        for name in imported_from(module, "ability_search")
        if own is not None and (level(name) or 0) > own
    }
    assert not upwards


def test_one_module_knows_the_client_of_prometheus() -> None:
    assert set(offences(list(FILES), "prometheus_client")) == {
        "ability_search.extensions.cli.prometheus_meter"
    }


def test_nothing_is_imported_relatively() -> None:
    relative = {
        module
        for module in FILES
        for node in ast.walk(tree_of(FILES[module]))
        if isinstance(node, ast.ImportFrom) and node.level
    }
    assert not relative


@pytest.mark.parametrize(
    ("program", "unneeded"),
    [
        ("import ability_search.extensions.localstack.contexts", ["numpy"]),
        ("import ability_search.extensions.formats.isolated_reader", ["pydantic", "kadi_client"]),
        (PLAN, COMPONENTS),
    ],
    ids=["broker", "reader", "supervisor"],
)
def test_a_process_loads_nothing_large_that_it_does_not_need(
    program: str, unneeded: Sequence[str]
) -> None:
    """Such as a broker, or the process that reads files, whose memory has a limit."""
    program += f"\nimport sys; print(*sorted(sys.modules.keys() & {set(unneeded)}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, check=True, text=True, timeout=60)
    assert not done.stdout.strip()


def test_no_module_imports_itself_through_others() -> None:
    """Imports for annotations only count too: they say what has to be read together."""
    sorter = TopologicalSorter({module: imported_modules(module) for module in FILES})
    sorter.prepare()
    assert sorter.is_active()


def test_no_list_of_all_matches_in_a_document_is_made() -> None:
    """It is made in one step, during which no other thread, such as the event loop, can run."""
    found = [
        f"{module}:{node.lineno}"
        for module in within("ability_search")
        if module.startswith("ability_search.text.chunkers.") or module in CHUNKERS
        for node in ast.walk(tree_of(FILES[module]))
        if isinstance(node, ast.Starred | ast.Call)
        for inner in ([node.value] if isinstance(node, ast.Starred) else node.args)
        if isinstance(node, ast.Starred) or getattr(node.func, "id", "") in ("list", "tuple")
        if isinstance(inner, ast.Call)
        and getattr(inner.func, "attr", "") in ("finditer", "findall")
    ]
    assert found == []
