"""The model manager: embeddings from models on this machine or on OpenAI-compatible servers."""

from kadi_local.models.config import ModelDirectory, ModelsConfig, Upstream
from kadi_local.models.errors import ModelsError, ModelSetupError
from kadi_local.models.hub import installed_models, pull_model
from kadi_local.models.service import Models, ServedModel, find_tokenizer, open_models

__all__ = [
    "ModelDirectory",
    "ModelSetupError",
    "Models",
    "ModelsConfig",
    "ModelsError",
    "ServedModel",
    "Upstream",
    "find_tokenizer",
    "installed_models",
    "open_models",
    "pull_model",
]
