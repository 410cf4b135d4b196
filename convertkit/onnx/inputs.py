"""What ``--input`` says about the inputs of a model that is ONNX already."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from convertkit.artifact import TensorSpec
from convertkit.errors import UsageError
from convertkit.recipe import InputSpec


def with_input_options(specs: Sequence[TensorSpec], options: Sequence[InputSpec]) -> tuple[TensorSpec, ...]:
    """``specs`` with the shapes and value ranges of ``--input``.

    A dynamic dimension that the model's author left without a name, and converters have named ``batch`` or after the
    input, may be called anything there: it stays dynamic under that name.  Raises ``UsageError`` for an unknown name,
    another rank or dtype, or a size that the model fixes or names otherwise.
    """
    wanted = {option.name: option for option in options}
    if unknown := [name for name in wanted if name not in {spec.name for spec in specs}]:
        known = ", ".join(spec.name for spec in specs)
        raise UsageError(f"--input {unknown[0]}: the model has no such input; it has: {known}")
    return tuple(_merged(spec, wanted[spec.name]) if spec.name in wanted else spec for spec in specs)


def fixed_sizes(before: Sequence[TensorSpec], after: Sequence[TensorSpec]) -> dict[str, int]:
    """Sizes that ``--input`` gave to named dimensions; ``UsageError`` where two inputs disagree about one."""
    sizes: dict[str, int] = {}
    for old, new in zip(before, after, strict=True):
        for dim, size in zip(old.shape, new.shape, strict=True):
            if isinstance(dim, str) and isinstance(size, int) and sizes.setdefault(dim, size) != size:
                raise UsageError(f"--input {old.name}: {dim} is {size} here and {sizes[dim]} in an input before it")
    return sizes


def _merged(spec: TensorSpec, option: InputSpec) -> TensorSpec:
    if option.dtype is not None and option.dtype != spec.dtype:
        raise UsageError(f"--input {spec.name}: dtype {option.dtype}, the model takes {spec.dtype}")
    shape = spec.shape
    if option.shape or (option.shape is not None and option.dtype is None):  # NAME::DTYPE[LOW,HIGH) says no shape
        if len(option.shape) != len(shape):
            raise UsageError(f"--input {spec.name}: {len(option.shape)} dimensions, the model takes {_told(shape)}")
        for axis, (size, dim) in enumerate(zip(option.shape, shape, strict=True)):
            differs = size != dim and not (isinstance(size, str) and dim in ("batch", f"{spec.name}_{axis}"))
            if differs and (isinstance(dim, int) or isinstance(size, str)):
                way = (
                    f": instead of {size} give {dim}, which stays dynamic, or a number" if isinstance(dim, str) else ""
                )
                raise UsageError(f"--input {spec.name}: {_told(option.shape)}, the model takes {_told(shape)}{way}")
        shape = tuple(size if isinstance(size, int) else dim for size, dim in zip(option.shape, shape, strict=True))
    return dataclasses.replace(spec, shape=shape, value_range=option.value_range)


def _told(shape: Sequence[int | str]) -> str:
    """As ``--input`` writes a shape."""
    return ",".join(map(str, shape)) or "a single number"
