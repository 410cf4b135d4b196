"""Models that ordinary generated numbers are too large, or float32 coordinates too coarse for."""

from __future__ import annotations

import torch
from odd_models import Seeded
from torch import Tensor, nn


class Typed(Seeded):
    """Tokens of a large table and types of a small one, as BERT has them."""

    example_inputs = (torch.zeros(2, 6, dtype=torch.int64), torch.zeros(2, 6, dtype=torch.int32))

    def __init__(self) -> None:
        super().__init__()
        self.words, self.types, self.out = nn.Embedding(30, 8), nn.Embedding(2, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, types: Tensor) -> Tensor:
        return self.out(self.words(ids) + self.types(types))


class OneWord(Seeded):
    """A table that has a single row."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1, 4)

    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids)


class Columns(Seeded):
    """Numbers and categories of a table, one column for each: ids of seven, of twelve and of three."""

    example_inputs = (torch.zeros(4, 2), torch.tensor([[0, 1, 2], [6, 11, 0], [3, 4, 1], [5, 9, 2]]))

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, 4) for rows in (7, 12, 3))
        self.out = nn.Linear(14, 3)

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        found = [numbers]
        for column, table in enumerate(self.tables):
            found.append(table(categories[:, column]))
        return self.out(torch.cat(found, 1))


class Enlarged(Seeded):
    """100 pixels to 140: coordinates that float32 does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(self.conv(x), size=(140, 140), mode="bilinear", align_corners=False)


class Clipped(Seeded):
    """Super-resolution of an image from 0 to 1, thrice as large."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 9, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        fine = nn.functional.pixel_shuffle(torch.tanh(self.conv(x)) * 0.1, 3)
        coarse = nn.functional.interpolate(x, scale_factor=3.0, mode="bicubic", align_corners=False)
        return (fine + coarse).clamp(0.0, 1.0)
