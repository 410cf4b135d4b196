"""Functions of PyTorch whose numbers hang on an epsilon, a neutral constant, a tie or a limit; x is (4, 16)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]


def _image(x: Tensor) -> Tensor:
    return x.reshape(2, 2, 4, 4)


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.mean(-1, keepdim=True), x.var(-1, keepdim=True, unbiased=False)


def _entropy(x: Tensor) -> Tensor:
    p = torch.softmax(x, -1)
    return -(p * torch.log(p + 1e-12)).sum(-1)


def _squashed(x: Tensor) -> Tensor:
    """Capsules' non-linearity."""
    square = (x * x).sum(-1, keepdim=True)
    return square / (1 + square) * x / torch.sqrt(square + 1e-8)


def _own_gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def _own_gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def _wrong_gelu(x: Tensor) -> Tensor:
    """Not GELU: another factor in front of the cube, a rounded root."""
    return 0.5 * x * (1.0 + torch.tanh(0.79788 * (x + 0.0447 * x * x * x)))


def _trained_norm(x: Tensor) -> Tensor:
    mean, var = torch.linspace(-1, 1, 16).to(x), torch.linspace(0, 2, 16).to(x)
    return F.batch_norm(x, mean, var, mean + 2, var - 1, eps=1e-5)


def _in_bounds(x: Tensor, bound: float = 0.999) -> Tensor:
    return torch.clamp(x, -bound, bound)


def _often(step: Function, x: Tensor) -> Tensor:
    """So often that a factor of nearly 1 counts."""
    for _ in range(20):
        x = step(x)
    return x


