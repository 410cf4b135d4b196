"""How a target wants a model quantized: rules as data, read by one placement engine.

A target declares a :class:`QuantProfile`; ``convertkit.quantization`` writes the
QuantizeLinear/DequantizeLinear pairs that it asks for, and the target lowers exactly those.

What a target finds in the graph
    activation   ``x → QuantizeLinear → DequantizeLinear → operator``, scale and zero point scalars
    weight       ``integer initializer → DequantizeLinear(axis) → operator``, zero points 0
    bias         ``int32 initializer → DequantizeLinear(axis=0) → operator``, scale = input × weight
    constant     another operand of an integer operator: like a weight, per tensor, zero point as activations
    integer op   every activation input comes from a DequantizeLinear and every output goes only into a
                 QuantizeLinear; between operator and QuantizeLinear may stand an ``Add`` of such a bias
                 (after MatMul) and one ``Relu`` or ``Clip`` that the range does not express already
    float op     anything else, and every node that carries the metadata key :data:`KEEP_FLOAT`, even
                 where its neighbours are all integers: there integers would be slower or less exact
    requantized  ``DequantizeLinear → QuantizeLinear``: the same values at another scale
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from convertkit.artifact import Array
from convertkit.kernel_costs import KernelCosts

if TYPE_CHECKING:
    import onnx_ir as ir

KEEP_FLOAT = "convertkit.float"
"""Key in a node's ``metadata_props``: run this node in float; the value says why."""
STAYS_FLOAT = "convertkit.front_end"
"""Key in the ``metadata_props`` of a node that is never quantized, as it prepares or chooses; the value says why."""

OtherResults = Callable[[Array, int, Array, int], Array]
"""From scales that a kernel may read and their zero point, the scales that it writes then and their zero point, to how
many of its 256 results are not those of the operator rounded once."""


@dataclass(frozen=True, slots=True)
class FixedOutput:
    """Output parameters that a kernel prescribes: ``real = (integer - zero_point) * scale``."""

    scale: float
    zero_point: int


@dataclass(frozen=True, slots=True)
class OpRule:
    """How one ONNX operator may be quantized on a target.

    ``weight_axis``: the channel axis of a constant weight in ONNX layout (``{input index: axis}``),
    per channel unless ``per_tensor``.  ``bias``: index of a bias input whose scale is ``input × weight``.
    ``data``: indices of the inputs that are activations, None for all floating point ones that are
    neither weight nor bias.  ``same_scale``: all quantized inputs and outputs share parameters.
    ``fixed_output``: the kernel prescribes the output's parameters.  ``constants``: other constant
    operands may be integers too; where False, an operator with one stays float.  ``float_output``: the kernel
    can write float instead, which the ends of a graph get, and with ``writes_float`` float operators, too.
    ``centered``: the kernel reads activations without a zero point.  ``others``: what the kernel gets wrong by its
    scales, where it computes in fixed point; with ``tie_free`` scales are chosen at which that is nothing.
    """

    weight_axis: Mapping[int, int] = field(default_factory=dict)
    bias: int | None = None
    per_tensor: bool = False
    data: tuple[int, ...] | None = None
    same_scale: bool = False
    fixed_output: FixedOutput | None = None
    constants: bool = True
    float_output: bool = False
    centered: bool = False
    others: OtherResults | None = None


_COST_KEYS = (
    "float32", "int8", "float32_call", "int8_call", "float32_element", "int8_element",
    "near", "float32_near", "int8_near",
)  # fmt: skip
"""What a cost table calls the fields of :class:`OpCost`, in their order."""


@dataclass(frozen=True, slots=True)
class OpCost:
    """Time of a kernel on the reference machine, in nanoseconds per unit of work.

    The unit is a multiply-add for Conv, ConvTranspose, Gemm and MatMul, else an element of the
    larger of input and output.  ``_call`` is what one call costs whatever its size, ``_element`` what a matrix
    operator costs per element that it reads and writes, beside its products.  ``_near`` is what a unit costs where
    there are no more than ``near``: such tensors are in the caches.
    """

    float32: float
    integer: float
    float32_call: float = 0.0
    integer_call: float = 0.0
    float32_element: float = 0.0
    integer_element: float = 0.0
    near: float = 0.0
    float32_near: float = 0.0
    integer_near: float = 0.0

    def times(self, work: float, elements: float) -> tuple[float, float]:
        """Nanoseconds of one call in integers and in float."""
        whole, real = (self.integer_near, self.float32_near) if work <= self.near else (self.integer, self.float32)
        integer = self.integer_call + work * whole + elements * self.integer_element
        return integer, self.float32_call + work * real + elements * self.float32_element


