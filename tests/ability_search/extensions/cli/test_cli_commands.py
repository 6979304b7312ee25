from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text
from tests.ability_search.extensions.cli.conftest import Network, Run

from ability_search.client.trust import require_trusted
from ability_search.config.loader import load_settings
from ability_search.config.model_settings import Embedding
from ability_search.config.schema import Broker
from ability_search.extensions.cli import output
from ability_search.extensions.cli import parameters as options
from ability_search.extensions.localstack import setup
from ability_search.tools.results import (
    CollectionInfoResult,
    CollectionsResult,
    CollectionSummary,
    DeleteResult,
    JobError,
    JobStatus,
)

SUMMARY = CollectionSummary(
    name="docs",
    chunks=12345,
    sources=7,
    min_tokens=3,
    max_tokens=200,
    avg_tokens=101.25,
    model="m",
    dimensions=384,
    updated_at="2026-01-02T03:04:05Z",
)
INFO = CollectionInfoResult(
    collection="docs",
    chunks=2,
    min_tokens=1,
    max_tokens=2,
    avg_tokens=1.5,
    sources=["a.md", "b[bold].md"],
    source_count=3,
    next_cursor="MTI=",
    model="m",
    dimensions=3,
    similarity="cosine",
    language="english",
    kinds=[],
    generation=1,
    state="ready",
    embedded_percent=100.0,
    created_at="2026-01-02T03:04:05Z",
    updated_at="2026-01-02T03:04:05Z",
    jobs=[
        JobStatus(
            job_id="j1",
            kind="reindex",
            state="failed",
            stage="verifying",
            done=2,
            total=3,
            started_at="2026-01-02T03:04:05Z",
            updated_at="2026-01-02T03:04:05Z",
            error=JobError(code="database_unavailable", message="2 [b]chunks", hint=""),
        )
    ],
)


def test_collections_as_a_table_and_as_json(network: Network, run: Run) -> None:
    answer = CollectionsResult(collections=[SUMMARY]).model_dump(mode="json", by_alias=True)
    network.answers["search-collections"] = lambda _: answer
    shown = run("collections", broker=network.url).stdout
    row = next(line for line in shown.splitlines() if "docs" in line)
    assert all(cell in row for cell in ("7", "12,345", "101.2", "m", "384"))
    assert json.loads(run("collections", "--json", broker=network.url).stdout) == answer


