from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.cli.conftest import Network, Run
from tests.ability_search.extensions.evaluation.sets import (
    CORPUS,
    QUERIES,
    mode_run,
    run_of,
    write_set,
)
from typer.testing import Result

from ability_search.extensions.evaluation.runs import read_run, write_run

FOUND = {"when is the archive copied": "d1", "how long does dough rest": "d3"}


@pytest.fixture
def tools(network: Network) -> Network:
    """The tools of a worker, with a memory of what was indexed."""
    stored: dict[str, list[str]] = {}

    def index(asked: dict[str, Any]) -> dict[str, Any]:
        sources = [document["source"] for document in asked["documents"]]
        stored.setdefault(asked["collection"], []).extend(sources)
        return {"added": len(sources), "failed": []}

    def info(asked: dict[str, Any]) -> dict[str, Any]:
        sources = stored[asked["collection"]]
        about = {"model": "m", "dimensions": 3, "language": "english", "state": "ready"}
        counts = {"chunks": len(sources), "sourceCount": len(sources), "generation": 1}
        return {**about, **counts, "sources": sources}

    def query(asked: dict[str, Any]) -> dict[str, Any]:
        source = FOUND.get(asked["query"], "d2")
        return {"results": [{"source": source, "score": 0.5}]}

    network.answers |= {
        "search-index": index,
        "search-collection-info": info,
        "search-query": query,
        "search-collections": lambda _: {"collections": [{"name": name} for name in stored]},
        "search-delete": lambda asked: {"deleted": len(stored.pop(asked["collection"]))},
    }
    return network


@pytest.fixture
def directory() -> Path:
    """Relative, so that it lies in the working directory that ``run`` makes."""
    return Path("small set")


def evaluate(run: Run, tools: Network, directory: Path, *options: str) -> Result:
    write_set(directory)
    result: Result = run("eval", str(directory), *options, broker=tools.url)
    return result


def test_each_mode_is_measured_and_shown(tools: Network, run: Run, directory: Path) -> None:
    done = evaluate(run, tools, directory)
    assert done.exit_code == 0, done.stderr
    for mode in ("semantic", "keyword", "hybrid"):
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(f"{mode} ")]
        assert line.split()[1:6] == [".500"] * 5, line  # one of two queries is answered
        assert f"{mode}: 1 queries without an answer" in done.stdout
    assert "small-set: 2 queries over 3 documents in 3 chunks, m" in done.stdout


def test_options_reach_every_query(tools: Network, run: Run, directory: Path) -> None:
    fields = '{"fusion": {"method": "rrf"}, "minScore": 0.1}'
    options = ["--options", fields, "--mode", "hybrid", "--model", "m", "-c", "mine"]
    done = evaluate(run, tools, directory, *options, "--limit", "7")
    assert done.exit_code == 0, done.stderr
    asked = tools.inputs("search-query")
    assert len(asked) == 3
    common = {"maxPerSource": 1, "collection": "mine", "mode": "hybrid", "limit": 7, "model": "m"}
    for query in asked:
        del query["query"]
        assert query == {**common, "fusion": {"method": "rrf"}, "minScore": 0.1}


def test_queries_are_asked_as_of_the_option_or_of_their_own_time(
    tools: Network, run: Run, directory: Path
) -> None:
    own = [{**QUERIES[0], "asOf": "2025-01-02T03:04:05Z"}, *QUERIES[1:]]
    write_set(directory, CORPUS, own)
    options = ["--mode", "keyword", "--as-of", "2026-03-25"]
    done = run("eval", str(directory), *options, "--output", "then.json", broker=tools.url)
    assert done.exit_code == 0, done.stderr
    asked = {query["query"]: query["asOf"] for query in tools.inputs("search-query")}
    assert asked.pop(QUERIES[0]["text"]) == "2025-01-02T03:04:05Z"
    assert list(asked.values()) == ["2026-03-25"] * 2
    assert done.stdout.count("; as of 2026-03-25, 1 queries with their own date") == 1
    written = read_run(Path("then.json"))
    assert (written.options, written.dataset.dated) == ({"asOf": "2026-03-25"}, 1)
    assert "as of" not in evaluate(run, tools, directory, "--mode", "keyword").stdout
    later, now = tools.inputs("search-index")[0], tools.inputs("search-query")[-1]
    assert later["collection"] == now["collection"]
    assert "asOf" not in now


