"""Modules that depend on the mode in which they are captured, or on chance; importable as ``capture_models:NAME``."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Seeded(nn.Module):
    """Draws the same weights every time."""

    example_inputs = (torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 4, 3)


class Normed(Seeded):
    """A norm with running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu()


class Untracked(Seeded):
    """A norm that has no running statistics: the batch's own are meant, in evaluation, too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(4, track_running_stats=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x)).relu()


class Dropped(Seeded):
    """Dropout as a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.conv(x))


class AlwaysDropped(Seeded):
    """Dropout as a function, which drops whatever mode the module is in."""

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.conv(x), 0.2)


class Noisy(Seeded):
    """Noise on top."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y + torch.randn_like(y)


class Undropped(Seeded):
    """Dropout of nothing, and random numbers that nothing reads."""

    def forward(self, x: Tensor) -> Tensor:
        torch.rand(3)
        return F.dropout(self.conv(x), 0.0)


class Mixed(Seeded):
    """Dropout that evaluation leaves out, and noise behind it."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.dropout(self.conv(x), 0.3, training=self.training)
        return y + torch.randn_like(y)
