"""Weights whose scale changes along the axis that is summed over: blocked DequantizeLinear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convertkit.artifact import Array
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit
from convertkit.quantization.weights.scales import SHRINKS, best_shrinks, in_threads


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
    summed = np.moveaxis(array, axis, 0)
    integers = np.empty(array.shape, np.int8)
    scales = np.empty([size // block if place == axis else size for place, size in enumerate(array.shape)], np.float32)
    whole, best = np.moveaxis(integers, axis, 0), np.moveaxis(scales, axis, 0)

    def quantize(part: slice) -> None:
        inside = slice(part.start * block, part.stop * block)
        blocks = np.moveaxis(summed[inside].reshape(-1, block, summed.shape[1]), 1, 2)
        rows = np.ascontiguousarray(blocks).reshape(-1, block)
        greatest = np.maximum(np.abs(rows).max(axis=1).astype(np.float64), 1e-30) / limits[1]
        tried = np.multiply.outer(SHRINKS, greatest)
        found = np.take_along_axis(tried, best_shrinks(rows, tried, limits)[None], 0)[0].astype(np.float32)
        steps = np.clip(np.rint(rows / found[:, None].astype(np.float64)), *limits).astype(np.int8)
        best[part] = found.reshape(blocks.shape[:2])
        whole[inside] = np.moveaxis(steps.reshape(blocks.shape), 2, 1).reshape(-1, summed.shape[1])

    in_threads(quantize, len(summed) // block, block * summed.shape[1])
    return BlockedWeight(integers, scales, axis, block)
