"""MXNet's fused RNN: layers and directions of LSTM, GRU and plain cells, their weights in one vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.converters.mxnet.attributes import Attributes
from convertkit.errors import SourceError

GATES: Mapping[str, int] = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}


@dataclass(frozen=True, slots=True)
class Cell:
    """Weights of one layer in one direction: (gates × hidden, inputs), (gates × hidden, hidden) and two biases."""

    inputs: Array
    hidden: Array
    input_bias: Array
    hidden_bias: Array


@dataclass(frozen=True, slots=True)
class Shape:
    """What the attributes say."""

    mode: str
    hidden: int
    layers: int
    directions: int
    states: bool


def shape_of(a: Attributes) -> Shape:
    """Refuses projections, clipped states and lengths."""
    a.refuse("projection_size", "None")
    a.refuse("use_sequence_length", "False", "0", "false")
    a.refuse("lstm_state_clip_min", "None")
    a.refuse("lstm_state_clip_max", "None")
    a.flag("lstm_state_clip_nan")
    a.real("p", 0.0)
    mode = a.word("mode", "")
    if mode not in GATES:
        raise SourceError(f"{a.title}: its mode is {mode!r}")
    directions = 2 if a.flag("bidirectional") else 1
    return Shape(mode, a.whole("state_size"), a.whole("num_layers"), directions, a.flag("state_outputs"))


def cells(shape: Shape, inputs: int, parameters: Array) -> list[list[Cell]]:
    """By layer and direction; first all weights lie in the vector, then all biases."""
    rows, at = GATES[shape.mode] * shape.hidden, 0
    weights, biases = [], []
    vector = parameters.reshape(-1)

    def taken(*sizes: int) -> Array:
        nonlocal at
        at += int(np.prod(sizes))
        if at > vector.size:
            raise SourceError(f"an RNN has {vector.size} weights, fewer than its sizes say")
        return np.asarray(vector[at - int(np.prod(sizes)) : at].reshape(sizes))

    for layer in range(shape.layers):
        width = inputs if layer == 0 else shape.hidden * shape.directions
        weights.append([(taken(rows, width), taken(rows, shape.hidden)) for _ in range(shape.directions)])
    for _ in range(shape.layers):
        biases.append([(taken(rows), taken(rows)) for _ in range(shape.directions)])
    if at != vector.size:
        raise SourceError(f"an RNN has {vector.size} weights, and its sizes say {at}")
    return [[Cell(*w, *b) for w, b in zip(ws, bs)] for ws, bs in zip(weights, biases)]


def _rnn(a: Attributes, x: Array, parameters: Array, state: Array, memory: Array | None = None) -> tuple[Array, ...]:
    shape = shape_of(a)
    stacked = cells(shape, x.shape[2], parameters)
    count = shape.layers * shape.directions
    states = [np.broadcast_to(each, (count, x.shape[1], shape.hidden)) for each in (state, memory) if each is not None]
    ends: list[list[Array]] = []
    for layer, both in enumerate(stacked):
        made = []
        for direction, cell in enumerate(both):
            begun = [each[layer * shape.directions + direction] for each in states]
            sequence = x[::-1] if direction else x
            outputs, last = _unrolled(shape.mode, cell, sequence, begun)
            made.append(outputs[::-1] if direction else outputs)
            ends.append(last)
        x = np.concatenate(made, -1)
    if not shape.states:
        return (x,)
    return (x, *(np.stack([end[place] for end in ends]) for place in range(len(states))))


def _unrolled(mode: str, cell: Cell, sequence: Array, begun: list[Array]) -> tuple[Array, list[Array]]:
    now, made = begun, []
    for x in sequence:
        now = _STEPS[mode](cell, x, now)
        made.append(now[0])
    return np.stack(made), now


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _lstm(c: Cell, x: Array, now: list[Array]) -> list[Array]:
    """Gates in the order input, forget, new, output."""
    gates = x @ c.inputs.T + c.input_bias + now[0] @ c.hidden.T + c.hidden_bias
    put, keep, new, out = np.split(gates, 4, -1)
    memory = _sigmoid(keep) * now[1] + _sigmoid(put) * np.tanh(new)
    return [_sigmoid(out) * np.tanh(memory), memory]


def _gru(c: Cell, x: Array, now: list[Array]) -> list[Array]:
    """Gates in the order reset, update, new; the reset gate acts on the product with its bias."""
    given = np.split(x @ c.inputs.T + c.input_bias, 3, -1)
    held = np.split(now[0] @ c.hidden.T + c.hidden_bias, 3, -1)
    reset, update = _sigmoid(given[0] + held[0]), _sigmoid(given[1] + held[1])
    return [(1 - update) * np.tanh(given[2] + reset * held[2]) + update * now[0]]


def _plain(bend: Callable[[Array], Array]) -> Callable[[Cell, Array, list[Array]], list[Array]]:
    def step(c: Cell, x: Array, now: list[Array]) -> list[Array]:
        return [bend(x @ c.inputs.T + c.input_bias + now[0] @ c.hidden.T + c.hidden_bias)]

    return step


_STEPS: Mapping[str, Callable[[Cell, Array, list[Array]], list[Array]]] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _plain(np.tanh),
    "rnn_relu": _plain(lambda x: np.maximum(x, 0)),
}
RECURRENT: Mapping[str, Callable[..., tuple[Array, ...]]] = {"RNN": _rnn}
