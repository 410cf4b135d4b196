"""Samples made of others, so that few go further: the original answers whatever it is asked.

Of each sample a stretch becomes another sample's, in time or in space; two made so are mixed, and moved a little the
way in which samples differ.
Sources: mixed samples, arXiv:1710.09412; stretches of another, arXiv:1905.04899.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from convertkit.quantization.recovery.shifts import Shifts, moved

_SCATTER = 0.3
"""How far they are moved: this share of the standard deviation of samples, along every principal axis of these."""

Batch = Mapping[str, Tensor]
"""Inputs by name, (samples, …) each."""


def blended(samples: Batch, count: int, sliding: Shifts, movable: Shifts, random: torch.Generator) -> dict[str, Tensor]:
    """``count`` samples made of four of ``samples`` each, and a little of all.

    They are samples as they are where an input holds integers.
    Windows slide along the axes of ``sliding``; samples are moved along those of ``movable``.
    """
    if not all(value.is_floating_point() for value in samples.values()):
        return _drawn(samples, count, {}, random)

    def joined() -> dict[str, Tensor]:
        one, other = (_drawn(samples, count, movable, random) for _ in range(2))
        return cut({name: (one[name], other[name]) for name in one}, sliding, random)

    share = torch.rand(count, generator=random)
    weights = torch.randn(count, len(next(iter(samples.values()))), generator=random)
    return {
        name: other + share.reshape(-1, *(1,) * (other.ndim - 1)) * (one - other) + scattered(samples[name], weights)
        for (name, one), other in zip(joined().items(), joined().values(), strict=True)
    }


def cut(pairs: Mapping[str, tuple[Tensor, Tensor]], sliding: Shifts, random: torch.Generator) -> dict[str, Tensor]:
    """Of each input the first of two batches with a stretch of the second, the same share of all inputs.

    It lies along one axis in which windows slide, of an input over which none does along its longest.
    """
    count = len(next(iter(pairs.values()))[0])
    length = torch.rand(count, 1, generator=random)
    start = (1 - length) * torch.rand(count, 1, generator=random)
    made = {}
    for name, (one, other) in pairs.items():
        axes = [axis for axis, _ in sliding.get(name, ())] or _longest(one.shape[1:])
        chosen = torch.randint(max(len(axes), 1), (count, 1), generator=random)
        made[name] = one
        for index, axis in enumerate(axes):
            size = one.shape[axis + 1]
            place = (torch.arange(size) + 0.5) / size
            inside = (chosen == index) & (place >= start) & (place < start + length)
            shape = [count, *(1,) * axis, size, *(1,) * (one.ndim - axis - 2)]
            made[name] = torch.where(inside.reshape(shape), other, made[name])
    return made


def scattered(samples: Tensor, weights: Tensor) -> Tensor:
    """Of normal ``weights`` (made, samples), what differs between samples as ``samples`` (samples, …) do, less so.

    The sum of deviations from their mean with such weights has their covariance.
    """
    apart = (samples - samples.mean(0)).flatten(1)
    return (_SCATTER / len(samples) ** 0.5 * weights @ apart).reshape(-1, *samples.shape[1:])


def _longest(shape: Sequence[int]) -> list[int]:
    """The longest axis; none of what has one element."""
    return [max(range(len(shape)), key=lambda axis: shape[axis])] if max(shape, default=1) > 1 else []


def _drawn(samples: Batch, count: int, movable: Shifts, random: torch.Generator) -> dict[str, Tensor]:
    chosen = torch.randint(len(next(iter(samples.values()))), (count,), generator=random)
    return {name: moved(value[chosen], movable.get(name, ()), random) for name, value in samples.items()}
