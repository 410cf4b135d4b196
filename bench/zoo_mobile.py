"""Mobile networks of the zoo: MobileNetV2, MobileNetV3-small, EfficientNet-B0 (Sandler 2018, Howard 2019, Tan 2019)."""

from __future__ import annotations

import torch
from torch import nn

Activation = type[nn.Module]


def conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)


def unit(inputs: int, outputs: int, size: int, act: Activation, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, activation."""
    return nn.Sequential(conv(inputs, outputs, size, stride, groups), nn.BatchNorm2d(outputs), act())


class Squeeze(nn.Module):
    """Squeeze and excite: a channel gate from the mean of the whole map."""

    def __init__(self, channels: int, hidden: int, act: Activation, gate: Activation) -> None:
        super().__init__()
        self.reduce, self.act = nn.Conv2d(channels, hidden, 1), act()
        self.expand, self.gate = nn.Conv2d(hidden, channels, 1), gate()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(x.mean((2, 3), keepdim=True)))))


class Block(nn.Module):
    """Inverted residual: expand, depthwise, gate, project; the sum where shapes agree."""

    def __init__(
        self, inputs: int, outputs: int, hidden: int, size: int, stride: int, act: Activation, squeeze: nn.Module | None
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [] if hidden == inputs else [unit(inputs, hidden, 1, act)]
        layers.append(unit(hidden, hidden, size, act, stride, hidden))
        layers += [squeeze] if squeeze is not None else []
        layers += [conv(hidden, outputs, 1), nn.BatchNorm2d(outputs)]
        self.body = nn.Sequential(*layers)
        self.skip = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.skip else self.body(x)


class Pooled(nn.Module):
    """Trunk, mean over the map, optional convolution after it, classifier."""

    def __init__(self, trunk: nn.Module, features: int, after: nn.Module | None = None) -> None:
        super().__init__()
        self.trunk, self.after = trunk, after or nn.Identity()
        self.classifier = nn.Linear(features, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.after(self.trunk(x).mean((2, 3), keepdim=True)).flatten(1))


def mobilenetv2() -> nn.Module:
    # expansion, channels, repeats, stride of the first
    rows = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    layers, channels = [unit(3, 32, 3, nn.ReLU6, 2)], 32
    for expansion, outputs, repeats, stride in rows:
        for i in range(repeats):
            step = stride if i == 0 else 1
            layers.append(Block(channels, outputs, channels * expansion, 3, step, nn.ReLU6, None))
            channels = outputs
    layers.append(unit(channels, 1280, 1, nn.ReLU6))
    return Pooled(nn.Sequential(*layers), 1280)


def mobilenetv3s() -> nn.Module:
    hard, relu = nn.Hardswish, nn.ReLU
    # inputs, hidden, outputs, kernel, stride, width of the gate (0: none), activation
    rows = [
        (16, 16, 16, 3, 2, 8, relu), (16, 72, 24, 3, 2, 0, relu), (24, 88, 24, 3, 1, 0, relu),
        (24, 96, 40, 5, 2, 24, hard), (40, 240, 40, 5, 1, 64, hard), (40, 240, 40, 5, 1, 64, hard),
        (40, 120, 48, 5, 1, 32, hard), (48, 144, 48, 5, 1, 40, hard), (48, 288, 96, 5, 2, 72, hard),
        (96, 576, 96, 5, 1, 144, hard), (96, 576, 96, 5, 1, 144, hard),
    ]  # fmt: skip
    layers: list[nn.Module] = [unit(3, 16, 3, hard, 2)]
    for inputs, hidden, outputs, size, stride, width, act in rows:
        gate = Squeeze(hidden, width, nn.ReLU, nn.Hardsigmoid) if width else None
        layers.append(Block(inputs, outputs, hidden, size, stride, act, gate))
    layers.append(unit(96, 576, 1, hard))
    return Pooled(nn.Sequential(*layers), 1024, nn.Sequential(nn.Conv2d(576, 1024, 1), nn.Hardswish()))


def efficientnet_b0() -> nn.Module:
    # expansion, channels, repeats, stride, kernel
    rows = [
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3),
    ]  # fmt: skip
    layers, channels = [unit(3, 32, 3, nn.SiLU, 2)], 32
    for expansion, outputs, repeats, stride, size in rows:
        for i in range(repeats):
            hidden = channels * expansion
            gate = Squeeze(hidden, channels // 4, nn.SiLU, nn.Sigmoid)
            layers.append(Block(channels, outputs, hidden, size, stride if i == 0 else 1, nn.SiLU, gate))
            channels = outputs
    layers.append(unit(channels, 1280, 1, nn.SiLU))
    return Pooled(nn.Sequential(*layers), 1280)
