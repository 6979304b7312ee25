"""`consolidate`: the summary, JSON and the options."""

from __future__ import annotations

import json

from tests.ability_search.extensions.cli.conftest import Network, Run

from ability_search.extensions.notes.consolidation_report import (
    Consolidation,
    ContradictingNotes,
    Duplicate,
)


def test_the_summary_has_counts_and_evidence(network: Network, run: Run) -> None:
    report = Consolidation(
        notes=4,
        chunks=9,
        revision=7,
        counts={"duplicates": 1, "contradictions": 1, "stale": 0, "links": 0},
        duplicates=[Duplicate(source="copy", kept="cat", cosine=0.99)],
        contradictions=[
            ContradictingNotes(
                source="new",
                other="old",
                chunk_id="docs:new:0",
                other_chunk_id="docs:old:3",
                rule="numbers",
                statement="It is 2.",
                other_statement="It is 1.",
                differing=["2", "1"],
                cosine=0.9,
            )
        ],
        stale=[],
        links=[],
        warnings=["the rules judged 1 of 2 pairs"],
        applied=2,
    ).model_dump(mode="json", by_alias=True)
    network.answers["notes-consolidate"] = lambda _: report
    done = run("consolidate", "docs", "--apply", broker=network.url)
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "notes 4, 9 chunks" in lines
    assert "changed 2" in lines
    assert "0.99 copy cat" in lines
    assert "rules numbers It is 2. It is 1." in lines
    (asked,) = network.inputs("notes-consolidate")
    assert (asked["apply"], asked["undo"], asked["judge"]) == (True, False, "rules")
    assert "the rules judged 1 of 2 pairs" in done.stderr
    shown = run("consolidate", "docs", "--json", broker=network.url).stdout
    assert json.loads(shown) == report
    assert run("consolidate", "docs", "--apply", "--undo", broker=network.url).exit_code == 2
