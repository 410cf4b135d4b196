"""Logarithms of equal elements that come out equal.

ONNX Runtime's float kernel takes most elements many at a time and the last ones one by one, in two ways that may be one
unit in the last place apart.  A deviation from a mean with next to no epsilon makes ±1 of that on silence, unless the
size of the tensor happens to fit.  In double the two are 1e-16 apart, which rounds to the same float.
Measured: ONNX Runtime 1.31, by ``tests/onnx/test_logarithms.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from convertkit.onnx.edit import inserted, is_float32, replaced
from convertkit.onnx.recognise.deviation import is_shifted

_TWO_WAYS = frozenset({"Log", "Sin", "Cos", "Softplus"})
"""Kernels that take the last elements in another way, and that exist for doubles."""
_KEEP_EQUAL = frozenset({
    "Add", "Cast", "Clip", "Concat", "Conv", "Div", "Flatten", "Gemm", "Identity", "MatMul", "Max", "Min", "Mul", "Neg",
    "Pad", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that make equal elements of equal ones, along the axes of a deviation behind them."""


def widen_logarithms(model: ir.Model) -> int:
    """Compute logarithms in double behind which a deviation is taken from one of the elements, in place; how many."""
    shifted = [node for node in model.graph.all_nodes() if node.op_type == "Sub" and is_shifted(node.outputs[0])]
    count = 0
    for node in shifted:
        for each in list(_functions(node.inputs[0])):
            _widen(each)
            count += 1
    return count


def _functions(value: ir.Value | None) -> Iterator[ir.Node]:
    """The functions of two ways that a value is made of by what keeps equal elements equal, each once."""
    open_, seen = [value], {value}
    while open_:
        current = open_.pop()
        node = None if current is None else current.producer()
        if node is None or node.domain:
            continue
        if node.op_type in _TWO_WAYS and is_float32(node.outputs[0]):
            yield node
        elif node.op_type in _KEEP_EQUAL:
            new = [each for each in node.inputs if each is not None and each not in seen]
            open_.extend(new)
            seen.update(new)


def _widen(node: ir.Node) -> None:
    x = node.inputs[0]
    assert x is not None
    wide = inserted(node, "Cast", [x], x, {"to": int(ir.DataType.DOUBLE)}).outputs[0]
    result = inserted(node, node.op_type, [wide], node.outputs[0]).outputs[0]
    wide.type = result.type = ir.TensorType(ir.DataType.DOUBLE)
    replaced(node, "Cast", [result], {"to": int(ir.DataType.FLOAT)})
