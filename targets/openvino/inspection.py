"""The operators of an IR, and what the CPU plugin makes of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from convertkit.operators import Operator
from convertkit.targets.openvino.ir import nodes_of
from convertkit.targets.openvino.runtime import EXACT, compiled, read_ir

_PORTS = frozenset({"Parameter", "Result", "Constant"})
_SCALING = frozenset({"Multiply", "Subtract", "Reshape", "Transpose", "Unsqueeze", "Squeeze"})
_INTEGERS: Mapping[str, str] = {"i8": "int8", "u8": "int8", "i4": "int4", "u4": "int4", "i16": "int16", "u16": "int16"}
_FLOATS: Mapping[str, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}
_KERNELS = frozenset({"Convolution", "FullyConnected", "MatMul", "Deconvolution", "Pooling", "Eltwise", "Reduce"})

Shape = tuple[int, ...]


def operators(path: Path) -> tuple[Operator, ...]:
    """Every node of the IR and of its bodies that computes; conversions of constants count as such."""
    return tuple(_operator(node) for node in nodes_of(read_ir(path)) if node.get_type_name() not in _PORTS)


def kernels(path: Path) -> dict[str, int]:
    """How many kernels of which precision the CPU plugin takes here, as in ``Convolution u8``."""
    found = Counter[str]()
    for node in compiled(path, EXACT).get_runtime_model().get_ordered_ops():
        about = node.get_rt_info()
        kind = about["layerType"].astype(str)
        if kind in _KERNELS:
            found[f"{kind} {about['runtimePrecision'].astype(str)}"] += 1
    return dict(sorted(found.items()))


def _operator(node: Any) -> Operator:
    kind = node.get_type_name()
    inputs = [port.get_source_output() for port in node.inputs()]
    constants = [value for value in inputs if _is_constant(value)]
    count = _PRODUCTS.get(kind)
    return Operator(
        name=node.get_friendly_name(),
        kind=kind,
        precision=_precision(kind, node, inputs),
        weight_bytes=sum(_bytes(value) for value in constants),
        macs=0 if count is None else count([_shape(value) for value in inputs], _shape(node.output(0)), node),
    )


def _precision(kind: str, node: Any, inputs: list[Any]) -> str:
    if kind == "Convert":
        return _of_conversion(node, inputs[0])
    real = [value for value in inputs if _type(value) in _FLOATS]
    made = [_type(output) for output in node.outputs()]
    if not real and not any(each in _FLOATS for each in made):
        return ""
    origins = [(value, *_origin(value)) for value in real if not _is_small(value)]
    flowing = [kept for _, kept, constant in origins if not constant]
    stored = [kept for _, kept, constant in origins if constant]
    if kind in _PRODUCTS and flowing and all(flowing) and all(stored):
        return "int8"
    if weights := [kept for kept in stored if kept]:
        return f"{min(weights)} weights"
    return next((_FLOATS[each] for each in made if each in _FLOATS), "float32")


def _of_conversion(node: Any, value: Any) -> str:
    """Of a constant: what it is stored as; else what it makes of what it reads."""
    before = _type(value)
    if _is_constant(value):
        kept = _INTEGERS.get(before) or ("float16" if before == "f16" else "")
        return f"{kept} weights" if kept else _FLOATS.get(before, "")
    return _FLOATS.get(_type(node.output(0)), "") or _FLOATS.get(before, "")


def _origin(value: Any) -> tuple[str, bool]:
    """The integers that a float value is made of, if any, and whether they are constants."""
    node = value.get_node()
    while node.get_type_name() in _SCALING:
        node = node.input_value(0).get_node()
    if node.get_type_name() != "Convert":
        return "", node.get_type_name() == "Constant"
    source = node.input_value(0)
    return _INTEGERS.get(_type(source), ""), _is_constant(source)


def _is_constant(value: Any) -> bool:
    return bool(value.get_node().get_type_name() == "Constant")


def _is_small(value: Any) -> bool:
    """A constant of one number, such as a limit."""
    return _is_constant(value) and math.prod(_shape(value)) <= 1


def _type(value: Any) -> str:
    return str(value.get_element_type().get_type_name())


def _bytes(value: Any) -> int:
    return int(math.prod(_shape(value)) * value.get_element_type().bitwidth + 7) // 8


def _shape(value: Any) -> Shape:
    """Sizes, 1 for what is dynamic; empty where the rank is not known."""
    shape = value.get_partial_shape()
    if shape.rank.is_dynamic:
        return ()
    return tuple(1 if dim.is_dynamic else dim.get_length() for dim in shape)


def _convolution(inputs: list[Shape], output: Shape, _: Any) -> int:
    return math.prod(output) * math.prod(inputs[1][1:])


def _grouped(inputs: list[Shape], output: Shape, _: Any) -> int:
    return math.prod(output) * math.prod(inputs[1][2:])


def _transposed(inputs: list[Shape], _: Shape, __: Any) -> int:
    return math.prod(inputs[0]) * math.prod(inputs[1][1:])


def _transposed_groups(inputs: list[Shape], _: Shape, __: Any) -> int:
    return math.prod(inputs[0]) * math.prod(inputs[1][2:])


def _product(inputs: list[Shape], output: Shape, node: Any) -> int:
    data, turned = inputs[0], node.get_attributes().get("transpose_a", False)
    depth = 1 if not data else data[-2] if turned and len(data) > 1 else data[-1]
    return math.prod(output) * depth


def _recurrent(inputs: list[Shape], _: Shape, __: Any) -> int:
    """Every matrix once a step; W and R stand before the bias, which comes last."""
    return math.prod(inputs[0][:2]) * sum(math.prod(shape) for shape in inputs[-3:-1])


_PRODUCTS: Mapping[str, Callable[[list[Shape], Shape, Any], int]] = {
    "Convolution": _convolution,
    "GroupConvolution": _grouped,
    "ConvolutionBackpropData": _transposed,
    "GroupConvolutionBackpropData": _transposed_groups,
    "MatMul": _product,
    "LSTMSequence": _recurrent,
    "GRUSequence": _recurrent,
    "RNNSequence": _recurrent,
}
