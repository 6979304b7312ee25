"""The model manager: embeddings and reranking with local models."""

from kadi_localnet.models.config import ModelDirectory, ModelsConfig
from kadi_localnet.models.directory import is_reranker
from kadi_localnet.models.errors import ModelsError, ModelSetupError
from kadi_localnet.models.hub import installed_models, pull_model
from kadi_localnet.models.model_loading import open_models
from kadi_localnet.models.service import Models, ServedModel

__all__ = [
    "ModelDirectory",
    "ModelSetupError",
    "Models",
    "ModelsConfig",
    "ModelsError",
    "ServedModel",
    "installed_models",
    "is_reranker",
    "open_models",
    "pull_model",
]
