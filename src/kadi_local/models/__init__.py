"""The model manager: embeddings and reranking, by models on this machine or on other servers."""

from kadi_local.models.config import ModelDirectory, ModelsConfig, Upstream
from kadi_local.models.directory import is_reranker
from kadi_local.models.errors import ModelsError, ModelSetupError
from kadi_local.models.hub import installed_models, pull_model
from kadi_local.models.opening import open_models
from kadi_local.models.service import Models, ServedModel

__all__ = [
    "ModelDirectory",
    "ModelSetupError",
    "Models",
    "ModelsConfig",
    "ModelsError",
    "ServedModel",
    "Upstream",
    "installed_models",
    "is_reranker",
    "open_models",
    "pull_model",
]
