"""Lower an ONNX graph, node by node, to layers of ncnn.

Handlers return tensors and refuse with a reason; names and the words that make a refusal useful are here.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.errors import UnknownSize, Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.calling import attributes_of, called
from convertkit.targets.forms.lowering import GraphLowering, Operators
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.tensor import Tensor, constant

WAYS_OUT = ("--target onnxruntime", "--target mnn")


class Lowering(GraphLowering[Tensor]):
    """Lowers the nodes of one graph."""

    def __init__(self, builder: Builder, registry: Registry, opsets: Mapping[str, int]) -> None:
        super().__init__(Operators(registry, opsets), constant, WAYS_OUT)
        self._builder = builder

    def _node(self, node: ir.Node) -> None:
        handler = self._operators.find(node)
        if handler is None:
            raise Unsupported("ncnn has no such operator, and no exact decomposition is known")
        for value in node.outputs:
            if not any(each is not None and self.value(each).whole for each in node.inputs):
                _check_type(value)
        self._builder.prefix = str(node.outputs[0].name)
        inputs = [None if value is None else self.value(value) for value in node.inputs]
        found = called(handler, self._builder, inputs, attributes_of(node))
        results = found if isinstance(found, tuple) else (found,)
        for place, value in enumerate(node.outputs):
            if value.uses() or value.is_graph_output():
                self._values[value] = self._checked(value, results[place] if place < len(results) else None)

    def _checked(self, value: ir.Value, tensor: object) -> Tensor:
        if not isinstance(tensor, Tensor):
            raise Unsupported(f"its output {value.name} is used and has no counterpart in ncnn")
        wanted = tensor.shape if value.shape is None else shape_of(value)
        if tensor.shape != wanted:
            raise Unsupported(f"lowered to {list(tensor.shape)} where ONNX says {list(wanted)}: a handler's mistake")
        return tensor


def _check_type(value: ir.Value) -> None:
    used = bool(value.uses()) or value.is_graph_output()
    if used and value.dtype is not None and value.dtype != ir.DataType.FLOAT:
        raise Unsupported(f"{value.dtype.name.lower()} results: ncnn computes in float32 alone")


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The sizes of a value; ``Unsupported`` where one is only known at run time."""
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    if value.shape is None or len(sizes) != len(value.shape):
        raise UnknownSize(f"{value.name} has a size that is only known at run time, and blobs of ncnn need it")
    return tuple(sizes)