def test_what_is_indexed_is_kept_and_fresh_begins_anew(
    tools: Network, run: Run, directory: Path
) -> None:
    evaluate(run, tools, directory)
    evaluate(run, tools, directory)
    (sent,) = tools.inputs("search-index")
    assert [document["source"] for document in sent["documents"]] == ["d1", "d2", "d3"]
    evaluate(run, tools, directory, "--fresh")
    assert len(tools.inputs("search-index")) == 2
    assert tools.inputs("search-delete") == [{"collection": sent["collection"]}]


def test_another_way_of_indexing_is_another_collection(
    tools: Network, run: Run, directory: Path
) -> None:
    evaluate(run, tools, directory)
    evaluate(run, tools, directory, "--max-tokens", "64", "--language", "none")
    first, second = tools.inputs("search-index")
    assert first["collection"] != second["collection"]
    assert (second["maxTokens"], second["language"]) == (64, "none")
    assert first.keys() == {"collection", "documents", "jobId"}


def test_a_run_is_written_with_its_configuration_and_every_ranking(
    tools: Network, run: Run, directory: Path
) -> None:
    done = evaluate(run, tools, directory, "--output", "runs", "--name", "a b")
    assert done.exit_code == 0, done.stderr
    assert "written: runs/a-b.json" in done.stderr
    written = read_run(Path("runs/a-b.json"))
    assert (written.name, written.indexing.added) == ("a b", 3)
    assert written.settings["ranking"]["fusion"] == "convex"
    assert written.modes["hybrid"].queries["q1"].documents == ["d1"]


def test_a_run_that_cannot_be_written_is_shown_all_the_same(
    tools: Network, run: Run, directory: Path
) -> None:
    Path("runs").write_text("a file")
    done = evaluate(run, tools, directory, "--output", "runs")
    assert isinstance(done.exception, FileExistsError)
    assert "small-set: 2 queries over 3 documents" in done.stdout


def test_json_is_a_summary(tools: Network, run: Run, directory: Path) -> None:
    told = json.loads(evaluate(run, tools, directory, "--json").stdout)
    assert told["modes"]["hybrid"]["metrics"]["Hit@1"] == 0.5
    assert told["modes"]["hybrid"]["categories"]["plain"]["queries"] == 2
    assert told["dataset"]["negatives"] == 1


def test_documents_that_cannot_be_found_are_told(tools: Network, run: Run, directory: Path) -> None:
    index = tools.answers["search-index"]
    failed = [{"source": "d1", "error": "no room", "code": "internal"}]
    tools.answers["search-index"] = lambda asked: {**index(asked), "failed": failed}
    write_set(directory, [*CORPUS, {"_id": "d4", "text": ""}])
    done = run("eval", str(directory), broker=tools.url)
    assert "warning: document d1 could not be indexed: no room" in done.stderr
    assert "warning: 1 documents have no text" in done.stderr


