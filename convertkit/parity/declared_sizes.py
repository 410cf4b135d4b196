"""Whether the outputs of a run have the sizes that the artifact declares."""

from __future__ import annotations

from collections.abc import Sequence

from convertkit.artifact import TensorSpec
from convertkit.errors import ToolError
from convertkit.parity.values import Recording


def refuse_other_sizes(recording: Recording) -> None:
    """``ToolError`` where an output has other axes, or another size where a number is declared, in the source's layout.

    A name is not looked at: of outputs it is often the exporter's choice, and the verification runs several sizes.
    """
    for made in recording.outputs:
        for spec in recording.artifact.outputs:
            if spec.name in made and not _fits(spec, made[spec.name].shape):
                raise ToolError(
                    f"{recording.title} declares {_written(spec.source_shape)} of output {spec.name}, "
                    f"and a run gives {_written(made[spec.name].shape)}\n"
                    "  try   a file without stored shapes of inner values and outputs, where it stores them"
                )


def _fits(spec: TensorSpec, found: tuple[int, ...]) -> bool:
    told = spec.source_shape
    same = all(size == other for size, other in zip(told, found) if isinstance(size, int))
    return len(told) == len(found) and same


def _written(shape: Sequence[int | str]) -> str:
    return "×".join(map(str, shape)) or "a number"
