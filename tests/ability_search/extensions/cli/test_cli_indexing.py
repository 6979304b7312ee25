from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.ability_search.extensions.cli.conftest import Network, Run

from ability_search.tools.results import FailedDocument, IndexResult
from kadi_client.backoff import Backoff


def write(*names: str, text: str = "Some words.") -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)


def answered(tool_input: dict[str, Any]) -> Any:
    documents = tool_input.get("documents", [{}])
    wanted = [d["source"] for d in documents if d.get("content") == ""]
    sent = [d for d in documents if d.get("source") not in wanted]
    failed = [d["source"] for d in sent if "bad" in d.get("source", "")]
    result = IndexResult(
        collection=tool_input["collection"],
        documents=len(documents),
        chunks=len(sent),
        model="m",
        dimensions=3,
        added=len(sent) - len(failed),
        updated=0,
        unchanged=0,
        deduplicated=0,
        reused=0,
        failed=[FailedDocument(source=name, error="no", code="too_large") for name in failed],
        wanted=wanted or None,
        job_id="j",
        took_ms=1.0,
    )
    return result.model_dump(mode="json", by_alias=True)


def test_files_are_sent_with_sources_relative_to_the_working_directory(
    network: Network, run: Run
) -> None:
    write("notes/a.md", "notes/deep/b.txt", "other/a.md")
    Path("notes/binary").write_bytes(b"\0\1")
    network.answers["search-index"] = answered
    options = "--json", "--force", "--dedup-threshold", "0.95"
    done = run("index", "notes", "other/a.md", *options, broker=network.url)
    assert done.exit_code == 0, done.stderr
    compared, sent = network.inputs("search-index")
    assert [d["source"] for d in sent["documents"]] == [
        *("notes/a.md", "notes/deep/b.txt", "other/a.md")
    ]
    assert {d["content"] for d in sent["documents"]} == {"Some words."}
    assert {d["content"] for d in compared["documents"]} == {""}
    known = {d["source"]: d["fileHash"] for d in compared["documents"]}
    assert known == {d["source"]: d["fileHash"] for d in sent["documents"]} | {
        "notes/binary": known["notes/binary"]
    }
    assert (sent["collection"], sent["force"]) == ("notes", True)
    assert sent["dedupThreshold"] == 0.95
    told = json.loads(done.stdout)
    assert (told["documents"], told["added"]) == (3, 3)
    assert told["skipped"] == [{"path": "notes/binary", "reason": "binary, not text"}]


def test_what_is_to_be_made_of_documents_is_sent_and_what_was_not_is_told(
    network: Network, run: Run
) -> None:
    write("notes/a.md")
    network.answers["search-index"] = lambda given: {**answered(given), "warnings": ["no model"]}
    done = run(
        *("index", "notes", "--kinds", "summary, title", "--kinds-by", "chat"), broker=network.url
    )
    assert done.exit_code == 0, done.stderr
    assert "no model" in done.stderr
    run("index", "notes", "--kinds", "none", broker=network.url)
    asked = [
        (each["kinds"], each.get("kindsBy"))
        for each in network.inputs("search-index")
        if each["documents"][0]["content"]
    ]
    assert asked == [(["summary", "title"], "chat"), ([], None)]
    refused = run("index", "notes", "--kinds", "title,abstract", broker=network.url)
    assert refused.exit_code == 2
    assert "abstract" in refused.stderr


def test_a_failed_document_is_told_and_is_exit_code_1(network: Network, run: Run) -> None:
    write("d/bad.md", "d/good.md")
    network.answers["search-index"] = answered
    done = run("index", "d", broker=network.url)
    assert done.exit_code == 1
    assert "1 added" in done.stdout
    assert "d/bad.md failed: no" in done.stderr


def test_nothing_to_index_is_exit_code_3_and_calls_nothing(network: Network, run: Run) -> None:
    Path("empty").mkdir()
    done = run("index", "empty", broker=network.url)
    assert done.exit_code == 3
    assert {name for name, _ in network.asked} == {"search-collection-info"}


def test_a_missing_path_is_a_usage_error(network: Network, run: Run) -> None:
    done = run("index", "nowhere", broker=network.url)
    assert done.exit_code == 2
    assert "nowhere: no such file or directory" in done.stderr