def test_a_piped_table_has_one_line_for_each_row(
    network: Network, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    long = SUMMARY.model_copy(update={"name": "n" * 64, "model": "m" * 40})
    answer = CollectionsResult(collections=[SUMMARY, long]).model_dump(mode="json", by_alias=True)
    network.answers["search-collections"] = lambda _: answer
    head, *rows = run("collections", broker=network.url).stdout.splitlines()
    assert head.split() == [
        "collection",
        "sources",
        "chunks",
        *["avg", "tokens", "model", "dim"],
        *["updated", "(UTC)"],
    ]
    assert [row.split()[0] for row in rows] == ["docs", "n" * 64]
    assert rows[0].index("12,345") == rows[1].index("12,345")


def test_a_terminal_too_narrow_for_a_table_gets_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(width: int) -> list[str]:
        screen = Console(
            file=io.StringIO(), force_terminal=True, no_color=True, width=width, soft_wrap=True
        )
        monkeypatch.setattr(output, "stdout", lambda: screen)
        output.print_table(("name", "n"), [("会议[x]", 1), ("b" * 20, 2000)])
        assert isinstance(screen.file, io.StringIO)
        return [Text.from_ansi(line).plain for line in screen.file.getvalue().splitlines()]

    assert shown(30) == [
        "name                      n",
        "会议[x]                   1",
        f"{'b' * 20}  2,000",
    ]
    assert shown(20) == ["name  会议[x]", "n     1", "", f"name  {'b' * 20}", "n     2,000", ""]


def test_the_lines_of_a_terminal_end_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def shown(file: io.StringIO) -> list[str]:
        monkeypatch.setattr(sys, "stdout", file)
        output.print_indented(output.stdout(), "alpha beta gamma [b]delta[/b]", 3)
        return [Text.from_ansi(line).plain.rstrip() for line in file.getvalue().splitlines()]

    monkeypatch.setenv("COLUMNS", "16")
    monkeypatch.setenv("TERM", "xterm")
    assert shown(Terminal()) == ["   alpha beta", "   gamma delta"]
    assert shown(io.StringIO()) == ["   alpha beta gamma delta"]


def test_the_most_similar_command_or_option_is_suggested(run: Run) -> None:
    assert "Did you mean 'index'" in run("inde").stderr
    assert "--metrics-port" in run("up", "--metrics-prt", "3").stderr


def test_up_names_every_port_that_is_taken_before_anything_starts(
    network: Network, run: Run
) -> None:
    port = network.url.rpartition(":")[2].partition("/")[0]
    done = run("up", "--memory", "--no-models", "--port", port, "--gateway-port", port)
    assert done.exit_code == 1
    problem = f"port {port} on 127.0.0.1 cannot be used: Address already in use; choose another"
    assert f"broker: {problem} with --port" in done.stderr
    assert f"gateway: {problem} with --gateway-port" in done.stderr
    assert done.stdout == ""


def test_no_collections_yet_says_how_to_make_one(network: Network, run: Run) -> None:
    network.answers["search-collections"] = lambda _: {"collections": []}
    done = run("collections", broker=network.url)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "ability-search index PATH" in done.stderr


def test_info_lists_sources_and_where_to_go_on(network: Network, run: Run) -> None:
    network.answers["search-collection-info"] = lambda _: INFO.model_dump(
        mode="json", by_alias=True
    )
    done = run("info", "docs", "--limit", "2", "--cursor", "x", broker=network.url)
    assert "  b[bold].md\n" in done.stdout
    assert (
        "failed, 2 of 3 sources, verifying: 2 [b]chunks (2026-01-02 03:04 UTC, j1)" in done.stdout
    )
    assert "next page: --cursor MTI=" in done.stdout
    expected = {"collection": "docs", "limit": 2, "cursor": "x"}
    assert network.inputs("search-collection-info") == [expected]


@pytest.mark.parametrize(
    ("name", "proposal"), [("C++", "C"), ("../notes", "notes"), ("会 议", "会-议")]
)
def test_a_refused_collection_name_comes_with_a_proposal(
    network: Network, run: Run, name: str, proposal: str
) -> None:
    for command in (("delete", name, "--yes"), ("index", "--text", "t", "--collection", name)):
        done = run(*command, broker=network.url)
        assert done.exit_code == 2
        assert f"for example {proposal}" in done.stderr
    assert network.asked == []


def test_delete_wants_yes_where_nobody_can_be_asked(network: Network, run: Run) -> None:
    done = run("delete", "docs", broker=network.url)
    assert done.exit_code == 2
    assert "this deletes all of docs; confirm with --yes" in done.stderr
    assert network.asked == []


def test_delete_says_how_many_chunks(network: Network, run: Run) -> None:
    result = DeleteResult(deleted=1200, collection="docs", source="a.md")
    network.answers["search-delete"] = lambda _: result.model_dump(mode="json", by_alias=True)
    done = run("delete", "docs", "--source", "a.md", "--yes", broker=network.url)
    assert done.stdout == "deleted 1,200 chunks\n"
    assert network.inputs("search-delete") == [{"collection": "docs", "sources": ["a.md"]}]
    result.deleted = 1
    assert run("delete", "docs", "--yes", broker=network.url).stdout == "deleted 1 chunk\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_deleting_a_source_that_is_not_there_finds_nothing(
    network: Network, run: Run, options: list[str]
) -> None:
    network.answers["search-delete"] = lambda _: {"deleted": 0}
    done = run("delete", "docs", "--source", "nope", "--yes", *options, broker=network.url)
    assert done.exit_code == 3
    assert done.stdout == ('{\n  "deleted": 0\n}\n' if options else "")
    assert ("docs has no chunks of nope" in done.stderr) is not bool(options)


