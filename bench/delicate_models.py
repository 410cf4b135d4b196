"""Small models whose results hang on an epsilon, a mask or a cancellation: right and wrong are hard to tell apart.

``MODELS`` maps a name to a function of tensors, ``SHAPES`` to the shapes of its inputs.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

Tensor = torch.Tensor
Function = Callable[..., Any]
USUAL = ((2, 3, 37),)
IMAGE = ((1, 6, 7, 9),)
AUDIO = ((1, 512),)
PAIR = ((2, 5, 19), (2, 5, 19))
MODELS: dict[str, Function] = {}
SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {}
EPSILONS = (1e-5, 1e-8, 1e-12)


def model(name: str, function: Function, shapes: tuple[tuple[int, ...], ...] = USUAL) -> None:
    """Enter a model."""
    MODELS[name], SHAPES[name] = function, shapes


def each(
    name: str, function: Function, shapes: tuple[tuple[int, ...], ...] = USUAL, epsilons: tuple[float, ...] = EPSILONS
) -> None:
    """Enter a model for each epsilon, its last argument by name."""
    for epsilon in epsilons:
        model(f"{name} {epsilon:g}", partial(function, e=epsilon), shapes)


def centred(x: Tensor, dim: Any = -1) -> Tensor:
    return x - x.mean(dim, keepdim=True)


def _solved(x: Tensor) -> Tensor:
    a, b, c, d = x[..., :4].unbind(-1)
    return torch.stack([d, -b, -c, a], -1) / (a * d - b * c + 1e-6)[..., None]


# --- norms -------------------------------------------------------------------------------------------------------
each("layer norm", lambda x, e: F.layer_norm(x, x.shape[-1:], eps=e))
each("layer norm of an image", lambda x, e: F.layer_norm(x, x.shape[-3:], eps=e), IMAGE)
each("instance norm", lambda x, e: F.instance_norm(x, eps=e), IMAGE)
each("group norm", lambda x, e: F.group_norm(x, 2, eps=e), IMAGE)
each("group norm of features", lambda x, e: F.group_norm(x, 3, eps=e), ((4, 12),))
each("instance norm of a logarithm", lambda x, e: F.instance_norm(torch.log(x * x + 1e-06), eps=e))
each("norm by hand", lambda x, e: centred(x) * torch.rsqrt((centred(x) ** 2).mean(-1, keepdim=True) + e))
each(
    "norm by hand of a logarithm",
    lambda x, e: ((c := centred(torch.log(x.abs() + 1e-06))), c * torch.rsqrt((c * c).mean(-1, keepdim=True) + e))[-1],
)
each(
    "E[x²]-E[x]²",
    lambda x, e: ((m := x.mean(-1, keepdim=True)), (x - m) / torch.sqrt((x * x).mean(-1, keepdim=True) - m * m + e))[
        -1
    ],
)
each("E[x²]-E[x]² clipped", lambda x, e: torch.sqrt(torch.clamp((x * x).mean(-1) - x.mean(-1) ** 2, min=e)))
each("RMS", lambda x, e: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + e))
each("RMS module", lambda x, e: F.rms_norm(x, x.shape[-1:], eps=e))
each("L2", lambda x, e: F.normalize(x, dim=-1, eps=e))
each("L2 over channels", lambda x, e: F.normalize(x, dim=1, eps=e), IMAGE)
each("L1", lambda x, e: F.normalize(x, p=1.0, dim=-1, eps=e))
each("L∞", lambda x, e: x / (x.abs().amax(-1, keepdim=True) + e))
each("L2 by hand", lambda x, e: x / (x.norm(dim=-1, keepdim=True) + e))
each("sqrt of sum", lambda x, e: x / torch.sqrt((x * x).sum(-1, keepdim=True) + e))
each("z-score", lambda x, e: centred(x) / (x.std(-1, keepdim=True) + e))
each("global z-score", lambda x, e: (x - x.mean()) / (x.std() + e))
each("min-max", lambda x, e: (x - x.amin(-1, keepdim=True)) / (x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True) + e))
each("local response", lambda x, e: x / (F.avg_pool2d(x * x, 3, 1, 1) + e) ** 0.75, IMAGE)
each(
    "divisive normalisation",
    lambda x, e: x / torch.sqrt(F.conv2d(x * x, torch.full((6, 6, 1, 1), 0.1, dtype=x.dtype)) + e),
    IMAGE,
)
each(
    "global response",
    lambda x, e: ((g := x.norm(p=2, dim=(2, 3), keepdim=True)), x * (g / (g.mean(1, keepdim=True) + e)) + x)[-1],
    IMAGE,
)
each(
    "batch statistics",
    lambda x, e: (x - x.mean((0, 2, 3), keepdim=True)) / torch.sqrt(x.var((0, 2, 3), keepdim=True, unbiased=False) + e),
    IMAGE,
)
# --- pooled statistics -------------------------------------------------------------------------------------------
each("standard deviation pooled", lambda x, e: torch.cat([x.mean(-1), torch.sqrt(x.var(-1, unbiased=False) + e)], -1))
each("std pooled and clipped", lambda x, e: torch.cat([x.mean(-1), x.std(-1).clamp(min=e)], -1))
each(
    "attentive statistics",
    lambda x, e: (
        (w := torch.softmax(x * 2, -1)),
        (m := (x * w).sum(-1)),
        torch.cat([m, torch.sqrt(((x * x * w).sum(-1) - m * m).clamp(min=e))], -1),
    )[-1],
)
each("log of a variance", lambda x, e: torch.log(x.var(-1) + e))
each("coefficient of variation", lambda x, e: x.std(-1) / (x.mean(-1).abs() + e))
each("skewness", lambda x, e: ((c := centred(x)), (c**3).mean(-1) / ((c * c).mean(-1) ** 1.5 + e))[-1])
each("kurtosis", lambda x, e: ((c := centred(x)), (c**4).mean(-1) / ((c * c).mean(-1) ** 2 + e))[-1])
each("correlation", lambda x, y, e: (centred(x) * centred(y)).mean(-1) / (x.std(-1) * y.std(-1) + e), PAIR)
each("covariance", lambda x, e: ((c := centred(x)), c @ c.transpose(-1, -2) / x.shape[-1] + e * torch.eye(3))[-1])
# --- distances ---------------------------------------------------------------------------------------------------
each("cosine similarity", lambda x, y, e: F.cosine_similarity(x, y, dim=-1, eps=e), PAIR)
each("cosine by hand", lambda x, y, e: (x * y).sum(-1) / (x.norm(dim=-1) * y.norm(dim=-1) + e), PAIR)
each(
    "cosine matrix",
    lambda x, y, e: F.normalize(x, dim=-1, eps=e) @ F.normalize(y, dim=-1, eps=e).transpose(-1, -2),
    PAIR,
)
each("distance", lambda x, y, e: torch.sqrt(((x - y) ** 2).sum(-1) + e), PAIR)
each("pairwise distance", lambda x, y, e: F.pairwise_distance(x, y, eps=e), PAIR)
each(
    "distance by the square",
    lambda x, y, e: torch.sqrt(
        ((x * x).sum(-1)[..., None] + (y * y).sum(-1)[:, None] - 2 * x @ y.transpose(-1, -2)).clamp(min=e)
    ),
    PAIR,
)
model("cdist", torch.cdist, PAIR)
model("angle between", lambda x, y: torch.acos(F.cosine_similarity(x, y, dim=-1).clamp(-1 + 1e-07, 1 - 1e-07)), PAIR)
model("Gaussian kernel", lambda x, y: torch.exp(-0.5 * torch.cdist(x, y) ** 2), PAIR)
each(
    "SI-SDR",
    lambda x, y, e: (
        (a := ((x * y).sum(-1, keepdim=True) / ((y * y).sum(-1, keepdim=True) + e))),
        10 * torch.log10(((a * y) ** 2).sum(-1) / (((x - a * y) ** 2).sum(-1) + e) + e),
    )[-1],
    PAIR,
)
# --- entropies, exponentials -------------------------------------------------------------------------------------
each("entropy", lambda x, e: -((p := torch.softmax(x, -1)), (p * torch.log(p + e)).sum(-1))[-1])
model("entropy of log_softmax", lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(-1))
model("xlogy", lambda x: torch.special.xlogy(x.abs(), x.abs()).sum(-1))
each(
    "KL",
    lambda x, y, e: (
        (p := torch.softmax(x, -1)),
        (q := torch.softmax(y, -1)),
        (p * (torch.log(p + e) - torch.log(q + e))).sum(-1),
    )[-1],
    PAIR,
)
model("KL of Gaussians", lambda x, y: 0.5 * (torch.exp(y) + x * x - 1 - y).sum(-1), PAIR)
model("softplus by hand", lambda x: torch.log1p(torch.exp(-x.abs())) + torch.clamp(x, min=0))
model("softplus plainly", lambda x: torch.log(1 + torch.exp(x)))
model("softplus of 20", lambda x: F.softplus(x * 20, beta=3.0, threshold=10.0))
model("mish", F.mish)
model("logsigmoid", F.logsigmoid)
model("logsumexp", lambda x: torch.logsumexp(x, -1))
each(
    "logsumexp by hand",
    lambda x, e: ((m := x.amax(-1, keepdim=True)), m.squeeze(-1) + torch.log(torch.exp(x - m).sum(-1) + e))[-1],
)
model("logsumexp plainly", lambda x: torch.log(torch.exp(x).sum(-1)))
model("logaddexp", torch.logaddexp, PAIR)
model("log of a sigmoid", lambda x: torch.log(torch.sigmoid(x) + 1e-12) - torch.log(1 - torch.sigmoid(x) + 1e-12))
each("logit", lambda x, e: torch.logit(torch.sigmoid(x), eps=e), epsilons=(0.001, 1e-06))
model("logit clipped", lambda x: torch.logit(x, eps=1e-06))
model("focal loss", lambda x: ((p := torch.sigmoid(x)), -((1 - p) ** 2) * torch.log(p.clamp(min=1e-08)))[-1])
model("erfinv", lambda x: torch.erfinv(torch.clamp(x, -0.999999, 0.999999)))
model("normal quantile", lambda x: math.sqrt(2) * torch.erfinv(2 * torch.sigmoid(x) - 1))
model("logarithm of the normal cdf", torch.special.log_ndtr)
model("tail of erfc", torch.erfc)
model(
    "expm1 over x",
    lambda x: torch.where(
        x.abs() < 1e-05, torch.ones_like(x), torch.expm1(x) / torch.where(x == 0, torch.ones_like(x), x)
    ),
)
model("sinc", torch.sinc)
model("log1p of a product", lambda x: torch.log1p(x.abs() * 0.001))
model("atanh", lambda x: torch.atanh(torch.tanh(x) * (1 - 1e-06)))
model("asinh", torch.asinh)
model("gumbel", lambda x: -torch.log(-torch.log(torch.sigmoid(x).clamp(1e-20, 1 - 1e-07)) + 1e-20))
model(
    "gumbel softmax",
    lambda x, y: torch.softmax((x - torch.log(-torch.log(torch.sigmoid(y) + 1e-10) + 1e-10)) / 0.5, -1),
    PAIR,
)
model("sharp softmax", lambda x: torch.softmax(x * 1000.0, -1))
model(
    "sparsemax",
    lambda x: (
        (s := torch.sort(x, -1, descending=True).values),
        (c := torch.cumsum(s, -1)),
        (k := torch.arange(1, x.shape[-1] + 1)),
        (n := (1 + k * s > c).sum(-1, keepdim=True).clamp(min=1)),
        torch.clamp(x - (torch.gather(c, -1, n - 1) - 1) / n, min=0),
    )[-1],
)
model("softmin", lambda x: F.softmin(x * 5, dim=-1))
# --- masks -------------------------------------------------------------------------------------------------------
model("softmax masked by -1e9", lambda x, y: torch.softmax(x + (y < 0) * -1000000000.0, -1), PAIR)
model(
    "softmax masked by -inf", lambda x, y: torch.nan_to_num(torch.softmax(torch.where(y < 0, -math.inf, x), -1)), PAIR
)
model(
    "softmax masked by finfo",
    lambda x, y: torch.softmax(x.masked_fill(y < 0, torch.finfo(torch.float32).min), -1),
    PAIR,
)
each("masked mean", lambda x, y, e: ((m := (y > 0).to(x.dtype)), (x * m).sum(-1) / (m.sum(-1) + e))[-1], PAIR)
each(
    "masked mean clipped",
    lambda x, y, e: ((m := (y > 0).to(x.dtype)), (x * m).sum(-1) / m.sum(-1).clamp(min=e))[-1],
    PAIR,
)
model("masked max", lambda x, y: x.masked_fill(y < 0, -1e30).amax(-1), PAIR)
each(
    "masked variance",
    lambda x, y, e: (
        (m := (y > 0).to(x.dtype)),
        (n := m.sum(-1, keepdim=True).clamp(min=1)),
        (c := (x - (x * m).sum(-1, keepdim=True) / n)),
        torch.sqrt((m * c * c).sum(-1) / n.squeeze(-1) + e),
    )[-1],
    PAIR,
)
model(
    "attention of masked rows",
    lambda x, y: F.scaled_dot_product_attention(
        x, y, x, attn_mask=torch.where(y @ y.transpose(-1, -2) > 0, 0.0, -10000.0).to(x.dtype)
    ),
    PAIR,
)
each(
    "linear attention",
    lambda x, y, e: (
        (q := (F.elu(x) + 1)),
        (k := (F.elu(y) + 1)),
        q @ (k.transpose(-1, -2) @ y) / (q @ k.sum(-2, keepdim=True).transpose(-1, -2) + e),
    )[-1],
    PAIR,
)
# --- accumulations -----------------------------------------------------------------------------------------------
model("cumsum", lambda x: torch.cumsum(x, -1))
model("cumsum of differences", lambda x: torch.cumsum(x[..., 1:] - x[..., :-1], -1) - (x[..., 1:] - x[..., :1]))
model("cumprod", lambda x: torch.cumprod(1 + 0.1 * x, -1))
model("logcumsumexp", lambda x: torch.logcumsumexp(x, -1))
model("cumulative mean", lambda x: torch.cumsum(x, -1) / torch.arange(1, x.shape[-1] + 1))
model("product", lambda x: torch.prod(x, -1))
each("geometric mean", lambda x, e: torch.exp(torch.log(x.abs() + e).mean(-1)))
each("harmonic mean", lambda x, e: x.shape[-1] / (1 / (x.abs() + e)).sum(-1))
each("generalised mean", lambda x, e: x.clamp(min=e).pow(3.0).mean(-1).pow(1 / 3.0), epsilons=(1e-06, 0.001))
model("compensated sum", lambda x: ((s := (x[..., 0] + x[..., 1])), s + (x[..., 0] - s + x[..., 1]))[-1])
model("running variance", lambda x: torch.cumsum(x * x, -1) / 37 - (torch.cumsum(x, -1) / 37) ** 2)


# --- spectra and sound -------------------------------------------------------------------------------------------
def _power(x: Tensor) -> Tensor:
    s = torch.stft(x, 64, 16, window=torch.hann_window(64, dtype=x.dtype), return_complex=True)
    return s.real**2 + s.imag**2


_MEL = torch.rand((12, 33), generator=torch.Generator().manual_seed(3)) * 0.1


def _mel(x: Tensor) -> Tensor:
    return _MEL.to(x.dtype) @ _power(x)


each("log-mel", lambda x, e: torch.log(_mel(x) + e), AUDIO, (0.001, 1e-06, 1e-10))
each(
    "log-mel clipped and normalised",
    lambda x, e: ((d := (10 * torch.log10(_mel(x).clamp(min=e)))), centred(d) / (d.std(-1, keepdim=True) + 1e-08))[-1],
    AUDIO,
    (1e-06, 1e-10),
)
model(
    "log-mel as in speech recognition",
    lambda x: ((d := torch.log10(_mel(x).clamp(min=1e-10))), (torch.maximum(d, d.amax() - 8.0) + 4.0) / 4.0)[-1],
    AUDIO,
)
each(
    "PCEN",
    lambda x, e: ((p := _mel(x)), (p / (e + p.mean(-1, keepdim=True)) ** 0.98 + 2.0) ** 0.5 - 2.0**0.5)[-1],
    AUDIO,
    (1e-06, 1e-10),
)
each(
    "spectral flatness",
    lambda x, e: ((p := _power(x)), torch.exp(torch.log(p + e).mean(1)) / (p.mean(1) + e))[-1],
    AUDIO,
    (1e-06, 1e-10),
)
each(
    "spectral centroid",
    lambda x, e: ((p := _power(x)), (p * torch.arange(33)[:, None]).sum(1) / (p.sum(1) + e))[-1],
    AUDIO,
    (1e-06, 1e-10),
)
model("magnitude", lambda x: torch.fft.rfft(x).abs(), AUDIO)
model("phase", lambda x: torch.angle(torch.fft.rfft(x + 0.5 * torch.arange(512) / 512)), AUDIO)
model("cepstrum", lambda x: torch.fft.irfft(torch.log(torch.fft.rfft(x).abs() + 1e-06)), AUDIO)
each(
    "autocorrelation",
    lambda x, e: ((a := torch.fft.irfft(torch.fft.rfft(x).abs() ** 2)), a / (a[..., :1] + e))[-1],
    AUDIO,
    (1e-06, 1e-10),
)
each("spectral flux", lambda x, e: torch.log((x[..., 1:] - x[..., :-1]).abs().sum(-1) + e))
each(
    "pre-emphasis and AGC",
    lambda x, e: (
        (d := (x[:, 1:497] - 0.97 * x[:, :496])),
        d[:, :488] / torch.sqrt(F.avg_pool1d((d * d)[:, None], 16, 8).repeat_interleave(8, -1)[:, 0, :488] + e),
    )[-1],
    AUDIO,
    (1e-06, 1e-10),
)
model("decibels", lambda x: 20 * torch.log10(torch.clamp(x.abs(), min=1e-05)))
model("mu-law", lambda x: torch.sign(x) * torch.log1p(255 * x.abs().clamp(max=1)) / math.log(256))
# --- geometry, complex -------------------------------------------------------------------------------------------
model("atan2", torch.atan2, PAIR)
model("abs of complex", lambda x, y: torch.complex(x, y).abs(), PAIR)
model("angle of complex", lambda x, y: torch.angle(torch.complex(x, y)), PAIR)
model("hypot", torch.hypot, PAIR)
model("complex division", lambda x, y: torch.view_as_real(torch.complex(x, y) / torch.complex(y, x + 1)), PAIR)
model("polar", lambda x, y: torch.view_as_real(torch.polar(x.abs(), y)), PAIR)
each("unit quaternion", lambda x, e: x[..., :4] / (x[..., :4].norm(dim=-1, keepdim=True) + e))
model(
    "6D rotation",
    lambda x: (
        (a := x[..., :3]),
        (b := x[..., 3:6]),
        (u := F.normalize(a, dim=-1)),
        (v := F.normalize(b - (u * b).sum(-1, keepdim=True) * u, dim=-1)),
        torch.cat([u, v, torch.linalg.cross(u, v)], -1),
    )[-1],
)
model(
    "axis angle",
    lambda x: (
        (v := x[..., :3]),
        (t := (x[..., :3] ** 2).sum(-1, keepdim=True).add(1e-08).sqrt()),
        torch.sin(t) / t * v + (1 - torch.cos(t)) / t**2 * v.roll(1, -1),
    )[-1],
)
model(
    "IoU",
    lambda x, y: (
        (a := x[..., :4].abs()),
        (b := y[..., :4].abs()),
        (
            i := (
                (
                    torch.minimum(a[..., 0] + a[..., 2], b[..., 0] + b[..., 2]) - torch.maximum(a[..., 0], b[..., 0])
                ).clamp(min=0)
                * (
                    torch.minimum(a[..., 1] + a[..., 3], b[..., 1] + b[..., 3]) - torch.maximum(a[..., 1], b[..., 1])
                ).clamp(min=0)
            )
        ),
        i / (a[..., 2] * a[..., 3] + b[..., 2] * b[..., 3] - i + 1e-07),
    )[-1],
    PAIR,
)
model("determinant of 3 by 3", lambda x: torch.linalg.det(x[..., :3]))
model("solved 2 by 2", _solved)
# --- roots, steps, mixtures --------------------------------------------------------------------------------------
each("clip and sqrt", lambda x, e: torch.sqrt(x.clamp(min=e)))
each("signed sqrt", lambda x, e: torch.sign(x) * torch.sqrt(x.abs() + e))
each("gamma", lambda x, e: x.clamp(min=e) ** (1 / 2.2), epsilons=(1e-08, 0.0001))
each("Box-Cox", lambda x, e: (x.abs().clamp(min=e) ** 0.01 - 1) / 0.01)
each("Charbonnier", lambda x, e: torch.sqrt(x * x + e * e), epsilons=(0.001, 1e-06))
each("reciprocal", lambda x, e: 1 / (x.abs() + e))
each("softsign of a small one", lambda x, e: x / (x.abs() + e))
model("layer scale", lambda x: x + 1e-06 * torch.tanh(x.roll(1, -1)))
model(
    "weight norm",
    lambda x: F.linear(
        x, ((v := torch.linspace(-1, 1, 5 * 37, dtype=x.dtype).reshape(5, 37)), v / v.norm(dim=1, keepdim=True))[-1]
    ),
)
model("small behind large", lambda x: torch.cat([x * 10000.0, torch.tanh(x) * 0.001], -1))
model("small beside large", lambda x: (x * 1000000.0, torch.log1p(x.abs() * 0.0001)))
model("difference of large ones", lambda x: x + 10000.0 - 10000.0)
model("polynomial", lambda x: ((x * 0.1 - 1) * x + 2) * x - 3)
model(
    "Horner near a root",
    lambda x: (x - 1) ** 7 - (x**7 - 7 * x**6 + 21 * x**5 - 35 * x**4 + 35 * x**3 - 21 * x**2 + 7 * x - 1),
)
model("floor and fraction", lambda x: (torch.floor(x * 10), x * 10 - torch.floor(x * 10)))
model("remainder", lambda x: torch.remainder(x * 3, 0.7))
model("fmod", lambda x: torch.fmod(x * 3, 0.7))
model("sine embedding", lambda x: torch.sin(x[..., :1] * torch.exp(-torch.arange(16) * 0.5) * 1000))
model("rounded levels", lambda x: torch.round(torch.tanh(x) * 7.5) / 7.5)
model("argmax and one-hot", lambda x: F.one_hot(x.argmax(-1), 37).float() * x)
model("top 3", lambda x: torch.topk(x, 3, -1).values)
model("median", lambda x: x.median(-1).values)
model("quantile", lambda x: torch.quantile(x, 0.3, dim=-1))
model("histogram softly", lambda x: torch.exp(-((x[..., None] - torch.linspace(-2, 2, 9)) ** 2) * 50).sum(-2))
model(
    "mixture of Gaussians",
    lambda x: torch.logsumexp(-0.5 * (x[..., None] - torch.linspace(-3, 3, 5)) ** 2 / 0.01 - 1.5, -1),
)
model("log det", lambda x: torch.log(x.abs() + 1e-08).sum(-1))
model("Student t", lambda x: -2.5 * torch.log1p(x * x / 4))
model("hard concrete", lambda x: torch.clamp(torch.sigmoid(x * 3) * 1.2 - 0.1, 0, 1))
model(
    "Dice",
    lambda x, y: (
        (2 * (torch.sigmoid(x) * torch.sigmoid(y)).sum((1, 2)) + 1e-06)
        / (torch.sigmoid(x).sum((1, 2)) + torch.sigmoid(y).sum((1, 2)) + 1e-06)
    ),
    PAIR,
)
model("Gram matrix", lambda x: ((v := x.flatten(2)), v @ v.transpose(1, 2) / 378)[-1], IMAGE)
model(
    "total variation",
    lambda x: torch.sqrt((x[..., 1:, :-1] - x[..., :-1, :-1]) ** 2 + (x[..., :-1, 1:] - x[..., :-1, :-1]) ** 2 + 1e-08),
    IMAGE,
)
model(
    "SSIM",
    lambda x: (
        (m := F.avg_pool2d(x, 3, 1)),
        (n := F.avg_pool2d(x.flip(-1), 3, 1)),
        (2 * m * n + 0.0001) / (m * m + n * n + 0.0001),
    )[-1],
    IMAGE,
)
model("local variance", lambda x: F.avg_pool2d(x * x, 3, 1) - F.avg_pool2d(x, 3, 1) ** 2, IMAGE)
model("softargmax", lambda x: (torch.softmax(x.flatten(2) * 10, -1) * torch.arange(63)).sum(-1), IMAGE)
model(
    "power iteration",
    lambda x: (
        (a := (x @ x.transpose(1, 2))),
        (v := torch.ones(1, 3, 1)),
        (w := (a @ v.to(x.dtype))),
        w / (w.norm(dim=1, keepdim=True) + 1e-12),
    )[-1],
)
model(
    "Sinkhorn",
    lambda x: (
        (k := ((k := torch.exp(x[..., :3] * 5)), k / (k.sum(2, keepdim=True) + 1e-09))[-1]),
        k / (k.sum(1, keepdim=True) + 1e-09),
    )[-1],
)


def _net(make: Callable[[], torch.nn.Module]) -> Function:
    """A network of seeded random weights; in double where its input is."""
    torch.manual_seed(0)
    net = make().eval()
    double = copy.deepcopy(net).double()
    return lambda x: (double if x.dtype == torch.float64 else net)(x)


N = torch.nn


class _Times(N.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def _style(norm: Callable[[int], torch.nn.Module], pad: str) -> torch.nn.Module:
    layers: list[torch.nn.Module] = []
    for i, o in ((6, 8), (8, 8), (8, 8), (8, 3)):
        layers += [N.Conv2d(i, o, 3, padding=1, padding_mode=pad), norm(o), N.ReLU()]
    return N.Sequential(*layers[:-1])


model("style net, reflected", _net(lambda: _style(lambda o: N.InstanceNorm2d(o, affine=True), "reflect")), IMAGE)
model("style net, zeros", _net(lambda: _style(lambda o: N.InstanceNorm2d(o, affine=True), "zeros")), IMAGE)
model("group norm net", _net(lambda: _style(lambda o: N.GroupNorm(1, o), "replicate")), IMAGE)
model("instance norm 1e-3 net", _net(lambda: _style(lambda o: N.InstanceNorm2d(o, eps=0.001), "replicate")), IMAGE)
model(
    "deep random net",
    _net(lambda: N.Sequential(*[m for i in range(30) for m in (N.Linear(37, 37), N.LayerNorm(37), N.Tanh())])),
)
model(
    "deep expanding net",
    _net(
        lambda: N.Sequential(
            *[m for i in range(12) for m in (_Times(3.0), N.Linear(37, 37), N.SiLU(), N.LayerNorm(37))]
        )
    ),
)
