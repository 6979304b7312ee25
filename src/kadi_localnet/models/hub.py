"""Downloading the ONNX graph and tokenizer of a model from a public hub, all or nothing."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kadi_localnet.models.config import ModelDirectory
from kadi_localnet.models.directory import find_files
from kadi_localnet.models.errors import ModelSetupError

log = logging.getLogger(__name__)

INSTALL = "pip install 'ability-search[hub]'"

Progress = Callable[[str, int, int], None]
"""A callback with a file name, the bytes received of all files, and the total of bytes."""

_RECEIPT = "pulled.json"
_STAGING = ".partial"
_GRAPHS = ("onnx/model.onnx", "model.onnx")
# Suffixes of files with weights that do not fit into the graph.
_EXTERNAL = ("_data", ".data")
_SETTINGS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "config.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
)
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def pull_model(
    name: str,
    models_dir: Path,
    *,
    revision: str = "main",
    graph: str | None = None,
    endpoint: str | None = None,
    token: str | None = None,
    progress: Progress | None = None,
) -> ModelDirectory:
    """Download repository ``name`` to ``models_dir/name``; blocking.

    A dropped connection is resumed; if a call ends early, the next one keeps the downloaded files.
    The model appears under its final name only when every file has the size and checksum stated by
    the hub and its settings are readable. A model that exists at the same revision is not changed.

    Args:
        name: Repository, ``owner/model``.
        models_dir: Directory for pulled models.
        revision: Branch, tag or commit.
        graph: ONNX file to download if a repository has several variants; by default
            ``onnx/model.onnx`` or ``model.onnx``.
        endpoint: Base URL of the hub; ``None`` for the library's default.
        token: Token for a private repository; tokens stored on this machine are not sent.
        progress: Callback for each received part.

    Raises:
        ModelSetupError: if the extra is not installed, the repository or file does not exist,
            the hub cannot be reached or a downloaded file is damaged.
    """
    if not _REPOSITORY.fullmatch(name):
        raise ModelSetupError(f"{name!r} is not a repository: expected owner/model")
    with _translated(name):
        from huggingface_hub import HfApi

        api = HfApi(endpoint=endpoint, token=token or False)
        info = api.model_info(name, revision=revision, files_metadata=True)
        files = _wanted(name, info.siblings or [], graph)
        final = models_dir / name
        receipt = {"repository": name, "revision": info.sha, "files": sorted(files)}
        if _receipt(final) == receipt:
            return ModelDirectory(path=final, name=name)
        staging = models_dir / _STAGING / f"{name.replace('/', '--')}@{info.sha}"
        _download(api, name, str(info.sha), files, staging, progress)
        (staging / _RECEIPT).write_text(json.dumps(receipt), encoding="utf-8")
        shutil.rmtree(staging / ".cache", ignore_errors=True)
        find_files(ModelDirectory(path=staging))
        _move(staging, final)
    log.info("pulled %s at %s: %d files", name, info.sha, len(files))
    return ModelDirectory(path=final, name=name)


def installed_models(models_dir: Path) -> tuple[ModelDirectory, ...]:
    """Return the models installed by :func:`pull_model`, in the order of their names."""
    found = []
    for path in sorted([*models_dir.glob(f"*/{_RECEIPT}"), *models_dir.glob(f"*/*/{_RECEIPT}")]):
        receipt = _receipt(path.parent)
        if receipt and not path.is_relative_to(models_dir / _STAGING):
            found.append(ModelDirectory(path=path.parent, name=str(receipt["repository"])))
    return tuple(found)


def _wanted(name: str, siblings: Sequence[Any], graph: str | None) -> dict[str, Any]:
    by_path = {item.rfilename: item for item in siblings}
    choices = (graph,) if graph else _GRAPHS
    chosen = next((path for path in choices if path in by_path), None)
    if chosen is None:
        variants = ", ".join(path for path in by_path if path.endswith(".onnx")) or "none"
        raise ModelSetupError(f"{name} has no {' or '.join(choices)}; its ONNX files: {variants}")
    if "tokenizer.json" not in by_path:
        raise ModelSetupError(f"{name} has no tokenizer.json")
    paths = (chosen, *(chosen + suffix for suffix in _EXTERNAL), *_SETTINGS)
    return {path: by_path[path] for path in paths if path in by_path}


def _download(
    api: Any,
    name: str,
    revision: str,
    files: dict[str, Any],
    staging: Path,
    progress: Progress | None,
) -> None:
    total = sum(item.size or 0 for item in files.values())
    before = 0
    for path, item in files.items():
        bar = _progress_bar(path, before, total, progress) if progress else None
        target = Path(
            api.hf_hub_download(name, path, revision=revision, local_dir=staging, tqdm_class=bar)
        )
        _verify(target, item)
        before += item.size or 0
        if progress:
            progress(path, before, total)


def _verify(path: Path, item: Any) -> None:
    size = path.stat().st_size
    problem = None
    if item.size is not None and size != item.size:
        problem = f"{size} bytes instead of {item.size}"
    elif item.lfs is not None:
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != item.lfs.sha256:
                problem = "a wrong checksum"
    if problem:
        path.unlink()
        raise ModelSetupError(f"{item.rfilename} arrived with {problem}; pull again")


def _progress_bar(path: str, before: int, total: int, progress: Progress) -> type[Any]:
    from huggingface_hub.utils import tqdm

    class Bar(tqdm):  # type: ignore[misc] # huggingface_hub is not typed here
        """A progress bar that calls the callback instead of drawing."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs["disable"] = True
            super().__init__(*args, **kwargs)
            self._received = int(kwargs.get("initial") or 0)

        def update(self, n: float | None = 1) -> bool | None:
            self._received += int(n or 0)
            progress(path, before + self._received, total)
            return None

    return Bar


def _move(staging: Path, final: Path) -> None:
    final.parent.mkdir(parents=True, exist_ok=True)
    if final.exists():
        # Rename cannot replace a directory that is not empty. A model in use keeps its open files.
        old = staging.with_name(f"{staging.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
        staging.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    else:
        staging.rename(final)


def _receipt(directory: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((directory / _RECEIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and "repository" in content else None


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        from huggingface_hub import errors
    except ImportError as exc:
        raise ModelSetupError(f"pulling models requires huggingface_hub; run: {INSTALL}") from exc
    try:
        yield
    except ModelSetupError:
        raise
    except errors.GatedRepoError as exc:
        raise ModelSetupError(f"{name} is gated: accept its terms and pass a token") from exc
    except errors.RepositoryNotFoundError as exc:
        raise ModelSetupError(f"repository {name} does not exist or is private") from exc
    except errors.RevisionNotFoundError as exc:
        raise ModelSetupError(f"{name} has no such revision") from exc
    except Exception as exc:  # the exception types of the HTTP client depend on its version
        reason = f"{type(exc).__name__}: {exc}".splitlines()[0][:300]
        raise ModelSetupError(f"cannot pull {name}: {reason}") from exc
