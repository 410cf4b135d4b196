"""Operators that work on permuted tensors as well: which inputs, and what changes in the node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.targets.forms.edits import typed
from convertkit.targets.forms.source import set_source
from convertkit.targets.tflite.passes.layout.perms import Perm, identity, inverse
from convertkit.targets.tflite.passes.layout.plan import (
    Constants,
    LayoutRule,
    Plan,
    attribute,
    constant_of,
    elements,
    integers,
    moved_bytes,
    rank_of,
    set_attribute,
    set_integers,
    sizes_of,
)
from convertkit.targets.tflite.passes.layout.regroup import carried
from convertkit.targets.tflite.passes.layout.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Operators whose inputs broadcast to the output; ``data`` limits which inputs take part (None: all)."""

    data: tuple[int, ...] | None = None

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        if rank_of(node.outputs[0]) != len(perm) or (self.data is not None and place not in self.data):
            return None
        return self.backward(node, perm)

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        rank = len(perm)
        places = range(len(node.inputs)) if self.data is None else self.data
        inputs = {place: perm for place in places if rank_of(node.inputs[place]) == rank}
        if any(node.inputs[place] is not None and rank_of(node.inputs[place]) is None for place in places):
            return None
        return Plan(inputs, {place: perm for place, value in enumerate(node.outputs) if rank_of(value) == rank})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        """Give inputs of lower rank the missing axes, so that they broadcast along the right ones."""
        perm = plan.outputs[0]
        for place in range(len(node.inputs)) if self.data is None else self.data:
            value = node.inputs[place]
            if value is None or place in plan.inputs or (elements(value) == 1 and rank_of(value) != len(perm)):
                continue
            node.replace_input_with(place, _lifted(node, value, perm))


def _lifted(node: ir.Node, value: ir.Value, perm: Perm) -> ir.Value:
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    missing = len(perm) - (rank_of(value) or 0)
    constants = Constants(graph, len(graph.initializers))
    array = constant_of(value)
    if array is not None:
        return constants.add(array.reshape((1,) * missing + array.shape).transpose(perm))
    axes = constants.add(np.arange(missing))
    lifted = ir.node("Unsqueeze", [value, axes])
    moved = ir.node("Transpose", [lifted.outputs[0]], {"perm": list(perm)})
    shape = [1] * missing + list(value.shape or ())
    for new, sizes in ((lifted, shape), (moved, [shape[axis] for axis in perm])):
        set_source(new, node)
        new.name = f"{node.name}/{new.op_type.lower()}"
        new.outputs[0].name = f"{node.name}/{value.name}/{new.op_type.lower()}"
        typed(new.outputs[0], ir.Shape(sizes), value.dtype)
        graph.insert_before(node, new)
    return moved.outputs[0]


@dataclass(frozen=True, slots=True)
class AlongAxis:
    """Operators with one axis attribute: Softmax, Concat, Split; all data inputs and outputs have one rank.

    ``prefers_last`` says that another axis than the last costs the handler two transposes.
    """

    default: int = -1
    data: tuple[int, ...] | None = None
    prefers_last: bool = False

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        if self.data is not None and place not in self.data:
            return None
        return self.backward(node, perm)

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        places = range(len(node.inputs)) if self.data is None else self.data
        values = [node.inputs[place] for place in places]
        if any(rank_of(value) != len(perm) for value in (*values, *node.outputs)):
            return None
        axis = attribute(node, "axis", self.default) % len(perm)
        cost = 2 * moved_bytes(node.outputs[0]) if self.prefers_last and perm[-1] != axis else 0
        return Plan(dict.fromkeys(places, perm), dict.fromkeys(range(len(node.outputs)), perm), cost)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.outputs[0]
        set_attribute(node, "axis", perm.index(attribute(node, "axis", self.default) % len(perm)))


@dataclass(frozen=True, slots=True)
class Scaled:
    """QuantizeLinear and DequantizeLinear in arithmetic: one scale, or one for each place of an axis; no blocks."""

    along: AlongAxis = AlongAxis(default=1, data=(0,))

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        return self.backward(node, perm) if place == 0 else None

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        if (rank := rank_of(node.inputs[1])) is None or rank > 1:
            return None
        return self.along.backward(node, perm)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        self.along.rewrite(node, plan)


