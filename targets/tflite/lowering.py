"""Lower an ONNX graph, node by node, to TFLite operations.

Handlers return values and refuse with a reason; everything else is here: names, quantization
parameters, fused activations, captured values of subgraphs, and the words that make a refusal useful.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, cast, get_args

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.origin import location
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.calling import attributes_of, called
from convertkit.targets.forms.free_sizes import ways_out
from convertkit.targets.forms.lowering import Operators
from convertkit.targets.forms.source import source_of
from convertkit.targets.tflite.annotations import activation_of, order_of, quantization_of
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.builder.core import NONE, dtype_of
from convertkit.targets.tflite.element_types import check_kernels, check_types
from convertkit.targets.tflite.graph import Program, Subgraph
from convertkit.targets.tflite.tensor import DYNAMIC, DType, QuantParams, Tensor

if TYPE_CHECKING:
    from convertkit.artifact import Array

WAYS_OUT = ("--target onnxruntime",)


@dataclass(slots=True)
class Scope:
    """The values that nodes of one graph may use; inner graphs see the outer ones' through ``captured``."""

    builder: Builder
    values: dict[ir.Value, Tensor] = field(default_factory=dict)


class Lowering:
    """Lowers the main graph and, through :meth:`subgraph`, the bodies of If, Loop and Scan."""

    def __init__(self, program: Program, registry: Registry, opsets: Mapping[str, int]) -> None:
        self.program = program
        self._operators = Operators(registry, opsets)
        self._opset = opsets.get("", 1)
        self._constants: dict[ir.Value, Tensor] = {}

    def main(self, graph: ir.Graph) -> tuple[list[Tensor], list[Tensor]]:
        """Lower the model's graph and return its inputs and outputs."""
        subgraph = self.program.subgraphs[self.program.new_subgraph("main")]
        scope = Scope(Builder(self.program, subgraph))
        for value in graph.inputs:
            tensor = declared(value)
            scope.values[value] = tensor
            self.program.names[tensor] = tensor.name
            if order_of(value):
                self.program.orders[tensor.name] = order_of(value)
            subgraph.inputs.append(tensor)
        self._nodes(graph, scope)
        subgraph.outputs = self._outputs(graph.outputs, scope, subgraph)
        return subgraph.inputs, subgraph.outputs

    def subgraph(
        self, graph: ir.Graph, name: str, inputs: Sequence[Tensor], captured: Mapping[ir.Value, Tensor]
    ) -> int:
        """Lower ``graph`` into a subgraph whose inputs are ``inputs``, then ``captured``: fresh tensors all."""
        index = self.program.new_subgraph(name)
        subgraph = self.program.subgraphs[index]
        builder = Builder(self.program, subgraph)
        subgraph.inputs = [*inputs, *captured.values()]
        scope = Scope(builder, {**dict(zip(graph.inputs, inputs, strict=True)), **captured})
        results = self.inlined(graph, scope)
        builder.prefix = name
        outputs: list[Tensor] = []
        for tensor in results:
            own = tensor.constant is None and tensor not in subgraph.inputs and tensor not in outputs
            outputs.append(tensor if own else copied(builder, tensor))
        subgraph.outputs = outputs
        return index

    def inlined(self, graph: ir.Graph, scope: Scope) -> tuple[Tensor, ...]:
        """Lower the nodes of an inner graph into ``scope`` and return its results."""
        prefix, origin_before, results = scope.builder.prefix, scope.builder.origin, scope.builder.results
        self._nodes(graph, scope)
        scope.builder.prefix, scope.builder.origin, scope.builder.results = prefix, origin_before, results
        return tuple(self.value(value, scope) for value in graph.outputs)

    def value(self, value: ir.Value, scope: Scope) -> Tensor:
        """The tensor of an ONNX value; initializers become constants when they are first used."""
        known = scope.values.get(value) or self._constants.get(value)
        if known is not None:
            return known
        assert value.const_value is not None, f"{value.name} has no value yet"
        array: Array = value.const_value.numpy()
        tensor = Tensor(str(value.name), tuple(array.shape), dtype_of(array), array, quantization_of(value))
        self._constants[value] = tensor
        return tensor

    def _nodes(self, graph: ir.Graph, scope: Scope) -> None:
        for node in graph:
            try:
                self._node(node, scope)
            except Unsupported as refusal:
                ways = ways_out(refusal, node, WAYS_OUT)
                raise refusal.located(subject(node, self._operators.version(node)), location(node), ways) from None

    def _node(self, node: ir.Node, scope: Scope) -> None:
        handler = self._operators.find(node)
        if handler is None:
            raise Unsupported(self._operators.unknown(node, "TFLite"))
        builder = scope.builder
        builder.prefix = node.name or node.op_type
        builder.origin = origin(node)
        builder.results = tuple(quantization_of(value) for value in node.outputs)
        check_types(node, self._opset)
        inputs = [None if value is None else self.value(value, scope) for value in node.inputs]
        before = len(builder.subgraph.operations)
        results = _call(handler, builder, inputs, attributes_of(node), self, scope, node)
        check_kernels(builder.subgraph.operations[before:])
        activation = activation_of(node)
        if activation != NONE:
            results = (builder.activated(results[0], activation), *results[1:])
        self._bind(node, results, scope)

    def _bind(self, node: ir.Node, results: Sequence[Tensor], scope: Scope) -> None:
        for place, value in enumerate(node.outputs):
            if not value.name or not (value.uses() or value.is_graph_output()):
                continue
            if place >= len(results):
                raise Unsupported(f"its output {place} ({value.name}) is used and has no TFLite counterpart")
            tensor = requantized(scope.builder, results[place], quantization_of(value))
            _check(value, tensor)
            scope.values[value] = tensor
            if tensor.constant is None:
                self.program.names.setdefault(tensor, value.name)
                if order_of(value):
                    self.program.orders[value.name] = order_of(value)

    def _outputs(self, values: Sequence[ir.Value], scope: Scope, subgraph: Subgraph) -> list[Tensor]:
        """The graph's outputs: each a tensor of its own, computed, with exactly the output's name."""
        outputs: list[Tensor] = []
        for value in values:
            tensor = self.value(value, scope)
            if tensor.constant is not None or tensor in subgraph.inputs or tensor in outputs:
                tensor = copied(scope.builder, tensor)
            self.program.names[tensor] = str(value.name)
            outputs.append(tensor)
        return outputs


