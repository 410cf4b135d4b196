"""ONNX recurrent layers: MIL's ``lstm`` and ``rnn`` where they compute the same, else step by step.

ONNX's gates are input, output, forget, cell; MIL's are input, forget, output, cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.coreml.builder import Builder
from convertkit.targets.coreml.handlers.operands import known
from convertkit.targets.coreml.tensor import Tensor, constant
from convertkit.targets.forms.recurrences import USUAL
from convertkit.targets.forms.recurrent_nodes import Recurrent, gated, long_short_term, plain

recurrent = Registry()

_MOST_STEPS = 512
"""Of a sequence that is lowered step by step: each takes some ten operations."""
_PLAIN = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu", "softsign": "softsign", "softplus": "softplus"}


@dataclass(frozen=True, slots=True)
class Layer:
    """What the three layers share: x (steps, batch, features), weights by direction, sizes."""

    x: Tensor
    w: Array
    r: Array
    bias: Array
    hidden: int
    ways: tuple[bool, ...]
    """For each direction, whether it runs backwards."""

    @property
    def steps(self) -> int:
        """The length of the sequence."""
        return self.x.size(0)


def _layer(b: Builder, node: Recurrent[Tensor]) -> Layer:
    x, lengths, layout = node.x, node.lengths, node.layout
    if lengths is not None and not (lengths.array is not None and (lengths.array == x.shape[1 if layout else 0]).all()):
        raise Unsupported("sequences of different lengths")
    weights, recurrence = known(node.w, "weights"), known(node.r, "weights")
    hidden = recurrence.shape[2]
    directions, gates = weights.shape[0], weights.shape[1] // hidden
    bias = node.bias
    given = np.zeros((directions, 2 * gates * hidden), weights.dtype) if bias is None else known(bias, "biases")
    ways = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[node.direction]
    return Layer(b.transpose(x, (1, 0, 2)) if layout else x, weights, recurrence, given, hidden, ways)


def _start(b: Builder, layer: Layer, given: Tensor | None, place: int, layout: int) -> Tensor:
    """The state that a direction begins with: (batch, hidden)."""
    if given is None:
        batch = layer.x.size(1)
        return constant(np.zeros((batch, layer.hidden), layer.x.dtype))
    moved = b.transpose(given, (1, 0, 2)) if layout else given
    if len(layer.ways) == 1:
        return b.reshape(moved, _pair(moved, layer))
    part = b.op("slice_by_index", x=moved, begin=(place, 0, 0), end=(place + 1, 0, 0), end_mask=(False, True, True))
    return b.reshape(part, _pair(moved, layer))


def _pair(moved: Tensor, layer: Layer) -> tuple[int, int]:
    return (-1 if moved.shape[1] is None else moved.shape[1], layer.hidden)


def _named(node: Recurrent[Tensor], kind: str) -> list[str]:
    """The activations of all directions."""
    names = [each.lower() for each in node.activations or USUAL[kind] * node.directions]
    if unknown := [name for name in names if name not in _PLAIN]:
        raise Unsupported(f"the activation {unknown[0]} in a recurrent layer")
    return names


def _results(
    b: Builder, sequences: Sequence[Tensor], lasts: Sequence[Sequence[Tensor]], layout: int
) -> tuple[Tensor, ...]:
    """Y (steps, directions, batch, hidden), then each last state (directions, batch, hidden)."""
    axis = 2 if layout else 1
    spread = [
        b.op("expand_dims", x=b.transpose(each, (1, 0, 2)) if layout else each, axes=(axis,)) for each in sequences
    ]
    states = [b.concat([b.op("expand_dims", x=each, axes=(axis - 1,)) for each in group], axis - 1) for group in lasts]
    return (b.concat(spread, axis), *states)


@recurrent.lowers("LSTM", since=(14, 22))
@long_short_term
def lstm(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, ...]:
    if node.clip is not None or node.input_forget:
        raise Unsupported("clip or input_forget in an LSTM")
    layer, names, peepholes = _layer(b, node), _named(node, "LSTM"), node.peepholes
    holes = np.zeros((len(layer.ways), 3 * layer.hidden), layer.w.dtype) if peepholes is None else known(peepholes, "P")
    sequences, last_h, last_c = [], [], []
    for place in range(len(layer.ways)):
        h, c = (_start(b, layer, given, place, node.layout) for given in node.states)
        acts = names[3 * place : 3 * place + 3]
        if holes[place].any():
            found = _lstm_steps(b, layer, place, (h, c), acts, holes[place])
        else:
            found = _lstm_native(b, layer, place, (h, c), acts)
        sequence, h, c = found
        sequences.append(sequence)
        last_h.append(h)
        last_c.append(c)
    return _results(b, sequences, (last_h, last_c), node.layout)


def _iofc(rows: Array, hidden: int, dtype: str) -> Array:
    """Rows of gates in MIL's order."""
    parts = rows.reshape(4, hidden, *rows.shape[1:])
    return parts[[0, 2, 1, 3]].reshape(rows.shape).astype(dtype)


