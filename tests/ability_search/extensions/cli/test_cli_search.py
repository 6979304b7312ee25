from __future__ import annotations

import json
import os
import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.ability_search.extensions.cli.conftest import Network, Run
from tests.command_lines import root

from ability_search.search.response import (
    Degraded,
    Highlight,
    Hit,
    QueryResult,
    SimilarResult,
    Understood,
)
from ability_search.tools.inputs import QueryInput

INDEXED = "2026-02-01T00:00:00.000Z"


def hit(**changes: Any) -> Hit:
    values: dict[str, Any] = {
        "chunk_id": "docs:a.md:0",
        "source": "a.md",
        "title": "A title",
        "content": "Some words of the text.",
        "score": 0.75,
        "metadata": {},
        "chunk_index": 0,
        "total_chunks": 1,
        "scores": {"semantic": 0.5},
        "matched_via": ["semantic"],
    }
    return Hit(**values | changes)


def answer(*hits: Hit, **changes: Any) -> Any:
    values: dict[str, Any] = {
        "results": list(hits),
        "count": len(hits),
        "query": "q",
        "collection": "*",
        "mode": "hybrid",
        "model": "m",
        "timings": {"embed": 1.25},
    }
    result = QueryResult(**values | changes)
    return result.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_all_options_reach_the_tool_under_their_wire_names(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit())
    options = ["--k", "3", "--offset", "2", "--semantic", "--min-score", "0.2"]
    more = [
        "--highlights",
        "--explain",
        "--source",
        "a/**",
        "--exclude-source",
        "b",
        "--hyde",
        "an answer",
        "-c",
        "x",
    ]
    done = run("search", "q", *options, *more, "--filter", '{"title": "t"}', broker=network.url)
    assert done.exit_code == 0
    assert network.inputs("search-query") == [
        {
            "query": "q",
            "collection": "x",
            "limit": 3,
            "offset": 2,
            "mode": "semantic",
            "minScore": 0.2,
            "filter": {"title": "t"},
            "sources": ["a/**"],
            "excludeSources": ["b"],
            "hypotheticalAnswer": "an answer",
            "highlights": True,
            "explain": True,
        }
    ]


def test_every_field_of_a_query_has_an_option() -> None:
    named = {str(each.name) for each in root().commands["search"].params}
    assert QueryInput.model_fields.keys() - named == {
        "limit",
        "mode",
        "filter",
        "understand",
        "time_range",
    }


