"""RNN, GRU and LSTM, step by step.

Source: ONNX operators, RNN-22, GRU-22, LSTM-22: equations, order of gates, defaults of activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.onnx.twin.call import Call, Handler, Results
from convertkit.onnx.twin.handlers.elementary import logistic

Activation = Callable[[Array], Array]
State = tuple[Array, ...]


@dataclass(frozen=True, slots=True)
class _Cell:
    """One direction: the equations of a step with everything that they need.

    ``inner`` are the weights of the state (gates × hidden, hidden), ``outer`` the bias that goes with them.
    """

    call: Call
    hidden: int
    inner: Array
    outer: Array
    activations: tuple[Activation, ...]
    peepholes: Array | None

    def inside(self, state: Array, gates: slice) -> Array:
        """What the state adds to some gates."""
        rows = slice(gates.start * self.hidden, gates.stop * self.hidden)
        return self.product(state, self.inner[rows]) + self.outer[rows]

    def product(self, x: Array, weight: Array) -> Array:
        """``x @ weight.T`` as a kernel rounds it."""
        terms = self.call.noise.terms(weight.shape[1], x, weight)
        first, second = self.call.noise.operands(x, weight, self.call.dtype, terms)
        return self.call.step(first @ second.T, terms)

    def bent(self, place: int, x: Array) -> Array:
        """An activation of what may be clipped before."""
        bound = self.call.number("clip", 0.0)
        x = self.call.step(x)
        return self.call.step(self.activations[place](np.clip(x, -bound, bound) if bound > 0 else x))

    def parts(self, x: Array) -> list[Array]:
        """By gate."""
        return [x[:, start : start + self.hidden] for start in range(0, x.shape[1], self.hidden)]


Step = Callable[[_Cell, Array, State], State]


def _rnn_step(cell: _Cell, x: Array, state: State) -> State:
    return (cell.bent(0, x + cell.inside(state[0], slice(0, 1))),)


def _gru_step(cell: _Cell, x: Array, state: State) -> State:
    """``linear_before_reset`` says whether the reset gate meets the state or its product."""
    before, step = state[0], cell.call.step
    update_x, reset_x, new_x = cell.parts(x)
    update_h, reset_h = cell.parts(cell.inside(before, slice(0, 2)))
    update, reset = cell.bent(0, update_x + update_h), cell.bent(0, reset_x + reset_h)
    if cell.call.whole("linear_before_reset"):
        new = new_x + step(reset * cell.inside(before, slice(2, 3)))
    else:
        new = new_x + cell.inside(step(reset * before), slice(2, 3))
    return (step(step(step(1.0 - update) * cell.bent(1, new)) + step(update * before)),)


def _lstm_step(cell: _Cell, x: Array, state: State) -> State:
    hidden, memory = state
    step = cell.call.step
    pairs = zip(cell.parts(x), cell.parts(cell.inside(hidden, slice(0, 4))), strict=True)
    entry, out, forget, new = (first + second for first, second in pairs)
    peeps = np.zeros(3 * cell.hidden) if cell.peepholes is None else cell.peepholes
    peep_in, peep_out, peep_forget = peeps.reshape(3, -1)
    entry = cell.bent(0, entry + peep_in * memory)
    forget = step(1.0 - entry) if cell.call.whole("input_forget") else cell.bent(0, forget + peep_forget * memory)
    memory = step(step(forget * memory) + step(entry * cell.bent(1, new)))
    out = cell.bent(0, out + peep_out * memory)
    return step(out * step(cell.activations[2](memory))), memory


def _layer(gates: int, states: int, defaults: Sequence[str], step: Step) -> Handler:
    """A layer of ``gates`` gates whose cell carries ``states`` states (hidden, and an LSTM's memory)."""

    def handler(call: Call) -> Results:
        batch_first = bool(call.whole("layout"))
        x = call.array(0).swapaxes(0, 1) if batch_first else call.array(0)
        directions, hidden = call.array(1).shape[0], call.array(2).shape[2]
        starts = [_start(call, 5 + place, (directions, x.shape[1], hidden), batch_first) for place in range(states)]
        lengths = call.optional(4)
        lengths = np.full(x.shape[1], x.shape[0]) if lengths is None else lengths.astype(np.int64)
        functions = _activations(call, defaults, directions)
        ways = _ways(call, directions)
        runs = []
        for place, backward in enumerate(ways):
            cell = _cell(call, place, gates, hidden, functions[place])
            begin = tuple(start[place] for start in starts)
            runs.append(_run(cell, step, _entered(cell, call, x, place, gates), begin, lengths, backward))
        y = np.stack([run[0] for run in runs], 1)
        last = [np.stack([run[1][place] for run in runs]) for place in range(states)]
        if batch_first:
            y, last = y.transpose(2, 0, 1, 3), [each.swapaxes(0, 1) for each in last]
        return [call.rounded(each) for each in (y, *last)]

    return handler


def _start(call: Call, place: int, shape: tuple[int, ...], batch_first: bool) -> Array:
    given = call.optional(place)
    if given is None:
        return np.zeros(shape)
    return given.swapaxes(0, 1) if batch_first else given


def _ways(call: Call, directions: int) -> list[bool]:
    if directions == 2:
        return [False, True]
    return [call.text("direction", "forward") == "reverse"]


def _cell(call: Call, place: int, gates: int, hidden: int, functions: tuple[Activation, ...]) -> _Cell:
    bias, peepholes = call.optional(3), call.optional(7)
    outer = np.zeros(gates * hidden) if bias is None else bias[place, gates * hidden :]
    return _Cell(call, hidden, call.array(2)[place], outer, functions, None if peepholes is None else peepholes[place])


def _entered(cell: _Cell, call: Call, x: Array, place: int, gates: int) -> Array:
    """What all inputs add to all gates: (steps, batch, gates × hidden)."""
    bias = call.optional(3)
    added = np.zeros(gates * cell.hidden) if bias is None else bias[place, : gates * cell.hidden]
    flat = cell.product(x.reshape(-1, x.shape[2]), call.array(1)[place])
    return np.asarray((flat + added).reshape(*x.shape[:2], -1))


def _run(cell: _Cell, step: Step, entered: Array, state: State, lengths: Array, backward: bool) -> tuple[Array, State]:
    """Outputs (steps, batch, hidden), zero behind a sequence's end, and the state at that end."""
    steps, batch = entered.shape[:2]
    y, samples = np.zeros((steps, batch, cell.hidden)), np.arange(batch)
    for turn in range(steps):
        place = np.maximum(lengths - 1 - turn, 0) if backward else np.full(batch, turn)
        active = (turn < lengths)[:, None]
        after = step(cell, entered[place, samples], state)
        state = tuple(np.where(active, new, old) for new, old in zip(after, state, strict=True))
        goes_on = active[:, 0]
        y[place[goes_on], samples[goes_on]] = state[0][goes_on]
    return y, state


_PLAIN: Mapping[str, Activation] = {
    "Relu": lambda x: np.maximum(x, 0.0),
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Softsign": lambda x: x / (1.0 + np.abs(x)),
    "Tanh": np.tanh,
}
_WITH_ALPHA: Mapping[str, tuple[float, Callable[[Array, float], Array]]] = {
    "Elu": (1.0, lambda x, alpha: np.where(x >= 0.0, x, alpha * np.expm1(x))),
    "LeakyRelu": (0.01, lambda x, alpha: np.where(x >= 0.0, x, alpha * x)),
    "ThresholdedRelu": (1.0, lambda x, alpha: np.where(x >= alpha, x, 0.0)),
}
_WITH_BOTH: Mapping[str, tuple[float, float, Callable[[Array, float, float], Array]]] = {
    "Affine": (1.0, 0.0, lambda x, alpha, beta: alpha * x + beta),
    "HardSigmoid": (0.2, 0.5, lambda x, alpha, beta: np.clip(alpha * x + beta, 0.0, 1.0)),
    "ScaledTanh": (1.0, 1.0, lambda x, alpha, beta: alpha * np.tanh(beta * x)),
}
"""Activations with the defaults of their parameters, which a node lists for those that have them."""


def _activations(call: Call, defaults: Sequence[str], directions: int) -> list[tuple[Activation, ...]]:
    names = list(call.node.attributes.get_strings("activations", ())) or list(defaults) * directions
    alphas, betas = iter(call.numbers("activation_alpha")), iter(call.numbers("activation_beta"))
    made: list[Activation] = [_activation(call, str(name), alphas, betas) for name in names]
    count = len(defaults)
    return [tuple(made[place * count : (place + 1) * count]) for place in range(directions)]


def _activation(call: Call, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Activation:
    titles = {title.lower(): title for title in ("Sigmoid", *_PLAIN, *_WITH_ALPHA, *_WITH_BOTH)}
    title = titles.get(name.lower(), "")
    if title == "Sigmoid":
        return partial(logistic, call)
    if title in _PLAIN:
        return _PLAIN[title]
    if title in _WITH_ALPHA:
        alpha, bend = _WITH_ALPHA[title]
        alpha = next(alphas, alpha)
        return lambda x: bend(x, alpha)
    if title in _WITH_BOTH:
        first, second, curve = _WITH_BOTH[title]
        first, second = next(alphas, first), next(betas, second)
        return lambda x: curve(x, first, second)
    raise Unsupported(f"activation {name!r}", subject=call.title)


HANDLERS: Mapping[str, Handler] = {
    "GRU": _layer(3, 1, ("Sigmoid", "Tanh"), _gru_step),
    "LSTM": _layer(4, 2, ("Sigmoid", "Tanh", "Tanh"), _lstm_step),
    "RNN": _layer(1, 1, ("Tanh",), _rnn_step),
}
