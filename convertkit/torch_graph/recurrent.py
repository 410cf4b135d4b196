"""RNN, GRU and LSTM as differentiable functions of PyTorch, step by step.

Source: ONNX operators, RNN-22, GRU-22, LSTM-22: equations, order of gates, defaults of activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from convertkit.errors import Unsupported

Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]

_PLAIN: Mapping[str, Activation] = {
    "sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu, "softsign": functional.softsign,
    "softplus": functional.softplus,
}  # fmt: skip
_ALPHAS: Mapping[str, float] = {"leakyrelu": 0.01, "elu": 1.0, "hardsigmoid": 0.2}
_BETAS: Mapping[str, float] = {"hardsigmoid": 0.5}
"""Defaults of the parameters, which a node lists for those activations that have them."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One direction: weights (gates × hidden, inputs) and (gates × hidden, hidden), biases of both, peepholes."""

    outer: Tensor
    inner: Tensor
    outer_bias: Tensor
    inner_bias: Tensor
    peepholes: Tensor | None
    activations: tuple[Activation, ...]
    clip: float
    linear_before_reset: bool = False
    input_forget: bool = False

    def bent(self, place: int, x: Tensor) -> Tensor:
        """An activation of what may be clipped before."""
        return self.activations[place](x.clamp(-self.clip, self.clip) if self.clip > 0 else x)


Step = Callable[[Layer, Tensor, State], State]
"""From what the inputs add to all gates, (batch, gates × hidden), and the state: the next state."""


def _rnn_step(layer: Layer, x: Tensor, state: State) -> State:
    return (layer.bent(0, x + state[0] @ layer.inner.T + layer.inner_bias),)


def _gru_step(layer: Layer, x: Tensor, state: State) -> State:
    """``linear_before_reset`` says whether the reset gate meets the state or its product."""
    (before,) = state
    hidden = before.shape[-1]
    split = 2 * hidden
    gates = x[..., :split] + before @ layer.inner[:split].T + layer.inner_bias[:split]
    update, reset = layer.bent(0, gates).split(hidden, -1)
    if layer.linear_before_reset:
        inside = reset * (before @ layer.inner[split:].T + layer.inner_bias[split:])
    else:
        inside = (reset * before) @ layer.inner[split:].T + layer.inner_bias[split:]
    return ((1 - update) * layer.bent(1, x[..., split:] + inside) + update * before,)


def _lstm_step(layer: Layer, x: Tensor, state: State) -> State:
    hidden, memory = state
    gates = x + hidden @ layer.inner.T + layer.inner_bias
    entry, out, forget, new = gates.split(hidden.shape[-1], -1)
    if layer.peepholes is not None:
        peep_in, peep_out, peep_forget = layer.peepholes.reshape(3, -1)
        entry, forget = entry + peep_in * memory, forget + peep_forget * memory
    entry = layer.bent(0, entry)
    kept = 1 - entry if layer.input_forget else layer.bent(0, forget)
    memory = kept * memory + entry * layer.bent(1, new)
    if layer.peepholes is not None:
        out = out + peep_out * memory
    return layer.bent(0, out) * layer.activations[2](memory), memory


def _run(layer: Layer, step: Step, x: Tensor, state: State, lengths: Tensor | None, back: bool) -> tuple[Tensor, State]:
    """Outputs (steps, batch, hidden), zero behind a sequence's end, and the state at that end."""
    entered = x @ layer.outer.T + layer.outer_bias
    turns, samples = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])
    ends = torch.full((x.shape[1],), x.shape[0]) if lengths is None else lengths.to(torch.int64)
    order = (ends - 1 - turns).clamp(min=0)
    if back:
        entered = entered[order, samples]
    made = []
    for turn, given in enumerate(entered):
        after = step(layer, given, state)
        if lengths is not None:
            active = (turn < ends)[:, None]
            after = tuple(torch.where(active, new, old) for new, old in zip(after, state, strict=True))
        state = after
        made.append(state[0])
    y = torch.stack(made)
    if back:
        y = y[order, samples]
    return (y if lengths is None else torch.where((turns < ends)[..., None], y, 0.0)), state


