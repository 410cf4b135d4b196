"""Recurrent layers, step by step.

Source: coremltools, mil/ops/defs, recurrent.py.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from convertkit.artifact import Array
from convertkit.targets.coreml.evaluator.arithmetic import sigmoid_of
from convertkit.targets.coreml.evaluator.table import Table

recurrent = Table()

Activation = Callable[[Array], Array]
_ACTIVATIONS: dict[str, Activation] = {
    "tanh": np.tanh,
    "sigmoid": sigmoid_of,
    "relu": lambda x: np.maximum(x, 0),
    "scaled_tanh": np.tanh,
    "sigmoid_hard": lambda x: np.clip(x * np.float32(0.2) + np.float32(0.5), 0, 1),
    "linear": lambda x: x,
}


def _activation(name: Array | None, default: str) -> Activation:
    return _ACTIVATIONS[default if name is None else str(name)]


def _shown(steps: list[Array], output_sequence: Array | None) -> Array:
    whole = output_sequence is not None and bool(output_sequence)
    return np.stack(steps) if whole else steps[-1][None]


@recurrent.computes("rnn")
def _rnn(
    *,
    x: Array,
    initial_h: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array | None = None,
    direction: Array | None = None,
    output_sequence: Array | None = None,
    activation: Array | None = None,
) -> tuple[Array, Array]:
    act, h, steps = _activation(activation, "tanh"), initial_h, list[Array]()
    backwards = direction is not None and str(direction) == "reverse"
    for row in x[::-1] if backwards else x:
        h = act(row @ weight_ih.T + h @ weight_hh.T + (0 if bias is None else bias)).astype(x.dtype)
        steps.append(h)
    whole = output_sequence is not None and bool(output_sequence)
    return _shown(steps[::-1] if backwards and whole else steps, output_sequence), h


def _lstm_steps(
    x: Array, h: Array, c: Array, cell: tuple[Array, Array, Array | None], acts: tuple[Activation, ...]
) -> tuple[list[Array], Array]:
    """One direction: all outputs and the last cell state; gates are input, forget, output, cell."""
    (weight_ih, weight_hh, bias), (gate, candidate, act) = cell, acts
    steps: list[Array] = []
    for row in x:
        sums = row @ weight_ih.T + h @ weight_hh.T + (0 if bias is None else bias)
        put, keep, show, new = np.split(sums, 4, -1)
        c = gate(keep) * c + gate(put) * candidate(new)
        h = (gate(show) * act(c)).astype(x.dtype)
        steps.append(h)
    return steps, c.astype(x.dtype)


@recurrent.computes("lstm")
def _lstm(
    *,
    x: Array,
    initial_h: Array,
    initial_c: Array,
    weight_ih: Array,
    weight_hh: Array,
    bias: Array | None = None,
    weight_ih_back: Array | None = None,
    weight_hh_back: Array | None = None,
    bias_back: Array | None = None,
    direction: Array | None = None,
    output_sequence: Array | None = None,
    recurrent_activation: Array | None = None,
    cell_activation: Array | None = None,
    activation: Array | None = None,
) -> tuple[Array, Array, Array]:
    acts = (
        _activation(recurrent_activation, "sigmoid"),
        _activation(cell_activation, "tanh"),
        _activation(activation, "tanh"),
    )
    way = "forward" if direction is None else str(direction)
    whole = output_sequence is not None and bool(output_sequence)
    forward = (weight_ih, weight_hh, bias)
    if way != "bidirectional":
        steps, c = _lstm_steps(x[::-1] if way == "reverse" else x, initial_h, initial_c, forward, acts)
        shown = steps[::-1] if way == "reverse" and whole else steps
        return _shown(shown, output_sequence), steps[-1], c
    assert weight_ih_back is not None
    assert weight_hh_back is not None
    hidden = weight_hh.shape[1]
    there, c = _lstm_steps(x, initial_h[:, :hidden], initial_c[:, :hidden], forward, acts)
    backward = (weight_ih_back, weight_hh_back, bias_back)
    back, d = _lstm_steps(x[::-1], initial_h[:, hidden:], initial_c[:, hidden:], backward, acts)
    last = np.concatenate([there[-1], back[-1]], -1)
    if not whole:
        return last[None], last, np.concatenate([c, d], -1)
    joined = np.concatenate([np.stack(there), np.stack(back[::-1])], -1)
    return joined, last, np.concatenate([c, d], -1)
