"""Small ONNX models for tests, well-formed and hostile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, helper, numpy_helper

from convertkit.onnx import unsigned


def mlp(seed: int = 1) -> onnx.ModelProto:
    """Two dense layers with a ReLU; input ``x`` (N, 5), output ``y`` (N, 3)."""
    draw = np.random.default_rng(seed).standard_normal
    weights = {"w1": (5, 7), "b1": (7,), "w2": (7, 3), "b2": (3,)}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["y"]),
    ]
    stored = [numpy_helper.from_array(draw(shape).astype(np.float32), name) for name, shape in weights.items()]
    return model(nodes, {"x": ["N", 5]}, {"y": ["N", 3]}, stored)


def model(nodes, inputs, outputs, stored=(), opset: int = 18, ir_version: int = 10) -> onnx.ModelProto:
    """A float32 model from nodes, named shapes and initializers; nothing is checked."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        list(stored),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def uncut(proto: onnx.ModelProto) -> bytes:
    """The model such that ONNX Runtime's products of bytes are exact on every processor."""
    return ir.to_proto(unsigned.uncut(ir.from_proto(proto))).SerializeToString()


def add(stored: TensorProto, **how: int) -> onnx.ModelProto:
    """``y = x + w`` with ``w`` as given."""
    return model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": ["N", 5]}, {"y": ["N", 5]}, [stored], **how)


def external(location: str, length: int = 20, offset: int = 0) -> TensorProto:
    """A float32 tensor ``w`` (5,) whose bytes lie in another file."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[5], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, "offset": str(offset), "length": str(length)}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


def declared(*dims: int) -> TensorProto:
    """A float32 tensor ``w`` that claims a size and holds nothing."""
    return TensorProto(name="w", data_type=TensorProto.FLOAT, dims=list(dims), raw_data=b"")


def write(folder: Path, made: onnx.ModelProto, name: str = "model.onnx") -> Path:
    """Save without any check and return the path."""
    path = folder / name
    path.write_bytes(made.SerializeToString())
    return path
