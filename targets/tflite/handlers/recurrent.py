"""LSTM, GRU and RNN: input products for all steps at once, then the steps one after the other.

Inside, sequences are (time, batch, features).  Each call starts from the given state (LiteRT's fused LSTM
would go on from the last call's).  Source of the equations: ONNX operators, LSTM-22, GRU-22, RNN-22.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import UnknownSize, Unsupported
from convertkit.kernel_costs import DenseShape
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.recurrent_nodes import Recurrent, gated, long_short_term, plain
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.elementary import constant_of, float_only, like
from convertkit.targets.tflite.handlers.gates import Activation, activations_of, clipped
from convertkit.targets.tflite.handlers.shapes import cut
from convertkit.targets.tflite.handlers.steps import Columns, Step, run_steps, zeros_for_each
from convertkit.targets.tflite.tensor import DYNAMIC, QuantParams, Tensor

recurrent = Registry()


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight (out, in): float, or int8 with a scale per row."""

    values: Array
    scales: tuple[float, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def rows(self, first: int, last: int) -> Matrix:
        """Some of the rows."""
        return Matrix(self.values[first:last], self.scales[first:last])


@dataclass(frozen=True, slots=True)
class Cell:
    """What the three operators have in common for one direction."""

    w: Matrix
    r: Matrix
    bias_w: Array
    bias_r: Array
    activations: tuple[Activation, ...]
    clip: float | None


MakeStep = Callable[[int, Cell], Step]


@recurrent.lowers("LSTM", since=(14, 22))
@long_short_term
def lstm(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, ...]:
    """Gates in the order input, output, forget, cell."""
    functions = _functions(node, ("Sigmoid", "Tanh", "Tanh"))
    peepholes = None if node.peepholes is None else constant_of(node.peepholes, "the peepholes")

    def step(number: int, cell: Cell) -> Step:
        peeps = None if peepholes is None else np.split(peepholes[number], 3)
        return lambda b, xs, state: _lstm_step(b, cell, xs, state, peeps, node.input_forget)

    return _run(b, node, _cells(node, 4, functions), step)


def _functions(node: Recurrent[Tensor], usual: Sequence[str]) -> list[tuple[Activation, ...]]:
    return activations_of(node.activations, node.alphas, node.betas, usual, node.direction)


def _lstm_step(
    b: Builder, cell: Cell, xs: Columns, state: Sequence[Tensor], peeps: list[Array] | None, coupled: bool
) -> tuple[Tensor, ...]:
    h, c = state
    f, g, out = cell.activations
    size = cell.r.shape[1]
    total = b.add(xs(0, 4 * size), _dense(b, h, cell.r, None))
    if peeps is None and not coupled:
        i, o, forget = _gates(b, f(b, clipped(b, _part(b, total, 0, 3 * size), cell.clip)), 3)
        c_new = b.add(b.mul(forget, c), b.mul(i, g(b, clipped(b, _part(b, total, 3 * size, 4 * size), cell.clip))))
        return b.mul(o, out(b, c_new)), c_new
    i_in, o_in, f_in, c_in = _gates(b, total, 4)
    if peeps is not None:
        i_in = b.add(i_in, b.mul(c, b.constant(peeps[0])))
        f_in = b.add(f_in, b.mul(c, b.constant(peeps[2])))
    i = f(b, clipped(b, i_in, cell.clip))
    forget = b.sub(like(b, i, 1), i) if coupled else f(b, clipped(b, f_in, cell.clip))
    candidate = g(b, clipped(b, c_in, cell.clip))
    c_new = b.add(b.mul(forget, c), b.mul(i, candidate))
    if peeps is not None:
        o_in = b.add(o_in, b.mul(c_new, b.constant(peeps[1])))
    o = f(b, clipped(b, o_in, cell.clip))
    return b.mul(o, out(b, c_new)), c_new


@recurrent.lowers("GRU", since=(14, 22))
@gated
def gru(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, ...]:
    """Gates in the order update, reset, hidden."""
    linear = node.linear_before_reset

    def step(_: int, cell: Cell) -> Step:
        return lambda b, xs, state: _gru_step(b, cell, xs, state, linear)

    cells = _cells(node, 3, _functions(node, ("Sigmoid", "Tanh")), split_last=linear)
    return _run(b, node, cells, step, (3,) if linear else (2, 1))


def _gru_step(b: Builder, cell: Cell, xs: Columns, state: Sequence[Tensor], linear: bool) -> tuple[Tensor, ...]:
    """Where the reset gate comes behind the product, all gates are one: the state is rounded once, not twice."""
    (h,) = state
    f, g = cell.activations
    size = cell.r.shape[1]
    product = _dense(b, h, cell.r, cell.bias_r) if linear else None
    first = _part(b, product, 0, 2 * size) if product else _dense(b, h, cell.r.rows(0, 2 * size), None)
    z, reset = _gates(b, f(b, clipped(b, b.add(xs(0, 2 * size), first), cell.clip)), 2)
    inner = (
        b.mul(reset, _part(b, product, 2 * size, 3 * size))
        if product
        else _dense(b, b.mul(reset, h), cell.r.rows(2 * size, 3 * size), None)
    )
    candidate = g(b, clipped(b, b.add(xs(2 * size, 3 * size), inner), cell.clip))
    return (b.add(candidate, b.mul(z, b.sub(h, candidate))),)


def _gates(b: Builder, x: Tensor, count: int) -> list[Tensor]:
    """Equal parts of the last axis."""
    size = x.shape[-1] // count
    return [_part(b, x, gate * size, (gate + 1) * size) for gate in range(count)]


def _part(b: Builder, x: Tensor, first: int, last: int) -> Tensor:
    return cut(b, x, [slice(None), slice(None), slice(first, last)])


@recurrent.lowers("RNN", since=(14, 22))
@plain
def rnn(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, ...]:
    """One function for each direction; the schema's own default names two."""
    named = replace(node, activations=(node.activations or ())[: node.directions])

    def step(_: int, cell: Cell) -> Step:
        def one(b: Builder, xs: Columns, state: Sequence[Tensor]) -> tuple[Tensor, ...]:
            total = b.add(xs(0, cell.r.shape[1]), _dense(b, state[0], cell.r, None))
            return (cell.activations[0](b, clipped(b, total, cell.clip)),)

        return one

    return _run(b, node, _cells(node, 1, _functions(named, ("Tanh",))), step)


def _cells(
    node: Recurrent[Tensor], gates: int, functions: Sequence[tuple[Activation, ...]], *, split_last: bool = False
) -> list[Cell]:
    """One cell for each direction; recurrent biases join the input's, but the last gate's where it is apart."""
    recurrence, weights = _matrices(node.r, "the recurrent weights"), _matrices(node.w, "the weights")
    hidden = recurrence[0].shape[1]
    both = np.zeros((len(weights), 2 * gates * hidden), np.float32)
    if node.bias is not None:
        both = constant_of(node.bias, "the bias").astype(np.float32)
    cells = []
    for number in range(len(weights)):
        bias_w, bias_r = (part.copy() for part in np.split(both[number], 2))
        joined = (gates - 1) * hidden if split_last else gates * hidden
        bias_w[:joined] += bias_r[:joined]
        bias_r[:joined] = 0
        cells.append(Cell(weights[number], recurrence[number], bias_w, bias_r, functions[number], node.clip))
    return cells


def _run(
    b: Builder, node: Recurrent[Tensor], cells: Sequence[Cell], make_step: MakeStep, parts: Sequence[int] = ()
) -> tuple[Tensor, ...]:
    """All directions; the results are Y, Y_h and for LSTM Y_c, in the layout that the node asks for.

    ``parts`` are the gates of each product of a step, where there are several.
    """
    float_only(node.x, "a recurrent operator")
    if node.x.rank != 3:
        raise Unsupported(f"an input of {node.x.rank} axes where ONNX has three: no input of these sizes fits here")
    x = b.transpose(node.x, (1, 0, 2)) if node.layout else node.x
    x = _with_features(b, x, cells[0].w.shape[1])
    batch, hidden = x.shape[1], cells[0].r.shape[1]
    names = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if node.direction not in names:
        raise Unsupported(f"direction {node.direction}")
    sequences, finals = [], []
    for number, backwards in enumerate(names[node.direction]):
        states = tuple(_initial(b, x, state, number, hidden, node.layout) for state in node.states)
        read = _turned(b, x, node.lengths) if backwards else x
        inner = _input_products(b, read, cells[number])
        weight_bytes = _bytes(b, cells[number], batch, parts)
        outputs, last = run_steps(b, inner, states, node.lengths, make_step(number, cells[number]), weight_bytes)
        sequences.append(_turned(b, outputs, node.lengths) if backwards else outputs)
        finals.append(last)
    y = b.concatenation([_with_way(b, part) for part in sequences], 1)
    lasts = [
        b.concatenation([b.reshape(last[place], (1, batch, hidden)) for last in finals], 0)
        for place in range(len(node.states))
    ]
    if node.layout:
        y, lasts = b.transpose(y, (2, 0, 1, 3)), [b.transpose(last, (1, 0, 2)) for last in lasts]
    return (y, *lasts)


def _with_features(b: Builder, x: Tensor, features: int) -> Tensor:
    """``x`` (time, batch, features) with the number of features that the weights have, where it says none itself."""
    steps, batch, known = x.shape
    if known != DYNAMIC:
        return x
    if DYNAMIC in (steps, batch) and steps == batch:
        raise UnknownSize("a recurrent operator over steps, samples and features that are only known at run time")
    return b.reshape(x, (steps, batch, features))


def _with_way(b: Builder, x: Tensor) -> Tensor:
    """(time, batch, hidden) as (time, 1, batch, hidden)."""
    steps, batch, hidden = x.shape
    return b.expand_dims(x, 1) if steps == DYNAMIC else b.reshape(x, (steps, 1, batch, hidden))


def _initial(b: Builder, x: Tensor, state: Tensor | None, number: int, hidden: int, layout: int) -> Tensor:
    """One direction's start state (batch, hidden); zeros where none is given."""
    if state is None:
        return zeros_for_each(b, x, hidden)
    by_direction = b.transpose(state, (1, 0, 2)) if layout else state
    part = cut(b, by_direction, [slice(number, number + 1), slice(None), slice(None)])
    return b.reshape(part, (x.shape[1], hidden))


def _turned(b: Builder, x: Tensor, lengths: Tensor | None) -> Tensor:
    """Each sequence of (time, batch, features) backwards."""
    if lengths is None:
        return b.reverse(x, (0,))
    return b.reverse_sequence(x, b.cast(lengths, "int32"), seq_dim=0, batch_dim=1)


def _input_products(b: Builder, x: Tensor, cell: Cell) -> Tensor:
    """``x @ w.T + bias`` for all steps."""
    steps, batch, features = x.shape
    if steps == DYNAMIC:
        return _dense(b, x, cell.w, cell.bias_w)
    total = DYNAMIC if batch == DYNAMIC else steps * batch
    rows = _dense(b, b.reshape(x, (total, features)), cell.w, cell.bias_w)
    return b.reshape(rows, (steps, batch, cell.w.shape[0]))


def _matrices(weight: Tensor, what: str) -> list[Matrix]:
    """One matrix for each direction."""
    values, params = constant_of(weight, what), weight.quantization
    if params is None:
        return [Matrix(each) for each in values]
    rows = values.shape[1]
    scales = params.scale if len(params.scale) == rows else params.scale * rows
    return [Matrix(each, scales) for each in values]


def _dense(b: Builder, x: Tensor, weight: Matrix, bias: Array | None) -> Tensor:
    """``x @ weight.T + bias``; integers whose kernel saves nothing are made real instead, when the model is loaded."""
    params = QuantParams(weight.scales, (0,) * len(weight.scales), 0) if weight.scales else None
    stored = b.constant(weight.values, params)
    if params is not None and not _is_worth_rounding(b, x.shape, weight.shape):
        stored = b.dequantize(stored)
    return b.fully_connected(x, stored, b.constant(bias) if bias is not None and bias.any() else None)


def _is_worth_rounding(b: Builder, read: Sequence[int], weight: tuple[int, ...]) -> bool:
    """Whether the devices quantize rows in less time than int8 weights save; a dynamic number of rows is one."""
    if b.program.kernel_costs is None:
        return True
    filters, channels = weight
    rows = math.prod(size for size in read[:-1] if size != DYNAMIC)
    return b.program.kernel_costs.gain_on_the_fly(DenseShape(rows, channels, filters)) > 0


def _bytes(b: Builder, cell: Cell, batch: int, parts: Sequence[int]) -> float:
    """Of the weights that a step reads."""
    filters, hidden = cell.r.shape
    shapes = [(part * hidden, hidden) for part in parts] or [(filters, hidden)]
    stored = bool(cell.r.scales)
    return sum(
        math.prod(shape) * (1 if stored and _is_worth_rounding(b, (1, batch, hidden), shape) else 4) for shape in shapes
    )
