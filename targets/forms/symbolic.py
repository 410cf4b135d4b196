"""What is known of sizes before the model runs: shapes, and the integer vectors that are computed from them.

Dynamic dimensions of the inputs are followed as polynomials (:mod:`sizes`).  Nothing is assumed: a value whose
sizes ONNX's inference cannot tell has a dynamic dimension of its own on every axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from convertkit.onnx.edit import array_of
from convertkit.onnx.invented_sizes import INVENTED
from convertkit.targets.forms.sizes import Size, compared, equal, larger, product

_LONGEST = 64
_INTEGERS = (ir.DataType.INT32, ir.DataType.INT64, ir.DataType.BOOL)

Vector = tuple[Size, ...]
"""The elements of a scalar or of a vector; false and true are 0 and 1."""

Rule = Callable[["Knowledge", ir.Node], "Vector | None"]


@dataclass(slots=True)
class Knowledge:
    """What is known so far, node after node in the graph's order; ``sums`` are sizes behind dimensions' names."""

    sums: dict[str, Size] = field(default_factory=dict)
    vectors: dict[ir.Value, Vector] = field(default_factory=dict)

    def shape(self, value: ir.Value | None) -> Vector | None:
        """The sizes of ``value``, None where its rank is unknown."""
        if value is None or value.shape is None:
            return None
        dims: tuple[int | ir.SymbolicDim, ...] = tuple(value.shape)
        return tuple(self._dim(dim, f"{value.name}.{axis}") for axis, dim in enumerate(dims))

    def _dim(self, dim: int | ir.SymbolicDim, own: str) -> Size:
        if isinstance(dim, int):
            return Size.of(dim)
        name = str(dim.value or own)
        return self.sums.get(name) or Size.of(name)

    def record(self, graph: ir.Graph) -> None:
        """Write what is known of every shape into the graph."""
        for node in graph:
            for value in node.outputs:
                sizes = self.shape(value)
                if sizes is not None:
                    value.shape = ir.Shape([str(size) if size.number is None else size.number for size in sizes])

    def vector(self, value: ir.Value | None) -> Vector | None:
        """The elements of a small integer tensor, None where they do not derive from sizes."""
        if value is None or value in self.vectors:
            return None if value is None else self.vectors[value]
        tensor = value.const_value
        if tensor is None or value.dtype not in _INTEGERS or len(tensor.shape) > 1 or tensor.size > _LONGEST:
            return None
        return tuple(Size.of(int(number)) for number in tensor.numpy().reshape(-1))

    def learn(self, node: ir.Node) -> None:
        """Find the elements of the node's result, and its shape where inference left it open."""
        if node.domain != "" or not node.outputs:
            return
        result = node.outputs[0]
        rule = VECTORS.get(node.op_type)
        found = None if rule is None or result.dtype not in _INTEGERS or _is_matrix(result) else rule(self, node)
        if found is not None and len(found) <= _LONGEST:
            self.vectors[result] = found
        shape = SHAPES[node.op_type](self, node) if node.op_type in SHAPES else None
        if shape is not None:
            self._found(result, shape)

    def _found(self, value: ir.Value, sizes: Vector) -> None:
        """A name that inference gave to a size of its own stands for what the size is, wherever it occurs."""
        before = self.shape(value)
        if before is None:
            value.shape = ir.Shape([f"{value.name}.{axis}" for axis in range(len(sizes))])
            before = self.shape(value)
        if before is None or len(before) != len(sizes):
            return
        for axis, (old, new) in enumerate(zip(before, sizes, strict=True)):
            name = str(old)
            if old != new and (name.startswith(INVENTED) or name == f"{value.name}.{axis}"):
                self.sums[name] = new


def _is_matrix(value: ir.Value) -> bool:
    return value.shape is None or len(value.shape) > 1


# --- elements ------------------------------------------------------------------------------------


def _shape(know: Knowledge, node: ir.Node) -> Vector | None:
    sizes = know.shape(node.inputs[0])
    start, end = node.attributes.get("start"), node.attributes.get("end")
    return None if sizes is None else sizes[None if start is None else start.value : None if end is None else end.value]


def _size(know: Knowledge, node: ir.Node) -> Vector | None:
    sizes = know.shape(node.inputs[0])
    return None if sizes is None else (product(sizes),)


