"""The larger and the smaller of int64 numbers, by comparisons.

On processors with AVX2 and without AVX-512, ONNX Runtime's kernels of Max, Min, Clip, ReduceMax and ReduceMin take the
wrong one of two numbers whose upper 32 bits are equal and whose lower ones are not of the same half: two times in
milliseconds, say.  Greater, Less, ArgMax and ArgMin are right.
Measured: ONNX Runtime 1.31, by ``tests/targets/onnxruntime/test_long_extremes.py``.

before:  y = Max (a, b)                      y = ReduceMax (a) over axis 1
after:   y = Where (Greater (a, b), a, b)    y = GatherElements (a, ArgMax (a)), axis 1
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of, axes_of
from convertkit.targets.forms.writing import Place, dims

_IS_FIRST = {"Max": "Greater", "Min": "Less"}
_PLACE_OF = {"ReduceMax": "ArgMax", "ReduceMin": "ArgMin"}


def write_out_long_extremes(model: ir.Model) -> None:
    """Rewrite those of data, in place, in branches and loops, too; sizes are small."""
    for node in tuple(model.graph.all_nodes()):
        if node.domain or node.outputs[0].dtype != ir.DataType.INT64 or _is_of_sizes(node):
            continue
        if node.op_type in _IS_FIRST:
            _write_choice(node, [(node.op_type, value) for value in node.inputs])
        elif node.op_type == "Clip":
            _write_choice(node, list(zip(("", "Max", "Min"), node.inputs, strict=False)))
        elif node.op_type in _PLACE_OF:
            _write_reduction(node)


def _is_of_sizes(node: ir.Node) -> bool:
    """Whether everything that it computes with is a constant or the size of something."""
    waiting, seen = [value for value in node.inputs if value is not None], set[ir.Value]()
    while waiting:
        value = waiting.pop()
        producer = value.producer()
        if value in seen or array_of(value) is not None or (producer and producer.op_type in ("Shape", "Size")):
            continue
        if producer is None:
            return False
        seen.add(value)
        waiting += [each for each in producer.inputs if each is not None]
    return True


def _write_choice(node: ir.Node, operands: list[tuple[str, ir.Value | None]]) -> None:
    """The first of ``operands``, then of it and each other one what its operator says."""
    place = Place(node)
    given = [(kind, value) for kind, value in operands if value is not None]
    found = given[0][1]
    for kind, value in given[1:]:
        is_first = place.op(_IS_FIRST[kind], found, value, dtype=ir.DataType.BOOL)
        found = place.op("Where", is_first, found, value, like=found)
        is_first.shape = found.shape = None
    if len(given) == 1:
        found = place.op("Identity", found)
    found.shape = node.outputs[0].shape
    place.becomes(found)


def _write_reduction(node: ir.Node) -> None:
    """One axis after the other; a reduction over axes that are not known stays."""
    x, sizes = node.inputs[0], dims(node.inputs[0])
    axes = None if sizes is None else _axes(node, len(sizes))
    if x is None or sizes is None or not axes:
        return
    place, found = Place(node), x
    for axis in axes:
        if not isinstance(sizes[axis], int):
            found = _never_empty(place, found, axis, node.op_type)
        sizes = tuple(1 if each == axis else size for each, size in enumerate(sizes))
        index = place.op(_PLACE_OF[node.op_type], found, axis=axis, keepdims=1, shape=sizes)
        found = place.op("GatherElements", found, index, axis=axis, shape=sizes)
    if not node.attributes.get_int("keepdims", 1):
        left = [size for axis, size in enumerate(sizes) if axis not in axes]
        found = place.op("Squeeze", found, place.constant(np.array(axes, np.int64)), shape=left)
    place.becomes(found)


def _never_empty(place: Place, x: ir.Value, axis: int, operator: str) -> ir.Value:
    """``x`` and one element more along an axis: what the reduction of none gives; ArgMax of none fails."""
    limits = np.iinfo(np.int64)
    rest = place.constant(np.array(limits.min if operator == "ReduceMax" else limits.max, np.int64))
    found = place.op("Pad", x, place.constant(np.array([0, 1], np.int64)), rest, place.constant(np.array([axis])))
    found.shape = None
    return found


def _axes(node: ir.Node, rank: int) -> tuple[int, ...] | None:
    """Those that go; all of them where none are given and that does not mean none."""
    if len(node.inputs) > 1 and node.inputs[1] is not None:
        return axes_of(node, rank)
    return () if node.attributes.get_int("noop_with_empty_axes", 0) else tuple(range(rank))
