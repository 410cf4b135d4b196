"""The models of the grid: small, seeded, with an example input each.

Also importable as ``grid_models:NAME`` for ``--model``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class MLP(nn.Module):
    example_inputs = (torch.zeros(2, 8),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5), nn.Softmax(-1))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class CNN(nn.Module):
    example_inputs = (torch.zeros(2, 3, 16, 20),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 12, 3, stride=2, groups=4),
            nn.BatchNorm2d(12),
            nn.SiLU(),
        )
        for layer in self.features:
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.uniform_(layer.running_mean, -0.5, 0.5)
                nn.init.uniform_(layer.running_var, 0.5, 2.0)
        self.head = nn.Linear(12, 7)

    def forward(self, image: Tensor) -> Tensor:
        return self.head(functional.adaptive_avg_pool2d(self.features(image), 1).flatten(1))


class Control(nn.Module):
    """A branch and a loop that the data decide, as Python."""

    example_inputs = (torch.ones(2, 6),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.up = nn.Linear(6, 6)
        self.down = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):  # noqa: SIM108 - a statement is what users write
            y = self.up(x)
        else:
            y = self.down(x) * 2.0
        while bool(y.abs().max() > 1.0):
            y = y * 0.5
        return y


class ControlOps(Control):
    """The same as torch.cond and while_loop, which torch.export takes."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cond(x.sum() > 0, self.up, lambda x: self.down(x) * 2.0, (x,))
        (y,) = torch._higher_order_ops.while_loop(lambda y: y.abs().max() > 1.0, lambda y: (y * 0.5,), (y,))
        return y


class BiLSTM(nn.Module):
    example_inputs = (torch.zeros(2, 9, 6),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.lstm = nn.LSTM(6, 10, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(20, 4)

    def forward(self, x: Tensor) -> Tensor:
        y, _ = self.lstm(x)
        return self.head(y)


class GRU(nn.Module):
    example_inputs = (torch.zeros(2, 9, 6),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.gru = nn.GRU(6, 10, batch_first=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.gru(x)
        return y, h[0]


class Encoder(nn.Module):
    example_inputs = (torch.zeros(2, 7, 16),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


class Block(nn.Module):
    def __init__(self, given: int, made: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(given, made, 3, padding=1),
            nn.BatchNorm2d(made),
            nn.ReLU(),
            nn.Conv2d(made, made, 3, padding=1),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class UNet(nn.Module):
    example_inputs = (torch.zeros(2, 1, 16, 24),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.down1, self.down2, self.bottom = Block(1, 4), Block(4, 8), Block(8, 16)
        self.up2 = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.merge2, self.merge1 = Block(16, 8), Block(12, 4)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        a = self.down1(image)
        b = self.down2(functional.max_pool2d(a, 2))
        c = self.bottom(functional.max_pool2d(b, 2))
        y = self.merge2(torch.cat([self.up2(c), b], 1))
        y = functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(self.merge1(torch.cat([y, a], 1)))


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding: pairs of halves turned by the position's angle."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class GPT(nn.Module):
    """One decoder step with RoPE, grouped queries and the KV cache as arguments."""

    example_inputs = (
        torch.tensor([[3], [5]]),
        torch.tensor([4, 4]),
        torch.zeros(2, 2, 12, 4),
        torch.zeros(2, 2, 12, 4),
    )

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.length, self.width, self.heads, self.kv_heads, self.vocabulary = 12, 16, 4, 2, 11
        width, head = self.width, self.width // self.heads
        self.embedding = nn.Embedding(self.vocabulary, width)
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, self.kv_heads * head, bias=False)
        self.value = nn.Linear(width, self.kv_heads * head, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.RMSNorm(width)
        self.gate, self.up, self.down = nn.Linear(width, 32), nn.Linear(width, 32), nn.Linear(32, width)
        self.head = nn.Linear(width, self.vocabulary)
        angles = torch.arange(self.length)[:, None] / 10000 ** (torch.arange(0, head, 2) / head)[None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def step(self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, head = token.shape[0], self.width // self.heads
        x = self.embedding(token)
        h = self.norm(x)
        cos, sin = self.cos[position][:, None, None, :], self.sin[position][:, None, None, :]
        q = rotated(self.query(h).view(batch, 1, self.heads, head).transpose(1, 2), cos, sin)
        k = rotated(self.key(h).view(batch, 1, self.kv_heads, head).transpose(1, 2), cos, sin)
        v = self.value(h).view(batch, 1, self.kv_heads, head).transpose(1, 2)
        slots = torch.arange(self.length)
        here = (slots[None, :] == position[:, None])[:, None, :, None]
        keys, values = torch.where(here, k, keys), torch.where(here, v, values)
        seen = (slots[None, :] <= position[:, None])[:, None, None, :]
        groups = self.heads // self.kv_heads
        mixed = functional.scaled_dot_product_attention(
            q, keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1), seen
        )
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, 1, self.width))
        h = self.norm(x)
        x = x + self.down(functional.silu(self.gate(h)) * self.up(h))
        return self.head(x), keys, values

    def forward(self, token: Tensor, position: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.step(token, position, keys, values)


class GPTBuffers(GPT):
    """The same decoder with the cache in buffers that forward writes."""

    example_inputs = (torch.tensor([[3]]), torch.tensor([4]))

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(1, 2, 12, 4))
        self.register_buffer("values", torch.zeros(1, 2, 12, 4))

    def forward(self, token: Tensor, position: Tensor) -> Tensor:
        logits, keys, values = self.step(token, position, self.keys, self.values)
        self.keys.copy_(keys)
        self.values.copy_(values)
        return logits
