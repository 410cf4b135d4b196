"""From a tensor's statistics to the range that its integers cover."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.quantization.calibrate.histogram import Histogram, Statistics

Range = tuple[float, float]
"""Least and greatest real value, zero included."""

_Losses = Callable[[Array, Array], Array]
"""From least and greatest values of ranges to what each of them loses."""

WEIGHTED_MSE = "weighted-mse"
METHODS = ("minmax", "moving-average", "percentile", "percentile-99.99", "entropy", "mse", WEIGHTED_MSE)
_OUTSIDE, _OUTSIDE_TIGHT = 1e-5, 1e-4
"""Shares of the values that percentile ranges leave out at each side.  Which one is better is up to the model: a
detector's boxes need rare, loud values, a keyword spotter does not."""
_LEAST_SCALE, _ZERO_SCALE = 1e-30, 1.0 / 128.0
_SHRINKS = np.concatenate([np.linspace(1.0, 0.5, 16), np.linspace(0.45, 0.1, 6)])
_ENTROPY_SHRINKS = np.linspace(1.0, 0.2, 17)


@dataclass(frozen=True, slots=True)
class Affine:
    """Quantization parameters: ``real = (integer - zero_point) * scale``, in NumPy's integer ``dtype``."""

    scale: float
    zero_point: int
    dtype: str

    @property
    def range(self) -> Range:
        """The least and greatest real number that the integers express."""
        kind = np.iinfo(self.dtype)
        return (kind.min - self.zero_point) * self.scale, (kind.max - self.zero_point) * self.scale

    def round_trip(self, values: Array) -> Array:
        """What remains of the values."""
        kind = np.iinfo(self.dtype)
        steps = np.clip(np.rint(values / self.scale) + self.zero_point, kind.min, kind.max)
        return np.asarray((steps - self.zero_point) * self.scale)