@dataclass(frozen=True, slots=True)
class Reduce:
    """Reductions with a constant axes input (or none: all axes)."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axes = self._axes(node, len(perm))
        if place != 0 or axes is None:
            return None
        return Plan({0: perm}, {0: perm if self._keeps(node) else dropped(perm, axes)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        if self._keeps(node):
            return self.forward(node, 0, perm)
        return None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        if len(node.inputs) > 1 and (axes := integers(node, 1)):
            set_integers(node, 1, sorted(perm.index(axis % len(perm)) for axis in axes))

    def _keeps(self, node: ir.Node) -> bool:
        return bool(attribute(node, "keepdims", 1))

    def _axes(self, node: ir.Node, rank: int) -> list[int] | None:
        if len(node.inputs) < 2 or node.inputs[1] is None:
            return list(range(rank))
        axes = integers(node, 1)
        return None if axes is None else [axis % rank for axis in axes]


@dataclass(frozen=True, slots=True)
class ArgReduce:
    """ArgMax and ArgMin."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axis = attribute(node, "axis", 0) % len(perm)
        return Plan({0: perm}, {0: perm if attribute(node, "keepdims", 1) else dropped(perm, [axis])})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm) if attribute(node, "keepdims", 1) else None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        set_attribute(node, "axis", perm.index(attribute(node, "axis", 0) % len(perm)))


