"""Small modules that keep state whose size is, or is not, the batch; importable as ``state_models:NAME``."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Seeded(nn.Module):
    """Draws the same weights every time."""

    example_inputs = (torch.zeros(1, 4),)
    sized: tuple[str, ...] = ()
    """Buffers that have the batch in front."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)


class Broadcast(Seeded):
    """A hidden state that begins as one learned row and becomes as large as the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.back = nn.Linear(4, 3), nn.Linear(3, 3)
        self.register_buffer("h", torch.randn(1, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.h = torch.tanh(self.into(x) + self.back(self.h))
        return self.h * 2


class Ring(Seeded):
    """A streaming convolution: the last samples of each channel, in a buffer made for one stream."""

    example_inputs = (torch.zeros(1, 2, 5),)
    sized = ("past",)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv1d(2, 3, 4)
        self.register_buffer("past", torch.zeros(1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([self.past, x], 2)
        self.past.copy_(joined[:, :, -3:])
        return self.layer(joined)


class Cache(Seeded):
    """Keys and values written in place at a position that a buffer counts."""

    example_inputs = (torch.zeros(1, 1, 4),)
    sized = ("keys", "values")

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value, self.query = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("keys", torch.zeros(1, 8, 4))
        self.register_buffer("values", torch.zeros(1, 8, 4))
        self.register_buffer("position", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        slots = torch.arange(8)
        here = (slots == self.position)[None, :, None]
        self.keys.copy_(torch.where(here, self.key(x), self.keys))
        self.values.copy_(torch.where(here, self.value(x), self.values))
        seen = torch.where(slots <= self.position, 0.0, -1e4)
        weights = torch.softmax(self.query(x) @ self.keys.transpose(1, 2) + seen, -1)
        self.position += 1
        return weights @ self.values


class Recurrent(Seeded):
    """An LSTM whose state has one layer in front and the batch behind it, both 1."""

    example_inputs = (torch.zeros(1, 5, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.register_buffer("h", torch.zeros(1, 1, 3))
        self.register_buffer("c", torch.zeros(1, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        y, (self.h, self.c) = self.lstm(x, (self.h, self.c))
        return y


class Renewed(Seeded):
    """Makes its state anew for every size of batch, and remembers that size as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(4, 3)
        self.h = torch.zeros(0)
        self.batch = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.batch != x.shape[0]:
            self.h = torch.zeros(x.shape[0], 3)
            self.batch = x.shape[0]
        self.h = self.cell(x, self.h)
        return self.h + 1


class Averaged(Seeded):
    """A running mean over everything it has seen: state that no batch is in."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


class Individual(Seeded):
    """Two streams, each with start values of its own."""

    example_inputs = (torch.zeros(2, 3),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("h", torch.tensor([[1.0, 2.0, 3.0], [-1.0, 0.5, 2.0]]))

    def forward(self, x: Tensor) -> Tensor:
        self.h = torch.tanh(self.layer(x) + self.h)
        return self.h * 3


class TimeFirst(Seeded):
    """An LSTM as torch has it by default: time, then the batch."""

    example_inputs = (torch.zeros(5, 1, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3)
        self.register_buffer("h", torch.zeros(1, 1, 3))
        self.register_buffer("c", torch.zeros(1, 1, 3))

    def forward(self, x: Tensor) -> Tensor:
        y, (self.h, self.c) = self.lstm(x, (self.h, self.c))
        return y


class Stream(Seeded):
    """One stream of any length, no batch: every row depends on those before it."""

    example_inputs = (torch.zeros(5, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("h", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.h + torch.cumsum(self.layer(x), 0)
        self.h = y[-1]
        return y
