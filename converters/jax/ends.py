"""bfloat16 inputs and outputs as float32: no runtime hands NumPy a bfloat16, and float32 holds every one exactly."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def widen_ends(model: ir.Model) -> None:
    """Let the model take and give float32 in place of bfloat16; what goes in is rounded to nearest even."""
    graph = model.graph
    for place, value in enumerate(graph.inputs):
        if value.dtype == ir.DataType.BFLOAT16:
            outer = ir.Value(name=value.name, shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT))
            inner = _cast(outer, ir.DataType.BFLOAT16, f"{value.name}/bfloat16")
            value.replace_all_uses_with(inner, replace_graph_outputs=True)
            graph.inputs[place] = outer
            made = inner.producer()
            assert made is not None
            graph.insert_before(graph[0], made)
    for place, value in enumerate(graph.outputs):
        if value.dtype == ir.DataType.BFLOAT16:
            name, value.name = value.name, f"{value.name}/bfloat16"
            outer = _cast(value, ir.DataType.FLOAT, name or "")
            made = outer.producer()
            assert made is not None
            graph.append(made)
            graph.outputs[place] = outer


def widened(dtype: str) -> str:
    """The dtype under which the artifact takes or gives a dtype of the program."""
    return "float32" if dtype == "bfloat16" else dtype


def widened_array(array: Array) -> Array:
    """A result of the program as the artifact gives it."""
    return array.astype(np.float32) if array.dtype == BFLOAT16 else array


def _cast(value: ir.Value, dtype: ir.DataType, name: str) -> ir.Value:
    made = ir.node("Cast", [value], {"to": int(dtype)}, name=name)
    result = made.outputs[0]
    result.name, result.shape, result.type = name, value.shape, ir.TensorType(dtype)
    return result
