"""Lower an ONNX graph, node by node, to layers of ncnn.

Handlers return tensors and refuse with a reason; names and the words that make a refusal useful are here.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir
from onnx import defs

from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.calling import attributes_of, called, subject
from convertkit.targets.ncnn.builder import Builder
from convertkit.targets.ncnn.tensor import Tensor, constant

WAYS_OUT = ("--target onnxruntime", "--target mnn")


class Lowering:
    """Lowers the nodes of one graph."""

    def __init__(self, builder: Builder, registry: Registry, opsets: Mapping[str, int]) -> None:
        self._builder, self._registry, self._opsets = builder, registry, opsets
        self._values: dict[ir.Value, Tensor] = {}

    def bind(self, value: ir.Value, tensor: Tensor) -> None:
        """Say what an input of the graph is."""
        self._values[value] = tensor

    def value(self, value: ir.Value) -> Tensor:
        """The tensor of an ONNX value."""
        known = self._values.get(value)
        if known is None:
            assert value.const_value is not None, f"{value.name} has no value yet"
            known = self._values[value] = constant(value.const_value.numpy())
        return known

    def run(self, graph: ir.Graph) -> None:
        """Lower every node; ``Unsupported`` names the first that cannot be expressed."""
        for node in graph:
            try:
                self._node(node)
            except Unsupported as refusal:
                raise refusal.located(subject(node, self._version(node)), location(node), WAYS_OUT) from None

    def _node(self, node: ir.Node) -> None:
        handler = self._registry.find(node.op_type, self._opsets.get(node.domain, 1), node.domain)
        if handler is None:
            raise Unsupported("ncnn has no such operator, and no exact decomposition is known")
        for value in node.outputs:
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

    def _version(self, node: ir.Node) -> int:
        try:
            return int(defs.get_schema(node.op_type, self._opsets.get(node.domain, 1), node.domain).since_version)
        except defs.SchemaError:
            return 1


def _check_type(value: ir.Value) -> None:
    used = bool(value.uses()) or value.is_graph_output()
    if used and value.dtype is not None and value.dtype != ir.DataType.FLOAT:
        raise Unsupported(f"{value.dtype.name.lower()} results: ncnn computes in float32 alone")


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The sizes of a value; ``Unsupported`` where one is only known at run time."""
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    if value.shape is None or len(sizes) != len(value.shape):
        raise Unsupported(f"{value.name} has a size that is only known at run time, and blobs of ncnn need it")
    return tuple(sizes)
