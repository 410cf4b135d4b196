"""The verdict of ONNX Runtime's own usability checker: would NNAPI or Core ML help on a phone.

It counts nodes and partitions by the lists of operators that ONNX Runtime ships; nothing is run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from onnxruntime.tools.mobile_helpers import usability_checker as checker
from onnxruntime.tools.onnx_model_utils import ModelProtoWithShapeInfo, optimize_model

_PROVIDERS = {
    "NNAPI": checker.check_nnapi_partitions,
    "Core ML, MLProgram": partial(checker.check_coreml_partitions, config_filename="coreml_supported_mlprogram_ops.md"),
    "Core ML, NeuralNetwork": partial(
        checker.check_coreml_partitions, config_filename="coreml_supported_neuralnetwork_ops.md"
    ),
}


def usability(model: Path) -> Mapping[str, str]:
    """One sentence for each provider, of the ``.onnx`` file ``model``."""
    with tempfile.TemporaryDirectory(prefix="convertkit-ort-") as folder:
        simple = Path(folder) / "model.onnx"
        optimize_model(model, simple)
        shaped = ModelProtoWithShapeInfo(simple).model_with_shape_info
    return {name: _verdict(shaped, check) for name, check in _PROVIDERS.items()}


def _verdict(model: Any, check: Any) -> str:
    found = check(model, require_fixed_input_sizes=True)
    told = _told(found)
    if checker.check_shapes(model.graph)[0]:
        return f"{told}; with fixed input sizes {_told(check(model, require_fixed_input_sizes=False))}"
    return told


def _told(found: Any) -> str:
    if not found.num_nodes:
        return "no: no nodes"
    parts = "partition" if found.num_partitions == 1 else "partitions"
    taken = f"{found.num_supported_nodes} of {found.num_nodes} nodes in {found.num_partitions} {parts}"
    lacking = f", without {', '.join(sorted(found.unsupported_ops))}" if found.unsupported_ops else ""
    return f"{found.suitability().name.lower()}: {taken}{lacking}"
