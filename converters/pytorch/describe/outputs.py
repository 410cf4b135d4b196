"""What a model's outputs look like, by what it computed at one or two choices of its dynamic sizes."""

from __future__ import annotations

from collections.abc import Mapping

from convertkit.artifact import Array, Dim, TensorSpec

Computed = tuple[Mapping[str, Array], Mapping[str, int]]
"""Outputs, and the sizes of dynamic dimensions with which they were computed."""


def output_specs(first: Computed, second: Computed | None = None) -> tuple[TensorSpec, ...]:
    """The outputs' names, dtypes and shapes; a size that is another one the second time is dynamic.

    It is called after the dimension of the inputs that has both sizes, else after its own place.  Without a second
    time the leading size alone may be such a dimension.
    """
    return tuple(
        TensorSpec(name, tuple(_dim(name, axis, first, second) for axis in range(value.ndim)), value.dtype.name)
        for name, value in first[0].items()
    )


def _dim(name: str, axis: int, first: Computed, second: Computed | None) -> Dim:
    sizes, size = first[1], int(first[0][name].shape[axis])
    if second is None:
        return next((dim for dim, each in sizes.items() if each == size and axis == 0), size)
    other = second[0][name].shape[axis]
    if size == other:
        return size
    return next((dim for dim, each in sizes.items() if (each, second[1].get(dim)) == (size, other)), f"{name}_{axis}")