def _same(know: Knowledge, node: ir.Node) -> Vector | None:
    if node.outputs[0].dtype == ir.DataType.BOOL:
        return None  # a cast of 5 to true is 1
    return know.vector(node.inputs[0])


def _gather(know: Knowledge, node: ir.Node) -> Vector | None:
    data, places = know.vector(node.inputs[0]), array_of(node.inputs[1])
    if data is None or places is None or any(not -len(data) <= place < len(data) for place in places.reshape(-1)):
        return None
    return tuple(data[int(place)] for place in places.reshape(-1))


def _concat(know: Knowledge, node: ir.Node) -> Vector | None:
    parts = [know.vector(value) for value in node.inputs]
    return None if any(part is None for part in parts) else tuple(size for part in parts for size in part or ())


def _slice(know: Knowledge, node: ir.Node) -> Vector | None:
    data = know.vector(node.inputs[0])
    bounds = [array_of(value) for value in node.inputs[1:3]]
    step = array_of(node.inputs[4]) if len(node.inputs) > 4 and node.inputs[4] is not None else np.array([1])
    if data is None or step is None or any(bound is None or bound.size != 1 for bound in bounds):
        return None
    first, last = (int(bound.item()) for bound in bounds if bound is not None)
    far = len(data) + 1  # what lies beyond either end means all there is
    return data[max(min(first, far), -far) : max(min(last, far), -far) : int(step.item())] if step.item() > 0 else None


def _pairwise(combine: Callable[[Size, Size], Size | None]) -> Rule:
    def rule(know: Knowledge, node: ir.Node) -> Vector | None:
        result: Vector | None = None
        for value in node.inputs:
            other = know.vector(value)
            if other is None:
                return None
            result = other if result is None else _broadcast(combine, result, other)
            if result is None:
                return None
        return result

    return rule


