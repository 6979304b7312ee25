"""The model manager: embeddings and reranking with local models.

This package itself loads no engine: it is also for those who only plan what to serve. What serves
it is :mod:`.service`.
"""

import os

# Read by onnxruntime and huggingface_hub when they are imported. Without the first, onnxruntime
# stores a device id on disk; disabling its telemetry later leaves the file.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

from kadi_localnet.models.config import ModelDirectory, ModelsConfig
from kadi_localnet.models.directory import is_reranker
from kadi_localnet.models.errors import ModelsError, ModelSetupError
from kadi_localnet.models.hub import installed_models, pull_model

__all__ = [
    "ModelDirectory",
    "ModelSetupError",
    "ModelsConfig",
    "ModelsError",
    "installed_models",
    "is_reranker",
    "pull_model",
]
