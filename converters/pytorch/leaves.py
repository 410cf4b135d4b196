"""The model's inputs as both sides of the worker's pipe know them: plain values that travel as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from convertkit.artifact import Dim, TensorSpec


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array that goes into the model.

    ``parameter`` is the parameter of ``forward`` that takes it, ``index`` its place where that
    parameter is a tuple or list of tensors.  ``scalar`` marks a Python number, ``fixed`` the only value
    with which the model can be exported.  ``given`` says that the user fixed the shape.
    """

    name: str
    parameter: str
    shape: tuple[Dim, ...]
    dtype: str
    index: int | None = None
    value_range: tuple[float, float] | None = None
    scalar: bool = False
    given: bool = False
    sequence: str = ""

    def spec(self) -> TensorSpec:
        """The same as an artifact's input."""
        return TensorSpec(self.name, self.shape, self.dtype, value_range=self.value_range)

    def with_dims(self, sizes: Mapping[str, int]) -> Leaf:
        """The leaf with the named dimensions in ``sizes`` fixed."""
        shape = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in self.shape)
        return dataclasses.replace(self, shape=shape)


def to_json(leaves: Sequence[Leaf]) -> list[dict[str, Any]]:
    """Leaves as JSON values."""
    return [dataclasses.asdict(leaf) for leaf in leaves]


def from_json(values: Sequence[Mapping[str, Any]]) -> tuple[Leaf, ...]:
    """Leaves from what :func:`to_json` made, or what JSON made of it."""
    return tuple(_leaf(value) for value in values)


def _leaf(value: Mapping[str, Any]) -> Leaf:
    bounds = value["value_range"]
    return Leaf(
        **{
            **value,
            "shape": tuple(value["shape"]),
            "value_range": None if bounds is None else (float(bounds[0]), float(bounds[1])),
        }
    )
