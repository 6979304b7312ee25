"""The gate of ranking quality, and judged sets in this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from benchmarks import offline, quality
from benchmarks.offline import HASHED, HashedWords, KeptVectors, asking, indexed, offline_embedder
from benchmarks.quality import ARMS, Measured, losses, measure_all, row, rrf, sets_below, z
from tests.ability_search.extensions.evaluation.sets import write_set

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.documents import Vector
from ability_search.extensions.evaluation.judged_sets import read_dataset
from ability_search.store.memory import MemoryStore

DOCUMENTS = [{"_id": f"d{n}", "title": "", "text": f"the keel of ship {n}"} for n in range(12)]
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


class Counted(HashedWords):
    """Remembers what it has embedded."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    async def embed(self, model: str, texts: Sequence[str], *, timeout: float) -> Vector:
        self.texts += texts
        return await super().embed(model, texts, timeout=timeout)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"HOME": str(tmp_path)}, tmp_path)


@pytest.fixture
def ships(tmp_path: Path) -> Path:
    return write_set(tmp_path / "sets" / "ships", SHIPS, QUERIES, QRELS)


def values(**means: float) -> Measured:
    """20 queries; those that are not named have 0.5 in every arm."""
    found = {arm: [means.get(arm, 0.5)] * 20 for arm in ARMS}
    return Measured(found, refused=[True, False], answered=[False])


def test_sets_are_found_at_any_depth_the_smallest_first(tmp_path: Path) -> None:
    write_set(tmp_path / "large", DOCUMENTS, qrels=[("q1", "d1", 1)])
    write_set(tmp_path / "talks" / "1")
    assert sets_below(tmp_path, None) == [tmp_path / "talks" / "1", tmp_path / "large"]
    assert sets_below(tmp_path, 1) == [tmp_path / "talks" / "1"]