def cost_table(path: Path, name: str = "cost") -> Mapping[str, OpCost]:
    """The cost table in a TOML file: a table ``name`` with the fields of :class:`OpCost`, 0 where left out."""
    return cost_rows(tomllib.loads(path.read_text())[name])


def cost_rows(rows: Mapping[str, Mapping[str, float]]) -> Mapping[str, OpCost]:
    """A cost table of rows with the fields of :class:`OpCost`, 0 where left out."""
    return {kind: OpCost(*(float(row.get(key, 0.0)) for key in _COST_KEYS)) for kind, row in rows.items()}


def weighted(costs: Sequence[OpCost], weights: Sequence[float]) -> OpCost:
    """The sum of all; what the caches hold is what those of the smallest do."""
    sums = {
        field.name: sum(weight * getattr(cost, field.name) for cost, weight in zip(costs, weights, strict=True))
        for field in fields(OpCost)
    }
    return OpCost(**(sums | {"near": min(cost.near for cost in costs)}))


@dataclass(frozen=True, slots=True)
class NarrowCost:
    """Time of a kernel with 4-bit weights and float activations, in nanoseconds.

    In all ``call``, and for each multiply-add, element that is read or written, element of the windows of all pixels,
    row of a dense layer, and weight.
    """

    call: float = 0.0
    product: float = 0.0
    element: float = 0.0
    unrolled: float = 0.0
    row: float = 0.0
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class NarrowCosts:
    """What 4-bit weights cost in each form that a target has for them.

    ``pointwise`` is a convolution of one element, written as a dense layer.  ``convolution`` takes at least
    ``least_channels`` channels in one group; what no kernel takes is ``made_real`` at each call.
    """

    dense: NarrowCost
    pointwise: NarrowCost
    convolution: NarrowCost
    made_real: NarrowCost
    made_real_depthwise: NarrowCost
    least_channels: int


def narrow_costs(path: Path) -> NarrowCosts:
    """From a TOML file with a table for each form."""
    table = tomllib.loads(path.read_text())
    least = int(table["convolution"].pop("least_channels"))
    rows = {name: NarrowCost(**{key: float(value) for key, value in row.items()}) for name, row in table.items()}
    return NarrowCosts(**rows, least_channels=least)


Neighbours = Literal["along the sum", "in a tap"]
"""Which products are added first: ONNX Runtime's way, and OpenVINO's; a tap is an element of a window."""


