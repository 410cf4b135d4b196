"""MXNet's fused RNN as ONNX's LSTM, GRU and RNN, one node for each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.converters.mxnet.evaluate.recurrent import GATES, Cell, Shape, cells, shape_of
from convertkit.converters.mxnet.lower.site import Site

_ORDERS: Mapping[str, tuple[int, ...]] = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""MXNet's gates in the order that ONNX has them in."""


def _rnn(s: Site) -> list[ir.Value]:
    shape, parameters = shape_of(s.attributes), s.constants[1]
    if parameters is None:
        raise s.refused("weights that are computed at run time")
    x, count = s.values[0], shape.layers * shape.directions
    states = [_spread(s, place, count) for place in range(2, len(s.values))]
    ends: list[list[ir.Value]] = []
    for layer, both in enumerate(cells(shape, s.shapes[0][2], parameters)):
        begun = [_rows(s, state, layer * shape.directions, shape.directions) for state in states]
        y, *last = _layer(s, shape, both, x, begun, layer)
        ends.append(last)
        x = s.op("Reshape", s.op("Transpose", y, perm=[0, 2, 1, 3]), s.tape.ints(0, 0, -1))
    if not shape.states:
        return [x]
    return [x, *(s.op("Concat", *(end[place] for end in ends), axis=0) for place in range(len(states)))]


def _spread(s: Site, place: int, count: int) -> ir.Value | None:
    """A state of (layers × directions, batch, hidden); None for zeros, of which MXNet finds the batch out."""
    constant = s.constants[place]
    if constant is not None and not constant.any():
        return None
    if s.shapes[place][0] != count:
        raise s.refused(f"a state of {s.shapes[place][0]} rows for {count} layers and directions")
    return s.values[place]


def _rows(s: Site, state: ir.Value | None, first: int, count: int) -> ir.Value | None:
    if state is None:
        return None
    return s.op("Slice", state, s.tape.ints(first), s.tape.ints(first + count), s.tape.ints(0))


def _layer(
    s: Site, shape: Shape, both: list[Cell], x: ir.Value, begun: list[ir.Value | None], layer: int
) -> list[ir.Value]:
    """All outputs (places, directions, batch, hidden), and the last state or states."""
    order, name = _ORDERS[shape.mode], f"{s.tape.place}/{layer}"
    weights = {
        "inputs": [_ordered(cell.inputs, order) for cell in both],
        "hidden": [_ordered(cell.hidden, order) for cell in both],
        "bias": [np.concatenate([_ordered(each, order) for each in (c.input_bias, c.hidden_bias)]) for c in both],
    }
    stored = [s.tape.weight(np.stack(each).astype(np.float32), f"{name}/{key}") for key, each in weights.items()]
    kind = {"lstm": "LSTM", "gru": "GRU"}.get(shape.mode, "RNN")
    attributes: dict[str, int | str] = {"hidden_size": shape.hidden}
    attributes["direction"] = "bidirectional" if shape.directions == 2 else "forward"
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    operands: list[ir.Value | None] = [x, *stored, None, *begun]
    while operands[-1] is None:
        operands.pop()
    bends = {"rnn_relu": "Relu", "rnn_tanh": "Tanh"}
    more = [bends[shape.mode]] * shape.directions if shape.mode in bends else []
    return list(s.tape.recurrent(kind, operands, attributes, more, 3 if kind == "LSTM" else 2))


def _ordered(weight: Array, order: tuple[int, ...]) -> Array:
    parts = np.split(weight, len(order))
    return np.concatenate([parts[place] for place in order])


assert set(_ORDERS) == set(GATES), "every mode has an order"
RECURRENT: Mapping[str, Callable[[Site], list[ir.Value]]] = {"RNN": _rnn}
