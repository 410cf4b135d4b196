"""More trained models in the form of ``make_cases.py``: ``compression_models.py OUT``, with $CONVERTKIT_CASES set.

A small ResNet, a vision transformer, two networks of depthwise convolutions with hard-swish and one with ReLU, trained
on images 3,000 to 9,999 of MNIST's test set, the same every time on one machine.  None of these images is in the 200 of
NAME.calib.npz or the 2,000 of NAME.eval.npz, which are those of ``make_cases.py``.  ``--samples`` adds images without
labels that the models were trained on, as whoever trains a model has them; none of those that are counted.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from make_cases import CALIBRATION, images, write
from torch import Tensor, nn

EPOCHS = 6
BATCH = 64
RATE = 3e-3
TRAINED_FROM = 3000
EVALUATED = slice(1000, 3000)
SPREAD = 5
"""Channels of a value lie up to twice as many powers of two apart."""


class Block(nn.Module):
    """Two 3 × 3 convolutions and the way past them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.way = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.past = nn.Conv2d(before, after, 1, stride) if stride > 1 or before != after else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.way(x) + self.past(x))


def resnet() -> nn.Module:
    """Four residual blocks, 8 to 32 channels: 33,000 weights."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), Block(8, 8, 1), Block(8, 16, 2), Block(16, 32, 2), Block(32, 32, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


class Attention(nn.Module):
    """A layer of a transformer, norms first."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.given, self.made = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        parts = self.given(self.norms[0](x)).reshape(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        scores = parts[0] @ parts[1].transpose(-1, -2) * (width // self.heads) ** -0.5
        x = x + self.made((scores.softmax(-1) @ parts[2]).transpose(1, 2).reshape(n, tokens, width))
        return x + self.dense(self.norms[1](x))


class Transformer(nn.Module):
    """Patches of 7 × 7 as 16 tokens, three layers of width 40: 41,000 weights."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 40, 7, 7)
        self.place = nn.Parameter(torch.randn(16, 40) * 0.1)
        self.layers = nn.Sequential(*(Attention(40, 4) for _ in range(3)), nn.LayerNorm(40))
        self.read = nn.Linear(40, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.place
        return self.read(self.layers(tokens).mean(1))


def _separable(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False), nn.BatchNorm2d(before), nn.Hardswish(),
        nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after),
    )  # fmt: skip


def depthwise() -> nn.Module:
    """Six depthwise layers, 1 × 1 convolutions without an activation behind them: wide ranges of single channels."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.Hardswish(), _separable(16, 32, 1), _separable(32, 32, 1), _separable(32, 48, 2),
        _separable(48, 48, 1), _separable(48, 64, 2), _separable(64, 64, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(64, 10),
    )  # fmt: skip


def wide() -> nn.Module:
    """The same with factors of batch norms that begin decades apart; behind a hard-swish nothing evens them out.

    Integers of one scale for all channels of a value lose the small ones.
    """
    network = depthwise()
    random = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.weight.data = torch.exp(1.2 * torch.randn(module.weight.shape, generator=random))
    return network


def _separable_relu(before: int, after: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False), nn.BatchNorm2d(before), nn.ReLU(),
        nn.Conv2d(before, after, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
    )  # fmt: skip


def relu() -> nn.Module:
    """Six depthwise layers with ReLU behind every convolution, as in a MobileNet."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), _separable_relu(16, 32, 1), _separable_relu(32, 32, 1),
        _separable_relu(32, 48, 2), _separable_relu(48, 48, 1), _separable_relu(48, 64, 2), _separable_relu(64, 64, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def spread(network: nn.Module) -> None:
    """Multiply channels of each batch norm by powers of two and divide what reads them: the same function in float32.

    A ReLU lets positive factors through.  Integers of one scale for all channels of a value lose the small ones, as in
    trained networks whose ranges lie far apart.
    """
    random = torch.Generator().manual_seed(2)
    layers = [each for each in network.modules() if isinstance(each, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
    for norm, reader in itertools.pairwise(layers):
        if not isinstance(norm, nn.BatchNorm2d) or isinstance(reader, nn.BatchNorm2d):
            continue
        factors = 2.0 ** torch.randint(-SPREAD, SPREAD + 1, norm.weight.shape, generator=random)
        norm.weight.data, norm.bias.data = norm.weight.data * factors, norm.bias.data * factors
        alone = isinstance(reader, nn.Conv2d) and reader.groups > 1
        shape = (-1, 1, 1, 1) if alone else (1, -1, *(1,) * (reader.weight.ndim - 2))
        reader.weight.data = reader.weight.data / factors.reshape(shape)


class Pixels(nn.Module):
    """A network on 0..255."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x / 255)


class Scaled(Pixels):
    """The same with a product, of which there are integers everywhere, for the quotient."""

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x * (1 / 255))


MODELS = {
    "mnist_resnet": resnet, "mnist_transformer": Transformer, "mnist_depthwise": depthwise, "mnist_wide": wide,
    "mnist_spread": relu,
}  # fmt: skip


def trained(name: str, x: Tensor, labels: Tensor) -> nn.Module:
    """The network after :data:`EPOCHS` epochs with shifts of up to two pixels."""
    torch.manual_seed(0)
    network = Pixels(MODELS[name]())
    steps = EPOCHS * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(network.parameters(), RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(x))
        for first in range(0, len(x) // BATCH * BATCH, BATCH):
            chosen = order[first : first + BATCH]
            shift = torch.randint(-2, 3, (2,)).tolist()
            loss = nn.functional.cross_entropy(network(torch.roll(x[chosen], shift, (2, 3))), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return network.eval()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--samples", type=int, default=CALIBRATION)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    x, labels = images(Path(os.environ["CONVERTKIT_CASES"]))
    more = x[TRAINED_FROM : TRAINED_FROM + args.samples - CALIBRATION]
    given, wanted = torch.from_numpy(np.array(x[TRAINED_FROM:])), torch.from_numpy(np.array(labels[TRAINED_FROM:]))
    for name in args.models.split(","):
        network = trained(name, given, wanted)
        if name == "mnist_wide":
            network = Scaled(network.network).eval()
        if name == "mnist_spread":
            spread(network)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.pt2"
            torch.export.save(torch.export.export(network, (given[:1],)), path)
            calibration = np.concatenate([x[:CALIBRATION], more])
            write(name, path, calibration, (x[EVALUATED], labels[EVALUATED]), args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
