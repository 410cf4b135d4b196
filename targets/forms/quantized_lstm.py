"""ONNX Runtime's DynamicQuantizeLSTM as a Scan whose turns multiply integers as it does.

Inputs of all turns are quantized together, the hidden state of each turn by itself, both by the rule of
DynamicQuantizeLinear.  Source: ONNX Runtime, ``DynamicQuantizeLSTM`` and ``rnn_helpers``, in one thread; with more it
cuts a batch into parts, each with a scale of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.fusion import Fusion, replace_node

_DOMAIN, _NAME = "com.microsoft", "DynamicQuantizeLSTM"
_GATES = ("Sigmoid", "Tanh", "Tanh")
_FLOAT = (ir.AttrInt64("to", int(ir.DataType.FLOAT)),)


def expand_quantized_lstms(model: ir.Model) -> None:
    """Replace all of them, in place; ``Unsupported`` names what of one has no counterpart."""
    found = [node for node in model.graph if node.domain == _DOMAIN and node.op_type == _NAME]
    for node in found:
        replace_node(model, model.graph, node, _scanned)


def _scanned(f: Fusion) -> Sequence[ir.Value | None]:
    """Y (turns, directions, batch, hidden), and the last hidden and cell state (directions, batch, hidden)."""
    _refuse(f)
    ways = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}[
        f.node.attributes.get_string("direction", "forward")
    ]
    done = [_one_way(f, place, way) for place, way in enumerate(ways)]
    joined = (_joined(f, list(values), 1 if kind == 0 else 0) for kind, values in enumerate(zip(*done, strict=True)))
    return list(joined)


def _refuse(f: Fusion) -> None:
    activations = f.node.attributes.get_strings("activations", ())
    if any(name not in _GATES for name in activations) or list(activations) != list(_GATES) * (len(activations) // 3):
        raise Unsupported(f"activations {list(activations)}", subject=f.title)
    for name in ("clip", "input_forget"):
        if name in f.node.attributes and f.node.attributes[name].value:
            raise Unsupported(f"{name} is set", subject=f.title)
    for place, what in ((4, "sequence lengths"), (7, "peephole weights")):
        if f.given(place) is not None:
            raise Unsupported(f"{what} are given", subject=f.title)


def _one_way(f: Fusion, place: int, backward: int) -> tuple[ir.Value, ir.Value, ir.Value]:
    """One direction: what each turn gives (turns, 1, batch, hidden), and both states (1, batch, hidden)."""
    hidden = f.constant(2).shape[1]
    both = np.zeros(8 * hidden, np.float32) if f.given(3) is None else f.constant(3)[place]
    bias = (both[: 4 * hidden] + both[4 * hidden :]).astype(np.float32)
    given = f.op("Add", _product(f, f.input(0), _weight(f, 1, 8, place)), f.tensor(bias))
    begun = [_state(f, given, number, place, hidden) for number in (5, 6)]
    body = _body(f"{f.node.name or _NAME}/{place}", _weight(f, 2, 10, place), hidden)
    attributes = [
        ir.AttrGraph("body", body), ir.AttrInt64("num_scan_inputs", 1),
        ir.AttrInt64s("scan_input_directions", [backward]), ir.AttrInt64s("scan_output_directions", [backward]),
    ]  # fmt: skip
    state, cell, turns = f.ops("Scan", *begun, given, attributes=attributes, count=3)
    return (
        f.op("Unsqueeze", turns, f.ints(1)),
        f.op("Unsqueeze", state, f.ints(0)),
        f.op("Unsqueeze", cell, f.ints(0)),
    )


_Weight = tuple[Array, Array, Array]
"""Integers (inputs, 4 × hidden), their scale and their zero point."""


def _weight(f: Fusion, place: int, scale: int, way: int) -> _Weight:
    return f.constant(place)[way], f.constant(scale)[way], f.constant(scale + 1)[way]


def _product(f: Fusion, x: ir.Value, weight: _Weight) -> ir.Value:
    """``x`` as integers times the weight, as float32."""
    integers, scale, zero = f.ops("DynamicQuantizeLinear", x, count=3)
    constants = [f.tensor(np.asarray(each)) for each in weight]
    whole = f.op("MatMulInteger", integers, constants[0], zero, constants[2])
    return f.op("Mul", f.op("Cast", whole, attributes=_FLOAT), f.op("Mul", scale, constants[1]))


def _state(f: Fusion, given: ir.Value, number: int, way: int, hidden: int) -> ir.Value:
    """(batch, hidden): what is given, or zeros."""
    first = f.given(number)
    if first is not None:
        return f.op("Gather", first, f.scalar(way), attributes=[ir.AttrInt64("axis", 0)])
    batch = f.op("Gather", f.op("Shape", given), f.ints(1), attributes=[ir.AttrInt64("axis", 0)])
    sizes = f.op("Concat", batch, f.ints(hidden), attributes=[ir.AttrInt64("axis", 0)])
    return f.op("Expand", f.tensor(np.zeros((1, 1), np.float32)), sizes)


def _body(title: str, weight: _Weight, hidden: int) -> ir.Graph:
    """One turn: hidden and cell state and the gates' sums in; both states and the hidden state again out."""
    inner = Fusion(ir.node("Scan", [], name=title))
    kinds = {"state": hidden, "cell": hidden, "sums": 4 * hidden}
    state, cell, sums = (
        ir.Value(name=f"{title}/{name}", shape=ir.Shape([None, size]), type=ir.TensorType(ir.DataType.FLOAT))
        for name, size in kinds.items()
    )
    gates = inner.op("Add", sums, _product(inner, state, weight))
    sizes = inner.ints(*[hidden] * 4)
    into, out, keep, new = inner.ops("Split", gates, sizes, attributes=[ir.AttrInt64("axis", -1)], count=4)
    kept = inner.op("Mul", inner.op("Sigmoid", keep), cell)
    cell_after = inner.op("Add", kept, inner.op("Mul", inner.op("Sigmoid", into), inner.op("Tanh", new)))
    state_after = inner.op("Mul", inner.op("Sigmoid", out), inner.op("Tanh", cell_after))
    turn = inner.op("Identity", state_after)
    for value in (state_after, cell_after, turn):
        value.type, value.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([None, hidden])
    for node in inner.nodes:
        for place, made in enumerate(node.outputs):
            made.name = f"{node.name}_{place}"
    return ir.Graph([state, cell, sums], [state_after, cell_after, turn], nodes=inner.nodes, name="turn")


def _joined(f: Fusion, values: list[ir.Value], axis: int) -> ir.Value:
    return values[0] if len(values) == 1 else f.op("Concat", *values, attributes=[ir.AttrInt64("axis", axis)])
