"""One step of a recurrent layer: from the projected input and the state to the next state.

Gate orders are ONNX's: LSTM i, o, f, c; GRU z, r, h.  ``projected`` is the input times its weights plus
the biases, for one step, (batch, gates × hidden).  A state that is None is all zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.tensor import Tensor

State = tuple[Tensor | None, ...]
Activation = Callable[[Builder, Tensor], Tensor]


class Cell(Protocol):
    """What the loop over time needs to know of a layer."""

    @property
    def hidden(self) -> int: ...

    def step(self, b: Builder, projected: Tensor, state: State) -> tuple[Tensor, ...]:
        """The state after one step; its first tensor is the output."""
        ...


@dataclass(frozen=True, slots=True)
class Rnn:
    """``h' = f(x W + h R + b)``."""

    hidden: int
    recurrent: Tensor
    activations: tuple[Activation, ...]
    clip: float | None

    def step(self, b: Builder, projected: Tensor, state: State) -> tuple[Tensor, ...]:
        (h,) = state
        total = projected if h is None else b.add(projected, b.fully_connected(h, self.recurrent, None))
        return (self.activations[0](b, clipped(b, total, self.clip)),)


@dataclass(frozen=True, slots=True)
class Lstm:
    """Long short-term memory with optional peepholes (3 hidden: i, o, f)."""

    hidden: int
    recurrent: Tensor
    activations: tuple[Activation, ...]
    clip: float | None
    peepholes: Tensor | None
    input_forget: bool

    def step(self, b: Builder, projected: Tensor, state: State) -> tuple[Tensor, ...]:
        h, c = state
        f, g, last = self.activations
        total = projected if h is None else b.add(projected, b.fully_connected(h, self.recurrent, None))
        i, o, forget, cell = b.split(total, 1, [self.hidden] * 4)
        if self.peepholes is not None and c is not None:
            i = b.add(i, b.mul(self._peephole(b, 0), c))
            forget = b.add(forget, b.mul(self._peephole(b, 2), c))
        i = f(b, clipped(b, i, self.clip))
        new = b.mul(i, g(b, clipped(b, cell, self.clip)))
        if c is not None:
            kept = b.sub(b.scalar(1.0, i), i) if self.input_forget else f(b, clipped(b, forget, self.clip))
            new = b.add(b.mul(kept, c), new)
        if self.peepholes is not None:
            o = b.add(o, b.mul(self._peephole(b, 1), new))
        return b.mul(f(b, clipped(b, o, self.clip)), last(b, new)), new

    def _peephole(self, b: Builder, place: int) -> Tensor:
        assert self.peepholes is not None
        return b.slice(self.peepholes, (place * self.hidden,), (self.hidden,))


@dataclass(frozen=True, slots=True)
class Gru:
    """Gated recurrent unit; ``bias`` is the recurrent bias of h, apart where the reset gate comes after it."""

    hidden: int
    recurrent: Tensor
    activations: tuple[Activation, ...]
    clip: float | None
    bias: Tensor | None
    reset_after: bool

    def step(self, b: Builder, projected: Tensor, state: State) -> tuple[Tensor, ...]:
        (h,) = state
        f, g = self.activations
        z, r, candidate = b.split(projected, 1, [self.hidden] * 3)
        if self.reset_after:
            z, r, candidate = self._reset_after(b, z, r, candidate, h)
        elif h is not None:
            gates, last = self._weights(b)
            rz = b.fully_connected(h, gates, None)
            first, second = b.split(rz, 1, [self.hidden] * 2)
            z, r = f(b, clipped(b, b.add(z, first), self.clip)), f(b, clipped(b, b.add(r, second), self.clip))
            candidate = b.add(candidate, b.fully_connected(b.mul(r, h), last, None))
        else:
            z = f(b, clipped(b, z, self.clip))
        new = g(b, clipped(b, candidate, self.clip))
        if h is None:
            return (b.sub(new, b.mul(z, new)),)
        return (b.add(new, b.mul(z, b.sub(h, new))),)

    def _reset_after(
        self, b: Builder, z: Tensor, r: Tensor, candidate: Tensor, h: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        f = self.activations[0]
        extra = self.bias
        if h is not None:
            first, second, third = b.split(b.fully_connected(h, self.recurrent, None), 1, [self.hidden] * 3)
            z, r = b.add(z, first), b.add(r, second)
            extra = third if self.bias is None else b.add(third, self.bias)
        z, r = f(b, clipped(b, z, self.clip)), f(b, clipped(b, r, self.clip))
        return z, r, candidate if extra is None else b.add(candidate, b.mul(r, extra))

    def _weights(self, b: Builder) -> tuple[Tensor, Tensor]:
        first = b.slice(self.recurrent, (0, 0), (2 * self.hidden, self.hidden))
        return first, b.slice(self.recurrent, (2 * self.hidden, 0), (self.hidden, self.hidden))


def clipped(b: Builder, x: Tensor, limit: float | None) -> Tensor:
    """``x`` in [-limit, limit]."""
    if limit is None:
        return x
    return b.minimum(b.maximum(x, b.scalar(-limit, x)), b.scalar(limit, x))


def activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    """An activation by ONNX's name (any case) with its factors, or their defaults."""
    plain: dict[str, Activation] = {
        "sigmoid": lambda b, x: b.logistic(x),
        "tanh": lambda b, x: b.tanh(x),
        "relu": lambda b, x: b.relu(x),
        "elu": _elu(1.0 if alpha is None else alpha),
        "leakyrelu": lambda b, x: b.leaky_relu(x, alpha=0.01 if alpha is None else alpha),
        "affine": lambda b, x: b.add(b.mul(x, _number(b, 1.0 if alpha is None else alpha)), _number(b, beta or 0.0)),
        "scaledtanh": lambda b, x: b.mul(
            b.tanh(b.mul(x, _number(b, 1.0 if beta is None else beta))), _number(b, 1.0 if alpha is None else alpha)
        ),
        "hardsigmoid": _hard_sigmoid(0.2 if alpha is None else alpha, 0.5 if beta is None else beta),
        "softsign": lambda b, x: b.div(x, b.add(b.abs(x), _number(b, 1.0))),
        "softplus": _softplus,
    }
    found = plain.get(name.lower())
    if found is None:
        raise Unsupported(f"the activation {name}")
    return found


def _elu(alpha: float) -> Activation:
    if alpha != 1.0:
        raise Unsupported(f"Elu with alpha {alpha}: TFLite's is 1")
    return lambda b, x: b.elu(x)


def _hard_sigmoid(alpha: float, beta: float) -> Activation:
    def apply(b: Builder, x: Tensor) -> Tensor:
        line = b.add(b.mul(x, _number(b, alpha)), _number(b, beta))
        return b.minimum(b.maximum(line, _number(b, 0.0)), _number(b, 1.0))

    return apply


def _softplus(b: Builder, x: Tensor) -> Tensor:
    """``max(x, 0) + log(1 + exp(-|x|))``, which overflows nowhere."""
    tail = b.log(b.add(b.exp(b.neg(b.abs(x))), _number(b, 1.0)))
    return b.add(b.relu(x), tail)


def _number(b: Builder, value: float) -> Tensor:
    return b.constant(np.array(value, np.float32))