def test_warnings_of_the_tool_are_counted(tools: Network, run: Run, directory: Path) -> None:
    hits = [{"source": "d1", "score": 0.5}]
    tools.answers["search-query"] = lambda _: {"results": hits, "warnings": ["half of it"]}
    done = evaluate(run, tools, directory, "--mode", "keyword")
    assert "warning: keyword, 3 queries: half of it" in done.stderr


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--options", "{"], "not JSON"),
        (["--options", "[]"], "expected a JSON object"),
        (["--options", '{"nope": 1}'], "nope"),
        (["--options", '{"limit": 5}'], "limit: set by `eval` itself"),
        (["--options", '{"asOf": "2026-03-25"}'], "asOf: set by `eval` itself"),
        (["--as-of", "last year"], "--as-of: is not a date or an instant"),
        (["--mode", "psychic"], "psychic"),
        (["--fresh", "--collection", "docs"], "not allowed with --collection"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(
    tools: Network, run: Run, directory: Path, options: list[str], expected: str
) -> None:
    done = evaluate(run, tools, directory, *options)
    assert done.exit_code == 2
    assert expected in done.stderr
    assert tools.asked == []


def test_a_broken_set_is_refused_before_anything_is_asked(
    tools: Network, run: Run, directory: Path
) -> None:
    write_set(directory)
    (directory / "corpus.jsonl").write_text('{"_id": "d1", "text": "t"}\noops\n')
    done = run("eval", str(directory), broker=tools.url)
    assert done.exit_code == 2
    assert "corpus.jsonl:2: " in done.stderr
    assert tools.asked == []


def test_a_named_broker_that_is_not_there_is_an_error_and_starts_nothing(run: Run) -> None:
    write_set(Path("set"))
    done = run("eval", "set", broker="ws://127.0.0.1:9/kadi")
    assert done.exit_code == 1
    assert "cannot reach the broker" in done.stderr
    assert "starting a stack" not in done.stderr


@pytest.mark.parametrize("arguments", [["set"], ["compare", "a.json", "b.json"]])
def test_a_missing_extra_is_named_with_its_install_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    write_set(Path("set"))
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    done = run("eval", *arguments)
    assert done.exit_code == 1
    assert "the extra 'eval' is not installed: ir_measures missing" in done.stderr
    assert "pip install 'ability-search[eval]'" in done.stderr


def compared(run: Run, *options: str) -> Result:
    before = mode_run({"q1": 0.25, "q2": 0.5}, {"q1": "x", "q2": "x"})
    after = mode_run({"q1": 0.75, "q2": 0.5}, {"q1": "x", "q2": "x"})
    write_run(run_of({"semantic": before, "hybrid": before}, name="before"), Path("a.json"))
    write_run(run_of({"hybrid": after}, name="after"), Path("b.json"))
    result: Result = run("eval", "compare", "a.json", "b.json", *options)
    return result


def test_a_comparison_shows_metrics_categories_and_queries(run: Run) -> None:
    done = compared(run)
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    first = next(words for words in lines if words[0] == "nDCG@10")
    assert first[1:5] == ["2", ".375", ".625", "+.250"]
    assert next(words for words in lines if words[0] == "x")[1:5] == first[1:5]
    assert next(words for words in lines if words[0] == "q1")[1:4] == ["x", ".250", ".750"]
    assert "lost" not in done.stdout


def test_a_comparison_as_json_of_two_modes(run: Run) -> None:
    done = compared(run, "--json", "--mode", "semantic:hybrid", "--metric", "Hit@1")
    told = json.loads(done.stdout)
    assert (told["a"], told["b"], told["metric"]) == ("before semantic", "after hybrid", "Hit@1")
    assert told["gained"] == []


def test_runs_without_a_mode_in_common_ask_for_one(run: Run) -> None:
    write_run(run_of({"semantic": mode_run({"q": 1.0})}), Path("a.json"))
    write_run(run_of({"keyword": mode_run({"q": 0.0})}), Path("b.json"))
    done = run("eval", "compare", "a.json", "b.json")
    assert done.exit_code == 2
    assert "A has semantic, B has keyword" in done.stderr
    named = run("eval", "compare", "a.json", "b.json", "--mode", "semantic:keyword", "--json")
    assert json.loads(named.stdout)["metrics"]["nDCG@10"]["difference"] == -1


@pytest.mark.slow
def test_the_command_line_is_imported_without_what_eval_needs() -> None:
    script = (
        "import sys; from ability_search.extensions.cli.app import all_commands; all_commands();"
        " print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert {"typer", "rich"} <= set(done.stdout.split())
    assert not {"ir_measures", "scipy"} & set(done.stdout.split())
