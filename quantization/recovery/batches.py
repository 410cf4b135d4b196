"""Batches to train on: of few samples more that the original answers, none of which was seen before.

All samples are moved a little where windows slide over them.  Half of them are then mixed in pairs; to the others is
added what samples differ by (:mod:`convertkit.quantization.pruning.variation`).
Source of mixed samples: arXiv:1710.09412.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from convertkit.quantization.pruning.variation import variation
from convertkit.quantization.recovery.shifts import Shifts, moved

BATCH = 32
_MIXED = BATCH // 2

Samples = Mapping[str, Tensor]
"""By the names of inputs, (samples, …)."""


class Batches:
    """Random batches of ``samples``, whose inputs are moved as ``movable`` says; integers are taken as they are."""

    def __init__(self, samples: Samples, movable: Shifts, random: torch.Generator) -> None:
        self._samples, self._movable, self._random = samples, movable, random
        self._count = len(next(iter(samples.values())))
        self._real = all(value.is_floating_point() for value in samples.values())
        self._variations = {name: variation(value.numpy()) for name, value in samples.items()} if self._real else {}

    def next(self) -> dict[str, Tensor]:
        """Another batch of :data:`BATCH` samples."""
        batch = self._chosen(BATCH)
        if not self._real:
            return batch
        mixed = self._mixed({name: value[:_MIXED] for name, value in batch.items()})
        varied = self.varied({name: value[_MIXED:] for name, value in batch.items()})
        return {name: torch.cat([mixed[name], varied[name]]) for name in batch}

    def varied(self, batch: Samples) -> dict[str, Tensor]:
        """Each sample with another sum of deviations, from nothing to as much as samples differ; inputs together."""
        if not self._variations:
            return dict(batch)
        size = len(next(iter(batch.values())))
        count = len(next(iter(self._variations.values())).deviations)
        weights = torch.randn(size, count, generator=self._random) * torch.rand(size, 1, generator=self._random)
        return {
            name: torch.from_numpy(self._variations[name](value.numpy(), weights.numpy()))
            for name, value in batch.items()
        }

    def keep_plain(self) -> None:
        """From now on add nothing to samples."""
        self._variations = {}

    def _mixed(self, batch: Samples) -> dict[str, Tensor]:
        partners = self._chosen(_MIXED)
        share = torch.rand(_MIXED, generator=self._random)
        made = {}
        for name, value in batch.items():
            factor = share.reshape(-1, *(1,) * (value.ndim - 1))
            made[name] = factor * value + (1 - factor) * partners[name]
        return made

    def _chosen(self, size: int) -> dict[str, Tensor]:
        """So many random samples, moved."""
        chosen = torch.randint(self._count, (size,), generator=self._random)
        plain = {name: value[chosen] for name, value in self._samples.items()}
        if not self._real:
            return plain
        return {name: moved(value, self._movable.get(name, ()), self._random) for name, value in plain.items()}
