"""Giving an exporter's ONNX file exactly the inputs and outputs that the source model has."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx_ir as ir

from convertkit.artifact import Artifact, sha256_of
from convertkit.converters.pytorch.leaves import Leaf
from convertkit.errors import ToolError
from convertkit.onnx.load import load_model
from convertkit.onnx.specs import interface


def settle_interface(path: Path, leaves: Sequence[Leaf], outputs: Sequence[str]) -> Artifact:
    """Rewrite the file's interface in place: all leaves in their order, outputs under their names.

    An input that the exporter dropped because nothing reads it comes back, unread.
    """
    model = load_model(path)
    graph = model.graph
    found = {value.name: value for value in graph.inputs if value.name not in graph.initializers}
    if surplus := sorted(str(name) for name in set(found) - {leaf.name for leaf in leaves}):
        raise ToolError(f"the exporter made the input {surplus[0]}, which the model does not have")
    inputs = [found.get(leaf.name) or _unread(leaf) for leaf in leaves]
    if len(graph.outputs) != len(outputs):
        raise ToolError(f"the exporter made {len(graph.outputs)} outputs, the model has {len(outputs)}")
    for value, leaf in zip(inputs, leaves, strict=True):
        value.shape = ir.Shape(leaf.shape)
    graph.inputs[:] = inputs
    for value, name in zip(graph.outputs, outputs, strict=True):
        value.name = name
    ir.external_data.load_to_model(model)
    ir.save(model, path)
    specs = interface(model)
    return Artifact(path, "onnx", *specs, sha256_of(path))


def _unread(leaf: Leaf) -> ir.Value:
    dtype = ir.DataType[leaf.dtype.upper().replace("FLOAT32", "FLOAT").replace("FLOAT64", "DOUBLE")]
    return ir.Value(name=leaf.name, shape=ir.Shape(leaf.shape), type=ir.TensorType(dtype))
