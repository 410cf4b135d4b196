"""LSTM, GRU and RNN, step by step.

LiteRT's fused LSTM keeps its state from call to call while ONNX's starts afresh, so it is not used.
The input's share of the gates is one large product over all steps; short sequences are unrolled, long
ones and those of unknown length run in a WHILE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.cells import Activation, Cell, Gru, Lstm, Rnn, activation
from convertkit.targets.tflite.handlers.timeloop import unrolled, while_loop
from convertkit.targets.tflite.tensor import DYNAMIC, Tensor

recurrent = Registry()

_UNROLLED_STEPS = 128

MakeCell = Callable[["Direction"], Cell]


@dataclass(frozen=True, slots=True)
class Direction:
    """The weights of one direction and its activations."""

    recurrent: Tensor
    input_bias: Tensor | None
    recurrent_bias: Tensor | None
    peepholes: Tensor | None
    activations: tuple[Activation, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """The attributes and inputs that the three operators share."""

    direction: str
    layout: int
    lengths: Tensor | None
    initial: tuple[Tensor | None, ...]


@recurrent.lowers("LSTM", since=(14, 22))
def lstm(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    functions = _activations(direction, activations, ("Sigmoid", "Tanh", "Tanh"), activation_alpha, activation_beta)
    directions = _directions(b, r, bias, peepholes, functions, 4)
    cells = [
        Lstm(r.shape[2], each.recurrent, each.activations, clip, each.peepholes, bool(input_forget))
        for each in directions
    ]
    biases = [_sum(b, each.input_bias, each.recurrent_bias) for each in directions]
    return _run(b, x, w, biases, cells, Layer(direction, layout, lengths, (initial_h, initial_c)))


@recurrent.lowers("GRU", since=(14, 22))
def gru(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    functions = _activations(direction, activations, ("Sigmoid", "Tanh"), activation_alpha, activation_beta)
    directions = _directions(b, r, bias, None, functions, 3)
    hidden, after = r.shape[2], bool(linear_before_reset)
    cells, biases = [], []
    for each in directions:
        gates, apart = each.recurrent_bias, None
        if after and gates is not None:
            apart = b.slice(gates, (2 * hidden,), (hidden,))
            gates = b.concatenation([b.slice(gates, (0,), (2 * hidden,)), b.constant(np.zeros(hidden, np.float32))], 0)
        cells.append(Gru(hidden, each.recurrent, each.activations, clip, apart, after))
        biases.append(_sum(b, each.input_bias, gates))
    return _run(b, x, w, biases, cells, Layer(direction, layout, lengths, (initial_h,)))


@recurrent.lowers("RNN", since=(14, 22))
def rnn(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    functions = _activations(direction, activations, ("Tanh",), activation_alpha, activation_beta)
    directions = _directions(b, r, bias, None, functions, 1)
    cells = [Rnn(r.shape[2], each.recurrent, each.activations, clip) for each in directions]
    biases = [_sum(b, each.input_bias, each.recurrent_bias) for each in directions]
    return _run(b, x, w, biases, cells, Layer(direction, layout, lengths, (initial_h,)))


def _run(
    b: Builder, x: Tensor, w: Tensor, biases: Sequence[Tensor | None], cells: Sequence[Cell], layer: Layer
) -> tuple[Tensor, ...]:
    """All directions over the whole sequence: Y and the last states, in the layer's layout."""
    if x.dtype != "float32":
        raise Unsupported(f"{x.dtype} sequences")
    if layer.layout:
        x = b.transpose(x, (1, 0, 2))
    weights = b.split_constant(w, 0, len(cells))
    outputs, lasts = [], []
    for place, (cell, bias) in enumerate(zip(cells, biases, strict=True)):
        backwards = layer.direction == "reverse" or place == 1
        gates, inside = w.shape[1], w.shape[2]
        projected = b.fully_connected(x, b.reshape(weights[place], (gates, inside)), bias)
        state = tuple(_start(b, each, place, layer.layout) for each in layer.initial)
        y, last = _over_time(b, cell, projected, state, layer.lengths, backwards)
        outputs.append(y)
        lasts.append(last)
    finals = [b.pack([last[part] for last in lasts], 0) for part in range(len(layer.initial))]
    y = b.pack(outputs, 1)
    if layer.layout:
        y = b.transpose(y, (2, 0, 1, 3))
        finals = [b.transpose(each, (1, 0, 2)) for each in finals]
    return (y, *finals)