def affine(span: Range, dtype: str, symmetric: bool) -> Affine:
    """Parameters that cover ``span``; zero is always exact, and the scale a float32."""
    low, high = min(span[0], 0.0), max(span[1], 0.0)
    kind = np.iinfo(dtype)
    if symmetric:
        steps: float = kind.max - (kind.max + kind.min + 1) // 2
        scale = _float32(max(-low, high) / steps)
        return Affine(scale, (kind.max + kind.min + 1) // 2, dtype)
    scale = _float32((high - low) / (kind.max - kind.min))
    zero_point = round(kind.min - low / scale)
    return Affine(scale, int(np.clip(zero_point, kind.min, kind.max)), dtype)


def _float32(scale: float) -> float:
    # A tensor that is always zero still needs a scale; 1/128 keeps products with it normal numbers.
    return float(np.float32(scale)) if scale > _LEAST_SCALE else _ZERO_SCALE


def span(statistics: Statistics, method: str, dtype: str, symmetric: bool) -> Range:
    """The range that ``method`` picks; never wider than what was seen."""
    low, high = min(statistics.low, 0.0), max(statistics.high, 0.0)
    # 16 bits resolve any outlier; clipping them can only harm.
    if dtype == "int16" or low == high:
        return low, high
    return _METHODS[method](statistics, dtype, symmetric)


def noise(histogram: Histogram, parameters: Affine) -> float:
    """Mean squared error of a round trip, estimated on the histogram."""
    return float(noises(histogram, (parameters,))[0])


def noises(histogram: Histogram, candidates: Sequence[Affine]) -> Array:
    """:func:`noise` for each of the candidates."""
    low, high = np.array([each.range for each in candidates]).T
    return _Noise(histogram).of(low, high, np.array([each.scale for each in candidates]))


class _Noise:
    """Noise of many ranges on one histogram, by running sums over the bins."""

    def __init__(self, histogram: Histogram) -> None:
        places = np.flatnonzero(histogram.counts)
        self._centres, counts = histogram.centres[places], histogram.counts[places]
        self._sums = np.zeros((3, len(places) + 1))
        np.cumsum([counts, counts * self._centres, counts * self._centres**2], axis=1, out=self._sums[:, 1:])
        self._total = max(histogram.total, 1)

    def of(self, low: Array, high: Array, scales: Array) -> Array:
        """Mean squared errors of round trips that reach from ``low`` to ``high`` in steps of ``scales``."""
        sums = self._sums
        # Inside the range the error is spread evenly over a step, whatever the bin; outside it is the excess.
        first = np.searchsorted(self._centres, low - scales / 2, "left")
        last = np.searchsorted(self._centres, high + scales / 2, "right")
        below, above = sums[:, first], sums[:, -1:] - sums[:, last]
        inside = (sums[0, last] - sums[0, first]) * scales**2 / 12
        excess = sum(part[2] - 2 * edge * part[1] + edge**2 * part[0] for part, edge in ((below, low), (above, high)))
        return np.asarray((inside + excess) / self._total)


def power(histogram: Histogram) -> float:
    """Mean square of the values."""
    total = histogram.total
    return float(histogram.centres**2 @ histogram.counts) / total if total else 0.0


def snr_db(histogram: Histogram, parameters: Affine) -> float:
    """Signal to noise ratio of a round trip in dB; infinite for a tensor that is always zero."""
    signal, error = power(histogram), noise(histogram, parameters)
    return float(10 * np.log10(signal / error)) if signal > 0 and error > 0 else float("inf")


def _minmax(statistics: Statistics, dtype: str, symmetric: bool) -> Range:
    return min(statistics.low, 0.0), max(statistics.high, 0.0)


def _moving_average(statistics: Statistics, dtype: str, symmetric: bool) -> Range:
    return min(statistics.mean_low, 0.0), max(statistics.mean_high, 0.0)


def _percentile(statistics: Statistics, dtype: str, symmetric: bool) -> Range:
    return _without(statistics, _OUTSIDE)


def _tight_percentile(statistics: Statistics, dtype: str, symmetric: bool) -> Range:
    return _without(statistics, _OUTSIDE_TIGHT)


def _without(statistics: Statistics, outside: float) -> Range:
    """The range that holds all but a share ``outside`` of the values at each side."""
    histogram = statistics.histogram
    low, high = min(statistics.low, 0.0), max(statistics.high, 0.0)
    edges = np.concatenate([[0], np.cumsum(histogram.counts)])
    # Exact zeros lie between the two halves of the histogram.
    edges[len(histogram.counts) // 2 + 1 :] += histogram.zeros
    share = outside * histogram.total
    step = 2.0 ** (histogram.exponent + 1) / len(histogram.counts)
    first = int(np.searchsorted(edges, share, side="right")) - 1
    last = int(np.searchsorted(edges, histogram.total - share, side="left"))
    half = len(histogram.counts) // 2
    return max(low, min((first - half) * step, 0.0)), min(high, max((last - half) * step, 0.0))


def _mse(statistics: Statistics, dtype: str, symmetric: bool) -> Range:
    """The range with the least mean squared error; each side shrinks on its own.

    What the histogram counts is up to the caller: values, or how much the outputs depend on them.
    """
    noise_of = _Noise(statistics.histogram)

    def losses(lows: Array, highs: Array) -> Array:
        return noise_of.of(*_covered(lows, highs, dtype, symmetric))

    return _search(statistics, dtype, symmetric, _SHRINKS, losses)


def _covered(lows: Array, highs: Array, dtype: str, symmetric: bool) -> tuple[Array, Array, Array]:
    """What :func:`affine` of many spans covers, and in which steps: lows, highs, scales."""
    kind = np.iinfo(dtype)
    middle = (kind.max + kind.min + 1) // 2
    wide = np.maximum(-lows, highs) / (kind.max - middle) if symmetric else (highs - lows) / (kind.max - kind.min)
    scales = np.where(wide > _LEAST_SCALE, wide.astype(np.float32).astype(np.float64), _ZERO_SCALE)
    zeros = np.full(lows.shape, middle) if symmetric else np.clip(np.rint(kind.min - lows / scales), kind.min, kind.max)
    return (kind.min - zeros) * scales, (kind.max - zeros) * scales, scales


def _entropy(statistics: Statistics, dtype: str, symmetric: bool) -> Range:
    """The range whose quantized distribution has the least Kullback-Leibler divergence from the measured one."""

    def losses(lows: Array, highs: Array) -> Array:
        spans = zip(lows.tolist(), highs.tolist(), strict=True)
        return np.array([divergence(statistics.histogram, affine(span, dtype, symmetric)) for span in spans])

    return _search(statistics, dtype, symmetric, _ENTROPY_SHRINKS, losses)


def _search(statistics: Statistics, dtype: str, symmetric: bool, shrinks: Array, losses: _Losses) -> Range:
    low, high = _minmax(statistics, dtype, symmetric)
    ones = np.ones_like(shrinks)
    if symmetric:
        reach = max(-low, high)
        lows, highs = np.maximum(low, -shrinks * reach), np.minimum(high, shrinks * reach)
        best = int(losses(lows, highs).argmin())
        return float(lows[best]), float(highs[best])
    for _ in range(2):
        upper = float(high * shrinks[losses(low * ones, high * shrinks).argmin()])
        found = float(low * shrinks[losses(low * shrinks, upper * ones).argmin()]), upper
        if found == (low, high):
            break
        low, high = found
    return low, high


def divergence(histogram: Histogram, parameters: Affine) -> float:
    """Kullback-Leibler divergence of the clipped and quantized distribution from the measured one."""
    places = np.flatnonzero(histogram.counts)
    centres, counts = histogram.centres[places], histogram.counts[places].astype(np.float64)
    kind = np.iinfo(parameters.dtype)
    steps = np.rint(centres / parameters.scale) + parameters.zero_point
    levels = (np.clip(steps, kind.min, kind.max) - kind.min).astype(np.int64)
    inside = (steps >= kind.min) & (steps <= kind.max)
    size = kind.max - kind.min + 1
    # Clipped values pile up at the edges of the reference, and are missing from what is spread out again.
    reference = counts.copy()
    mass = np.bincount(levels, counts, size)
    kept = np.bincount(levels, counts * inside, size)
    width = np.maximum(np.bincount(levels, inside, size), 1)
    piled = mass - kept
    edge = {int(level): int(np.flatnonzero((levels == level) & inside)[-1 if level else 0])
            for level in np.flatnonzero(piled) if ((levels == level) & inside).any()}  # fmt: skip
    for level, place in edge.items():
        reference[place] += piled[level]
    reference = np.where(inside, reference, 0.0)
    spread = np.where(inside, (kept / width)[levels], 0.0)
    if reference.sum() == 0 or spread.sum() == 0:
        return float("inf")
    p, q = reference / reference.sum(), np.maximum(spread / spread.sum(), 1e-12)
    used = p > 0
    return float(np.sum(p[used] * np.log(p[used] / q[used])))


_METHODS: Mapping[str, Callable[[Statistics, str, bool], Range]] = {
    "minmax": _minmax,
    "moving-average": _moving_average,
    "percentile": _percentile,
    "percentile-99.99": _tight_percentile,
    "entropy": _entropy,
    "mse": _mse,
    WEIGHTED_MSE: _mse,
}
