"""The layers of a model in the making: handlers ask for layers and get tensors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from convertkit.artifact import Array
from convertkit.errors import Unsupported
from convertkit.targets.ncnn.layers import Layer, Parameter, Weight
from convertkit.targets.ncnn.tensor import Tensor, blob_axes, natural

_SIZES: Mapping[int, tuple[int, ...]] = {1: (0,), 2: (1, 0), 3: (2, 1, 0), 4: (2, 11, 1, 0)}
"""Keys of sizes in Input, MemoryData and Reshape, for the outermost axis first; an array has all that are there."""
_LONGEST = 200
"""Characters of a name; ncnn's reader has room for 255, and splits put a number behind it."""
_NONE: Mapping[int, Parameter] = {}


class Builder:
    """``prefix`` is the node that is lowered; layers are named after it."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.prefix = ""
        self._names: set[str] = set()

    def input(self, name: str, shape: tuple[int, ...], *, whole: bool = False) -> Tensor:
        """An input of the model; ``whole`` for integers."""
        sizes = natural(shape)
        blob = self.name(name)
        self.layers.append(Layer("Input", blob, (), (blob,), sizes_of(sizes)))
        return Tensor(shape, sizes, blob, whole=whole)

    def layer(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        shape: tuple[int, ...],
        sizes: tuple[int, ...] | None = None,
        parameters: Mapping[int, Parameter] = _NONE,
        weights: Sequence[Weight] = (),
    ) -> Tensor:
        """What one layer computes, of ONNX's ``shape``; its blob has ``sizes``, unless it has the usual ones."""
        made = shape, natural(shape) if sizes is None else sizes
        return self.layers_of(kind, inputs, [made], parameters, weights)[0]

    def layers_of(
        self,
        kind: str,
        inputs: Sequence[Tensor],
        outputs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
        parameters: Mapping[int, Parameter] = _NONE,
        weights: Sequence[Weight] = (),
    ) -> tuple[Tensor, ...]:
        """What a layer with several outputs computes, each by its shape and the sizes of its blob."""
        read = tuple(self.computed(each).blob for each in inputs)
        blobs = tuple(self.name(self.prefix) for _ in outputs)
        self.layers.append(Layer(kind, blobs[0], read, blobs, dict(parameters), tuple(weights)))
        return tuple(Tensor(shape, sizes, blob) for (shape, sizes), blob in zip(outputs, blobs, strict=True))

    def embedded(
        self,
        places: Tensor,
        shape: tuple[int, ...],
        sizes: tuple[int, ...],
        parameters: Mapping[int, Parameter],
        table: Weight,
    ) -> Tensor:
        """Rows of a stored table at places that an input has."""
        given = replace(places, whole=False)
        return self.layer("Embed", [self.view(given, sizes[:1])], shape, sizes, parameters, [table])

    def computed(self, x: Tensor) -> Tensor:
        """A constant as a blob, float32; anything else as it is."""
        if x.whole:
            raise Unsupported("an input of integers other than for an embedding: ncnn computes in float32")
        if x.array is None:
            return x
        if x.array.dtype != np.float32:
            raise Unsupported(f"{x.array.dtype.name} numbers: ncnn computes in float32")
        blob = self.name(f"{self.prefix}/stored")
        weights = (Weight(x.array),)
        self.layers.append(Layer("MemoryData", blob, (), (blob,), sizes_of(x.sizes), weights))
        return Tensor(x.shape, x.sizes, blob)

    def view(self, x: Tensor, sizes: tuple[int, ...], shape: tuple[int, ...] | None = None) -> Tensor:
        """The same elements in a blob of other ``sizes``, and of another ``shape`` in ONNX where one is given."""
        kept = x.shape if shape is None else shape
        if math.prod(sizes) != math.prod(x.sizes):
            raise Unsupported(f"sizes {list(x.sizes)} as {list(sizes)}: a handler's mistake")
        if x.array is not None:
            return Tensor(kept, sizes, array=np.reshape(x.array, kept))
        if x.sizes == sizes:
            return replace(x, shape=kept)
        return self.layer("Reshape", [x], kept, sizes, sizes_of(sizes))

    def plain(self, x: Tensor) -> Tensor:
        """``x`` in the usual sizes of its shape."""
        return self.view(x, natural(x.shape))

    def along(self, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
        """``x`` in a blob that has these axes of ONNX, and where they lie in it."""
        places = tuple(axis % max(x.rank, 1) for axis in axes)
        if not x.shape:
            return self.view(x, (1,)), places
        parts = blob_axes(x.shape, frozenset(places))
        found = self.view(x, tuple(math.prod(x.shape[axis] for axis in part) for part in parts))
        return found, tuple(parts.index((place,)) for place in places)

    def name(self, wanted: str) -> str:
        """A name that nothing else has."""
        plain = found = plain_name(wanted)
        number = 0
        while found in self._names:
            number += 1
            found = f"{plain[: _LONGEST - len(str(number)) - 1]}_{number}"
        self._names.add(found)
        return found

    def reserve(self, names: Iterable[str]) -> None:
        """Names that only :meth:`rename` gives."""
        self._names.update(plain_name(name) for name in names)

    def rename(self, old: str, new: str) -> None:
        """Call a blob otherwise, wherever it stands."""
        for place, layer in enumerate(self.layers):
            if old in layer.inputs or old in layer.outputs:
                inputs, outputs = (
                    tuple(new if each == old else each for each in names) for names in (layer.inputs, layer.outputs)
                )
                self.layers[place] = replace(layer, inputs=inputs, outputs=outputs)


def plain_name(name: str) -> str:
    """A name as the format takes it: without white space, and not longer than its reader has room for."""
    return "_".join(name.split())[:_LONGEST] or "blob"


def sizes_of(sizes: tuple[int, ...]) -> dict[int, Parameter]:
    """The parameters that say the sizes of a blob."""
    return dict(zip(_SIZES[len(sizes)], sizes, strict=True))


def weight(array: Array) -> Weight:
    """Weights of a layer that may be stored in a smaller form."""
    return Weight(np.asarray(array, np.float32), tagged=True)


def raw(array: Array) -> Weight:
    """Numbers that the format has as float32 alone: biases and what belongs to channels."""
    return Weight(np.asarray(array, np.float32))
