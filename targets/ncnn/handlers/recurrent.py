"""LSTM, GRU and RNN over one sequence; a blob is (steps, features)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.recurrences import USUAL, unusual
from convertkit.targets.forms.recurrent_nodes import Recurrent, gated, long_short_term, plain
from convertkit.targets.ncnn.builder import Builder, weight
from convertkit.targets.ncnn.layers import Weight
from convertkit.targets.ncnn.tensor import Tensor

recurrent = Registry()

_DIRECTIONS = {"forward": 0, "reverse": 1, "bidirectional": 2}
_LSTM_GATES = (0, 2, 1, 3)
"""ncnn has input, forget, output, cell; ONNX input, output, forget, cell."""
_GRU_GATES = (1, 0, 2)
"""ncnn has reset, update, new; ONNX update, reset, new."""


def _gates(values: Array, order: Sequence[int]) -> Array:
    """[directions, gates * hidden, …] with the gates in another order."""
    parts = values.reshape(values.shape[0], len(order), -1, *values.shape[2:])
    return parts[:, list(order)].reshape(values.shape)


def _check(node: Recurrent[Tensor], kind: str) -> None:
    if node.x.shape[1] != 1:
        raise Unsupported("a batch of more than one: ncnn computes one sequence at a time")
    if any(each is not None for each in (node.lengths, node.peepholes, node.clip)) or node.input_forget:
        raise Unsupported("sequence lengths, peepholes, clip or coupled gates, which ncnn's layers lack")
    activations = node.activations or ()
    if unusual(kind, activations):
        raise Unsupported(f"activations {', '.join(activations)}: ncnn's layer has {', '.join(USUAL[kind])}")
    _refuse_start(*node.states)


def _refuse_start(*states: Tensor | None) -> None:
    """Zeros are what a layer begins with itself."""
    for state in states:
        if state is not None and (state.array is None or np.any(state.array)):
            raise Unsupported("a state that is given: ncnn's layer begins with zeros")


def _made(
    b: Builder, kind: str, node: Recurrent[Tensor], hidden: int, weights: list[Weight], size: int
) -> tuple[Tensor, Tensor]:
    """All steps, and the state after the last one in each direction."""
    from convertkit.targets.ncnn.handlers.slices import cropped

    x, direction, count = node.x, node.direction, node.directions
    steps = x.shape[0]
    given = b.view(x, (steps, x.shape[2]))
    parameters = {0: hidden, 1: size, 2: _DIRECTIONS[direction]}
    found = b.layer(kind, [given], (steps, count * hidden), (steps, count * hidden), parameters, weights)
    every = b.view(found, found.sizes, (steps, 1, count * hidden))
    whole = Tensor((steps, count, 1, hidden), every.sizes, every.blob)
    ends = [
        cropped(b, cropped(b, found, 1, place * hidden, (place + 1) * hidden), 0, *_last(steps, direction, place))
        for place in range(count)
    ]
    last = ends[0] if count == 1 else b.layer("Concat", [b.view(each, (1, hidden)) for each in ends],
                                               (count, hidden), (count, hidden), {0: 0})  # fmt: skip
    return whole, Tensor((count, 1, hidden), last.sizes, last.blob)


def _last(steps: int, direction: str, place: int) -> tuple[int, int]:
    backwards = direction == "reverse" or place == 1
    return (0, 1) if backwards else (steps - 1, steps)


def _bias(bias: Tensor | None, count: int, size: int) -> Array:
    """[directions, 2, gates * hidden]: of the input's product, then of the state's."""
    return np.zeros((count, 2, size), np.float32) if bias is None else bias.known.reshape(count, 2, size)


@recurrent.lowers("LSTM", since=(14, 22))
@long_short_term
def lstm(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, Tensor]:
    """The cell's last state, the third output, is not among what is made."""
    _check(node, "LSTM")
    inner, outer = _gates(node.w.known, _LSTM_GATES), _gates(node.r.known, _LSTM_GATES)
    total = _bias(node.bias, len(inner), inner.shape[1]).sum(axis=1)
    weights = [weight(inner), weight(_gates(total, _LSTM_GATES)), weight(outer)]
    return _made(b, "LSTM", node, outer.shape[2], weights, inner.size)


@recurrent.lowers("GRU", since=(14, 22))
@gated
def gru(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, Tensor]:
    """Ncnn keeps the bias of the state's product of the new gate apart: what ``linear_before_reset`` means."""
    _check(node, "GRU")
    if not node.linear_before_reset:
        raise Unsupported("linear_before_reset 0: ncnn's GRU multiplies the state before it is reset")
    inner, outer = _gates(node.w.known, _GRU_GATES), _gates(node.r.known, _GRU_GATES)
    hidden, bias = outer.shape[2], _bias(node.bias, len(inner), inner.shape[1])
    both = np.stack([_gates(each, _GRU_GATES) for each in bias.swapaxes(0, 1)], axis=1)
    sums = both.sum(axis=1)[:, : 2 * hidden].reshape(-1, 2, hidden)
    stored = np.concatenate([sums, both[:, :, 2 * hidden :]], axis=1)
    return _made(b, "GRU", node, hidden, [weight(inner), weight(stored), weight(outer)], inner.size)


@recurrent.lowers("RNN", since=(14, 22))
@plain
def rnn(b: Builder, node: Recurrent[Tensor]) -> tuple[Tensor, Tensor]:
    _check(node, "RNN")
    inner, outer = node.w.known, node.r.known
    total = _bias(node.bias, len(inner), inner.shape[1]).sum(axis=1)
    return _made(b, "RNN", node, outer.shape[2], [weight(inner), weight(total), weight(outer)], inner.size)
