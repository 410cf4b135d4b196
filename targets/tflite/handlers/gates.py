"""Activation functions of recurrent cells, by ONNX's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from convertkit.errors import Unsupported
from convertkit.targets.tflite.builder import Builder
from convertkit.targets.tflite.handlers.activations import (
    elu,
    hard_sigmoid,
    leaky_relu,
    softplus,
    softsign,
    thresholded_relu,
)
from convertkit.targets.tflite.handlers.elementary import like
from convertkit.targets.tflite.tensor import Tensor

Activation = Callable[[Builder, Tensor], Tensor]

# Names to (default alpha, default beta); None where the function has no such parameter.
_PARAMETERS: Mapping[str, tuple[float | None, float | None]] = {
    "relu": (None, None),
    "tanh": (None, None),
    "sigmoid": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, None),
}


def activations_of(
    names: Sequence[str] | None,
    alphas: Sequence[float] | None,
    betas: Sequence[float] | None,
    defaults: Sequence[str],
    direction: str,
) -> list[tuple[Activation, ...]]:
    """The functions of each direction's cell; alphas and betas are used up from the left by those that have one."""
    directions = 2 if direction == "bidirectional" else 1
    given = tuple(names) if names else tuple(defaults) * directions
    left_alpha, left_beta = list(alphas or ()), list(betas or ())
    made = []
    for name in given:
        key = name.lower()
        if key not in _PARAMETERS:
            raise Unsupported(f"activation {name}")
        alpha, beta = _PARAMETERS[key]
        if alpha is not None and left_alpha:
            alpha = left_alpha.pop(0)
        if beta is not None and left_beta:
            beta = left_beta.pop(0)
        made.append(_function(key, alpha or 0.0, beta or 0.0))
    count = len(defaults)
    return [tuple(made[place * count : (place + 1) * count]) for place in range(directions)]


def _function(key: str, alpha: float, beta: float) -> Activation:
    functions: Mapping[str, Activation] = {
        "relu": lambda b, x: b.relu(x),
        "tanh": lambda b, x: b.tanh(x),
        "sigmoid": lambda b, x: b.logistic(x),
        "softsign": softsign,
        "softplus": softplus,
        "affine": lambda b, x: b.add(b.mul(x, like(b, x, alpha)), like(b, x, beta)),
        "leakyrelu": lambda b, x: leaky_relu(b, x, alpha=alpha),
        "thresholdedrelu": lambda b, x: thresholded_relu(b, x, alpha=alpha),
        "scaledtanh": lambda b, x: b.mul(b.tanh(b.mul(x, like(b, x, beta))), like(b, x, alpha)),
        "hardsigmoid": lambda b, x: hard_sigmoid(b, x, alpha=alpha, beta=beta),
        "elu": lambda b, x: elu(b, x, alpha=alpha),
    }
    return functions[key]


def clipped(b: Builder, x: Tensor, limit: float | None) -> Tensor:
    """``x`` in [-limit, limit], where there is a limit."""
    if not limit:
        return x
    return b.minimum(b.maximum(x, like(b, x, -limit)), like(b, x, limit))