def _call(
    handler: Callable[..., object],
    builder: Builder,
    inputs: Sequence[Tensor | None],
    attributes: Mapping[str, object],
    lowering: Lowering,
    scope: Scope,
    node: ir.Node,
) -> tuple[Tensor, ...]:
    """Call a handler; one that asks for the ``lowering`` gets the node itself (If, Loop, Scan)."""
    if _is_structural(handler):
        result = handler(builder, *inputs, lowering=lowering, scope=scope, node=node)
    else:
        result = called(handler, builder, inputs, attributes)
    assert isinstance(result, Tensor | tuple), f"{node.op_type}: a handler returns tensors"
    return (result,) if isinstance(result, Tensor) else result


@cache
def _is_structural(handler: Callable[..., object]) -> bool:
    return "lowering" in inspect.signature(handler).parameters


def captured_values(graphs: Sequence[ir.Graph], lowering: Lowering, scope: Scope) -> list[ir.Value]:
    """Computed values that inner graphs take from the graphs around them, each once, in order of use."""
    found: dict[ir.Value, None] = {}
    for graph in graphs:
        inside: set[ir.Value] = set(graph.inputs)
        for node in graph.all_nodes():
            inside.update(node.outputs)
            for attribute in node.attributes.values():
                if attribute.type == ir.AttributeType.GRAPH:
                    inside.update(attribute.as_graph().inputs)
        used = [value for node in graph.all_nodes() for value in node.inputs]
        used += [value for inner in (graph, *graph.subgraphs()) for value in inner.outputs]
        for value in used:
            outer = value is not None and value not in inside and value.const_value is None
            if value is not None and outer and lowering.value(value, scope).constant is None:
                found[value] = None
    return list(found)


def requantized(builder: Builder, tensor: Tensor, wanted: QuantParams | None) -> Tensor:
    """``tensor`` with the parameters that the graph gives its value, through a QUANTIZE where they differ.

    Plain integers get them as they are: RESHAPE copies bits, whatever they mean.
    """
    if wanted is None or tensor.quantization == wanted:
        return tensor
    if tensor.quantization is None:
        return tensor if tensor.is_float else builder.relabelled(tensor, wanted)
    return builder.quantize(tensor, tensor.dtype, wanted)


def copied(builder: Builder, tensor: Tensor) -> Tensor:
    """A computed tensor with the same contents."""
    if tensor.constant is not None:
        tensor = Tensor(tensor.name, tensor.shape, tensor.dtype, tensor.constant, tensor.quantization)
    is_plain = tensor.shape.count(DYNAMIC) == 1 and 0 not in tensor.shape
    sizes = builder.ints(tensor.shape) if is_plain else builder.shape_of(tensor)
    return builder.reshape_to(tensor, sizes, tensor.shape)


def declared(value: ir.Value) -> Tensor:
    """An input of the model as a tensor."""
    if value.shape is None or value.dtype is None:
        raise Unsupported(f"input {value.name} has no known rank or element type")
    return Tensor(str(value.name), shape_of(value), dtype_name(value.dtype), None, quantization_of(value))


def shape_of(value: ir.Value) -> tuple[int, ...]:
    """The value's sizes, ``DYNAMIC`` where free."""
    return tuple(size if isinstance(size, int) else DYNAMIC for size in value.shape or ())


def dtype_name(dtype: ir.DataType) -> DType:
    """Our name of an ONNX element type; ``Unsupported`` where TFLite has no such tensors."""
    if dtype == ir.DataType.STRING:
        return "string"
    name = dtype.numpy().name
    for known in get_args(DType):
        if known == name:
            return cast(DType, known)
    raise Unsupported(f"TFLite has no tensors of {name}")


def _check(value: ir.Value, tensor: Tensor) -> None:
    """Hold a handler's result against what ONNX says about it: a difference is our mistake, never shipped."""
    if value.shape is not None:
        known = shape_of(value)
        agrees = len(known) == tensor.rank and all(
            a == b or DYNAMIC in (a, b) for a, b in zip(known, tensor.shape, strict=True)
        )
        if not agrees:
            raise Unsupported(
                f"lowered to shape {list(tensor.shape)} where ONNX says {list(known)}: a handler's mistake"
            )
    if value.dtype is not None and quantization_of(value) is None and tensor.dtype != dtype_name(value.dtype):
        raise Unsupported(f"lowered to {tensor.dtype} where ONNX says {value.dtype}: a handler's mistake")


def subject(node: ir.Node, version: int) -> str:
    """``up2 (Resize-18)``."""
    operator = node.op_type if not node.domain or node.domain == "convertkit.nhwc" else f"{node.domain}.{node.op_type}"
    return f"{node.name or 'node'} ({operator}-{version})"


def origin(node: ir.Node) -> str:
    """The node's name and, where known, its source line, for the artifact's metadata."""
    where = location(node)
    return f"{source_of(node)} ({where})" if where else source_of(node)