def _activations(
    defaults: Sequence[str], directions: int, names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[tuple[Activation, ...]]:
    """For every direction, in the order of its gates."""
    first, second = iter(alphas), iter(betas)
    made = [_activation(name, first, second) for name in (names or tuple(defaults) * directions)]
    count = len(defaults)
    return [tuple(made[place * count : (place + 1) * count]) for place in range(directions)]


def _activation(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    title = name.lower()
    if title in _PLAIN:
        return _PLAIN[title]
    if title not in _ALPHAS:
        raise Unsupported(f"PyTorch's form of a recurrent layer does not know the activation {name!r}")
    alpha = next(alphas, _ALPHAS[title])
    if title == "leakyrelu":
        return partial(functional.leaky_relu, negative_slope=alpha)
    if title == "elu":
        return partial(functional.elu, alpha=alpha)
    beta = next(betas, _BETAS[title])
    return lambda x: torch.clamp(alpha * x + beta, 0.0, 1.0)


def _layers(
    step: Step, x: Tensor, w: Tensor, r: Tensor, b: Tensor | None, lengths: Tensor | None,
    starts: Sequence[Tensor | None], p: Tensor | None, activations: Sequence[tuple[Activation, ...]], clip: float,
    direction: str, layout: int, *, linear_before_reset: bool = False, input_forget: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    if layout:
        raise Unsupported("PyTorch's form of a recurrent layer takes steps as the first axis (layout 0) only")
    directions, rows, hidden = r.shape
    biases = x.new_zeros(directions, 2 * rows) if b is None else b
    zeros = x.new_zeros(directions, x.shape[1], hidden)
    begins = [zeros if start is None else start for start in starts]
    runs = []
    for place in range(directions):
        layer = Layer(
            w[place], r[place], biases[place, :rows], biases[place, rows:], None if p is None else p[place],
            activations[place], clip, linear_before_reset, input_forget,
        )  # fmt: skip
        back = direction == "reverse" or place == 1
        runs.append(_run(layer, step, x, tuple(begin[place] for begin in begins), lengths, back))
    last = [torch.stack([state[each] for _, state in runs]) for each in range(len(starts))]
    return (torch.stack([y for y, _ in runs], 1), *last)


def rnn(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None,
    *, hidden_size: int = 0, direction: str = "forward", activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float = 0.0, layout: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """ONNX ``RNN``: outputs (steps, directions, batch, hidden) and the last state (directions, batch, hidden)."""
    functions = _activations(("Tanh",), len(r), activations, activation_alpha, activation_beta)
    return _layers(_rnn_step, x, w, r, b, lengths, [h], None, functions, clip, direction, layout)


def gru(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None,
    *, hidden_size: int = 0, direction: str = "forward", activations: Sequence[str] = (),
    activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (), clip: float = 0.0, layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """ONNX ``GRU``: outputs (steps, directions, batch, hidden) and the last state (directions, batch, hidden)."""
    functions = _activations(("Sigmoid", "Tanh"), len(r), activations, activation_alpha, activation_beta)
    return _layers(
        _gru_step, x, w, r, b, lengths, [h], None, functions, clip, direction, layout,
        linear_before_reset=bool(linear_before_reset),
    )  # fmt: skip


def lstm(
    x: Tensor, w: Tensor, r: Tensor, b: Tensor | None = None, lengths: Tensor | None = None, h: Tensor | None = None,
    c: Tensor | None = None, p: Tensor | None = None, *, hidden_size: int = 0, direction: str = "forward",
    activations: Sequence[str] = (), activation_alpha: Sequence[float] = (), activation_beta: Sequence[float] = (),
    clip: float = 0.0, layout: int = 0, input_forget: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """ONNX ``LSTM``: outputs (steps, directions, batch, hidden), the last state and the last cell."""
    functions = _activations(("Sigmoid", "Tanh", "Tanh"), len(r), activations, activation_alpha, activation_beta)
    return _layers(
        _lstm_step, x, w, r, b, lengths, [h, c], p, functions, clip, direction, layout, input_forget=bool(input_forget)
    )


RECURRENT: Mapping[str, Callable[..., Any]] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