def _broadcast(combine: Callable[[Size, Size], Size | None], left: Vector, right: Vector) -> Vector | None:
    count = len(right) if len(left) == 1 else len(left)
    if {len(left), len(right)} - {1, count}:
        return None
    pairs = zip(left * (count // len(left) if left else 0), right * (count // len(right) if right else 0), strict=True)
    found = [combine(a, b) for a, b in pairs]
    return None if any(size is None for size in found) else tuple(size for size in found if size is not None)


def _flag(answer: bool | None) -> Size | None:
    return None if answer is None else Size.of(int(answer))


def _where(know: Knowledge, node: ir.Node) -> Vector | None:
    flags, *sides = (know.vector(value) for value in node.inputs)
    if flags is None or any(side is None for side in sides):
        return None
    count = max(len(flags), *(len(side or ()) for side in sides))
    wide = [part * count if len(part) == 1 else part for part in (flags, *(side or () for side in sides))]
    if any(len(part) != count or not part for part in wide) or any(flag.number is None for flag in wide[0]):
        return None
    return tuple(yes if flag.number else no for flag, yes, no in zip(*wide, strict=True))


def _product(know: Knowledge, node: ir.Node) -> Vector | None:
    data = know.vector(node.inputs[0])
    return None if data is None else (product(data),)


VECTORS: Mapping[str, Rule] = {
    "Shape": _shape,
    "Size": _size,
    "Gather": _gather,
    "Concat": _concat,
    "Slice": _slice,
    "Where": _where,
    "ReduceProd": _product,
    **dict.fromkeys(("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze"), _same),
    "Add": _pairwise(lambda a, b: a + b),
    "Sub": _pairwise(lambda a, b: a - b),
    "Mul": _pairwise(lambda a, b: a * b),
    "Div": _pairwise(lambda a, b: a.over(b)),
    "Max": _pairwise(larger),
    "Min": _pairwise(lambda a, b: None if (top := larger(a, b)) is None else (b if top is a else a)),
    "Equal": _pairwise(lambda a, b: _flag(equal(a, b))),
    "Less": _pairwise(lambda a, b: _flag(compared(a, b))),
    "Greater": _pairwise(lambda a, b: _flag(compared(b, a))),
}
"""Elements of the first output from those of the inputs."""


# --- shapes --------------------------------------------------------------------------------------


def reshaped(know: Knowledge, node: ir.Node) -> Vector | None:
    """The result's sizes of a Reshape: zeros copied, minus one divided out."""
    before, wanted = know.shape(node.inputs[0]), know.vector(node.inputs[1])
    zero = node.attributes.get("allowzero")
    if before is None or wanted is None:
        return None
    if zero is not None and zero.value and any(size.number == 0 for size in wanted):
        return None
    if any(size.number == 0 and axis >= len(before) for axis, size in enumerate(wanted)):
        return None
    sizes = [before[axis] if size.number == 0 else size for axis, size in enumerate(wanted)]
    open_axes = [axis for axis, size in enumerate(sizes) if size.number == -1]
    if open_axes:
        rest = product(size for size in sizes if size.number != -1)
        quotient = product(before).over(rest) if len(open_axes) == 1 and rest.number != 0 else None
        if quotient is None:
            return None
        sizes[open_axes[0]] = quotient
    return tuple(sizes)


def _flattened(know: Knowledge, node: ir.Node) -> Vector | None:
    sizes, axis = know.shape(node.inputs[0]), node.attributes.get("axis")
    if sizes is None:
        return None
    place = 1 if axis is None else int(axis.value)
    return product(sizes[:place]), product(sizes[place:])


def expanded(know: Knowledge, node: ir.Node) -> Vector | None:
    """The result's sizes of an Expand where both sides' meet without doubt."""
    before, wanted = know.shape(node.inputs[0]), know.vector(node.inputs[1])
    if before is None or wanted is None:
        return None
    one = (Size.of(1),)
    rank = max(len(before), len(wanted))
    pairs = zip(one * (rank - len(before)) + before, one * (rank - len(wanted)) + wanted, strict=True)
    sizes = [_met(a, b) for a, b in pairs]
    return None if any(size is None for size in sizes) else tuple(size for size in sizes if size is not None)


def _met(left: Size, right: Size) -> Size | None:
    """Broadcasting: a known size other than one wins, since the other can only be one or the same."""
    if left.number == 1 or right.number not in (None, 1):
        return right
    return left if right.number == 1 or left.number is not None or left == right else None


def _filled(know: Knowledge, node: ir.Node) -> Vector | None:
    return know.vector(node.inputs[0])


def _resized(know: Knowledge, node: ir.Node) -> Vector | None:
    """Axes that keep their size; the others' are what inference says."""
    before, after = know.shape(node.inputs[0]), know.shape(node.outputs[0])
    given = [*node.inputs, None, None][2:4]
    scales, wanted = array_of(given[0]), know.vector(given[1])
    axes = node.attributes.get("axes")
    if before is None or after is None:
        return None
    named = list(range(len(before))) if axes is None else [int(axis) % len(before) for axis in axes.value]
    policy = node.attributes.get("keep_aspect_ratio_policy")
    if wanted is not None and (policy is None or policy.value == "stretch"):
        sizes = dict(zip(named, wanted, strict=True))
        return tuple(sizes.get(axis, size) for axis, size in enumerate(before))
    kept = {axis for axis in range(len(before)) if axis not in named}
    if scales is not None and scales.size == len(named):
        kept |= {axis for axis, scale in zip(named, scales, strict=True) if scale == 1.0}
    return tuple(before[axis] if axis in kept else size for axis, size in enumerate(after))


def _joined(know: Knowledge, node: ir.Node) -> Vector | None:
    shapes = [know.shape(value) for value in node.inputs]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) != 1:
        return None
    axis = int(node.attributes["axis"].value) % len(known[0])
    total = known[0][axis]
    for shape in known[1:]:
        total = total + shape[axis]
    return (*known[0][:axis], total, *known[0][axis + 1 :])


SHAPES: Mapping[str, Rule] = {
    "Reshape": reshaped,
    "Flatten": _flattened,
    "Expand": expanded,
    "ConstantOfShape": _filled,
    "Concat": _joined,
    "Resize": _resized,
}
"""Shapes of the first output that ONNX's inference does not follow through dynamic sizes."""


def numbers(sizes: Sequence[Size]) -> list[int] | None:
    """The values of sizes that are all known."""
    found = [size.number for size in sizes]
    return None if any(number is None for number in found) else [number for number in found if number is not None]
