"""Values that the size of the batch alone tells become constants, for ``--full-integer``: positions, masks of ones.

before:  Add (x, Transpose (Sin (CumSum (Expand (one, sizes of x)))))
after:   Add (x, stored), which has a batch of 1; behind Expand where a batch of 1 is not the same

Every sample has the same there, which runs at several batches show.  Left as they are: values that
integers move anyway.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from convertkit.artifact import Array
from convertkit.onnx.edit import initializer, inserted, is_float32, is_same_size
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.kinds import node_kinds
from convertkit.quantization.graph.replay import open_session, run_all
from convertkit.stage import Feed

_MOST: Final = 1 << 18
"""Elements of one sample that are worth their bytes in the file."""
_MATRIX: Final = 2
_BROADCAST: Final = frozenset({"Add", "Sub", "Mul", "Div", "Where"})
_SIZES: Final = frozenset({"Shape", "Size"})
_CHANCE: Final = frozenset({"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli"})
_KINDS: Final = frozenset({ir.DataType.FLOAT, ir.DataType.BOOL, ir.DataType.INT64, ir.DataType.INT32})
_BATCHES: Final = (1, 2, 3, 8, 33)
"""What a model may make of the number itself shows at one of them, all samples being alike at all others."""


def values_of_sizes(model: ir.Model, profile: QuantProfile, feed: Feed, state: Mapping[str, Array]) -> None:
    """Store each, in place; ``feed`` is a sample of the inputs.  Nothing where something but the batch is dynamic."""
    batches = {size for value in model.graph.inputs for size in _dynamic(value)}
    if state or len(batches) != 1 or any(value.shape is None for value in model.graph.inputs):
        return
    (batch,) = batches
    found = [value for value in _ends(model.graph, profile) if _has_batch(value, batch)]
    if not found or not all(_has_batch(value, batch) for value in model.graph.inputs):
        return
    for value, row in zip(found, _rows(model, found, feed), strict=True):
        if row is not None:
            _store(value, row, batch, model.graph.inputs[0])
    RemoveUnusedNodesPass()(model)


def _dynamic(value: ir.Value) -> Iterator[ir.SymbolicDim]:
    yield from (size for size in value.shape or () if isinstance(size, ir.SymbolicDim))


def _has_batch(value: ir.Value, batch: ir.SymbolicDim) -> bool:
    """Whether the first axis is the batch and every other size is known; of what is worth storing."""
    first, *rest = (*(value.shape or ()),) or (None,)
    known = [size for size in rest if isinstance(size, int)]
    return first == batch and len(known) == len(rest) and math.prod(known) <= _MOST


def _ends(graph: ir.Graph, profile: QuantProfile) -> Iterator[ir.Value]:
    """What no input decides but by its size, and integers do not compute, where what one does decide reads it."""
    told, real = set(graph.inputs), dict[ir.Value, None]()
    for node in graph:
        given = [value for value in node.inputs if value is not None]
        is_open = any(isinstance(each.value, ir.Graph) for each in node.attributes.values())
        makes, reads = any(map(is_float32, node.outputs)), any(map(is_float32, given))
        if node.op_type in _SIZES:
            continue
        if is_open or node.op_type in _CHANCE or told.intersection(given):
            told.update(node.outputs)
        elif any(value in real for value in given) or (profile.rule(node_kinds(node)) is None if makes else reads):
            real.update(dict.fromkeys(node.outputs))
    for value in real:
        read = any(told.intersection(use.node.outputs) for use in value.uses())
        if read and value.dtype in _KINDS and not value.is_graph_output():
            yield value


def _rows(model: ir.Model, values: list[ir.Value], feed: Feed) -> list[Array | None]:
    """What each is for one sample; None where samples of a batch differ."""
    copy = model.clone()
    made = {str(value.name): value for node in copy.graph for value in node.outputs}
    names = [str(value.name) for value in values]
    copy.graph.outputs.clear()
    copy.graph.outputs.extend(made[name] for name in names)
    RemoveUnusedNodesPass()(copy)  # what the inputs' values decide need not run
    wider = [{name: np.repeat(array[:1], count, 0) for name, array in feed.items()} for count in _BATCHES]
    answers = list(run_all(open_session(copy), names, wider, {}))
    rows = [[row for answer in answers for row in answer[name]] for name in names]
    return [each[0][None] if all(np.array_equal(each[0], row) for row in each[1:]) else None for each in rows]


def _store(value: ir.Value, row: Array, batch: ir.SymbolicDim, given: ir.Value) -> None:
    """What reads ``value`` reads ``row``, as wide as the batch of ``given`` where that matters."""
    node = value.producer()
    assert node is not None
    stored = initializer(node, row, f"{value.name}/row")
    many = row.ndim > _MATRIX
    for use in tuple(value.uses()):
        others = [each for each in use.node.inputs if each is not None and each is not value]
        wide = any(
            each.shape is not None and len(each.shape) == row.ndim and is_same_size(each.shape[0], batch)
            for each in others
        )
        broadcasts = use.node.op_type in _BROADCAST or (use.node.op_type == "MatMul" and many)
        if broadcasts and not use.node.domain and wide:
            use.node.replace_input_with(use.idx, stored)
    if not value.uses():
        return
    size = ir.Shape([1])
    counted = inserted(node, "Shape", [given], value, {"start": 0, "end": 1}, size).outputs[0]
    counted.type = ir.TensorType(ir.DataType.INT64)
    rest = initializer(node, np.array(row.shape[1:], np.int64), f"{value.name}/rest")
    sizes = inserted(node, "Concat", [counted, rest], counted, {"axis": 0}, ir.Shape([row.ndim])).outputs[0]
    value.replace_all_uses_with(inserted(node, "Expand", [stored, sizes], value).outputs[0])
