"""LSTM, GRU and RNN over one sequence; a blob is (steps, features)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.registry import Registry
from convertkit.targets.forms.recurrences import USUAL, unusual
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


def _check(x: Tensor, given: Sequence[object], activations: Sequence[str], kind: str) -> None:
    if x.shape[1] != 1:
        raise Unsupported("a batch of more than one: ncnn computes one sequence at a time")
    if any(each is not None for each in given):
        raise Unsupported("sequence lengths, peepholes, clip or coupled gates, which ncnn's layers lack")
    if unusual(kind, activations):
        raise Unsupported(f"activations {', '.join(activations)}: ncnn's layer has {', '.join(USUAL[kind])}")


def _refuse_start(*states: Tensor | None) -> None:
    """Zeros are what a layer begins with itself."""
    for state in states:
        if state is not None and (state.array is None or np.any(state.array)):
            raise Unsupported("a state that is given: ncnn's layer begins with zeros")


def _made(
    b: Builder, kind: str, x: Tensor, hidden: int, direction: str, weights: list[Weight], size: int
) -> tuple[Tensor, Tensor]:
    """All steps, and the state after the last one in each direction."""
    from convertkit.targets.ncnn.handlers.slices import cropped

    steps, count = x.shape[0], 2 if direction == "bidirectional" else 1
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
def lstm(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    p: Tensor | None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, Tensor]:
    """The cell's last state, the third output, is not among what is made."""
    _check(x, (sequence_lens, p, clip, input_forget or None), activations or (), "LSTM")
    _refuse_start(initial_h, initial_c)
    inner, outer = _gates(w.known, _LSTM_GATES), _gates(r.known, _LSTM_GATES)
    total = _bias(bias, len(inner), inner.shape[1]).sum(axis=1)
    weights = [weight(inner), weight(_gates(total, _LSTM_GATES)), weight(outer)]
    return _made(b, "LSTM", x, outer.shape[2], direction, weights, inner.size)


@recurrent.lowers("GRU", since=(14, 22))
def gru(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, Tensor]:
    """Ncnn keeps the bias of the state's product of the new gate apart: what ``linear_before_reset`` means."""
    _check(x, (sequence_lens, clip), activations or (), "GRU")
    _refuse_start(initial_h)
    if not linear_before_reset:
        raise Unsupported("linear_before_reset 0: ncnn's GRU multiplies the state before it is reset")
    inner, outer = _gates(w.known, _GRU_GATES), _gates(r.known, _GRU_GATES)
    hidden = outer.shape[2]
    both = np.stack([_gates(each, _GRU_GATES) for each in _bias(bias, len(inner), 3 * hidden).swapaxes(0, 1)], axis=1)
    sums = both.sum(axis=1)[:, : 2 * hidden].reshape(-1, 2, hidden)
    stored = np.concatenate([sums, both[:, :, 2 * hidden :]], axis=1)
    weights = [weight(inner), weight(stored), weight(outer)]
    return _made(b, "GRU", x, hidden, direction, weights, inner.size)


@recurrent.lowers("RNN", since=(14, 22))
def rnn(
    b: Builder,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    bias: Tensor | None,
    sequence_lens: Tensor | None,
    initial_h: Tensor | None,
    *,
    activation_alpha: tuple[float, ...] | None = None,
    activation_beta: tuple[float, ...] | None = None,
    activations: tuple[str, ...] = ("Tanh", "Tanh"),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, Tensor]:
    _check(x, (sequence_lens, clip), activations, "RNN")
    _refuse_start(initial_h)
    inner, outer = w.known, r.known
    total = _bias(bias, len(inner), inner.shape[1]).sum(axis=1)
    return _made(b, "RNN", x, outer.shape[2], direction, [weight(inner), weight(total), weight(outer)], inner.size)
