"""A shared index and a user's own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.ability_search.extensions.artifacts.made import edited, made

from ability_search.extensions.artifacts.artifact_format import MANIFEST, Damaged
from ability_search.extensions.artifacts.artifact_service import choose


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    made(tmp_path / "shared")
    return tmp_path / "shared"


@pytest.fixture
def own(shared: Path) -> Path:
    return Path(shutil.copytree(shared, shared.with_name("own")))


def test_the_own_one_answers_where_revision_and_model_are_right(shared: Path, own: Path) -> None:
    assert choose(shared, own, model="m") == (own, [])


def test_without_an_own_one_the_shared_one_answers(shared: Path) -> None:
    assert choose(shared, None, model="m") == (shared, [])


def test_another_revision_is_said(shared: Path, own: Path) -> None:
    edited(own, revision="older")
    directory, reasons = choose(shared, own, model="m")
    assert directory == shared
    (reason,) = reasons
    assert "it has revision older, the shared index has sha256:" in reason


def test_another_model_is_said(shared: Path, own: Path) -> None:
    edited(own, model_id="n")
    directory, reasons = choose(shared, own, model="m")
    assert directory == shared
    (reason,) = reasons
    assert "it has vectors of the model 'n', not 'm'" in reason


def test_an_own_one_with_the_right_model_beats_a_shared_one_without(
    shared: Path, own: Path
) -> None:
    edited(shared, model_id="n")
    assert choose(shared, own, model="m") == (own, [])


def test_a_shared_one_of_another_model_is_said(shared: Path, own: Path) -> None:
    directory, reasons = choose(shared, own, model="other")
    assert directory == shared
    assert len(reasons) == 2
    assert "has vectors of the model 'm', not 'other'" in reasons[1]


@pytest.mark.parametrize("damage", ["missing", "newer"])
def test_an_own_one_that_cannot_be_used_never_shadows_the_shared_one(
    shared: Path, own: Path, damage: str
) -> None:
    if damage == "missing":
        (own / MANIFEST).unlink()
    else:
        edited(own, index_version=2)
    directory, reasons = choose(shared, own, model="m")
    assert directory == shared
    assert MANIFEST in reasons[0]


def test_a_damaged_shared_one_is_an_error(shared: Path, own: Path) -> None:
    (shared / MANIFEST).unlink()
    with pytest.raises(Damaged):
        choose(shared, own, model="m")
