"""Products of integers that a module keeps as 32-bit integers before it rounds them to 8 bits.

before:  DQ, DQ → dot_general → Q[i32, s1*s2] → DQ → add → Q[i32, s1*s2] → DQ → Q[i8]
after:   DQ, DQ → dot_general → add → Q[i8]

The products are whole multiples of ``s1*s2`` already, so that quantizing by that scale changes nothing but
float32's own rounding of the sum.  Leaves a quantization by any other scale or with a zero point alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxlib.mlir import ir as mlir

from convertkit.converters.stablehlo.module import walk
from convertkit.converters.stablehlo.quantization import Quantization, quantization_of
from convertkit.converters.stablehlo.tensor import I32

_PRODUCTS = frozenset({"stablehlo.dot_general", "stablehlo.dot", "stablehlo.convolution"})
_KEEP_THE_GRID = frozenset({"stablehlo.add", "stablehlo.subtract", "stablehlo.maximum", "stablehlo.minimum"})
_QUANTIZE, _DEQUANTIZE = "stablehlo.uniform_quantize", "stablehlo.uniform_dequantize"
_SAME = 1e-6
"""Relative; a scale that was written as the product of two others carries float32's rounding."""


def drop_accumulators(module: Any) -> None:
    """Let the readers of such 32-bit integers read the float sum, in place."""
    for op in [op for op in walk(module.operation) if op.name == _QUANTIZE]:
        kind = quantization_of(op.results[0].type)
        if kind is None or kind.storage != I32 or any(kind.zero_points) or not _on_grid(op.operands[0], kind):
            continue
        for use in list(op.results[0].uses):
            reader = use.owner.operation
            if reader.name == _DEQUANTIZE:
                reader.results[0].replace_all_uses_with(op.operands[0])
            elif reader.name == _QUANTIZE:
                reader.operands[0] = op.operands[0]


def _on_grid(value: Any, kind: Quantization) -> bool:
    """Whether every element is a whole multiple of its scale, whatever the inputs are."""
    op = _maker(value)
    if op is None:
        return False
    if op.name == _DEQUANTIZE:
        found = quantization_of(op.operands[0].type)
        return found is not None and _close(found.scales, kind.scales)
    if op.name in _KEEP_THE_GRID:
        return all(_on_grid(operand, kind) for operand in op.operands)
    if op.name not in _PRODUCTS:
        return False
    makers = [_maker(operand) for operand in op.operands]
    factors = [
        quantization_of(maker.operands[0].type) if maker is not None and maker.name == _DEQUANTIZE else None
        for maker in makers
    ]
    left, right = factors
    if left is None or right is None or len(left.scales) != 1:
        return False
    return _close([left.scales[0] * scale for scale in right.scales], kind.scales)


def _maker(value: Any) -> Any:
    """The operator that makes a value, None for a block's argument."""
    return None if isinstance(value.owner, mlir.Block) else value.owner.operation


def _close(mine: Sequence[float], theirs: Sequence[float]) -> bool:
    return len(mine) == len(theirs) and all(
        math.isclose(one, other, rel_tol=_SAME) for one, other in zip(mine, theirs, strict=True)
    )
