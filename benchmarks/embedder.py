"""An embedder that costs next to nothing, to measure everything else."""

from __future__ import annotations

import base64
import time
from typing import Any

from benchmarks.vectors import vector_of
from kadi_client import Call, Tool


class InstantEmbedder:
    """Answers with the vectors of :func:`.vector_of`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """Time spent here so far."""
        self.texts = 0
        """Texts embedded so far."""

    @property
    def tool(self) -> Tool:
        """The tool that a model manager would offer."""
        return Tool("create-embedding", "Instant vectors.", {"type": "object"}, self._embed)

    async def _embed(self, tool_input: dict[str, Any], _call: Call) -> dict[str, Any]:
        started = time.perf_counter()
        data = [
            {"index": index, "embedding": base64.b64encode(vector_of(text).tobytes()).decode()}
            for index, text in enumerate(tool_input["input"])
        ]
        self.seconds += time.perf_counter() - started
        self.texts += len(data)
        return {"data": data, "model": tool_input["model"]}
