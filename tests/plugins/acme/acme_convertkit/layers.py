"""The made-up text format: ``#acme 1``, then ``dense ROWS COLUMNS`` with its numbers, and ``relu``, line by line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from convertkit.errors import SourceError

MAGIC = "#acme 1"
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Dense:
    """``y = x @ weight``; ``weight`` is (inputs, outputs)."""

    weight: Matrix


@dataclass(frozen=True, slots=True)
class Relu:
    """``y = max(x, 0)``."""


Layer = Dense | Relu


def read(path: Path) -> tuple[Layer, ...]:
    """The layers of a file; ``SourceError`` where it is not in the format."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    layers: list[Layer] = []
    try:
        while lines:
            words = lines.pop(0).split()
            if words == ["relu"]:
                layers.append(Relu())
                continue
            kind, rows, columns = words
            numbers = np.array([lines.pop(0).split() for _ in range(int(rows))], np.float32)
            if kind != "dense" or numbers.shape != (int(rows), int(columns)):
                raise ValueError(kind)
            layers.append(Dense(numbers))
    except (ValueError, IndexError) as error:
        raise SourceError(f"{path}: not in the acme format ({error})") from error
    return tuple(layers)


def compute(layers: tuple[Layer, ...], x: Matrix) -> Matrix:
    """What the layers compute for ``x`` (batch, inputs)."""
    for layer in layers:
        x = np.maximum(x, 0) if isinstance(layer, Relu) else x @ layer.weight
    return x
