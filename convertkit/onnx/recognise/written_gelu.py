"""GELU as exporters write it: five to nine operators that runtimes fuse into one, as long as none of them is quantized.

x → Div(√2) → Erf → Add(1) → Mul(x) → Mul(0.5), or with Tanh(√(2/π) (x + 0.044715 x³)) in place of the error function.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from convertkit.onnx.edit import array_of, only_reader

_BEFORE = frozenset({"Add", "Div", "Mul", "Pow"})
_MOST_BEFORE = 6
_MOST_BEHIND = 3


def gelu_nodes(graph: ir.Graph) -> frozenset[ir.Node]:
    """The nodes of every GELU in the graph."""
    found: set[ir.Node] = set()
    for node in graph:
        if node.op_type in ("Erf", "Tanh") and not node.domain:
            behind = tuple(_behind(node))
            if len(behind) > 1:
                found |= {node, *_before(node), *behind}
    return frozenset(found)


def _behind(node: ir.Node) -> Iterator[ir.Node]:
    """``Add(1)`` and the products behind it; nothing where no 1 is added."""
    after = only_reader(node.outputs[0])
    if after is None or after.op_type != "Add" or not any(_number(value) == 1.0 for value in after.inputs):
        return
    for _ in range(_MOST_BEHIND):
        yield after
        following = only_reader(after.outputs[0])
        if following is None or following.op_type != "Mul":
            return
        yield from _halves(following)
        after = following


def _halves(product: ir.Node) -> Iterator[ir.Node]:
    """``x * 0.5`` where it stands beside."""
    for value in product.inputs:
        maker = None if value is None else value.producer()
        if maker is not None and maker.op_type == "Mul" and any(_number(each) == 0.5 for each in maker.inputs):
            yield maker


def _before(node: ir.Node) -> Iterator[ir.Node]:
    """What is computed for ``node`` alone from x, which several read."""
    waiting, seen = [node], 0
    while waiting and seen < _MOST_BEFORE:
        for value in waiting.pop().inputs:
            maker = None if value is None else value.producer()
            if maker is None or maker.domain or maker.op_type not in _BEFORE or only_reader(maker.outputs[0]) is None:
                continue
            seen += 1
            waiting.append(maker)
            yield maker


def _number(value: ir.Value | None) -> float | None:
    array = array_of(value)
    return None if array is None or array.size != 1 else float(array.reshape(-1)[0])
