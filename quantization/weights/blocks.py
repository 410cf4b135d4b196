"""Weights whose scale changes along the axis that is summed over: blocked DequantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.weights.integers import SHRINKS


@dataclass(frozen=True, slots=True)
class BlockedWeight:
    """Integers in the weight's shape; ``scales`` has ``size / block`` entries along ``axis``, else its shape."""

    integers: Array
    scales: Array
    axis: int
    block: int

    def real(self) -> Array:
        """What the integers stand for, float32."""
        return np.asarray(self.integers * np.repeat(self.scales, self.block, self.axis), np.float32)


def block_axis(unit: Unit, profile: QuantProfile, array: Array) -> int | None:
    """The summed axis of a matrix that divides into the profile's blocks; None where channels are scaled whole."""
    if profile.block is None or array.ndim != 2 or unit.node.op_type not in ("Gemm", "MatMul"):
        return None
    axis = 1 if unit.node.op_type == "Gemm" else 0
    return axis if array.shape[axis] % profile.block == 0 else None


def quantize_blocks(array: Array, axis: int, block: int, limits: tuple[int, int]) -> BlockedWeight:
    """Rounded to nearest, each block at the scale with the least squared error."""
    rows = np.moveaxis(array.astype(np.float64), axis, 0)
    parts = rows.reshape(rows.shape[0] // block, block, -1)
    greatest = np.maximum(np.abs(parts).max(axis=1, keepdims=True), 1e-30) / limits[1]
    best, least = greatest, np.full(greatest.shape, np.inf)
    for shrink in SHRINKS:
        scales = greatest * shrink
        error = ((np.clip(np.rint(parts / scales), *limits) * scales - parts) ** 2).sum(axis=1, keepdims=True)
        best, least = np.where(error < least, scales, best), np.minimum(error, least)
    best = best.astype(np.float32)
    integers = np.clip(np.rint(parts / best.astype(np.float64)), *limits).astype(np.int8)
    whole = np.moveaxis(integers.reshape(rows.shape), 0, axis)
    scales = np.moveaxis(best[:, 0].reshape(-1, *rows.shape[1:]), 0, axis)
    return BlockedWeight(np.ascontiguousarray(whole), np.ascontiguousarray(scales), axis, block)