@pytest.mark.parametrize(
    ("count", "shown"),
    [(0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1500, "1.5 kB"), (2_340_000, "2.3 MB")],
)
def test_a_size_is_told_in_the_unit_that_fits(count: int, shown: str) -> None:
    assert output.size(count) == shown


def test_call_takes_json_a_file_or_standard_input(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda asked: {"asked": asked}
    Path("input.json").write_text('{"a": 1}')
    for source, given in (('{"a": 1}', None), ("@input.json", None), ("-", '{"a": 1}')):
        done = run("call", "search-query", source, given=given, broker=network.url)
        assert json.loads(done.stdout) == {"asked": {"a": 1}}


def test_call_prints_a_failure_and_exits_with_1(network: Network, run: Run) -> None:
    failure = {"success": False, "error": "no"}
    network.answers["search-query"] = lambda _: failure
    done = run("call", "search-query", broker=network.url)
    assert done.exit_code == 1
    assert json.loads(done.stdout) == failure


def test_call_of_an_unknown_tool_is_an_error(network: Network, run: Run) -> None:
    done = run("call", "no-such-tool", broker=network.url)
    assert done.exit_code == 1
    assert "no-such-tool" in done.stderr
    assert "ability-search doctor" in done.stderr


def test_call_refuses_what_is_no_object(run: Run) -> None:
    for source in ("[1]", "{", "@nowhere.json"):
        assert run("call", "search-query", source).exit_code == 2


def test_a_secret_is_read_from_standard_input_and_shown_only_on_request(run: Run) -> None:
    assert run("secret", "set", "SEARCH_API_KEY", given="s3cr3t\n").exit_code == 0
    assert "s3cr3t" not in Path("secrets.toml").read_text()
    hidden = run("secret", "get", "SEARCH_API_KEY")
    assert "s3cr3t" not in hidden.output
    assert "is set, 6 characters" in hidden.stdout
    assert run("secret", "get", "SEARCH_API_KEY", "--reveal").stdout == "s3cr3t\n"
    assert run("secret", "list").stdout == "SEARCH_API_KEY\n"


def test_a_missing_secret_is_exit_code_3(run: Run) -> None:
    done = run("secret", "get", "SEARCH_API_KEY", "--vault", "other")
    assert done.exit_code == 3
    assert "ability-search secret set SEARCH_API_KEY" in done.stderr


def test_models_that_others_could_reach_need_a_token(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_MODEL_HTTP_HOST", "0.0.0.0")
    done = run("models", "serve", "--port", "0")
    assert done.exit_code == 1
    assert "Set SEARCH_MODEL_HTTP_TOKEN" in done.stderr


def test_an_empty_secret_is_refused(run: Run) -> None:
    done = run("secret", "set", "SEARCH_API_KEY", given="")
    assert done.exit_code == 1
    assert "the value is empty" in done.stderr
    assert not Path("secrets.toml").exists()


def test_wrong_settings_are_all_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_CHUNK_SIZE", "many")
    Path("config.yml").write_text("search:\n  api_key: x\n")
    done = run("collections")
    assert done.exit_code == 1
    assert "SEARCH_CHUNK_SIZE" in done.stderr
    assert "config.yml" in done.stderr


def test_status_and_down_without_a_stack_are_exit_code_3(run: Run) -> None:
    assert run("status").exit_code == 3
    assert run("down").exit_code == 3


def test_doctor_names_what_fails_and_the_remedy(network: Network, run: Run) -> None:
    network.answers["search-collections"] = lambda _: {"collections": []}
    done = run("doctor", "--json", broker=network.url)
    assert done.exit_code == 1
    found = json.loads(done.stdout)
    extras = [check["text"].split()[0] for check in found if check["name"] == "extra"]
    assert {"local", "code", "documents", "gateway", "mcp", "watch"} <= set(extras)
    checks = {check["name"]: check for check in found}
    assert checks["worker"]["state"] == "ok"
    assert checks["clock"]["text"] == "agrees with the broker's"
    assert checks["database"]["state"] == "fail"
    assert "ability-search database" in checks["database"]["remedy"]


@pytest.mark.parametrize(
    ("scores", "state", "text"),
    [([0.9, 0.1], "ok", "the server's default model"), ([1.0, 1.0], "warn", "the same score")],
)
def test_doctor_tries_a_reranker_that_is_there(
    network: Network, run: Run, scores: list[float], state: str, text: str
) -> None:
    network.answers["search-collections"] = lambda _: {"collections": []}
    network.answers["rerank"] = lambda _: {
        "results": [
            {"index": index, "relevance_score": score} for index, score in enumerate(scores)
        ]
    }
    checks = json.loads(run("doctor", "--json", broker=network.url).stdout)
    [check] = [check for check in checks if check["name"] == "reranker"]
    assert check["state"] == state
    assert text in check["text"]


def test_doctor_skips_what_depends_on_models_that_are_away(network: Network, run: Run) -> None:
    answer = CollectionsResult(collections=[SUMMARY]).model_dump(mode="json", by_alias=True)
    network.answers["search-collections"] = lambda _: answer
    network.answers["rerank"] = lambda _: {"results": []}
    checks = json.loads(run("doctor", "--json", broker=network.url).stdout)
    [check] = [check for check in checks if check["name"] == "model"]
    assert (check["state"], check["text"]) == ("skip", "not checked, as models failed")
    shown = run("doctor", broker=network.url).stdout
    assert "skip model" in shown
    for remedy in {check["remedy"] for check in checks if check["remedy"]}:
        assert " ".join(shown.split()).count(remedy) == 1


def test_doctor_says_a_warning_of_several_collections_once(network: Network, run: Run) -> None:
    unfit = [SUMMARY.model_copy(update={"name": name, "warnings": ["w"]}) for name in ("a", "b")]
    answer = CollectionsResult(collections=unfit).model_dump(mode="json", by_alias=True)
    network.answers["search-collections"] = lambda _: answer
    network.answers["rerank"] = lambda _: {"results": []}
    checks = json.loads(run("doctor", "--json", broker=network.url).stdout)
    warned = [
        each["text"] for each in checks if (each["name"], each["state"]) == ("search", "warn")
    ]
    assert warned == ["a, b: w"]


def test_setup_asks_and_writes_files_that_are_loaded(run: Run) -> None:
    done = run("setup", given="\n\n\n\n")
    assert done.exit_code == 0, done.stderr
    assert "all-MiniLM-L6-v2" in done.stderr
    assert "ability-search up" in done.stdout
    settings = load_settings({"HOME": "."}, Path.cwd())
    assert settings.embedding.model == "all-MiniLM-L6-v2"
    assert settings.files.allowed_roots == (Path.cwd(),)
    again = run("setup")
    assert again.exit_code == 2
    assert "config.yml: exists already" in again.stderr


def test_setup_takes_a_broker_and_an_api(run: Run) -> None:
    answers = ["wss://b.example/kadi", "team, global", "https://a.example", "e5", "docs:notes"]
    for name in ("docs", "notes"):
        Path(name).mkdir()
    done = run("setup", given="\n".join(answers) + "\n")
    assert done.exit_code == 0, done.stderr
    assert "secret set SEARCH_API_KEY" in done.stdout
    settings = load_settings({"HOME": "."}, Path.cwd())
    assert (str(settings.broker.url), settings.broker.networks) == (answers[0], ("team", "global"))
    assert (settings.embedding.transport, settings.embedding.model) == ("api", "e5")
    assert str(settings.embedding.api_url) == answers[2]
    assert settings.files.allowed_roots == (Path.cwd() / "docs", Path.cwd() / "notes")
    require_trusted(settings, os.environ, Broker, Embedding)


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        ("http://b.example\n", "config.toml: [broker.default] URL: expected an address"),
        ("\nhttps://ada:pw@a.example\n", "config.yml: search.embedding_api_url: secrets are not"),
        ("\n\n\nnowhere\n", "allowed_roots: no such directory: nowhere"),
    ],
)
def test_setup_refuses_a_wrong_answer_at_once_and_writes_nothing(
    run: Run, answers: str, problem: str
) -> None:
    done = run("setup", given=answers)
    assert done.exit_code == 1
    assert problem in done.stderr
    assert list(Path.cwd().iterdir()) == []


