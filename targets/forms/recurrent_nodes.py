"""Handlers of LSTM, GRU and RNN, which take a node's inputs and attributes as one value.

A handler's signature is the operator's schema; here it is written once for all compilers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

B = TypeVar("B")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Recurrent(Generic[T]):
    """What a node states, in ONNX's shapes; what its operator does not have is absent.

    Source: ONNX operators, LSTM-22, GRU-22, RNN-22.
    """

    x: T
    w: T
    r: T
    bias: T | None
    lengths: T | None
    states: tuple[T | None, ...]
    """The hidden state and, of an LSTM, the cell's."""
    direction: str
    layout: int
    clip: float | None
    activations: tuple[str, ...] | None
    """None where they are the usual ones."""
    alphas: tuple[float, ...] | None
    betas: tuple[float, ...] | None
    peepholes: T | None = None
    input_forget: bool = False
    linear_before_reset: bool = False

    @property
    def directions(self) -> int:
        """How many sequences are computed."""
        return 2 if self.direction == "bidirectional" else 1


Lowered = Callable[[B, Recurrent[T]], tuple[T, ...]]


def long_short_term(handler: Lowered[B, T]) -> Callable[..., tuple[T, ...]]:
    """LSTM."""

    def lstm(
        b: B,
        x: T,
        w: T,
        r: T,
        bias: T | None,
        sequence_lens: T | None,
        initial_h: T | None,
        initial_c: T | None,
        p: T | None,
        *,
        activation_alpha: tuple[float, ...] | None = None,
        activation_beta: tuple[float, ...] | None = None,
        activations: tuple[str, ...] | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        input_forget: int = 0,
        layout: int = 0,
    ) -> tuple[T, ...]:
        states, alphas, betas = (initial_h, initial_c), activation_alpha, activation_beta
        node = Recurrent(
            x, w, r, bias, sequence_lens, states, direction, layout, clip, activations, alphas, betas,
            peepholes=p, input_forget=bool(input_forget),
        )  # fmt: skip
        return handler(b, node)

    return lstm


def gated(handler: Lowered[B, T]) -> Callable[..., tuple[T, ...]]:
    """GRU."""

    def gru(
        b: B,
        x: T,
        w: T,
        r: T,
        bias: T | None,
        sequence_lens: T | None,
        initial_h: T | None,
        *,
        activation_alpha: tuple[float, ...] | None = None,
        activation_beta: tuple[float, ...] | None = None,
        activations: tuple[str, ...] | None = None,
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        layout: int = 0,
        linear_before_reset: int = 0,
    ) -> tuple[T, ...]:
        states, alphas, betas = (initial_h,), activation_alpha, activation_beta
        node = Recurrent(
            x, w, r, bias, sequence_lens, states, direction, layout, clip, activations, alphas, betas,
            linear_before_reset=bool(linear_before_reset),
        )  # fmt: skip
        return handler(b, node)

    return gru


def plain(handler: Lowered[B, T]) -> Callable[..., tuple[T, ...]]:
    """RNN."""

    def rnn(
        b: B,
        x: T,
        w: T,
        r: T,
        bias: T | None,
        sequence_lens: T | None,
        initial_h: T | None,
        *,
        activation_alpha: tuple[float, ...] | None = None,
        activation_beta: tuple[float, ...] | None = None,
        activations: tuple[str, ...] = ("Tanh", "Tanh"),
        clip: float | None = None,
        direction: str = "forward",
        hidden_size: int | None = None,
        layout: int = 0,
    ) -> tuple[T, ...]:
        states, alphas, betas = (initial_h,), activation_alpha, activation_beta
        return handler(
            b, Recurrent(x, w, r, bias, sequence_lens, states, direction, layout, clip, activations, alphas, betas)
        )

    return rnn
