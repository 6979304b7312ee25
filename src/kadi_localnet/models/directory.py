"""Model directories as written by exporters: locating the graph and reading its settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from kadi_localnet.models.config import ModelDirectory, ModelFiles
from kadi_localnet.models.errors import ModelSetupError

_GRAPHS = ("model.onnx", "onnx/model.onnx")
_DEFAULT_TOKENS = 512
_CLASSIFIER = "ForSequenceClassification"
# Tokenizers without a limit declare 10^30.
_NO_LIMIT = 1_000_000


def is_reranker(directory: ModelDirectory) -> bool:
    """Return True if ``config.json`` declares a sequence classifier, which scores pairs of texts.

    Raises:
        ModelSetupError: if ``config.json`` cannot be read.
    """
    names = _read(directory.path / "config.json").get("architectures")
    return isinstance(names, list) and any(str(name).endswith(_CLASSIFIER) for name in names)


def find_files(directory: ModelDirectory) -> ModelFiles:
    """Locate the files of a model and read its settings.

    The pooling is that of the files of sentence-transformers, the mean without them.

    Raises:
        ModelSetupError: if the graph or the tokenizer is missing, or there are several graphs.
    """
    root = directory.path
    tokenizer = root / "tokenizer.json"
    if not tokenizer.is_file():
        raise ModelSetupError(f"model directory {root.name!r} has no tokenizer.json")
    return ModelFiles(
        tokenizer=tokenizer,
        graph=_graph(root),
        max_tokens=_max_tokens(root),
        pad_id=_integer(_read(root / "config.json").get("pad_token_id")) or 0,
        pooling=_pooling(root),
    )


def _graph(root: Path) -> Path:
    for name in _GRAPHS:
        if (root / name).is_file():
            return root / name
    found = sorted([*root.glob("*.onnx"), *root.glob("onnx/*.onnx")])
    if len(found) == 1:
        return found[0]
    names = ", ".join(str(path.relative_to(root)) for path in found) or "none"
    raise ModelSetupError(
        f"model directory {root.name!r}: expected model.onnx or a single .onnx file, found {names}"
    )


def _max_tokens(root: Path) -> int:
    sentence = _integer(_read(root / "sentence_bert_config.json").get("max_seq_length"))
    limit = _integer(_read(root / "tokenizer_config.json").get("model_max_length"))
    positions = _integer(_read(root / "config.json").get("max_position_embeddings"))
    if sentence:
        return sentence
    if limit and limit < _NO_LIMIT:
        return min(limit, positions or limit)
    return positions or _DEFAULT_TOKENS


def _pooling(root: Path) -> Literal["mean", "cls"]:
    declared = _read(root / "1_Pooling" / "config.json")
    modes = {key for key, value in declared.items() if key.startswith("pooling_mode") and value}
    if not modes or modes == {"pooling_mode_mean_tokens"}:
        return "mean"
    if modes == {"pooling_mode_cls_token"}:
        return "cls"
    raise ModelSetupError(
        f"model directory {root.name!r} uses pooling by {', '.join(sorted(modes))}, which is not"
        " supported (supported: mean and cls)"
    )


def _integer(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value >= 0 else None


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise ModelSetupError(f"cannot read {path.name} of {path.parent.name!r}: {exc}") from exc
    return content if isinstance(content, dict) else {}
