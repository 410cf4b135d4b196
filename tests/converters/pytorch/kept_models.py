"""Small modules that keep state in every kind of attribute; importable as ``kept_models:NAME``."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from torch import Tensor, nn


class Kept(nn.Module):
    """Draws the same weights every time."""

    example_inputs: tuple[Tensor, ...] = (torch.zeros(2, 4),)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)


class Pair(Kept):
    """A tuple, replaced as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.state = (torch.zeros(4), torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.state
        a = a * 0.5 + x.mean(0)
        b = b * 0.9 + a
        self.state = (a, b)
        return self.layer(x) + b


class Hidden(Kept):
    """What ``nn.LSTM`` returns, kept as it is."""

    example_inputs = (torch.zeros(2, 5, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.hidden = (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        y, self.hidden = self.lstm(x, self.hidden)
        return y


class Layers(Kept):
    """Keys and values of every layer: tuples in a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 8) for _ in range(2))
        self.past = [(torch.zeros(4), torch.zeros(4)) for _ in range(2)]

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            key, value = layer(x).mean(0).chunk(2)
            before, after = self.past[place]
            self.past[place] = (before * 0.5 + key, after * 0.5 + value)
            x = x * torch.tanh(self.past[place][0]) + self.past[place][1]
        return x


class Log(Kept):
    """A list that only grows and that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x.mean())
        return self.layer(x)


class Seen(Log):
    """A list that grows and is read."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(self.layer(x).mean(0))
        return x + torch.stack(self.seen).sum(0)


class Table(Kept):
    """A table that the first call of a size makes, for all that follow."""

    example_inputs = (torch.zeros(2, 3, 4),)

    def __init__(self) -> None:
        super().__init__()
        self.table = None
        self.made: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or self.table.shape[0] != x.shape[1]:
            self.table = torch.sin(torch.arange(x.shape[1]) * 0.7)[:, None]
        if "scale" not in self.made:
            self.made["scale"] = torch.full((4,), 1.5)
        return self.layer(x) * self.made["scale"] + self.table


class Late(Kept):
    """State that the first call makes."""

    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[str, Tensor] = {}

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).mean(0)
        self.cache["h"] = torch.tanh(y + self.cache["h"]) if "h" in self.cache else y
        return x + self.cache["h"]


class Nothing(Kept):
    """None before the first call, which does without the second layer's bias."""

    def __init__(self) -> None:
        super().__init__()
        self.back = nn.Linear(4, 4)
        self.h = None

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x).mean(0)
        self.h = torch.tanh(y if self.h is None else y + self.back(self.h))
        return x + self.h


class Word(Kept):
    """State that is a text."""

    def __init__(self) -> None:
        super().__init__()
        self.mode = "a"

    def forward(self, x: Tensor) -> Tensor:
        scale, self.mode = (2.0, "b") if self.mode == "a" else (3.0, "a")
        return self.layer(x) * scale


class Queue(Kept):
    """State in a container of another kind."""

    def __init__(self) -> None:
        super().__init__()
        self.last = deque([torch.zeros(4)] * 3, maxlen=3)

    def forward(self, x: Tensor) -> Tensor:
        self.last.append(x.mean(0))
        return self.layer(x) + torch.stack(list(self.last)).sum(0)


class Array(Kept):
    """State that torch does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.held = np.zeros(4, np.float32)

    def forward(self, x: Tensor) -> Tensor:
        self.held = self.held * 0.5 + 1
        return self.layer(x) + torch.from_numpy(self.held)


class Shared(Kept):
    """State of the class, not of the module."""

    total = torch.zeros(4)

    def forward(self, x: Tensor) -> Tensor:
        Shared.total = Shared.total * 0.5 + x.mean(0)
        return self.layer(x) + Shared.total


class Holder:
    """A class that ``torch.jit.script`` compiles beside the module."""

    def __init__(self, size: int):
        self.h = torch.zeros(size)

    def step(self, x: Tensor) -> Tensor:
        self.h = torch.tanh(self.h + x)
        return self.h


class Object(Kept):
    """State in an object of such a class."""

    def __init__(self) -> None:
        super().__init__()
        self.holder = torch.jit.script(Holder)(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.holder.step(x.mean(0))
