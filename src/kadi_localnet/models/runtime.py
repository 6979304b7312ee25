"""The import of onnxruntime, with telemetry disabled.

Unless the environment variable is set before the first import, onnxruntime sends usage events and
stores a device id on disk; disabling telemetry later leaves the files. Set the variable to 0 to
enable telemetry.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

__all__ = ["QuantType", "add_pre_process_metadata", "ort", "quantize_dynamic"]