def test_doctor_sends_nothing_to_an_api_that_is_not_trusted(network: Network, run: Run) -> None:
    answer = CollectionsResult(collections=[SUMMARY]).model_dump(mode="json", by_alias=True)
    network.answers["search-collections"] = lambda _: answer
    Path("config.yml").write_text(
        "search:\n  embedding_transport: api\n  embedding_api_url: http://api.invalid:9\n"
        "  reranker_transport: api\n  reranker_api_url: http://judge.invalid:9\n"
    )
    checks = json.loads(run("doctor", "--json", broker=network.url).stdout)
    assert [check["state"] for check in checks if check["name"] == "model"] == ["skip"]
    for name, address in (("embedding", "api"), ("reranker", "judge")):
        [check] = [check for check in checks if check["name"] == name]
        assert f"http://{address}.invalid:9 is not an address that you trust" in check["text"]
        assert f"ability-search trust http://{address}.invalid:9" in check["remedy"]


@pytest.mark.parametrize("name", ["remote", "local"])
def test_a_found_file_sends_no_client_to_an_address_that_is_not_trusted(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = Path("config.toml")
    config.write_text(f'[broker.{name}]\nURL = "ws://broker.invalid:9/kadi"\n')
    Path("a.md").write_text("# A\nsecret plan\n")
    for command in (("search", "plan"), ("index", "a.md"), ("mcp",), ("ask", "plan")):
        done = run(*command)
        assert done.exit_code == 1
        assert f"{config.absolute()}: [broker.{name}] URL: ws://broker.invalid:9" in done.stderr
        assert "ability-search trust ws://broker.invalid:9" in done.stderr
    checks = json.loads(run("doctor", "--json").stdout)
    assert any(each["name"] == "broker" and each["state"] == "fail" for each in checks)
    assert run("trust", "broker.invalid").exit_code == 2
    assert run("trust", "ws://user:pw@broker.invalid:9/kadi").stdout == (
        "trusted ws://broker.invalid:9\n"
    )
    assert "trust" not in run("search", "plan").stderr  # it cannot be reached, though
    config.write_text(config.read_text().replace("broker.invalid", "other.invalid"))
    assert "trust ws://other.invalid:9" in run("search", "plan").stderr
    monkeypatch.setenv("BROKER_URL", "ws://127.0.0.1:9/kadi")
    assert "trust" not in run("search", "plan").stderr


def test_a_found_file_sends_no_question_to_a_model_that_is_not_trusted(
    network: Network, run: Run
) -> None:
    Path("config.yml").write_text(
        "search: {expansion_transport: api, expansion_model: m, expansion_api_url: 'https://m.invalid/v1'}\n"
    )
    done = run("ask", "plan", broker=network.url)
    assert "search.expansion_api_url: https://m.invalid is not an address" in done.stderr
    assert network.asked == []
    Path("docs").mkdir()
    Path("docs/a.md").write_text("# A\nsecret plan\n")
    assert "https://m.invalid" in run("build", "docs", "out", broker=network.url).stderr
    assert "https://m.invalid" in run("mcp", broker=network.url).stderr
    network.answers["search-collections"] = lambda _: {"collections": []}
    assert run("collections", "--json", broker=network.url).exit_code == 0


def test_setup_asks_a_person_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_is_person", lambda: True)
    done = run("setup", given="\nb.example\n\n\nnowhere\n.\n")
    assert done.exit_code == 0, done.stderr
    assert "embedding_api_url: expected an address" in done.stderr
    assert "no such directory: nowhere" in done.stderr
    assert load_settings({"HOME": "."}, Path.cwd()).files.allowed_roots == (Path.cwd(),)


def test_importing_what_is_no_artifact_says_what_one_is(run: Run, tmp_path: Path) -> None:
    done = run("import", str(tmp_path / "nowhere"))
    assert done.exit_code == 3
    assert "no artifact named" in done.stderr
    assert "index_manifest.json, as written by `export`" in done.stderr


def test_doctor_without_a_broker_says_so_and_goes_no_further(run: Run) -> None:
    done = run("doctor", "--quiet", broker="ws://127.0.0.1:9/kadi")
    assert done.exit_code == 1
    assert "cannot reach the broker" in done.stdout
    assert "ability-search up" in done.stdout
    assert "ok " not in done.stdout


def test_doctor_tells_every_problem_of_the_settings(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEARCH_CHUNK_SIZE", "many")
    monkeypatch.setenv("SEARCH_MAX_LIMIT", "none")
    done = run("doctor", "--quiet")
    assert done.exit_code == 1
    assert done.stdout.count("fail settings") == 2


def test_a_broker_on_a_taken_port_says_which_and_what_to_do(network: Network, run: Run) -> None:
    port = network.url.rpartition(":")[2].partition("/")[0]
    done = run("broker", "--port", port)
    assert done.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr
    assert "--port" in done.stderr


def test_models_list_as_json(run: Run) -> None:
    listed = json.loads(run("models", "list", "--json").stdout)
    tasks = {model["name"]: model["task"] for model in listed}
    assert tasks["all-MiniLM-L6-v2"] == "embed"
    assert tasks["multilingual-e5-small"] == "embed"


def test_models_list_tells_rerankers_from_encoders(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "judge"
    directory.mkdir()
    settings = '{"architectures": ["BertForSequenceClassification"]}'
    (directory / "config.json").write_text(settings)
    monkeypatch.setenv("SEARCH_MODEL_DIRS", str(directory))
    listed = json.loads(run("models", "list", "--json").stdout)
    assert [model for model in listed if model["task"] == "rerank"] == [
        {"name": "judge", "task": "rerank", "kind": "directory", "place": str(directory)}
    ]
    (directory / "config.json").write_text("{")
    broken = run("models", "list")
    assert broken.exit_code == 1
    assert "config.json of 'judge'" in broken.stderr


def test_options_that_were_not_given_are_left_out() -> None:
    assert options.given(a=None, b=False, c=[], d=0, e="", f=True) == {"d": 0, "e": "", "f": True}


def test_up_names_a_missing_extra_before_it_starts_anything(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    done = run("up", "--port", "0")
    assert done.exit_code == 1
    assert "pip install 'ability-search[local]'" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("command", ["broker", "gateway", "models"])
def test_an_empty_address_to_listen_on_is_refused(run: Run, command: str) -> None:
    words = ["models", "serve"] if command == "models" else [command]
    result = run(*words, "--host", " ")
    assert result.exit_code == 2
    assert "expected an address, such as 127.0.0.1" in result.stderr


@pytest.mark.parametrize("command", ["up", "status", "down", "prune"])
def test_an_empty_data_directory_is_not_the_working_directory(run: Run, command: str) -> None:
    before = os.stat(os.curdir).st_mode
    result = run(command, "--data-dir", "")
    assert result.exit_code == 2
    assert "expected a path" in result.stderr
    assert os.stat(os.curdir).st_mode == before


def test_an_empty_broker_address_is_refused(run: Run) -> None:
    result = run("collections", "--broker", "")
    assert result.exit_code == 2
    assert "--broker: expected an address" in result.stderr