def _lstm_native(
    b: Builder, layer: Layer, place: int, state: tuple[Tensor, Tensor], acts: Sequence[str]
) -> tuple[Tensor, ...]:
    hidden, dtype = layer.hidden, layer.x.dtype
    before, after = np.split(layer.bias[place], 2)
    return b.ops(
        "lstm",
        x=layer.x,
        initial_h=state[0],
        initial_c=state[1],
        weight_ih=_iofc(layer.w[place], hidden, dtype),
        weight_hh=_iofc(layer.r[place], hidden, dtype),
        bias=_iofc(before + after, hidden, dtype),
        direction="reverse" if layer.ways[place] else "forward",
        output_sequence=True,
        recurrent_activation=acts[0],
        cell_activation=acts[1],
        activation=acts[2],
    )


def _unrolled(
    b: Builder, layer: Layer, place: int, state: tuple[Tensor, ...], step: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """The whole sequence, ``step`` by step: all outputs in order, then the last states."""
    if layer.steps > _MOST_STEPS:
        raise Unsupported(f"a sequence of {layer.steps} steps, of a layer that MIL has no operation for")
    weight = constant(layer.w[place].astype(layer.x.dtype))
    sums = b.op("linear", x=layer.x, weight=weight, bias=constant(_input_bias(layer, place)))
    rows = b.ops("split", x=sums, num_splits=np.int32(layer.steps), axis=np.int32(0)) if layer.steps > 1 else (sums,)
    outputs: list[Tensor] = []
    for row in reversed(rows) if layer.ways[place] else rows:
        state = step(b.op("squeeze", x=row, axes=(0,)), *state)
        outputs.append(b.op("expand_dims", x=state[0], axes=(0,)))
    if layer.ways[place]:
        outputs.reverse()
    return (b.concat(outputs, 0), *state)


def _input_bias(layer: Layer, place: int) -> Array:
    return np.split(layer.bias[place], 2)[0].astype(layer.x.dtype)


def _lstm_steps(
    b: Builder, layer: Layer, place: int, state: tuple[Tensor, Tensor], acts: Sequence[str], holes: Array
) -> tuple[Tensor, ...]:
    """With peepholes, in ONNX's order: input, output, forget."""
    dtype = layer.x.dtype
    recurrence, after = layer.r[place].astype(dtype), np.split(layer.bias[place], 2)[1].astype(dtype)
    put_p, show_p, keep_p = (constant(each) for each in np.split(holes.astype(dtype), 3))

    def step(row: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        sums = b.op("add", x=row, y=b.op("linear", x=h, weight=constant(recurrence), bias=constant(after)))
        put, show, keep, new = b.ops("split", x=sums, num_splits=np.int32(4), axis=np.int32(1))
        seen = [b.op("add", x=gate, y=b.op("mul", x=c, y=hole)) for gate, hole in ((put, put_p), (keep, keep_p))]
        kept = b.op("mul", x=b.op(_PLAIN[acts[0]], x=seen[1]), y=c)
        added = b.op("mul", x=b.op(_PLAIN[acts[0]], x=seen[0]), y=b.op(_PLAIN[acts[1]], x=new))
        c = b.op("add", x=kept, y=added)
        shown = b.op(_PLAIN[acts[0]], x=b.op("add", x=show, y=b.op("mul", x=c, y=show_p)))
        return b.op("mul", x=shown, y=b.op(_PLAIN[acts[2]], x=c)), c

    return _unrolled(b, layer, place, state, step)


@recurrent.lowers("GRU", since=(14, 22))
@gated
def gru(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, ...]:
    """Step by step: MIL's documentation of ``gru`` does not say where the bias of the new state is added."""
    if node.clip is not None:
        raise Unsupported("clip in a GRU")
    layer, names = _layer(b, node), _named(node, "GRU")
    sequences, lasts = [], []
    for place in range(len(layer.ways)):
        start = _start(b, layer, node.states[0], place, node.layout)
        step = _gru_step(b, layer, place, names[2 * place : 2 * place + 2], node.linear_before_reset)
        sequence, last = _unrolled(b, layer, place, (start,), step)
        sequences.append(sequence)
        lasts.append(last)
    return _results(b, sequences, (lasts,), node.layout)


def _gru_step(
    b: Builder, layer: Layer, place: int, acts: Sequence[str], linear_before_reset: bool
) -> Callable[[Tensor, Tensor], tuple[Tensor]]:
    """Gates are update, reset, new."""
    dtype, hidden = layer.x.dtype, layer.hidden
    recurrence, after = layer.r[place].astype(dtype), np.split(layer.bias[place], 2)[1].astype(dtype)
    gates, new = (recurrence[: 2 * hidden], recurrence[2 * hidden :])
    gate_bias, new_bias = after[: 2 * hidden], after[2 * hidden :]

    def step(row: Tensor, h: Tensor) -> tuple[Tensor]:
        update_in, reset_in, new_in = b.ops("split", x=row, num_splits=np.int32(3), axis=np.int32(1))
        told = b.op("linear", x=h, weight=constant(gates), bias=constant(gate_bias))
        update_h, reset_h = b.ops("split", x=told, num_splits=np.int32(2), axis=np.int32(1))
        update = b.op(_PLAIN[acts[0]], x=b.op("add", x=update_in, y=update_h))
        reset = b.op(_PLAIN[acts[0]], x=b.op("add", x=reset_in, y=reset_h))
        if linear_before_reset:
            own = b.op("mul", x=reset, y=b.op("linear", x=h, weight=constant(new), bias=constant(new_bias)))
        else:
            own = b.op("linear", x=b.op("mul", x=reset, y=h), weight=constant(new), bias=constant(new_bias))
        made = b.op(_PLAIN[acts[1]], x=b.op("add", x=new_in, y=own))
        rest = b.op("mul", x=b.op("sub", x=b.full(1, update), y=update), y=made)
        return (b.op("add", x=rest, y=b.op("mul", x=update, y=h)),)

    return step


@recurrent.lowers("RNN", since=(14, 22))
@plain
def rnn(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, ...]:
    if node.clip is not None:
        raise Unsupported("clip in an RNN")
    layer, names = _layer(b, node), _named(node, "RNN")
    sequences, lasts = [], []
    for place, backwards in enumerate(layer.ways):
        before, after = np.split(layer.bias[place], 2)
        sequence, last = b.ops(
            "rnn",
            x=layer.x,
            initial_h=_start(b, layer, node.states[0], place, node.layout),
            weight_ih=layer.w[place].astype(layer.x.dtype),
            weight_hh=layer.r[place].astype(layer.x.dtype),
            bias=(before + after).astype(layer.x.dtype),
            direction="reverse" if backwards else "forward",
            output_sequence=True,
            activation=names[place],
        )
        sequences.append(sequence)
        lasts.append(last)
    return _results(b, sequences, (lasts,), node.layout)
