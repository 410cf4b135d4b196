"""A discrete Fourier transform of one axis as a matrix, exact to one rounding."""

from __future__ import annotations

import numpy as np

from convertkit.artifact import Array

_ZERO = 1e-12
"""Of the largest weight: what is below is a zero that float64 missed.  The smallest sine of n points is 2π / n."""


def transform(size: int, points: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """Weights (out, real and imaginary or real only, size, parts) of ONNX ``DFT``, rounded once to float32."""
    return waves(size, points, parts, inverse, onesided).astype(np.float32)


def waves(size: int, points: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """The weights of ``transform`` in float64, found from unit impulses.

    ``size`` samples with ``parts`` parts each, 1 for real numbers and 2 for complex ones, become ``points``; an inverse
    transform of one side of a spectrum has real results.  Zeros are zeros, so that the first and the middle bin of real
    samples are real numbers: a rest of 1e-16 turns the angle of a negative one from π to -π.  Source: ONNX operators,
    DFT-20.
    """
    impulses = np.eye(size, dtype=np.complex128)
    columns = []
    for impulse in (impulses, 1j * impulses)[:parts]:
        if inverse and onesided:
            columns.append(np.fft.irfft(impulse, n=points, axis=0)[:, None])
            continue
        found = np.fft.ifft(impulse, n=points, axis=0) if inverse else np.fft.fft(impulse, n=points, axis=0)
        found = found[: points // 2 + 1] if onesided else found
        columns.append(np.stack([found.real, found.imag], 1))
    weights = np.stack(columns, -1)
    weights[np.abs(weights) < _ZERO * np.abs(weights).max()] = 0
    return weights