def test_structured_options_are_json_and_reach_the_tool(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit())
    wanted: dict[str, Any] = {
        "fusion": {"method": "rrf"},
        "prf": True,
        "rerank": {"metadata.a": {"rules": {"priority": 1}}},
        "reranker": {"top": 5},
        "decay": {"halfLifeDays": 90.0},
        "graph": {"hops": 2},
        "diversity": 0.5,
        "maxPerSource": 2,
        "expand": "neighbors",
        "maxResultTokens": 100,
        "expandQuery": {"method": "stepBack"},
        "extended": ["title", "summary"],
        "model": "7",
    }
    options = [
        word
        for name, value in wanted.items()
        for each in (value if isinstance(value, list) else [value])
        for word in (
            "--" + re.sub("[A-Z]", lambda capital: f"-{capital[0].lower()}", name),
            each if isinstance(each, str) else json.dumps(each),
        )
    ]
    assert run("search", "q", *options, broker=network.url).exit_code == 0
    (asked,) = network.inputs("search-query")
    assert {name: asked[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("option", "value", "problem"),
    [
        ("--fusion", '{"method": "best"}', "fusion.method"),
        ("--fusion", "best", "should be an object. Example: {"),
        ("--diversity", "2", "diversity"),
        ("--max-per-source", "0", "maxPerSource"),
        ("--extended", "chapters", "extended"),
    ],
)
def test_wrong_value_names_its_field(
    network: Network, run: Run, option: str, value: str, problem: str
) -> None:
    done = run("search", "q", option, value, broker=network.url)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert network.asked == []


def test_answer_that_is_not_as_declared_is_an_error(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: {"results": 7}
    done = run("search", "q", broker=network.url)
    assert done.exit_code == 1
    assert "unexpected answer of search-query: " in done.stderr


def test_times_and_exclusions_can_be_said_and_left_unread(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit())
    options = ["--exclude", "x", "--exclude", "y", "--from", "2026-01-01", "--to", "2026-02-01"]
    assert run("search", "q", *options, "--literal", broker=network.url).exit_code == 0
    asked = ["--to", "2026-02-01", "--as-of", "2026-03-25"]
    assert run("search", "q", *asked, broker=network.url).exit_code == 0
    both, one = network.inputs("search-query")
    assert both["exclude"] == ["x", "y"]
    assert both["timeRange"] == {"from": "2026-01-01", "to": "2026-02-01"}
    assert both["understand"] is False
    assert one["timeRange"] == {"to": "2026-02-01"}
    assert one["asOf"] == "2026-03-25"
    assert "asOf" not in both
    assert "understand" not in one


def test_debug_says_what_was_understood(network: Network, run: Run) -> None:
    understood = Understood(excluded=["outage"], start="2026-03-01")
    network.answers["search-query"] = lambda _: answer(hit(), understood=understood)
    shown = run("search", "q", "--debug", broker=network.url).stdout
    assert '{"excluded": ["outage"], "from": "2026-03-01"}' in shown


@pytest.mark.parametrize(
    ("options", "collection"),
    [([], "*"), (["-c", "a"], "a"), (["-c", "a", "-c", "b"], ["a", "b"])],
)
def test_collections_default_to_all(
    network: Network, run: Run, options: list[str], collection: str | list[str]
) -> None:
    network.answers["search-query"] = lambda _: answer(hit())
    assert run("search", "q", *options, broker=network.url).exit_code == 0
    assert network.inputs("search-query")[0]["collection"] == collection


def test_json_is_the_answer_itself(network: Network, run: Run) -> None:
    expected = answer(hit(content="été \U0001f600"))
    network.answers["search-query"] = lambda _: expected
    done = run("search", "q", "--json", broker=network.url)
    assert json.loads(done.stdout) == expected
    assert done.stderr == ""


def test_a_fallback_is_told_and_debug_says_why(network: Network, run: Run) -> None:
    degraded = Degraded(reason="no embedder answered", code="embedding_unavailable", mode="keyword")
    network.answers["search-query"] = lambda _: answer(hit(), mode="keyword", degraded=degraded)
    done = run("search", "q", "--debug", broker=network.url)
    assert done.exit_code == 0
    assert "warning: searched by keyword only: no embedder answered" in done.stderr
    assert "no embedder answered (embedding_unavailable)" in done.stdout
    assert "ms embed" in done.stdout


def test_nothing_found_is_exit_code_3(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer()
    assert run("search", "q", broker=network.url).exit_code == 3
    done = run("search", "q", "--json", broker=network.url)
    assert (done.exit_code, json.loads(done.stdout)["count"]) == (3, 0)


def test_text_of_others_cannot_control_the_terminal_nor_be_markup(
    network: Network, run: Run
) -> None:
    network.answers["search-query"] = lambda _: answer(
        hit(content="\x1b[2J[bold]x[/bold] \x9b", title="[red]t\nu", source="s\x07\nv")
    )
    done = run("search", "q", broker=network.url)
    assert "\N{REPLACEMENT CHARACTER}[2J[bold]x[/bold]" in done.stdout
    assert "s\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}v" in done.stdout
    assert "[red]t\N{REPLACEMENT CHARACTER}u\n" in done.stdout
    assert not {"\x1b", "\x9b", "\x07"} & set(done.stdout)


def test_names_between_colons_are_no_pictures(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(
        hit(chunk_id="dec:new:0", content="in :warning: file", source=":new:")
    )
    done = run("search", "q", broker=network.url)
    assert "dec:new:0" in done.stdout
    assert "in :warning: file" in done.stdout


def test_the_snippet_of_a_long_text_surrounds_the_first_match(network: Network, run: Run) -> None:
    text = "x" * 500 + " needle " + "y" * 500
    mark = Highlight(start=501, end=507, text="needle")
    network.answers["search-query"] = lambda _: answer(hit(content=text, highlights=[mark]))
    shown = run("search", "q", "--highlights", broker=network.url).stdout
    assert "needle" in shown
    assert len(shown) < 600


@pytest.mark.parametrize(
    ("code", "exit_code"), [("not_found", 3), ("invalid_input", 2), ("model_mismatch", 1)]
)
def test_a_tool_failure_is_an_error_with_its_hint(
    network: Network, run: Run, code: str, exit_code: int
) -> None:
    failure = {"success": False, "error": "no such thing", "code": code, "hint": "Try this."}
    network.answers["search-query"] = lambda _: failure
    done = run("search", "q", broker=network.url)
    assert done.exit_code == exit_code
    assert done.stderr == "error: no such thing\nhint: Try this.\n"
    assert done.stdout == ""


@pytest.mark.parametrize(
    "options",
    [
        ["--keyword", "--semantic"],
        ["--filter", "{"],
        ["--filter", "[]"],
        ["--k", "0"],
        ["--min-score", "2"],
    ],
)
def test_wrong_options_are_refused_before_anything_is_asked(
    network: Network, run: Run, options: list[str]
) -> None:
    done = run("search", "q", *options, broker=network.url)
    assert done.exit_code == 2
    assert network.asked == []


def test_without_a_broker_the_hint_names_up(run: Run) -> None:
    done = run("search", "q", broker="ws://127.0.0.1:9/kadi")
    assert done.exit_code == 1
    assert "ability-search up" in done.stderr


@pytest.mark.parametrize("command", [("search", "q"), ("doctor",), ("export", "docs", "out")])
def test_an_address_that_is_none_is_refused(run: Run, command: tuple[str, ...]) -> None:
    done = run(*command, broker="http://localhost")
    assert done.exit_code == 2
    assert "--broker" in done.stderr


def test_hits_of_changed_files_are_marked(
    network: Network, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "guide").mkdir()
    hits = []
    for source, changed in (("guide/old.md", "2026-01-01"), ("guide/new.md", "2026-03-01")):
        (tmp_path / source).write_text("text")
        seconds = datetime.fromisoformat(f"{changed}T00:00:00+00:00").timestamp()
        os.utime(tmp_path / source, (seconds, seconds))
        hits.append(hit(source=source, chunk_id=f"docs:{source}:0", created_at=INDEXED))
    elsewhere = [
        hit(source=source, chunk_id=f"other:{source}:0", created_at=INDEXED)
        for source in ("guide/new.md", "x.md", "y.md")
    ]
    network.answers["search-query"] = lambda _: answer(*hits, *elsewhere)
    monkeypatch.chdir(tmp_path / "guide")
    done = run("search", "q", "--json", broker=network.url)
    stale = [each.get("stale") for each in json.loads(done.stdout)["results"]]
    assert stale == [None, True, None, None, None]
    done = run("search", "q", broker=network.url)
    assert done.stdout.count("changed since it was indexed") == 1
    monkeypatch.chdir("/")
    assert "changed since" not in run("search", "q", broker=network.url).stdout


def test_similar_takes_the_collection_from_the_chunk_id(network: Network, run: Run) -> None:
    result = SimilarResult(results=[hit()], count=1, source_chunk=hit().chunk_id)
    network.answers["search-similar"] = lambda _: result.model_dump(mode="json", by_alias=True)
    done = run("similar", "docs:a:b.md:0", "-k", "2", broker=network.url)
    assert done.exit_code == 0
    assert run("similar", "guide/a.md", "-c", "notes", broker=network.url).exit_code == 0
    assert network.inputs("search-similar") == [
        {"collection": "docs", "chunkId": "docs:a:b.md:0", "limit": 2},
        {"collection": "notes", "source": "guide/a.md", "limit": 10},
    ]


def test_hops_turn_graph_expansion_on(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit())
    assert run("search", "q", "--hops", "3", broker=network.url).exit_code == 0
    asked = {"hops": 2, "minSimilarity": 0.3}
    words = ("--graph", json.dumps(asked), "--hops", "1")
    assert run("search", "q", *words, broker=network.url).exit_code == 0
    given = [each["graph"] for each in network.inputs("search-query")]
    assert [each["hops"] for each in given] == [3, 1]
    assert given[1]["minSimilarity"] == 0.3


def test_hits_are_marked_by_a_query_that_shows_none(network: Network, run: Run) -> None:
    near = SimilarResult(results=[], count=0, source_chunk=hit().chunk_id)
    network.answers["search-similar"] = lambda _: near.model_dump(mode="json", by_alias=True)
    network.answers["search-query"] = lambda _: answer()
    done = run("mark", "docs:a:0", "n:b:1", "docs:a:0", "--agent", "x", broker=network.url)
    assert (done.exit_code, done.stdout) == (0, "marked 2 hits\n")
    asked = network.inputs("search-query")
    assert [each["decay"] for each in asked] == [
        {"agentId": "x", "useful": ["docs:a:0"]},
        {"agentId": "x", "useful": ["n:b:1"]},
    ]
    assert [each["filter"] for each in asked] == [{"source": {"$in": []}}] * 2
    gone = {"success": False, "error": "no chunk named 'docs:z:0'", "code": "not_found"}
    network.answers["search-similar"] = lambda _: gone
    refused = run("mark", "docs:z:0", "--agent", "x", "--not-useful", broker=network.url)
    assert refused.exit_code == 3
    assert len(network.inputs("search-query")) == 2


def test_the_document_that_a_hit_belongs_to_is_named(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit(source="m.eml#attachment=a", of="m.eml"))
    assert "\n   of m.eml\n" in run("search", "q", broker=network.url).stdout


def test_an_artifact_is_searched_as_the_collection_it_is_and_warnings_are_told(
    network: Network, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def choose_collection(*artifacts: Path) -> tuple[str, list[str]]:
        asked.append(artifacts)
        return "skills.0123456789ab", ["the index in own cannot be used: it is damaged"]

    def answering(broker: str, work: Any, **_: Any) -> Any:
        assert broker == network.url
        return work(SimpleNamespace(choose_collection=choose_collection))

    monkeypatch.setattr("ability_search.extensions.artifacts.transfer.with_artifacts", answering)
    network.answers["search-query"] = lambda _: answer(hit(), warnings=["slow"])
    options = ("search", "q", "--artifact", "hub", "--own", "own")
    shown = run(*options, broker=network.url)
    assert asked == [(Path("hub"), Path("own"))]
    assert network.inputs("search-query")[0]["collection"] == "skills.0123456789ab"
    assert "warning: the index in own cannot be used: it is damaged" in shown.stderr
    told = json.loads(run(*options, "--json", broker=network.url).stdout)
    assert told["warnings"] == ["the index in own cannot be used: it is damaged", "slow"]


@pytest.mark.parametrize("options", [("--own", "own"), ("--artifact", "hub", "-c", "docs")])
def test_options_of_artifacts_that_do_not_go_together(
    network: Network, run: Run, options: tuple[str, ...]
) -> None:
    done = run("search", "q", *options, broker=network.url)
    assert done.exit_code == 2
    assert options[0] in done.stderr
    assert network.asked == []


def test_ask_without_a_model_prints_the_passages(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit(), relevance=0.9)
    shown = run(
        "ask", "what?", "-c", "docs", "--filter", '{"kind": "document"}', broker=network.url
    )
    assert shown.exit_code == 0
    assert "Some words of the text." in shown.stdout
    assert "no answer, only passages" in shown.stderr
    (asked,) = network.inputs("search-query")
    assert asked == {
        "collection": "docs",
        "query": "what?",
        "filter": {"kind": "document"},
        "maxResultTokens": 3000,
    }


def test_ask_says_that_the_sources_have_no_answer(network: Network, run: Run) -> None:
    network.answers["search-query"] = lambda _: answer(hit(), relevance=0.01)
    refused = run("ask", "what?", broker=network.url)
    assert refused.exit_code == 3
    assert "not in the sources" in refused.stderr
    as_json = run("ask", "what?", "--json", broker=network.url)
    assert json.loads(as_json.stdout)["outcome"] == "not_in_sources"


def test_ask_prints_sentences_with_their_sources(network: Network, run: Run) -> None:
    said = "It has some words of the text [1]. It has 7 of them [1]. Poems rhyme nowhere now [1]."
    completion = {"choices": [{"message": {"role": "assistant", "content": said}}]}
    with_model = hit(content="It has some words of the text.", start_line=4)
    network.answers["search-query"] = lambda _: answer(with_model, relevance=0.9)
    network.answers["chat-completion"] = lambda _: completion
    shown = run("ask", "what?", broker=network.url)
    assert shown.exit_code == 0
    assert "It has some words of the text. [1]" in shown.stdout
    assert "[1] a.md:4  A title" in shown.stdout


@pytest.mark.parametrize(
    "source",
    [
        "x" * 300,
        "deep/" + "y" * 256 + "/z.md",
        "a" * 5000,
        "nul\0byte",
        "\u202eevil\u2066.md",
        "\u2028x",
    ],
    ids=["name", "folder", "path", "nul", "directions", "line"],
)
def test_a_hostile_source_ends_no_search_and_controls_no_terminal(
    network: Network, run: Run, source: str
) -> None:
    one = hit(source=source, title=f"T {source}", chunk_id=f"docs:{source}:0", created_at=INDEXED)
    network.answers["search-query"] = lambda _: answer(one)
    done = run("search", "q", broker=network.url)
    assert done.exit_code == 0
    assert all(each.isprintable() for each in done.stdout.replace("\n", "").replace("\ufffd", "?"))
