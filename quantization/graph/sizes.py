"""How large tensors are: what an operator costs depends on it.

ONNX's inference loses sight of sizes that a model computes from a dynamic batch, as traced code does for every window,
group or head (``x.view(n, 2, c // 2, h, w)``).  One sample of the calibration data tells them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.stage import Feed

_MEASURED = "convertkit.sizes"
_TYPICAL = 32
"""Stands for a height, width or length that nothing tells, so that no model counts as tiny; a batch counts as 1."""


def sizes(value: ir.Value) -> tuple[int, ...]:
    """The sizes of one sample; empty where even their number is unknown."""
    known = value.meta.get(_MEASURED)
    if known is not None:
        return tuple(known)
    if value.shape is None:
        return ()
    unknown = (1, *[_TYPICAL] * len(value.shape))[: len(value.shape)]
    return tuple(dim if isinstance(dim, int) else size for dim, size in zip(value.shape, unknown, strict=True))


def elements(value: ir.Value) -> int:
    """How many numbers one sample has."""
    return math.prod(sizes(value))


def measure_sizes(model: ir.Model, feed: Feed, initial_state: Mapping[str, Array]) -> None:
    """Let :func:`sizes` know those of ``feed`` where the model's shapes say less than which axis is the batch."""
    given = {dim.value for value in model.graph.inputs for dim in value.shape or () if isinstance(dim, ir.SymbolicDim)}
    lost = {str(v.name): v for node in model.graph for v in node.outputs if v.name and not _is_told(v, given)}
    if not lost:
        return
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    asked = {name: _shape_of(copy.graph, made[name], index) for index, name in enumerate(lost)}
    (answer,) = run_all(open_session(copy), list(asked.values()), [feed], initial_state)
    for name, value in lost.items():
        # A sample in which nothing was found does not make everything behind it free of cost.
        value.meta[_MEASURED] = tuple(max(1, int(size)) for size in answer[asked[name]])


def _is_told(value: ir.Value, given: set[str | None]) -> bool:
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return True
    if value.shape is None:
        return False
    batch, *others = (*value.shape, 1)
    return (isinstance(batch, int) or batch.value in given) and all(isinstance(size, int) for size in others)


def _shape_of(graph: ir.Graph, value: ir.Value, index: int) -> str:
    node = ir.Node("", "Shape", [value], name=f"__sizes_{index}")
    shape = node.outputs[0]
    shape.name, shape.type = f"__sizes_{index}", ir.TensorType(ir.DataType.INT64)
    graph.append(node)
    graph.outputs.append(shape)
    return shape.name


def resize(value: ir.Value, axis: int, size: int) -> None:
    """Let a value have ``size`` entries along an axis, in its shape and in what was measured."""
    if value.shape is not None:
        value.shape = ir.Shape([size if place == axis else each for place, each in enumerate(value.shape)])
    if _MEASURED in value.meta:
        value.meta[_MEASURED] = tuple(
            size if place == axis else each for place, each in enumerate(value.meta[_MEASURED])
        )
