"""A small YOLO-like detector with its whole head: three scales, distribution focal decoding, boxes beside scores."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, BINS = 20, 16


class Unit(nn.Module):
    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.silu(self.bn(self.conv(x)))


class Split(nn.Module):
    """Two halves, one of them refined, joined with all intermediate results."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.first = Unit(channels, channels, 1)
        self.refine = nn.Sequential(Unit(half, half), Unit(half, half))
        self.last = Unit(3 * half, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = self.first(x).chunk(2, 1)
        return self.last(torch.cat([left, right, right + self.refine(right)], 1))


def grid(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Cell centres [1, 2, cells] and strides [1, 1, cells] of all scales."""
    centres, steps = [], []
    for size, stride in zip(sizes, strides, strict=True):
        y, x = torch.meshgrid(torch.arange(size) + 0.5, torch.arange(size) + 0.5, indexing="ij")
        centres.append(torch.stack([x, y], -1).reshape(-1, 2))
        steps.append(torch.full((size * size, 1), float(stride)))
    return torch.cat(centres).T[None], torch.cat(steps).T[None]


class Yolo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body1 = nn.Sequential(Unit(3, 16, 3, 2), Unit(16, 32, 3, 2), Split(32), Unit(32, 64, 3, 2), Split(64))
        self.body2 = nn.Sequential(Unit(64, 128, 3, 2), Split(128))
        self.body3 = nn.Sequential(Unit(128, 128, 3, 2), Split(128))
        self.pool = Unit(128 * 4, 128, 1)
        self.join2, self.join1 = Unit(256, 128, 1), Unit(192, 64, 1)
        widths = (64, 128, 128)
        self.box = nn.ModuleList(nn.Sequential(Unit(c, 64), nn.Conv2d(64, 4 * BINS, 1)) for c in widths)
        self.score = nn.ModuleList(nn.Sequential(Unit(c, 64), nn.Conv2d(64, CLASSES, 1)) for c in widths)
        centres, steps = grid((32, 16, 8), (8, 16, 32))
        self.register_buffer("centres", centres)
        self.register_buffer("steps", steps)
        self.register_buffer("bins", torch.arange(BINS).float().view(1, BINS, 1, 1))

    def maps(self, x: torch.Tensor) -> list[torch.Tensor]:
        p3 = self.body1(x)
        p4 = self.body2(p3)
        p5 = self.body3(p4)
        pools = [p5]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        p5 = self.pool(torch.cat(pools, 1))
        p4 = self.join2(torch.cat([F.interpolate(p5, scale_factor=2.0, mode="nearest"), p4], 1))
        p3 = self.join1(torch.cat([F.interpolate(p4, scale_factor=2.0, mode="nearest"), p3], 1))
        return [p3, p4, p5]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        heads = zip(self.maps(x), self.box, self.score, strict=True)
        y = torch.cat(
            [torch.cat([box(m), score(m)], 1).view(batch, 4 * BINS + CLASSES, -1) for m, box, score in heads], 2
        )
        box, score = y.split((4 * BINS, CLASSES), 1)
        distance = (box.view(batch, 4, BINS, -1).transpose(1, 2).softmax(1) * self.bins).sum(1)
        before, after = distance.chunk(2, 1)
        low, high = self.centres - before, self.centres + after
        return torch.cat([torch.cat([(low + high) / 2, high - low], 1) * self.steps, score.sigmoid()], 1)
