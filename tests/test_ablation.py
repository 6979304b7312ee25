"""Judged sets in this process, and signals taken out of the ranking."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks import ablation, offline, relevance
from benchmarks.ablation import CONSTANTS, SIGNALS, left_out, table, values_of
from benchmarks.offline import KeptVectors, asking, indexed
from tests.ability_search.evaluation.sets import write_set

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.documents import Vector
from ability_search.evaluation.judged_sets import read_dataset
from ability_search.store.memory import MemoryStore

MONTHS = ("January", "February", "March", "April", "May", "June")
SHIPS = [
    {
        "_id": f"log/{n}",
        "title": "Keel" if n == 7 else "",
        "text": f"The ship Number {n} left the harbour on 2025-0{n % 6 + 1}-11 without cargo."
        + n * " deck",
        "metadata": {"speaker": "captain"},
    }
    for n in range(24)
]
QUERIES = [
    {"_id": "title", "text": "keel"},
    {"_id": "date", "text": "which ship left the harbour in March 2025"},
    {"_id": "latest", "text": "the latest ship that left the harbour"},
    {"_id": "no", "text": "ships in the harbour, excluding ship number 3"},
]
QRELS = [("title", "log/7", 1), ("date", "log/20", 1), ("latest", "log/5", 1), ("no", "log/4", 1)]


class Words:
    """An embedder of word counts."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        self.texts += texts
        vectors = np.full((len(texts), 32), 0.01, np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                vector[blake2b(word.encode()).digest()[0] % 32] += 1
        unit: Vector = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"HOME": str(tmp_path)}, tmp_path)


@pytest.fixture
def ships(tmp_path: Path) -> Path:
    return write_set(tmp_path / "sets" / "ships", SHIPS, QUERIES, QRELS)


async def test_a_text_is_embedded_once_in_all_runs(tmp_path: Path) -> None:
    words = Words()
    for _ in range(2):
        kept = KeptVectors(words, tmp_path / "kept" / "vectors.sqlite")
        first = await kept.embed("m", ["a keel", "a mast", "a keel"], timeout=1)
        assert (
            first.tolist()
            == (await words.embed("m", ["a keel", "a mast", "a keel"], timeout=1)).tolist()
        )
        del words.texts[-3:]
        kept.close()
    assert words.texts == ["a keel", "a mast"]


async def test_searches_by_matrices_are_those_of_the_store_in_memory(
    ships: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = read_dataset(ships)
    plain, fast = [await indexed(dataset, settings, Words()) for _ in range(2)]
    answers = []
    for store in (fast, plain):
        ask = asking(store, settings, Words())
        found = [
            await ask({"query": query["text"], "mode": mode, "limit": 24, **further})
            for query in QUERIES
            for mode in ("semantic", "keyword", "hybrid")
            for further in ({}, {"filter": {"source": {"$like": "log/1%"}}}, {"prf": True})
        ]
        hits = [{hit.source: hit.score for hit in each.results} for each in found]
        answers.append(hits)
        monkeypatch.setattr(offline.MatrixStore, "search", MemoryStore.search)
    assert all(any(len(hits) > 1 for hits in each) for each in answers)
    for one, other in zip(*answers, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


async def test_each_signal_is_taken_out(ships: Path, settings: Settings) -> None:
    found = await values_of(ships, list(SIGNALS), settings, Words())
    assert found.keys() == {"", *SIGNALS}
    assert all(values.shape == (4,) for values in found.values())
    assert found[""][0] == 1.0
    assert found["title"][0] < 1.0
    assert found["times"][1] < found[""][1]
    again = await values_of(ships, [], settings, Words())
    assert again[""].tolist() == found[""].tolist()


def test_only_certain_changes_are_marked() -> None:
    rng = np.random.default_rng(0)
    before = rng.random(60)
    found = {"a": {"": before, "loss": before - 0.1, "noise": before + rng.normal(0, 0.1, 60)}}
    rows = table(found, ["loss", "noise"])
    assert rows[0] == ["taken out", "a", "mean"]
    assert [row[-1].partition(" ")[0][-1] == "*" for row in rows[2:]] == [True, False]
    assert table({"a": {"": before, "same": before}}, ["same"])[-1] == ["same", "0", "0"]


async def test_each_constant_has_another_value(ships: Path, settings: Settings) -> None:
    names = [f"{name}={value}" for name, values in CONSTANTS.items() for value in values]
    found = await values_of(ships, names, settings, Words())
    assert found.keys() == {"", *names}
    assert found["title_weight=3"][0] == 1.0


def test_a_value_is_tested_on_the_set_that_it_was_not_chosen_on() -> None:
    same = {f"{name}={value}" for name, values in CONSTANTS.items() for value in values}
    sets = {name: dict.fromkeys(["", *same], np.full(9, 0.5)) for name in ("a", "b", "c")}
    for name, change in (("a", 0.3), ("b", -0.1), ("c", -0.1)):
        sets[name]["feedback=1"] = np.full(9, 0.5 + change)
    rows = {row[0]: row[1:] for row in left_out(sets)}
    assert rows["feedback"][:3] == ["default +0.0000", "1 -0.1000", "1 -0.1000"]
    assert rows["feedback"][3].startswith("-0.0667*")
    assert rows["phrasing"] == [*["default +0.0000"] * 3, "0"]


async def test_what_was_found_is_kept_unchanged(ships: Path, settings: Settings) -> None:
    store = await indexed(read_dataset(ships), settings, Words())
    ask = asking(store, settings, Words())
    one, other = [await ask({"query": "a ship without cargo", "explain": True}) for _ in range(2)]
    assert [hit.score for hit in one.results] == [hit.score for hit in other.results]


def offline_words(settings: Settings) -> Any:
    class Opened:
        async def __aenter__(self) -> tuple[Settings, Words]:
            return settings, Words()

        async def __aexit__(self, *_: object) -> None: ...

    return lambda *_args, **_options: Opened()


def test_the_table_has_a_row_for_each_signal_asked_for(
    ships: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(ablation, "offline_embedder", offline_words(settings))
    report = ships.parent / "values.json"
    argv = ["ablation", str(ships.parent), "--without", "title", "times", "--json", str(report)]
    monkeypatch.setattr(sys, "argv", argv)
    ablation.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines] == [
        "| taken out", "| (nothing)", "| title", "| times",
    ]  # fmt: skip
    assert '"ships"' in report.read_text()


def test_relevance_is_measured_with_questions_of_other_sets(
    ships: Path,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_set(ships.parent / "home")
    monkeypatch.setattr(relevance, "offline_embedder", offline_words(settings))
    monkeypatch.setattr(sys, "argv", ["relevance", str(ships.parent)])
    relevance.main()
    out = capsys.readouterr().out
    assert "| floor of relevance | home | ships |" in out
    assert "| ships | " in out
    assert " of 6 |" in out.splitlines()[-1]