def _over_time(
    b: Builder,
    cell: Cell,
    projected: Tensor,
    state: tuple[Tensor | None, ...],
    lengths: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs of every step, (time, batch, hidden), and the state after the last one."""
    if backwards:
        projected = _reversed(b, projected, lengths)
    steps = projected.shape[0]
    if steps != DYNAMIC and steps <= _UNROLLED_STEPS:
        y, last = unrolled(b, cell, projected, state, lengths)
    else:
        y, last = while_loop(b, cell, projected, state, lengths)
    return (_reversed(b, y, lengths) if backwards else y), last


def _reversed(b: Builder, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence backwards; what lies beyond its length stays."""
    if lengths is None:
        return b.reverse(x, (0,))
    return b.reverse_sequence(x, b.cast(lengths, "int32"), seq_dim=0, batch_dim=1)


def _start(b: Builder, initial: Tensor | None, place: int, layout: int) -> Tensor | None:
    """One direction's start state, (batch, hidden); zeros count as none."""
    if initial is None or (initial.constant is not None and not initial.constant.any()):
        return None
    if layout:
        initial = b.transpose(initial, (1, 0, 2))
    begin = (place, 0, 0)
    part = b.slice(initial, begin, (1, *(DYNAMIC if size == DYNAMIC else size for size in initial.shape[1:])))
    return b.squeeze(part, (0,))


def _directions(
    b: Builder,
    r: Tensor,
    bias: Tensor | None,
    peepholes: Tensor | None,
    functions: Sequence[tuple[Activation, ...]],
    gates: int,
) -> list[Direction]:
    count, width, hidden = r.shape
    result = []
    for place, (weights, own) in enumerate(zip(b.split_constant(r, 0, count), functions, strict=True)):
        biases: list[Tensor | None] = [None, None]
        if bias is not None:
            row = b.reshape(b.split_constant(bias, 0, count)[place], (2 * width,))
            biases = [b.slice(row, (0,), (width,)), b.slice(row, (width,), (width,))]
        p = None if peepholes is None else b.reshape(b.split_constant(peepholes, 0, count)[place], (3 * hidden,))
        result.append(Direction(b.reshape(weights, (width, hidden)), biases[0], biases[1], p, own))
    return result


def _sum(b: Builder, first: Tensor | None, second: Tensor | None) -> Tensor | None:
    if first is None or second is None:
        return first or second
    if first.constant is not None and second.constant is not None:
        return b.constant(first.constant + second.constant)
    return b.add(first, second)


def _activations(
    direction: str,
    names: tuple[str, ...] | None,
    defaults: tuple[str, ...],
    alphas: tuple[float, ...] | None,
    betas: tuple[float, ...] | None,
) -> list[tuple[Activation, ...]]:
    """The functions of each direction; factors are given in order, for those that take them."""
    count = 2 if direction == "bidirectional" else 1
    names = (names or defaults * count)[: len(defaults) * count]
    more_alphas, more_betas = list(alphas or ()), list(betas or ())
    functions = []
    for name in names:
        takes_alpha = name.lower() in ("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu")
        takes_beta = name.lower() in ("affine", "scaledtanh", "hardsigmoid")
        alpha = more_alphas.pop(0) if takes_alpha and more_alphas else None
        beta = more_betas.pop(0) if takes_beta and more_betas else None
        functions.append(activation(name, alpha, beta))
    width = len(defaults)
    return [tuple(functions[place * width : (place + 1) * width]) for place in range(count)]
