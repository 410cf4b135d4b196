"""Lower an ONNX graph, node by node, to MIL.

Handlers return values and refuse with a reason; names, element types and the words that make a refusal useful are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx_ir as ir

from convertkit.errors import Unsupported
from convertkit.onnx.integer_ranges import Range, Ranges
from convertkit.onnx.intervals import Interval
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import MOST_DIMENSIONS, Builder
from convertkit.targets.coreml.scans import scan
from convertkit.targets.coreml.tensor import Tensor, constant, held
from convertkit.targets.coreml.wrapping import wrapped
from convertkit.targets.forms.calling import attributes_of, called
from convertkit.targets.forms.lowering import GraphLowering, Operators
from convertkit.targets.forms.words import SIZES

WAYS_OUT = ("--target onnxruntime", "--target tflite")

_BITS = frozenset({"BitwiseNot", "BitShift"})
"""Operators that reach the highest bits, of which int32 lacks some of the unsigned types' own."""
_PLAIN = frozenset({"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""Operators that make or take real int8 and uint8 tensors."""


class Lowering(GraphLowering[Tensor]):
    """Lowers one graph into the MIL function that is open; ``largest`` are the greatest sizes of named dimensions."""

    def __init__(
        self, builder: Builder, registry: Registry, opsets: Mapping[str, int], largest: Mapping[str, int]
    ) -> None:
        super().__init__(Operators(registry, opsets), constant, WAYS_OUT)
        self._builder = builder
        self.ranges = Ranges("Core ML")
        self._largest = largest

    def _node(self, node: ir.Node) -> None:
        if node.op_type == "Scan" and not node.domain:
            self._bind(node, scan(self, self._builder, node))
            return
        handler = self._operators.find(node)
        if handler is None:
            raise Unsupported(self._operators.unknown(node, "Core ML"))
        self._builder.prefix = node.name or node.op_type
        inputs = [None if value is None else self._input(node, value) for value in node.inputs]
        self._bind(node, _call(handler, self._builder, inputs, attributes_of(node)))

    def _bind(self, node: ir.Node, results: Sequence[Tensor]) -> None:
        for place, value in enumerate(node.outputs):
            if not value.name or not (value.uses() or value.is_graph_output()):
                continue
            if place >= len(results):
                raise Unsupported(f"its output {place} ({value.name}) is used and has no counterpart in MIL")
            self._values[value] = self._fitting(node, value, self._checked(node, value, results[place]))

    def _fitting(self, node: ir.Node, value: ir.Value, tensor: Tensor) -> Tensor:
        """Integers of a small type held to its range, where they can leave it."""
        if tensor.array is not None:
            self.ranges.bind(value, tensor.array)
            return tensor
        if node.op_type == "Shape":
            self.ranges.assume(value, Range(self._sizes(node)))
            return tensor
        kind = self.ranges.add(node, value, self._subject(node))
        return wrapped(self._builder, tensor, kind) if kind and tensor.dtype == "int32" else tensor

    def _sizes(self, node: ir.Node) -> Interval:
        """Between which numbers the results of a Shape lie."""
        x, most = node.inputs[0], SIZES[1]
        if x is None or x.shape is None:
            return 0.0, most
        told = [size if isinstance(size, int) else self._largest.get(str(size.value), most) for size in x.shape]
        first, last = node.attributes.get_int("start", 0), node.attributes.get_int("end", len(told))
        return 0.0, float(max(told[first:last], default=0))

    def _input(self, node: ir.Node, value: ir.Value) -> Tensor:
        tensor = self.value(value)
        if value.dtype is not None and tensor.array is not None and node.op_type not in _PLAIN:
            held(value.dtype.numpy().name if value.dtype != ir.DataType.STRING else "string")
        if tensor.array is None and tensor.dtype in ("int8", "uint8") and node.op_type not in _PLAIN:
            return self._builder.cast(tensor, "int32")
        return tensor

    def _checked(self, node: ir.Node, value: ir.Value, tensor: Tensor) -> Tensor:
        """Hold a handler's result against what ONNX says about it: a difference is our mistake, never shipped."""
        if value.dtype is None:
            return tensor
        name = "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name
        if tensor.dtype not in (held(name), name):
            raise Unsupported(f"lowered to {tensor.dtype} where ONNX says {name}: a handler's mistake")
        if value.shape is not None and not _agrees(value.shape, tensor):
            sizes = ["?" if size is None else size for size in tensor.shape]
            raise Unsupported(f"lowered to shape {sizes} where ONNX says {list(value.shape)}: a handler's mistake")
        if node.op_type in _BITS and name in ("uint32", "uint64"):
            raise Unsupported(f"the highest bits of {name}: Core ML's integers are int32")
        if 0 in tensor.shape and tensor.array is None:
            raise Unsupported("a result without elements: Core ML has no empty tensors")
        return tensor


def declared(value: ir.Value) -> tuple[str, tuple[int | str, ...]]:
    """The element type and sizes of an input of the model; ``Unsupported`` for one that Core ML cannot have."""
    if value.shape is None or value.dtype is None:
        raise Unsupported(f"input {value.name} has no known rank or element type")
    name = "string" if value.dtype == ir.DataType.STRING else value.dtype.numpy().name
    kind = held(name)
    if len(value.shape) > MOST_DIMENSIONS:
        raise Unsupported(f"{len(value.shape)} dimensions: Core ML's tensors have at most {MOST_DIMENSIONS}")
    return kind, tuple(size if isinstance(size, int) else str(size) for size in value.shape)


def _agrees(shape: ir.Shape, tensor: Tensor) -> bool:
    pairs = zip(shape, tensor.shape, strict=False)
    return len(shape) == tensor.rank and all(
        not isinstance(known, int) or have is None or known == have for known, have in pairs
    )


def _call(
    handler: Callable[..., object],
    builder: Builder,
    inputs: Sequence[Tensor | None],
    attributes: Mapping[str, object],
) -> tuple[Tensor, ...]:
    result = called(handler, builder, inputs, attributes)
    assert isinstance(result, Tensor | tuple), "a handler returns tensors"
    return (result,) if isinstance(result, Tensor) else result