def test_sweep_deletes_sources_below_the_directory_whose_files_are_gone(
    network: Network, run: Run
) -> None:
    write("notes/a.md")
    network.answers["search-index"] = answered
    pages = {
        None: {"sources": ["https://x/notes/a", "notes/a.md"], "nextCursor": "2"},
        "2": {"sources": ["notes/gone.md", "notes2/gone.md"]},
    }
    network.answers["search-collection-info"] = lambda asked: pages[asked.get("cursor")]
    network.answers["search-delete"] = lambda _: {"deleted": 1}
    done = run("index", "notes", "--sweep", "--json", broker=network.url)
    assert json.loads(done.stdout)["removed"] == 1
    expected = {"collection": "notes", "sources": ["notes/gone.md"]}
    assert network.inputs("search-delete") == [expected]


def test_sweep_deletes_many_sources_in_few_calls(network: Network, run: Run) -> None:
    write("notes/a.md")
    network.answers["search-index"] = answered
    gone = [f"notes/{n:03}.md" for n in range(450)]
    network.answers["search-collection-info"] = lambda _: {"sources": gone}
    network.answers["search-delete"] = lambda asked: {"deleted": len(asked["sources"])}
    done = run("index", "notes", "--sweep", "--yes", "--json", broker=network.url)
    assert json.loads(done.stdout)["removed"] == 450
    calls = network.inputs("search-delete")
    assert [len(each["sources"]) for each in calls] == [200, 200, 50]
    assert [source for each in calls for source in each["sources"]] == gone


def test_the_context_of_chunks_is_an_option(network: Network, run: Run) -> None:
    network.answers["search-index"] = answered
    for text in ("2", "section"):
        run("index", "-c", "notes", "--text", "x", "--context", text, broker=network.url)
    assert [each["context"] for each in network.inputs("search-index")] == [2, "section"]


def test_server_side_leaves_the_reading_to_the_worker(network: Network, run: Run) -> None:
    network.answers["search-index-file"] = lambda asked: {
        **answered(asked),
        "files": 1,
        "skipped": [],
        "removed": 2,
    }
    options = ["--server-side", "--sweep", "--include", "*.md", "--json", "-c", "c"]
    done = run("index", "/srv/texts", *options, broker=network.url)
    assert json.loads(done.stdout)["removed"] == 2
    (asked,) = network.inputs("search-index-file")
    assert asked.pop("jobId")
    assert asked == {"collection": "c", "path": "/srv/texts", "include": ["*.md"], "sweep": True}


def test_reindex_sends_its_options(network: Network, run: Run) -> None:
    network.events.append(("search.index.progress", {"done": 1, "total": 2, "stage": "reindexing"}))
    network.answers["search-reindex"] = lambda _: {"message": "rebuilt 1"}
    done = run("reindex", "docs", "--model", "m", "--max-tokens", "64", broker=network.url)
    assert done.exit_code == 0
    assert "rebuilt 1" in done.stdout
    run("reindex", "docs", "--background", broker=network.url)
    run("reindex", "docs", "--cancel", broker=network.url)
    asked, background, cancel = network.inputs("search-reindex")
    assert asked.pop("jobId")
    assert asked == {"collection": "docs", "model": "m", "maxTokens": 64}
    assert background["background"] is True
    assert cancel["cancel"] is True


def test_a_text_is_indexed_from_the_command_line(network: Network, run: Run) -> None:
    network.answers["search-index"] = answered
    text = ("index", "-c", "notes", "--text", "Backups run at two.")
    named = ("--title", "Backups", "--source", "n1", "--metadata", '{"team": "ops"}')
    assert run(*text, *named, "--force", broker=network.url).exit_code == 0
    assert run(*text, "--title", "Backups", broker=network.url).exit_code == 0
    assert run(*text, broker=network.url).stdout.startswith("notes: 1 added")
    first, titled, plain = network.inputs("search-index")
    assert (first["collection"], first["force"]) == ("notes", True)
    assert first["documents"] == [
        {
            "source": "n1",
            "title": "Backups",
            "content": "Backups run at two.",
            "metadata": {"team": "ops"},
        }
    ]
    assert titled["documents"][0]["source"] == "Backups"
    assert plain["documents"][0]["source"] == "c2e373a8f6b132fe"


