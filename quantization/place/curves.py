"""Scales at which a kernel that computes a curve in fixed point gives the integers that the graph says.

Such a kernel rounds several times on its way, so that single ones of its 256 results are off by one.  A profile's rule
tells at which scales how many are; one scale is moved to the nearest at which none is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.profile import OtherResults
from convertkit.quantization.graph.units import Unit

_FAR = 0.01
"""No scale is moved by more than this share."""
_TRIED = 512
_AT_ONCE = 32


@dataclass(frozen=True, slots=True)
class Curve:
    """``result = curve of given``: indices of scales, and what the kernel gets wrong."""

    given: int
    result: int
    others: OtherResults


def curves(units: Iterable[Unit], index_of: Mapping[ir.Value, int]) -> tuple[Curve, ...]:
    """Of the integer units, in their order."""
    return tuple(
        Curve(index_of[unit.data[0]], index_of[unit.outputs[0]], unit.rule.others)
        for unit in units
        if unit.rule is not None and unit.rule.others is not None
    )


@dataclass(slots=True)
class CurvedScales:
    """``scales``, moved for one curve after the other.

    ``sharing`` tells of each index which are multiples of one unit, itself included: they move together, or not at all
    where one of them is ``kept``.
    """

    scales: Sequence[float]
    zero_points: Sequence[int]
    sharing: Sequence[Collection[int]]
    kept: Collection[int]
    decided: dict[int, float] = field(default_factory=dict)

    def meet(self, curve: Curve) -> None:
        """Move what the curve reads, where it is free: weights in front of it adapt; else what it writes."""
        if curve.given == curve.result:
            return
        moved = next((index for index in (curve.given, curve.result) if self._is_free(index)), None)
        if moved is not None:
            share = self._best(curve, moved) / self.scales[moved]
            self.decided |= {index: self.scales[index] * share for index in self.sharing[moved]}
        for index in (curve.given, curve.result):
            self.decided.setdefault(index, self.scales[index])

    def _is_free(self, index: int) -> bool:
        return not any(each in self.kept or each in self.decided for each in self.sharing[index])

    def _best(self, curve: Curve, moved: int) -> float:
        """Near the scale with index ``moved`` the first of those with the fewest other results."""
        near = _near(self.scales[moved])
        best, least = float(near[0]), np.inf
        for tried in np.split(near, range(_AT_ONCE, len(near), _AT_ONCE)):
            given, result = (
                tried if index == moved else np.full_like(tried, self.decided.get(index, self.scales[index]))
                for index in (curve.given, curve.result)
            )
            counts = curve.others(given, self.zero_points[curve.given], result, self.zero_points[curve.result])
            if counts.min() < least:
                best, least = float(tried[int(counts.argmin())]), counts.min()
            if not least:
                break
        return best


def _near(scale: float) -> Array:
    """Float32 numbers around ``scale``, the nearest first."""
    moves = np.linspace(0, _FAR, _TRIED // 2)
    return (scale * (1 + np.stack([moves, -moves], axis=1).reshape(-1))).astype(np.float32)
