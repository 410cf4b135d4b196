"""A discrete Fourier transform of one axis as a matrix, exact to one rounding, and that of frames as a convolution.

Four hundred products that are added one by one leave 1e-5 in bins that are empty, which a logarithm shows as -95 dB
where there is nothing.  Where frames and their steps are made of blocks, the mean of a block is therefore taken away
from its samples, and means meet the sums of the waves: what does not change leaves nothing, and silence stays zero.
"""

from __future__ import annotations

import math

import numpy as np

from convertkit.artifact import Array

_ZERO = 1e-12
"""Of the largest weight: what is below is a zero that float64 missed.  The smallest sine of n points is 2π / n."""
_SHORTEST_BLOCK = 16
"""Samples of a block of which means are taken away: each adds two values to that many."""
BY_BLOCKS = "convertkit.by_blocks"
"""Key in the ``metadata_props`` of a convolution that transforms frames of blocks and what their means change by."""
LESS_MEAN = "convertkit.less_mean"
"""The same of a sum of what frames less their means meet, and of what the means do."""


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


def block_of(samples: int, size: int, step: int) -> int:
    """Samples of the blocks that frames of ``size`` and their steps are made of; 0 where blocks would be too short."""
    block = math.gcd(size, step)
    return block if samples >= size and block >= _SHORTEST_BLOCK else 0


def by_blocks(kernels: Array, block: int) -> Array:
    """Kernels (out, 1, size) for samples in blocks: (out, block + 2, blocks); as they are where ``block`` is 0.

    The channels are what the samples of a block differ from their mean by, what that differs from the mean of the block
    before by, and the mean.  A frame's means times the sums of a kernel in each block are, by parts, the last mean
    times the sum of them all, less each change times the sums before it.  So what does not change meets the sum alone,
    which is zero for most windows.
    """
    if not block:
        return kernels
    parts = kernels.reshape(len(kernels), -1, block)
    sums = parts.sum(2, keepdims=True)
    upto = np.cumsum(sums, 1)
    steady = np.zeros_like(sums)
    steady[:, -1:] = upto[:, -1:]
    found: Array = np.concatenate([parts, sums - upto, steady], 2).transpose(0, 2, 1)
    return found