def test_a_text_is_read_from_standard_input(network: Network, run: Run) -> None:
    network.answers["search-index"] = answered
    wanted = ("index", "-", "-c", "notes", "--source", "log")
    done = run(*wanted, given="Caf\u00e9 at two.\n", broker=network.url)
    assert done.exit_code == 0, done.stderr
    (sent,) = network.inputs("search-index")
    assert sent["documents"][0]["content"] == "Caf\u00e9 at two.\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--text", "a"), "--collection"),
        (("--text", " ", "-c", "notes"), "--text"),
        (("-", "-c", "notes"), "is blank"),
        (("--text", "a", "-c", "notes", "b.md"), "PATH"),
        (("--text", "a", "-c", "notes", "--sweep"), "--sweep"),
        (("--text", "a", "-c", "notes", "--include", "*.md"), "--include"),
        (("--text", "a", "-c", "notes", "--metadata", "[]"), "--metadata"),
        (("b.md", "--source", "a"), "--source"),
        ((), "PATH"),
    ],
)
def test_wrong_options_of_a_text_are_named(
    network: Network, run: Run, arguments: tuple[str, ...], named: str
) -> None:
    refused = run("index", *arguments, given="", broker=network.url)
    assert refused.exit_code == 2
    assert named in refused.stderr
    assert not network.asked


@pytest.mark.parametrize(
    ("code", "repeated"), [("database_unavailable", True), ("embedding_unavailable", False)]
)
def test_indexing_goes_on_when_the_database_was_away(
    network: Network, run: Run, monkeypatch: pytest.MonkeyPatch, code: str, repeated: bool
) -> None:
    monkeypatch.setattr(Backoff, "delay", lambda *_: 0.0)
    write("notes/a.md", "notes/b.md")
    away = [{"success": False, "error": "away", "code": code, "retryable": True}] * 3
    network.answers["search-index"] = lambda given: away.pop() if away else answered(given)
    done = run("index", "notes", "--json", broker=network.url)
    assert (done.exit_code, len(away)) == ((0, 0) if repeated else (1, 2)), done.stderr
    if repeated:
        assert json.loads(done.stdout)["added"] == 2


def test_a_network_that_never_answered_is_not_waited_for(network: Network, run: Run) -> None:
    write("notes/a.md")
    failure = {"success": False, "error": "away", "code": "database_unavailable", "retryable": True}
    network.answers["search-collection-info"] = lambda _: failure
    done = run("index", "notes", "--json", broker=network.url)
    assert (done.exit_code, len(network.inputs("search-collection-info"))) == (1, 1)


def test_most_sources_and_those_of_an_empty_directory_are_swept_with_consent(
    network: Network, run: Run
) -> None:
    write(*(f"notes/{n}.md" for n in range(8)))
    Path("notes/mnt").mkdir()
    stored = [*(f"notes/{n}.md" for n in range(8)), "notes/mnt/a.md", "notes/mnt/b.md"]
    network.answers["search-index"] = answered
    network.answers["search-collection-info"] = lambda _: {"sources": stored}
    network.answers["search-delete"] = lambda _: {"deleted": 1}
    done = run("index", "notes", "--sweep", broker=network.url)
    assert done.exit_code == 2
    assert "notes/mnt lacks or excludes the files of 2 sources" in done.stderr
    assert not network.inputs("search-index") and not network.inputs("search-delete")
    done = run("index", "notes", "--sweep", "--yes", broker=network.url)
    assert done.exit_code == 0, done.stderr
    assert network.inputs("search-delete") == [
        {"collection": "notes", "sources": ["notes/mnt/a.md", "notes/mnt/b.md"]}
    ]


def test_sources_that_include_does_not_name_any_more_are_named(network: Network, run: Run) -> None:
    write("notes/a.md", "notes/b.txt")
    network.answers["search-index"] = answered
    network.answers["search-collection-info"] = lambda _: {"sources": ["notes/a.md", "notes/b.txt"]}
    done = run("index", "notes", "--include", "*.md", broker=network.url)
    assert "1 source in notes, such as 'notes/b.txt': not named by --include" in done.stderr
    assert not network.inputs("search-delete")
