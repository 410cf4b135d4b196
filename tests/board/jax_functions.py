"""Functions of JAX whose numbers hang on an epsilon, a neutral constant, a tie or a limit; x is (4, 16)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
from jax import Array

Function = Callable[[Array], Array]


def _spread(x: Array, epsilon: float) -> Array:
    return (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + epsilon)


def _fast_norm(x: Array) -> Array:
    """Flax's default: the mean of squares minus the square of the mean, not below 0."""
    mean = x.mean(-1, keepdims=True)
    variance = jnp.maximum(0.0, (x * x).mean(-1, keepdims=True) - mean * mean)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-6)


def _entropy(x: Array) -> Array:
    p = jax.nn.softmax(x)
    return -(p * jnp.log(p + 1e-12)).sum(-1)


def _often(step: Function, x: Array) -> Array:
    """So often that a factor of nearly 1 counts."""
    for _ in range(20):
        x = step(x)
    return x


LOGARITHMS: Mapping[str, Function] = {
    "log_of_power": lambda x: jnp.log(x * x + 1e-10),
    "log_of_size": lambda x: jnp.log(jnp.abs(x) + 1e-8),
    "log10_of_clamped": lambda x: jnp.log10(jnp.maximum(jnp.abs(x), 1e-7)),
    "log2_of_size": lambda x: jnp.log2(jnp.abs(x) + 1e-6),
    "log1p": lambda x: jnp.log1p(jnp.abs(x)),
    "log1p_of_little": lambda x: jnp.log1p(x * x * 1e-5),
    "expm1": lambda x: jnp.expm1(jnp.clip(x, -5, 5)),
    "log_sigmoid": jax.nn.log_sigmoid,
    "log_of_sigmoid": lambda x: jnp.log(jax.nn.sigmoid(x) + 1e-7),
    "log_softmax": jax.nn.log_softmax,
    "log_of_softmax": lambda x: jnp.log(jax.nn.softmax(x) + 1e-9),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=-1),
    "logaddexp": lambda x: jnp.logaddexp(x, -x),
    "softplus": jax.nn.softplus,
    "entropy": _entropy,
    "xlogy": lambda x: jax.scipy.special.xlogy(jnp.abs(x), jnp.abs(x)),
}
NORMS: Mapping[str, Function] = {
    "over_norm": lambda x: x / (jnp.linalg.norm(x, axis=-1, keepdims=True) + 1e-12),
    "root_mean_square": lambda x: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-9),
    "over_deviation": lambda x: _spread(x, 1e-8),
    "standardize": lambda x: jax.nn.standardize(x, axis=-1, epsilon=1e-6),
    "over_greatest": lambda x: x / (jnp.abs(x).max(-1, keepdims=True) + 1e-8),
    "to_unit_range": lambda x: (x - x.min(-1, keepdims=True)) / (jnp.ptp(x, -1, keepdims=True) + 1e-8),
    "shares": lambda x: jnp.abs(x) / (jnp.abs(x).sum(-1, keepdims=True) + 1e-10),
    "over_size": lambda x: x / (1e-6 + jnp.abs(x)),
    "charbonnier": lambda x: jnp.sqrt(x * x + 1e-12),
    "cosine": lambda x: (x * x[:, ::-1]).sum(-1) / ((x * x).sum(-1) + 1e-8),
}
NEUTRAL: Mapping[str, Function] = {
    "plus_little": lambda x: (jnp.abs(x) * 1e-9 + 1e-9) * 1e9,
    "times_nearly_one": lambda x: _often(lambda y: y * 1.000009, x),
    "over_nearly_one": lambda x: _often(lambda y: y / 1.000008, x),
    "plus_least": lambda x: 1.0 / (jnp.abs(x) + 1e-30),
    "bounds_that_do_not_meet": lambda x: jnp.clip(jnp.clip(x, 0.0, 1.0), 2.0, 3.0) + x,
    "relu_of_negative": lambda x: jax.nn.relu(jnp.clip(x, -2.0, -1.0)) + x,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_tanh": jax.nn.gelu,
    "nearly_gelu": lambda x: 0.5 * x * (1.0 + jnp.tanh(0.79788 * (x + 0.0447 * x**3))),
    "nearly_hardswish": lambda x: x * jnp.clip(x + 3.0001, 0.0, 6.0001) / 6.0001,
    "hard_swish": jax.nn.hard_swish,
    "squareplus": jax.nn.squareplus,
}
POWERS: Mapping[str, Function] = {
    "root_of_size": lambda x: (jnp.abs(x) + 1e-8) ** 0.3,
    "cube": lambda x: x**3,
    "cube_root": jnp.cbrt,
    "power_by_power": lambda x: jnp.power(jnp.abs(x) + 1e-3, jax.nn.sigmoid(x)),
    "hypot": lambda x: jnp.hypot(x, x[:, ::-1]),
    "exp2": lambda x: jnp.exp2(jnp.clip(x, -20, 20)),
    "sigmoid_of_much": lambda x: jax.nn.sigmoid(x * 100),
    "erf_of_little": lambda x: jax.scipy.special.erf(x * 1e-3),
    "tanh_of_little": lambda x: jnp.tanh(x * 1e-4),
    "elu": jax.nn.elu,
    "celu": jax.nn.celu,
    "atan2": lambda x: jnp.arctan2(x, x[:, ::-1]),
    "atan2_of_zero": lambda x: jnp.arctan2(x, x * 0.0),
    "asin": lambda x: jnp.arcsin(jnp.clip(x, -0.999, 0.999)),
    "asinh": jnp.arcsinh,
    "atanh": lambda x: jnp.arctanh(jnp.clip(x, -0.999, 0.999)),
    "sinh": lambda x: jnp.sinh(jnp.clip(x, -5, 5)),
    "sine_of_much": lambda x: jnp.sin(jnp.clip(x, -10, 10) * 30),
    "sinc": jnp.sinc,
}
LIMITS: Mapping[str, Function] = {
    "round": jnp.round,
    "floor": jnp.floor,
    "remainder": lambda x: jnp.remainder(x, 0.5),
    "fmod": lambda x: jnp.fmod(x, 0.5),
    "sign": jnp.sign,
    "finite": lambda x: jnp.nan_to_num(1.0 / x, nan=7.0, posinf=9.0, neginf=-9.0),
    "where_zero": lambda x: jnp.where(x == 0, 1.0, x),
    "heaviside": lambda x: jnp.heaviside(x, 0.5),
    "soft_arg_max": lambda x: (jax.nn.softmax(x * 50) * jnp.arange(16, dtype=x.dtype)).sum(-1),
    "turned": lambda x: jnp.mod(x + math.pi, 2 * math.pi) - math.pi,
}
INTEGERS: Mapping[str, Function] = {
    "copysign": lambda x: jnp.copysign(1.0, x),
    "greatest_place": lambda x: x.argmax(-1),
    "sorted": lambda x: jnp.sort(x, axis=-1),
}
"""What JAX computes with bits and integers inside."""
GROUPS = {
    "logarithms": LOGARITHMS, "norms": NORMS, "neutral": NEUTRAL, "powers": POWERS, "limits": LIMITS,
    "integers": INTEGERS,
}  # fmt: skip


def logarithms(x: Array) -> dict[str, Array]:
    return {name: function(x) for name, function in LOGARITHMS.items()}


def norms(x: Array) -> dict[str, Array]:
    return {name: function(x) for name, function in NORMS.items()}


def neutral(x: Array) -> dict[str, Array]:
    return {name: function(x) for name, function in NEUTRAL.items()}


def powers(x: Array) -> dict[str, Array]:
    return {name: function(x) for name, function in POWERS.items()}


def limits(x: Array) -> dict[str, Array]:
    return {name: function(x) for name, function in LIMITS.items()}


def integers(x: Array) -> dict[str, Array]:
    return {name: function(x) for name, function in INTEGERS.items()}