def test_reciprocal_ranks_of_both_lists_are_added() -> None:
    fused = rrf({"a": 0.9, "b": 0.8}, {"b": 7.0, "c": 3.0})
    assert fused == pytest.approx({"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 62})


def test_an_absent_hit_has_the_least_z_score_of_a_list() -> None:
    fused = z({"a": 0.9, "b": 0.7}, {"b": 7.0, "c": 3.0})
    assert fused == pytest.approx({"a": 0.6 - 0.4, "b": -0.6 + 0.4, "c": -0.6 - 0.4})
    assert z({"a": 0.9, "b": 0.9}, {}) == {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize("rival", ["semantic", "keyword", "rrf", "z"])
def test_a_certain_loss_is_named_with_the_set_and_the_model(rival: str) -> None:
    (sentence,) = losses("m", "ships", values(**{rival: 0.6}))
    assert sentence.startswith(f"m, ships: hybrid search is certainly worse than {rival}: -0.100*")


def test_an_uncertain_loss_is_none() -> None:
    found = values()
    found.values["z"] = [0.9, 0.2, *[0.5] * 18]
    assert found.rivals()["z"].difference < 0
    assert losses("m", "ships", found) == []


def test_a_row_has_the_better_retriever_and_the_shares_of_the_floor() -> None:
    cells = row("m", "ships", values(semantic=0.3, keyword=0.4, hybrid=0.75))
    assert cells[:8] == ["m", "ships", "20", "0.300", "0.400", "0.500", "0.500", "0.750"]
    assert cells[8:] == [
        "+0.350* (+0.350 to +0.350)",
        *["+0.250* (+0.250 to +0.250)"] * 2,
        "0.50",
        "0.00",
    ]


async def test_a_text_is_embedded_once_in_all_runs(tmp_path: Path) -> None:
    words, texts = Counted(), ["a keel", "a mast", "a keel"]
    expected = await HashedWords().embed("m", texts, timeout=1)
    for _ in range(2):
        kept = KeptVectors(words, tmp_path / "kept" / "vectors.sqlite")
        assert (await kept.embed("m", texts, timeout=1)).tolist() == expected.tolist()
        kept.close()
    assert words.texts == ["a keel", "a mast"]


async def test_hashed_words_know_no_order_and_no_relation() -> None:
    one, same, other, none = await HashedWords().embed(
        HASHED, ["The keel", "keel, the", "a mast", "-"], timeout=1
    )
    assert one @ same == pytest.approx(1.0)
    assert abs(one @ other) < 0.3
    assert np.linalg.norm(none) == pytest.approx(1.0)


async def test_searches_by_matrices_are_those_of_the_store_in_memory(
    ships: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = read_dataset(ships)
    plain, fast = [await indexed(dataset, settings, HashedWords()) for _ in range(2)]
    answers = []
    for store in (fast, plain):
        ask = asking(store, settings, HashedWords())
        found = [
            await ask({"query": query["text"], "mode": mode, "limit": 24, **further})
            for query in QUERIES
            for mode in ("semantic", "keyword", "hybrid")
            for further in ({}, {"filter": {"source": {"$like": "log/1%"}}})
        ]
        answers.append([{hit.source: hit.score for hit in each.results} for each in found])
        monkeypatch.setattr(offline.MatrixStore, "search", MemoryStore.search)
    assert all(any(len(hits) > 1 for hits in each) for each in answers)
    for one, other in zip(*answers, strict=True):
        assert one == pytest.approx(other, abs=1e-6)


async def test_sets_of_one_directory_are_measured_together(ships: Path, tmp_path: Path) -> None:
    sets = ships.parent
    for talk in ("1", "2"):
        write_set(sets / "talks" / talk)
    found = await measure_all(sets, sets_below(sets, None), HASHED, tmp_path, environ={})
    assert {name: len(each.values["hybrid"]) for name, each in found.items()} == {
        "talks": 4,
        "ships": 4,
    }
    assert found["talks"].values["keyword"] == [1.0] * 4
    assert found["ships"].values["hybrid"][0] == 1.0
    assert len(found["ships"].answered) == 2  # both talks have the same questions
    assert len(found["talks"].answered) == 8


async def test_hybrid_search_is_compared_with_other_options(ships: Path, tmp_path: Path) -> None:
    literal = {"understand": False}
    found = await measure_all(ships, [ships], HASHED, tmp_path, environ={}, against=literal)
    assert found["ships"].over("against").gained > 0
    assert len(row("m", "ships", found["ships"])) == 14


async def test_the_settings_are_those_of_the_model(tmp_path: Path) -> None:
    async with offline_embedder(tmp_path, {}, model=HASHED) as (settings, embedder):
        assert settings.embedding.model == HASHED
        assert (await embedder.embed(HASHED, ["a"], timeout=1)).shape == (1, HashedWords.dimensions)


@pytest.mark.parametrize(("z_is", "code"), [(0.5, 0), (0.6, 1)])
def test_the_exit_code_tells_a_certain_loss(
    ships: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    z_is: float,
    code: int,
) -> None:
    async def found(*_arguments: object, **_options: object) -> dict[str, Measured]:
        return {"ships": values(z=z_is)}

    monkeypatch.setattr(quality, "measure_all", found)
    monkeypatch.setattr(sys, "argv", ["quality", str(ships.parent), "--models", HASHED])
    assert quality.main() == code
    out = capsys.readouterr().out
    assert "| hashed | ships | 20 | 0.500 |" in out
    assert ("hashed, ships: hybrid search is certainly worse than z" in out) == bool(code)


@pytest.mark.model
def test_a_set_is_measured_under_the_model_of_the_stack(ships: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.quality", str(ships.parent)]
    command += ["--models", "all-MiniLM-L6-v2", "--cache", str(tmp_path / "vectors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "| all-MiniLM-L6-v2 | ships | 4 | " in done.stdout
    assert (tmp_path / "vectors" / "vectors.sqlite").is_file()