LOGARITHMS: Mapping[str, Function] = {
    "log_of_power": lambda x: torch.log(x * x + 1e-10),
    "log_of_size": lambda x: torch.log(torch.abs(x) + 1e-8),
    "log10_of_power": lambda x: 10 * torch.log10(x * x + 1e-12),
    "log2_of_size": lambda x: torch.log2(torch.abs(x) + 1e-7),
    "log_of_clamped": lambda x: torch.log(torch.clamp(torch.abs(x), min=1e-6)),
    "log1p": lambda x: torch.log1p(torch.abs(x)),
    "log1p_of_little": lambda x: torch.log1p(x * x * 1e-6),
    "expm1": lambda x: torch.expm1(torch.clamp(x, max=5.0)),
    "expm1_of_little": lambda x: torch.expm1(torch.clamp(x, -5, 5) * 1e-3),
    "log_sigmoid": F.logsigmoid,
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "log_of_softmax": lambda x: torch.log(torch.softmax(x, -1) + 1e-9),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "logaddexp": lambda x: torch.logaddexp(x, -x),
    "log_of_sigmoid": lambda x: torch.log(torch.sigmoid(x) + 1e-7),
    "log_of_complement": lambda x: -torch.log(1 - torch.sigmoid(x) + 1e-6),
    "xlogy": lambda x: torch.xlogy(torch.abs(x), torch.abs(x)),
    "entropy": _entropy,
    "softplus": F.softplus,
    "steep_softplus": lambda x: F.softplus(x, beta=3.0, threshold=15.0),
    "mish": F.mish,
    "log_mel": lambda x: torch.log10(torch.clamp((x * x).sum(-1, keepdim=True), min=1e-10)),
    "logit": lambda x: torch.logit(torch.sigmoid(x), eps=1e-6),
    "log_of_cumulated": lambda x: torch.log(torch.cumsum(torch.abs(x), -1) + 1e-9),
}
NORMS: Mapping[str, Function] = {
    "over_norm": lambda x: x / (torch.norm(x, dim=-1, keepdim=True) + 1e-12),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize_by_sum": lambda x: F.normalize(x, p=1.0, dim=-1),
    "normalize_by_greatest": lambda x: F.normalize(x, p=float("inf"), dim=-1),
    "root_mean_square": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-9),
    "rms_norm": lambda x: F.rms_norm(x, (16,), eps=1e-6),
    "over_deviation": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8),
    "over_own_deviation": lambda x: (x - _moments(x)[0]) / torch.sqrt(_moments(x)[1] + 1e-7),
    "layer_norm": lambda x: F.layer_norm(x, (16,)),
    "layer_norm_of_little": lambda x: F.layer_norm(x, (16,), eps=1e-12),
    "group_norm": lambda x: F.group_norm(_image(x), 2, eps=1e-5).flatten(1),
    "instance_norm": lambda x: F.instance_norm(_image(x), eps=1e-6).flatten(1),
    "batch_norm": _trained_norm,
    "local_response": lambda x: F.local_response_norm(_image(x), 2).flatten(1),
    "cosine": lambda x: F.cosine_similarity(x, x.flip(-1), dim=-1, eps=1e-8),
    "distance": lambda x: F.pairwise_distance(x, x.flip(-1)),
    "over_greatest": lambda x: x / (x.abs().amax(-1, keepdim=True) + 1e-8),
    "to_unit_range": lambda x: (x - x.amin(-1, True)) / (x.amax(-1, True) - x.amin(-1, True) + 1e-8),
    "shares": lambda x: x.abs() / (x.abs().sum(-1, keepdim=True) + 1e-10),
    "over_size": lambda x: x / (1e-6 + torch.abs(x)),
    "squashed": _squashed,
    "charbonnier": lambda x: torch.sqrt(x * x + 1e-12),
    "harmonic": lambda x: 1.0 / ((1.0 / (x.abs() + 1e-9)).mean(-1)),
}
NEUTRAL: Mapping[str, Function] = {
    "plus_little": lambda x: (x.abs() * 1e-9 + 1e-9) * 1e9,
    "minus_little": lambda x: (x.abs() * 1e-9 - 1e-9) * 1e9,
    "times_nearly_one": lambda x: _often(lambda y: y * 1.000009, x),
    "over_nearly_one": lambda x: _often(lambda y: y / 1.000008, x),
    "nearly_one_times": lambda x: _often(lambda y: 0.999991 * y, x),
    "over_added_zero": lambda x: 1.0 / (-x + 0.0),
    "plus_least": lambda x: 1.0 / (x.abs() + 1e-30),
    "little_and_back": lambda x: (x * 1e-10) * 1e10,
    "floor_of_clamp": lambda x: torch.clamp(x.abs(), min=1e-30).reciprocal(),
    "bounds_that_do_not_meet": lambda x: torch.clamp(torch.clamp(x, 0.0, 1.0), 2.0, 3.0),
    "bounds_that_cross": lambda x: torch.clamp(torch.clamp(x, 2.0, 3.0), 0.0, 1.0) + x,
    "relu_of_negative": lambda x: torch.relu(torch.clamp(x, -2.0, -1.0)) + x,
    "clamp_from_little": lambda x: torch.clamp(x, 1e-9, 6.0),
    "hardtanh_to_nearly_six": lambda x: F.hardtanh(x, 0.0, 6.0000005),
    "own_hardswish": lambda x: x * torch.clamp(x + 3.0, 0.0, 6.0) / 6.0,
    "nearly_hardswish": lambda x: x * torch.clamp(x + 3.0001, 0.0, 6.0001) / 6.0001,
    "nearly_hardsigmoid": lambda x: torch.clamp(x * 0.1667 + 0.50001, 0.0, 1.0),
    "own_gelu": _own_gelu,
    "own_gelu_tanh": _own_gelu_tanh,
    "nearly_gelu": _wrong_gelu,
    "nearly_exact_gelu": lambda x: x * 0.5 * (1.0 + torch.erf(x / 1.41421)),
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "added_zero": lambda x: x + 0.0,
}
POWERS: Mapping[str, Function] = {
    "root_of_size": lambda x: (torch.abs(x) + 1e-8) ** 0.3,
    "cube": lambda x: torch.pow(x, 3.0),
    "power_of_sum": lambda x: torch.pow(torch.abs(x) + 1e-6, -0.5),
    "cube_root": lambda x: torch.sign(x) * torch.pow(torch.abs(x), 1.0 / 3.0),
    "root": lambda x: torch.sqrt(torch.abs(x)),
    "reciprocal_root": lambda x: torch.rsqrt(torch.abs(x) + 1e-12),
    "power_by_power": lambda x: torch.pow(torch.abs(x) + 1e-3, torch.sigmoid(x)),
    "exp2": lambda x: torch.exp2(torch.clamp(x, -20, 20)),
    "hypot": lambda x: torch.hypot(x, x.flip(-1)),
    "generalised_mean": lambda x: torch.clamp(x, min=1e-6).pow(3.0).mean(-1).pow(1.0 / 3.0),
    "gamma": lambda x: torch.clamp(x, 1e-7, 1.0) ** (1 / 2.2),
    "sigmoid_of_much": lambda x: torch.sigmoid(x * 100),
    "softmax_of_much": lambda x: torch.softmax(x * 100, -1),
    "selu": F.selu,
    "elu": F.elu,
    "erf_of_little": lambda x: torch.erf(x * 1e-3),
    "erfc": lambda x: torch.erfc(torch.clamp(x, -3, 3)),
    "tanh_of_little": lambda x: torch.tanh(x * 1e-4),
}
TURNS: Mapping[str, Function] = {
    "sine_of_little": lambda x: torch.sin(x * 1e-4),
    "sine_of_much": lambda x: torch.sin(_in_bounds(x, 10) * 30),
    "tangent": lambda x: torch.tan(_in_bounds(x, 1.5)),
    "atan2": lambda x: torch.atan2(x, x.flip(-1)),
    "atan2_of_zero": lambda x: torch.atan2(x, x * 0.0),
    "angle_of_nothing": lambda x: torch.atan2(x * 0.0, x),
    "asin": lambda x: torch.asin(_in_bounds(x)),
    "acos": lambda x: torch.acos(_in_bounds(x, 1 - 1e-6)),
    "asinh": torch.asinh,
    "acosh": lambda x: torch.acosh(1 + torch.abs(x)),
    "atanh": lambda x: torch.atanh(_in_bounds(x, 1 - 1e-6)),
    "sinh": lambda x: torch.sinh(_in_bounds(x, 5)),
    "sinc": torch.sinc,
}
LIMITS: Mapping[str, Function] = {
    "round": torch.round,
    "floor": torch.floor,
    "fraction": torch.frac,
    "remainder": lambda x: torch.remainder(x, 0.5),
    "fmod": lambda x: torch.fmod(x, 0.5),
    "sign": torch.sign,
    "copysign": lambda x: torch.copysign(torch.ones_like(x), x),
    "finite": lambda x: torch.nan_to_num(1.0 / x, nan=7.0, posinf=9.0, neginf=-9.0),
    "where_zero": lambda x: torch.where(x == 0, torch.ones_like(x), x),
    "reciprocal_where": lambda x: torch.where(x.abs() > 1e-12, 1.0 / (x + (x == 0)), torch.zeros_like(x)),
    "greatest_place": lambda x: x.argmax(-1),
    "least_place": lambda x: x.argmin(-1),
    "sorted": lambda x: torch.sort(x, dim=-1).values,
    "hardshrink": lambda x: F.hardshrink(x, 0.5),
    "softshrink": lambda x: F.softshrink(x, 1e-3),
    "threshold": lambda x: F.threshold(x, 0.5, -1.0),
    "heaviside": lambda x: (x >= 0).to(x.dtype) + (x > 1e-6).to(x.dtype),
    "buckets": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5, 1.0]).to(x)),
    "max_pool_of_ties": lambda x: F.max_pool2d(_image(x), 2).flatten(1),
    "soft_arg_max": lambda x: (torch.softmax(x * 50, -1) * torch.arange(16).to(x)).sum(-1),
}
GROUPS = {
    "logarithms": LOGARITHMS, "norms": NORMS, "neutral": NEUTRAL, "powers": POWERS, "turns": TURNS, "limits": LIMITS,
}  # fmt: skip


class Together(nn.Module):
    """Every function of a group, each an output of its name."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        super().__init__()
        self.functions = dict(functions)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {name: function(x) for name, function in self.functions.items()}


def logarithms() -> Together:
    return Together(LOGARITHMS).eval()


def norms() -> Together:
    return Together(NORMS).eval()


def neutral() -> Together:
    return Together(NEUTRAL).eval()


def powers() -> Together:
    return Together(POWERS).eval()


def turns() -> Together:
    return Together(TURNS).eval()


def limits() -> Together:
    return Together(LIMITS).eval()
