"""What a ``.param`` and a ``.bin`` file hold: layers, their parameters and their weights.

Source: ncnn's developer guide, "param and model file structure" and "operators".
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from convertkit.artifact import Array

Parameter = int | float | tuple[int, ...]
_MAGIC = 7767517
_HALF = 0x01306B47
_TABLE = 1
"""Any tag but those that the format names: 256 floats follow, and a byte for each weight."""
_ARRAY = -23300
_ENTRIES = 256


@dataclass(frozen=True, slots=True)
class Weight:
    """Numbers in the order of the format; ``tagged`` ones may be stored in another form than float32."""

    array: Array
    tagged: bool = False

    def data(self, *, compact: bool) -> bytes:
        """As the ``.bin`` file has it; a ``compact`` one in the smallest form that gives the same numbers."""
        flat = np.ascontiguousarray(self.array, np.float32).reshape(-1)
        if not self.tagged:
            return flat.astype("<f4").tobytes()
        forms = [np.uint32(0).tobytes() + flat.astype("<f4").tobytes()]
        if compact:
            forms += [*_half(flat), *_table(flat)]
        return min(forms, key=len)


def _half(flat: Array) -> Iterator[bytes]:
    """float16, where it holds every number."""
    if np.abs(flat).max(initial=0) <= np.finfo(np.float16).max:
        half = flat.astype("<f2")
        if np.array_equal(half.astype(np.float32), flat):
            yield np.uint32(_HALF).tobytes() + _aligned(half.tobytes())


def _table(flat: Array) -> Iterator[bytes]:
    """A byte for each number, where there are no more than 256 different ones."""
    values, places = np.unique(flat.view(np.uint32), return_inverse=True)
    if len(values) <= _ENTRIES:
        entries = np.zeros(_ENTRIES, np.uint32)
        entries[: len(values)] = values
        yield (
            np.uint32(_TABLE).tobytes() + entries.astype("<u4").tobytes() + _aligned(places.astype(np.uint8).tobytes())
        )


def _aligned(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


@dataclass(frozen=True, slots=True)
class Layer:
    """A line of the ``.param`` file; ``inputs`` and ``outputs`` are names of blobs."""

    kind: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[int, Parameter] = field(default_factory=dict)
    weights: tuple[Weight, ...] = ()

    def line(self) -> str:
        """The layer as text."""
        head = f"{self.kind:<16} {self.name:<24} {len(self.inputs)} {len(self.outputs)}"
        words = [head, *self.inputs, *self.outputs, *(_spelled(*each) for each in sorted(self.parameters.items()))]
        return " ".join(words)


def _spelled(key: int, value: Parameter) -> str:
    """``key=value``; what tells a float from an integer is its point or its exponent."""
    if isinstance(value, tuple):
        return f"{_ARRAY - key}={','.join(map(str, (len(value), *value)))}"
    return f"{key}={value}" if isinstance(value, int) else f"{key}={spelled_float(value)}"


def spelled_float(value: float) -> str:
    """Nine digits, which tell every float32 apart; the largest float stands for infinity, which the format lacks."""
    most = float(np.finfo(np.float32).max)
    return f"{most if math.isinf(value) and value > 0 else -most if math.isinf(value) else value:.8e}"


def with_splits(layers: Sequence[Layer], outputs: Sequence[str]) -> tuple[Layer, ...]:
    """The layers where every blob is read once: others get a copy of it; an output of the model keeps its name."""
    layers = _needed(layers, outputs)
    readers = Counter((*(name for layer in layers for name in layer.inputs), *outputs))
    several = {name for name, count in readers.items() if count > 1}
    taken = Counter[str]()
    made: list[Layer] = []
    for layer in layers:
        inputs = []
        for name in layer.inputs:
            inputs.append(f"{name}/{taken[name]}" if name in several else name)
            taken[name] += 1
        names = tuple(f"{name}/all" if name in several and name in outputs else name for name in layer.outputs)
        made.append(replace(layer, inputs=tuple(inputs), outputs=names))
        for name, whole in (
            (each, called) for each, called in zip(layer.outputs, names, strict=True) if each in several
        ):
            own = (name,) if name in outputs else ()
            branches = (*(f"{name}/{place}" for place in range(readers[name] - len(own))), *own)
            made.append(Layer("Split", f"{name}/split", (whole,), branches))
    return tuple(made)


def _needed(layers: Sequence[Layer], outputs: Sequence[str]) -> tuple[Layer, ...]:
    """Inputs, and what an output is computed from."""
    read, kept = set(outputs), []
    for layer in reversed(layers):
        if layer.kind == "Input" or read.intersection(layer.outputs):
            read.update(layer.inputs)
            kept.append(layer)
    return tuple(reversed(kept))


def written(layers: Sequence[Layer]) -> str:
    """The ``.param`` file."""
    blobs = sum(len(layer.outputs) for layer in layers)
    return "\n".join([str(_MAGIC), f"{len(layers)} {blobs}", *(layer.line() for layer in layers), ""])


def stored(layers: Sequence[Layer], *, compact: bool) -> bytes:
    """The ``.bin`` file."""
    return b"".join(weight.data(compact=compact) for layer in layers for weight in layer.weights)