@dataclass(frozen=True, slots=True)
class Squeeze:
    """Squeeze of constant axes."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axes = self._axes(node, len(perm))
        return None if axes is None or place != 0 else Plan({0: perm}, {0: dropped(perm, axes)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        rank = rank_of(node.inputs[0])
        axes = None if rank is None else self._axes(node, rank)
        return None if axes is None else Plan({0: widened(perm, axes)}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        axes = self._axes(node, len(perm)) or []
        set_integers(node, 1, sorted(perm.index(axis) for axis in axes))

    def _axes(self, node: ir.Node, rank: int) -> list[int] | None:
        axes = integers(node, 1)
        return None if axes is None else [axis % rank for axis in axes]


@dataclass(frozen=True, slots=True)
class Unsqueeze:
    """Unsqueeze of constant axes."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axes = self._axes(node)
        return None if axes is None or place != 0 else Plan({0: perm}, {0: widened(perm, axes)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        axes = self._axes(node)
        return None if axes is None else Plan({0: dropped(perm, axes)}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.outputs[0]
        set_integers(node, 1, sorted(perm.index(axis) for axis in self._axes(node) or []))

    def _axes(self, node: ir.Node) -> list[int] | None:
        axes, rank = integers(node, 1), rank_of(node.outputs[0])
        return None if axes is None or rank is None else [axis % rank for axis in axes]


@dataclass(frozen=True, slots=True)
class Reshape:
    """Reshape and Flatten whose groups of axes move as they are; sizes come from shape inference."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        sizes = self._sizes(node)
        if place != 0 or sizes is None:
            return None
        result = carried(*sizes, perm)
        return None if result is None else Plan({0: perm}, {0: result})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        sizes = self._sizes(node)
        if sizes is None:
            return None
        result = carried(sizes[1], sizes[0], perm)
        # Axes of size 1 have several places; only one that leads back here is right.
        if result is None or carried(*sizes, result) != perm:
            return None
        return Plan({0: result}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        sizes = self._sizes(node)
        assert sizes is not None
        stored = [sizes[1][axis] for axis in plan.outputs[0]]
        node.op_type = "Reshape"
        node.attributes.pop("axis", None)
        node.attributes.pop("allowzero", None)
        set_integers(node, 1, [size if isinstance(size, int) else -1 for size in stored])

    def _sizes(self, node: ir.Node) -> tuple[tuple[int | str, ...], tuple[int | str, ...]] | None:
        if node.inputs[0] is None:
            return None
        before, after = sizes_of(node.inputs[0]), sizes_of(node.outputs[0])
        if before is None or after is None or 0 in before or sum(isinstance(size, str) for size in after) > 1:
            return None
        return before, after


@dataclass(frozen=True, slots=True)
class Transpose:
    """A transpose of the source: it vanishes where the stored order can stay."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        back = inverse(source_perm(node, len(perm)))
        return Plan({0: perm}, {0: tuple(back[axis] for axis in perm)})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        moves = source_perm(node, len(perm))
        return Plan({0: tuple(moves[axis] for axis in perm)}, {0: perm})

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        have, want = plan.inputs[0], plan.outputs[0]
        moves = source_perm(node, len(have))
        place = inverse(have)
        set_attribute(node, "perm", [place[moves[axis]] for axis in want])


def source_perm(node: ir.Node, rank: int) -> Perm:
    """The ``perm`` of a Transpose, by default backwards."""
    found = node.attributes.get("perm")
    return identity(rank)[::-1] if found is None else tuple(int(axis) for axis in found.value)


@dataclass(frozen=True, slots=True)
class Slice:
    """Slice with constant starts, ends, axes and steps."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        if place != 0 or any(integers(node, at) is None for at in range(1, len(node.inputs)) if node.inputs[at]):
            return None
        return Plan({0: perm}, {0: perm})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        starts = integers(node, 1) or []
        axes = (integers(node, 3) if len(node.inputs) > 3 else None) or list(range(len(starts)))
        set_integers(node, 3, [perm.index(axis % len(perm)) for axis in axes])


@dataclass(frozen=True, slots=True)
class PerAxisInput:
    """Operators with one constant number for each axis: Pad (two), Tile."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        numbers = integers(node, 1)
        axes = len(node.inputs) > 3 and node.inputs[3] is not None
        if place != 0 or numbers is None or axes or len(numbers) % len(perm):
            return None
        return Plan({0: perm}, {0: perm})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm)

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        numbers = np.array(integers(node, 1)).reshape(-1, len(perm))
        set_integers(node, 1, [int(number) for number in numbers[:, list(perm)].reshape(-1)])


@dataclass(frozen=True, slots=True)
class LastAxes:
    """Operators that work on the last axes and batch over the others: MatMul by a constant, LayerNormalization."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        rank = len(perm)
        first = self._first(node, rank)
        if place != 0 or first is None or perm[first:] != tuple(range(first, rank)):
            return None
        return Plan({0: perm}, {at: perm for at, value in enumerate(node.outputs) if rank_of(value) == rank})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm) if rank_of(node.inputs[0]) == len(perm) else None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        """Nothing changes."""

    def _first(self, node: ir.Node, rank: int) -> int | None:
        if node.op_type not in ("MatMul", "Dense"):
            return attribute(node, "axis", -1) % rank
        return rank - 1 if rank_of(node.inputs[1]) == 2 and rank > 2 else None


@dataclass(frozen=True, slots=True)
class Gather:
    """Gather by a constant scalar or vector of indices."""

    def forward(self, node: ir.Node, place: int, perm: Perm) -> Plan | None:
        axis, rank = attribute(node, "axis", 0) % len(perm), rank_of(node.inputs[1])
        if place != 0 or rank not in (0, 1):
            return None
        return Plan({0: perm}, {0: perm if rank == 1 else dropped(perm, [axis])})

    def backward(self, node: ir.Node, perm: Perm) -> Plan | None:
        return self.forward(node, 0, perm) if rank_of(node.inputs[1]) == 1 else None

    def rewrite(self, node: ir.Node, plan: Plan) -> None:
        perm = plan.inputs[0]
        axis = attribute(node, "axis", 0) % len(perm)
        set_attribute(node, "axis", perm.index(axis))


def dropped(perm: Perm, axes: list[int]) -> Perm:
    """The permutation of what is left when the source's ``axes`` go."""
    kept = [axis for axis in range(len(perm)) if axis not in axes]
    return tuple(kept.index(axis) for axis in perm if axis not in axes)


def widened(perm: Perm, axes: list[int]) -> Perm:
    """The permutation with the source's new ``axes`` of size 1, each where the source has it where possible."""
    rank = len(perm) + len(axes)
    old = [axis for axis in range(rank) if axis not in axes]
    order = [old[axis] for axis in perm]
    for axis in sorted(axes):
        order.insert(axis, axis)
    return tuple(order)


_ELEMENTWISE = """Abs Acos Acosh Add And Asin Asinh Atan Atanh BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
Ceil Celu Cos Cosh Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsInf
IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu Round Selu
Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum Swish Tan Tanh ThresholdedRelu Where Xor"""
_FIRST_ONLY = "Cast Clip Dropout"
_REDUCES = """ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
ReduceSumSquare"""

LAYOUT_RULES: Mapping[tuple[str, str], LayoutRule] = {
    **{("", name): Elementwise() for name in _ELEMENTWISE.split()},
    **{("", name): Elementwise((0,)) for name in _FIRST_ONLY.split()},
    **{("", name): Reduce() for name in _REDUCES.split()},
    ("convertkit.tflite", "Gelu"): Elementwise(),
    ("convertkit.tflite", "Quantize"): Elementwise((0,)),
    ("convertkit.tflite", "Dequantize"): Elementwise((0,)),
    ("", "QuantizeLinear"): Scaled(),
    ("", "DequantizeLinear"): Scaled(),
    ("", "Softmax"): AlongAxis(prefers_last=True),
    ("", "LogSoftmax"): AlongAxis(prefers_last=True),
    ("", "Concat"): AlongAxis(),
    ("", "Split"): AlongAxis(default=0, data=(0,)),
    ("", "ArgMax"): ArgReduce(),
    ("", "ArgMin"): ArgReduce(),
    ("", "Squeeze"): Squeeze(),
    ("", "Unsqueeze"): Unsqueeze(),
    ("", "Reshape"): Reshape(),
    ("", "Flatten"): Reshape(),
    ("", "Transpose"): Transpose(),
    ("", "Slice"): Slice(),
    ("", "Pad"): PerAxisInput(),
    ("", "Tile"): PerAxisInput(),
    ("", "MatMul"): LastAxes(),
    ("convertkit.tflite", "Dense"): LastAxes(),
    ("", "LayerNormalization"): LastAxes(),
    ("", "Gather"): Gather(),
    ("", "Shape"): Sizes(),
    ("", "Size"): Sizes(),
}
