"""onnxruntime, told before its first import not to report its usage to anybody.

Its builds send usage events and keep a device id on disk unless the environment says no by then;
switching them off afterwards leaves the files. Whoever wants them sets the variable to 0.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime as ort
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.quantization.quant_utils import add_pre_process_metadata

__all__ = ["QuantType", "add_pre_process_metadata", "ort", "quantize_dynamic"]
