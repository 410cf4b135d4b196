"""Models of a few operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def saved(
    place: Path,
    nodes: list[onnx.NodeProto],
    shape: tuple[int | str, ...],
    made: int = TensorProto.FLOAT,
    given: int = TensorProto.FLOAT,
    **stored: np.ndarray,
) -> Path:
    """A model from x to y."""
    ports = [helper.make_tensor_value_info("x", given, shape)]
    results = [helper.make_tensor_value_info("y", made, None)]
    constants = [numpy_helper.from_array(value, name) for name, value in stored.items()]
    graph = helper.make_graph(nodes, "g", ports, results, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model, strict_mode=True), place / "model.onnx")
    return place / "model.onnx"
