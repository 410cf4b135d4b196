"""The model's inputs as both sides of the worker's pipe know them: plain values that travel as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from convertkit.artifact import Dim, TensorSpec

Kind = Literal["tuple", "list", "dict"]
Path = tuple[int | str, ...]
"""Places in tuples and lists, keys of dicts."""
BATCH, TIME = "N", "T"
"""Names of dimensions that convertkit made dynamic itself."""


def leaf_name(parameter: str, path: Path) -> str:
    """``x_0``, ``x_key``: the name of one array inside a parameter."""
    return "_".join([parameter, *map(str, path)])


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array that goes into the model.

    ``parameter`` is the parameter of ``forward`` that takes it, ``path`` the way to it where that parameter is
    a tuple, list or dict, and ``kinds`` says which at each step.  ``scalar`` marks a Python number.
    ``given`` says that the user fixed the shape, ``told`` that the user told the range, ``rising`` that the values
    begin at 0 and do not fall.
    """

    name: str
    parameter: str
    shape: tuple[Dim, ...]
    dtype: str
    path: Path = ()
    kinds: tuple[Kind, ...] = ()
    value_range: tuple[float, float] | None = None
    scalar: bool = False
    given: bool = False
    rising: bool = False
    told: bool = False

    def spec(self) -> TensorSpec:
        """The same as an artifact's input; bfloat16, which no runtime takes from numpy, is float32 there."""
        dtype = "float32" if self.dtype == "bfloat16" else self.dtype
        example = self.value_range is not None and not (self.told or self.scalar)
        return TensorSpec(
            self.name, self.shape, dtype, value_range=self.value_range, rising=self.rising, by_example=example
        )

    def with_dims(self, sizes: Mapping[str, int]) -> Leaf:
        """The leaf with the named dimensions in ``sizes`` fixed."""
        shape = tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in self.shape)
        return dataclasses.replace(self, shape=shape)


def counted(leaves: Sequence[Leaf]) -> tuple[Leaf, ...]:
    """Arrays of integers of which nobody said how far they go."""
    return tuple(
        leaf for leaf in leaves if leaf.dtype in ("int32", "int64") and leaf.value_range is None and not leaf.scalar
    )


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
            "path": tuple(value["path"]),
            "kinds": tuple(value["kinds"]),
            "value_range": None if bounds is None else (float(bounds[0]), float(bounds[1])),
        }
    )