@dataclass(frozen=True, slots=True)
class QuantProfile:
    """What a target's integer kernels take, and what they cost.

    ``activation`` is the NumPy dtype of activations, ``symmetric`` whether their zero point must
    be 0; weights are always symmetric with zero point 0, in ``weight_range`` (inclusive) of
    ``weight``.  ``operators`` holds the rules and ``costs`` the times by operator, or by operator and
    variant (``Conv.depthwise``, ``Conv.pointwise``, ``Conv.3d``, ``Conv.depthwise_large``, ``MatMul.dynamic``,
    ``MatMul.scores`` of queries and keys, which goes to a Softmax,
    ``Resize.interpolated``, ``Resize.nearest``, ``Add.maps``, ``Sub.maps`` and ``ReduceMean.maps`` behind convolutions,
    ``Mul.gated`` of a value and its own sigmoid); a variant without an entry takes its
    operator's, except ``.3d``, ``.dynamic`` and ``.depthwise_large``, which are other kernels.
    An operator without a rule stays float; one with a rule and no cost counts as equally fast.
    ``weight_only`` leaves activations in float.  ``tables``: beside integer activations, too, embedding tables
    become int8 rows, and weights of operators that stay float int8; without ``integer_rows`` no Gather takes integers,
    so that tables stay float with ``weight_only``, too; ``left_as_halves``: what stays float beside integers is stored
    as float16; ``recurrent``: the weights of LSTM, GRU and
    RNN become int8.  ``half`` says what ``--fp16`` means: weights stored as float16 and cast in the graph, or
    everything computed in float16 (or bfloat16); ``lacks``: operators that have no kernel of that type.
    ``block`` is the number of weights along the reduced axis that share a scale, None for whole channels.
    ``dynamic``: operators whose products with stored integer weights quantize float activations on the fly, which
    costs what ``costs`` say of DynamicQuantizeLinear: per element that is read, per
    row (``_call``), and per element that is written (``_element``), beside the integer product.  ``lookup``: float
    operators that the target turns into a table between integers, at their cost in integers.  ``tie_free``: scales
    are moved slightly, to where no integer kernel can round another way than another.  ``least_gain`` is the share
    of the time that integers must save by the cost table.
    ``share`` of the float weights' bytes is what int4 weights and their scales may take: what they leave of it makes
    the smallest weights int8.
    ``byte_sums``: which products of int8 weights and bytes are neighbours, of which no two may exceed 16 bits
    (:mod:`.onnx.byte_sums`); None where any may.
    ``writes_float``: kernels round what they read and write at no cost of their own, so that no value is rounded which
    float operators alone read.
    ``functions``: any function of one number is integers, however many operators it is written in.
    ``fused_sums``: a kernel with weights adds another operand as it writes; its own sum is not rounded before.
    ``fused_gates``: such a kernel multiplies its sum with its own sigmoid, and rounds once.
    ``tile``: products whose matrix is narrower stay float (:mod:`.quantization.graph.tiles`).
    ``keeps_float``: an operator between integers that is marked :data:`KEEP_FLOAT` does run in float.
    ``kernel_costs`` tell the cost of convolutions without groups, in place of a row of ``costs``.  ``machines`` are
    the costs on each machine, in the order of ``kernel_costs``; where it is empty, they are the same on all.
    ``devices`` are the names of these machines, where the user asked for them by name.
    ``written_out`` writes operators in others before anything is measured, in place, which the target does in any case.
    ``narrow`` tells what weights of 4 bits cost; without it they count as costing nothing.
    """

    name: str
    activation: Literal["int8", "uint8", "int16"]
    symmetric: bool
    operators: Mapping[str, OpRule]
    costs: Mapping[str, OpCost] = field(default_factory=dict)
    weight: Literal["int8", "int4"] = "int8"
    weight_range: tuple[int, int] = (-127, 127)
    bias: Literal["int32", "int64", "float32"] = "int32"
    weight_only: bool = False
    half: Literal["weights", "compute"] = "weights"
    lacks: frozenset[str] = frozenset()
    tables: bool = False
    integer_rows: bool = True
    left_as_halves: bool = False
    recurrent: bool = False
    block: int | None = None
    dynamic: frozenset[str] = frozenset()
    lookup: frozenset[str] = frozenset()
    share: float = 0.0
    tie_free: bool = False
    least_gain: float = 0.0
    byte_sums: Neighbours | None = None
    keeps_float: bool = False
    writes_float: bool = False
    functions: bool = False
    fused_sums: bool = False
    fused_gates: bool = False
    tile: int = 0
    kernel_costs: KernelCosts | None = None
    machines: tuple[Mapping[str, OpCost], ...] = ()
    devices: tuple[str, ...] = ()
    written_out: Callable[[ir.Model], None] | None = None
    narrow: NarrowCosts | None = None

    def alone(self) -> tuple[QuantProfile, ...]:
        """The same on each machine of its own; itself where it knows of none."""
        if self.kernel_costs is None:
            return tuple(replace(self, costs=own, machines=()) for own in self.machines) or (self,)
        kernel_costs = self.kernel_costs.machines()
        costs = self.machines or (self.costs,) * len(kernel_costs)
        return tuple(
            replace(self, kernel_costs=each, costs=own, machines=())
            for each, own in zip(kernel_costs, costs, strict=True)
        )

    def rule(self, kinds: tuple[str, ...]) -> OpRule | None:
        """The rule of an operator, given its names from the most special to the most general."""
        return next((self.operators[kind] for kind in kinds if kind in self.operators), None)

    def cost(self, kinds: tuple[str, ...]) -> OpCost | None:
        """The cost of an operator, given its names from the most special to the most general."""
        return next((self.costs[kind] for kind in kinds if kind in self.costs), None)


RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
"""Operators with the weights of several gates."""

# Where channels lie is the operator's affair (ONNX Conv-11, ConvTranspose-11, Gemm-13, MatMul-13), not the target's.
WEIGHTED: Mapping[str, OpRule] = {
    "Conv": OpRule({1: 0}, bias=2, data=(0,)),
    "Conv.depthwise_large": OpRule({1: 0}, bias=2, data=(0,)),
    "ConvTranspose": OpRule({1: 1}, bias=2, data=(0,)),
    "Gemm": OpRule({1: 0}, bias=2, data=(0,)),
    "MatMul": OpRule({1: -1}, data=(0,)),
}

_MOVES = OpRule(data=(0,), same_scale=True)
MOVED: Mapping[str, OpRule] = {
    "MaxPool": _MOVES,
    "Concat": OpRule(same_scale=True),
    "Reshape": _MOVES,
    "Flatten": _MOVES,
    "Squeeze": _MOVES,
    "Unsqueeze": _MOVES,
    "Transpose": _MOVES,
    "Slice": _MOVES,
    "Split": _MOVES,
}
"""Operators whose results are some of their elements: integers that most targets move as they are."""
