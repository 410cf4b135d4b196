"""The interface of an ONNX model as tensor specs."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import onnx_ir as ir

from convertkit.artifact import Dim, TensorSpec
from convertkit.errors import SourceError, Unsupported
from convertkit.onnx.ml.words import words_of


def interface(model: ir.Model) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs in the model's order; initializers that are listed as inputs do not count.

    Unnamed dynamic dimensions of inputs get a name of their own, ``<input>_<axis>``.
    """
    graph = model.graph
    inputs = tuple(_spec(value, "input") for value in graph.inputs if value.name not in graph.initializers)
    ranked = _ranked(graph)
    fixed = _fixed(graph)
    return inputs, tuple(
        replace(
            _spec(value, "output"),
            ranked=value in ranked,
            clamped=_is_clamped(value),
            discrete=_is_discrete(value),
            fixed=value in fixed or value.is_initializer(),
            classes=_classes(value) or len(words_of(value)) or None,
            labels=words_of(value),
        )
        for value in graph.outputs
    )


def dtype_name(dtype: ir.DataType) -> str:
    """NumPy's name of an ONNX element type (``string`` and the ml_dtypes names included)."""
    return "string" if dtype == ir.DataType.STRING else dtype.numpy().name


def _spec(value: ir.Value, role: str) -> TensorSpec:
    if value.name is None or value.dtype in (None, ir.DataType.UNDEFINED):
        raise SourceError(f"{role} {value.name or '(unnamed)'} of the model has no element type")
    if not isinstance(value.type, ir.TensorType):
        raise Unsupported(f"{role} {value.name} is {value.type}; only tensors can cross an artifact's interface")
    dims: tuple[Dim, ...] = ()
    if value.shape is not None:
        dims = tuple(_dim(dim, value.name, axis) for axis, dim in enumerate(value.shape))
    return TensorSpec(value.name, dims, dtype_name(ir.DataType(value.dtype)), lsb=_lsb(value))


_RANKS = frozenset({"TopK", "NonMaxSuppression"})


def _ranked(graph: ir.Graph) -> frozenset[ir.Value]:
    """The values that follow from a choice of the best candidates."""
    return following(graph, _RANKS)


def following(graph: ir.Graph, operators: Collection[str]) -> frozenset[ir.Value]:
    """The values that follow from what one of ``operators`` computes."""
    found: set[ir.Value] = set()
    for node in graph:
        follows = node.op_type in operators or any(value in found for value in node.inputs if value is not None)
        if follows or any(inner.op_type in operators for inner in _inside(node)):
            found.update(node.outputs)
    return frozenset(found)


def _inside(node: ir.Node) -> Iterator[ir.Node]:
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield from attribute.as_graph().all_nodes()


_READ_SIZES = frozenset({"Shape", "Size", "EyeLike"})
DRAW = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})
"""Operators that draw random numbers; a Dropout draws where it trains."""


_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Mul"})


def _fixed(graph: ir.Graph) -> frozenset[ir.Value]:
    """The values that no input's values reach: made of constants, of fixed sizes, and of products with zeros.

    The weights of a classifier that was not trained are often all zero.
    """
    found: set[ir.Value] = set()
    for node in graph:
        if node.op_type in DRAW or next(_inside(node), None) is not None:
            continue
        operands = [value for value in node.inputs if value is not None]
        known = all(value in found or value.is_initializer() for value in operands)
        if not known and not node.domain and node.op_type in _PRODUCTS and any(map(_is_zero, operands[:2])):
            known = all(value in found or value.is_initializer() for value in operands[2:])
        if known or (not node.domain and node.op_type in _READ_SIZES and all(map(_has_fixed_sizes, operands))):
            found.update(node.outputs)
    return frozenset(found)


def _is_zero(value: ir.Value) -> bool:
    """Whether a constant holds zeros alone; most hold another number first."""
    if not value.is_initializer() or value.const_value is None or not value.const_value.size:
        return False
    numbers = value.const_value.numpy().reshape(-1)
    return not numbers[:8].any() and not numbers.any()


def _has_fixed_sizes(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(dim, int) for dim in value.shape)


_CHOOSE = frozenset({"Hardmax", "OneHot", "Sign"})
_OF_CHOICES = frozenset({
    "Concat", "Expand", "Max", "Min", "Pad", "ReduceMax", "ReduceMin", "ScatterElements", "ScatterND", "Slice", "Tile",
    "Where",
})  # fmt: skip
"""Operators whose elements are some of their operands'."""


def _is_discrete(value: ir.Value) -> bool:
    node = _maker(value)
    if node is None or node.domain:
        return False
    dtype = node.inputs[0].dtype if node.inputs and node.inputs[0] is not None else None
    if node.op_type == "Cast":
        return dtype is not None and not ir.DataType(dtype).is_floating_point()
    if node.op_type not in _OF_CHOICES:
        return node.op_type in _CHOOSE
    floats = [each for each in node.inputs if each is not None and _is_float(each)]
    return bool(floats) and all(each.is_initializer() or _is_discrete(each) for each in floats)


def _is_float(value: ir.Value) -> bool:
    return value.dtype is None or ir.DataType(value.dtype).is_floating_point()


_CLAMPS = frozenset({"Clip", "Relu", "Min", "Max"})
_MOVES_DATA = frozenset({"Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Identity"})


def _maker(value: ir.Value) -> ir.Node | None:
    """The node that computes a value, seen through operators that only move data."""
    node = value.producer()
    while node is not None and node.op_type in _MOVES_DATA and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


_PLACES = {"ArgMax": 0, "ArgMin": 0, "TopK": 1}
"""Which output of an operator says places, along an axis."""


def _classes(value: ir.Value) -> int | None:
    """How many elements there are along the axis whose places a value tells.

    Some of the places are places still, and so are they beside constants, as zeros stand behind the last detection.
    """
    node = value.producer()
    if node is None or node.domain or not node.inputs or node.inputs[0] is None:
        return None
    if node.op_type in _MOVES_DATA | {"Cast", "Gather", "GatherElements"}:
        return _classes(node.inputs[0])
    if node.op_type == "Where":
        told = [each for each in node.inputs[1:] if each is not None and not each.is_initializer()]
        return _classes(told[0]) if len(told) == 1 else None
    if node.op_type == "Div":
        return _classes_in_rows(node)
    if value.index() != _PLACES.get(node.op_type):
        return None
    shape = node.inputs[0].shape
    axis = node.attributes.get_int("axis", -1 if node.op_type == "TopK" else 0)
    size = None if shape is None else shape[axis]
    return size if isinstance(size, int) else None


def _classes_in_rows(node: ir.Node) -> int | None:
    """Of places among classes times candidates, over the number of candidates."""
    first, second = node.inputs[:2]
    divisor = None if second is None else second.const_value
    size = None if first is None else _classes(first)
    if size is None or divisor is None or divisor.size != 1 or int(divisor.numpy().item()) < 1:
        return None
    return -(-size // int(divisor.numpy().item()))


def _is_clamped(value: ir.Value) -> bool:
    node = _maker(value)
    return node is not None and not node.domain and node.op_type in _CLAMPS


def _lsb(value: ir.Value) -> float | None:
    """The scale of the DequantizeLinear that makes an output."""
    node = _maker(value)
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[1] is None:
        return None
    scale = node.inputs[1].const_value
    return float(scale.numpy().item()) if scale is not None and scale.size == 1 else None


def _dim(dim: int | ir.SymbolicDim, name: str, axis: int) -> Dim:
    if isinstance(dim, int):
        return dim
    return dim.value if isinstance(dim.value, str) and dim.value else f"{name}_{axis}"
