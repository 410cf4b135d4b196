"""A graph as the placement engine sees it: operators with what is fused into them.

A unit is one operator with, behind it, the bias ``Add`` of a MatMul and one ``Relu`` or ``Clip``:
nothing between them is ever quantized.  Units are what becomes integer or stays float.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.onnx.pointwise import functions
from convertkit.onnx.recognise.written_gelu import gelu_nodes
from convertkit.profile import STAYS_FLOAT, FixedOutput, OpRule, QuantProfile
from convertkit.quantization.graph.kinds import node_kinds
from convertkit.quantization.graph.tiles import fills_tiles

_ABSORBS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "Sub", "Mul", "AveragePool", "MaxPool"})
"""Operators behind which a Relu or Clip disappears: into the range, or into the kernel's fused activation."""


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """One operator, what is fused behind it, and how the target wants it quantized.

    ``rule`` is None where it can only be float.  ``data`` are the activations it reads, by input
    index of ``node``; ``constants`` the constant operands that are quantized like activations.
    ``bias_add`` is the Add of a constant bias behind a MatMul, ``clamp`` the Relu or Clip.
    ``before`` is what a function of one number is written in beside its last operator, ``node``.
    """

    node: ir.Node
    kinds: tuple[str, ...]
    rule: OpRule | None
    data: Mapping[int, ir.Value]
    constants: Mapping[int, ir.Value]
    bias_add: ir.Node | None = None
    clamp: ir.Node | None = None
    before: tuple[ir.Node, ...] = ()

    @property
    def name(self) -> str:
        return self.node.name or str(self.node.outputs[0].name)

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """The floating point values that leave the unit."""
        last = self.clamp or self.bias_add or self.node
        return tuple(value for value in last.outputs if is_float(value))

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        return tuple(node for node in (*self.before, self.node, self.bias_add, self.clamp) if node is not None)

    @property
    def weight(self) -> tuple[int, ir.Value] | None:
        """Input index and value of the constant weight."""
        if self.rule is None:
            return None
        found = [(index, self.node.inputs[index]) for index in self.rule.weight_axis]
        return next(((index, value) for index, value in found if value is not None and index not in self.data), None)

    @property
    def weight_or_fail(self) -> tuple[int, ir.Value]:
        """:attr:`weight` of a unit that is known to have one."""
        assert self.weight is not None, f"{self.name} has no constant weight"
        return self.weight

    @property
    def bias(self) -> tuple[ir.Node, int] | None:
        """The node and input index of the bias, where there is one."""
        if self.bias_add is not None:
            return self.bias_add, next(
                i for i, v in enumerate(self.bias_add.inputs) if v is not None and is_constant(v)
            )
        index = None if self.rule is None else self.rule.bias
        if index is None or len(self.node.inputs) <= index or self.node.inputs[index] is None:
            return None
        return self.node, index

    def output_limits(self) -> tuple[float, float]:
        """What the clamp lets through."""
        return (-np.inf, np.inf) if self.clamp is None else clamp_limits(self.clamp)


def find_units(graph: ir.Graph, profile: QuantProfile) -> tuple[Unit, ...]:
    """Every node of the main graph as a unit of its own or as part of one, in graph order."""
    taken: set[ir.Node] = set()
    units = []
    fused = frozenset() if profile.rule(("Erf",)) else gelu_nodes(graph)
    written = _functions(graph, profile) if profile.functions else {}
    taken |= {node for unit in written.values() for node in unit.before}
    of_sizes = _size_arithmetic(graph)
    for node in graph:
        if node in taken:
            continue
        if node in written:
            units.append(written[node])
            continue
        unit = Unit(node, ("Gelu.part",), None, {}, {}) if node in fused else _unit(node, profile)
        if STAYS_FLOAT in node.metadata_props:
            unit = Unit(node, ("processing",), None, {}, {})
        elif node in of_sizes:
            unit = Unit(node, ("sizes",), None, {}, {})
        taken.update(unit.nodes)
        units.append(unit)
    return tuple(units)


_ARITHMETIC = """Add Cast Ceil Concat Div Floor Gather Max Min Mul Reshape Round Slice Sqrt Squeeze Sub Unsqueeze"""
_ON_SIZES = frozenset(_ARITHMETIC.split())


def _size_arithmetic(graph: ir.Graph) -> frozenset[ir.Node]:
    """What is computed from sizes alone, and is at most a row: an integer beside ``floor(height * 0.25)`` is another.

    Grids of places and fillings, which sizes tell as well, are data.
    """
    found: set[ir.Value] = set()
    for node in graph:
        operands = [value for value in node.inputs if value is not None]
        told = [value for value in operands if not value.is_initializer()]
        known = node.op_type in _ON_SIZES and bool(told) and all(value in found for value in told)
        shape = node.outputs[0].shape
        is_small = shape is not None and len(shape) <= 1
        if not node.domain and is_small and (node.op_type in ("Shape", "Size") or known):
            found.update(node.outputs)
    makers = (value.producer() for value in found if is_float(value))
    return frozenset(maker for maker in makers if maker is not None)


def _functions(graph: ir.Graph, profile: QuantProfile) -> dict[ir.Node, Unit]:
    """By their last operator the functions of one number that hold an operator without a rule."""

    def is_known(node: ir.Node) -> bool:
        return _unit(node, profile).rule is not None

    found = functions(graph, is_known)
    return {
        each.nodes[-1]: Unit(each.nodes[-1], ("function",), OpRule(), {0: each.source}, {}, before=each.nodes[:-1])
        for each in found
        if not any(STAYS_FLOAT in node.metadata_props for node in each.nodes)
    }


def is_float(value: ir.Value | None) -> bool:
    """Whether a value holds float32, the only type that is quantized."""
    return value is not None and value.dtype == ir.DataType.FLOAT


def is_constant(value: ir.Value) -> bool:
    """Whether a value is an initializer."""
    return value.is_initializer() and value.const_value is not None


def constant(value: ir.Value) -> Array:
    """The array of an initializer."""
    assert value.const_value is not None
    return value.const_value.numpy()


def clamp_limits(node: ir.Node) -> tuple[float, float]:
    """Least and greatest value behind a Relu or a Clip with constant limits."""
    if node.op_type == "Relu":
        return 0.0, np.inf
    limits = [(*node.inputs, None, None)[index] for index in (1, 2)]
    low, high = (None if value is None else float(constant(value)) for value in limits)
    return -np.inf if low is None else low, np.inf if high is None else high


def _unit(node: ir.Node, profile: QuantProfile) -> Unit:
    kinds = node_kinds(node)
    if (given := _given_bytes(node, profile)) is not None:
        return Unit(node, kinds, given, {}, {})
    rule = profile.rule(kinds)
    if rule is None or not _takes(node, rule) or (profile.tile and not fills_tiles(node, profile.tile)):
        return Unit(node, kinds, None, {}, {})
    data: dict[int, ir.Value] = {}
    constants: dict[int, ir.Value] = {}
    for index, value in enumerate(node.inputs):
        if value is None or not is_float(value) or index == rule.bias:
            continue
        if rule.data is not None and index not in rule.data:
            continue
        if is_constant(value):
            if index not in rule.weight_axis or kinds[-1].endswith(".dynamic"):
                constants[index] = value
        else:
            data[index] = value
    # No integers express infinity, which attention masks and maxima are written with.
    if (
        not (data or (constants and _moves_constant(node, rule, profile)))
        or (constants and not rule.constants)
        or not all(np.isfinite(constant(value)).all() for value in constants.values())
    ):
        return Unit(node, kinds, None, {}, {})
    bias_add = _bias_add(node) if node.op_type == "MatMul" and not constants and len(data) == 1 else None
    clamp = _clamp(bias_add or node) if node.op_type in _ABSORBS else None
    return Unit(node, kinds, rule, data, constants, bias_add, clamp)


def _moves_constant(node: ir.Node, rule: OpRule, profile: QuantProfile) -> bool:
    """Whether a constant is copied to where all is integers: zeros as many as the batch, rows that places pick."""
    is_copy = rule.same_scale and len(node.outputs) == 1 and node.op_type != "Identity"
    return is_copy and profile.functions


def _given_bytes(node: ir.Node, profile: QuantProfile) -> OpRule | None:
    """The rule of what says the numbers that an input's bytes stand for: integers of 8 bits are these bytes."""
    x = node.inputs[0] if node.op_type == "DequantizeLinear" else None
    if x is None or not x.is_graph_input() or x.dtype != ir.DataType.UINT8 or profile.activation == "int16":
        return None
    stated = [value for value in node.inputs[1:] if value is not None]
    if not all(is_constant(value) and constant(value).size == 1 for value in stated):
        return None
    scale, point, *_ = (*(constant(value).item() for value in stated), 0)
    zero_point = int(point) + int(np.iinfo(profile.activation).min)
    return None if profile.symmetric and zero_point else OpRule(fixed_output=FixedOutput(float(scale), zero_point))


def _takes(node: ir.Node, rule: OpRule) -> bool:
    """Whether the operands are of the kinds that the rule presumes: float data, constant weight and bias."""
    inputs = dict(enumerate(node.inputs))
    fixed = [inputs.get(index) for index in (*rule.weight_axis, rule.bias) if index is not None]
    if any(value is not None and not is_constant(value) for value in fixed):
        return False
    data = [value for index, value in inputs.items() if rule.data is None or index in rule.data]
    if node.op_type in ("Clip", "Relu") and not _constant_limits(node):
        return False
    if node.op_type == "AveragePool" and any(step != 1 for step in node.attributes.get_ints("dilations", ())):
        return False  # ONNX Runtime fuses integers around it into a kernel that it does not have
    return all(is_float(value) for value in data if value is not None) and any(map(is_float, node.outputs))


def _constant_limits(node: ir.Node) -> bool:
    return all(value is None or is_constant(value) for value in node.inputs[1:])


def _only_use(value: ir.Value) -> ir.Node | None:
    uses = tuple(value.uses())
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = uses[0].node
    # A node inside a branch or a loop body reads it from outside and cannot be fused.
    producer = value.producer()
    return node if producer is not None and node.graph is producer.graph else None


def _bias_add(node: ir.Node) -> ir.Node | None:
    after = _only_use(node.outputs[0])
    if after is None or after.op_type != "Add" or after.domain:
        return None
    other = [value for value in after.inputs if value is not node.outputs[0]]
    if len(other) != 1 or other[0] is None or not is_constant(other[0]):
        return None
    weight = node.inputs[1]
    channels = constant(weight).shape[-1] if weight is not None and is_constant(weight) else None
    return after if constant(other[0]).shape == (channels,) else None


def _clamp(node: ir.Node) -> ir.Node | None:
    after = _only_use(node.outputs[0]) if len(node.outputs) == 1 else None
    if after is None or after.domain or after.op_type not in ("Relu", "Clip") or not _constant_limits(after):
        return None
    return after if after.inputs[0] is node.outputs[0] else None


def readers(units: tuple[Unit, ...]) -> Mapping[ir.Value, tuple[Unit, ...]]:
    """Units that read each value as data."""
    found: dict[ir.Value, list[Unit]] = {}
    for unit in units:
        for value in dict.fromkeys(unit.data.values()):
            found.setdefault(value, []).append(unit)
    return {value: tuple(listed) for value, listed in found.items()}


def is_among(unit: Unit, integer: frozenset[Unit]) -> bool:
    """Whether integer units make all that a unit reads, and they alone read what it makes."""
    made = {value for other in integer for value in other.outputs}
    nodes = {node for other in integer for node in other.nodes}
    users = [use.node for value in unit.outputs for use in value.uses()]
    whole = all(value in made for value in unit.data.values()) and all(user in nodes for user in users)
    return whole and bool(users) and not any(value.is_graph_output() for value in unit.outputs)


def quantizable_values(units: tuple[Unit, ...]) -> Iterator[ir.Value]:
    """Every value that some placement could quantize, each once, in graph order."""
    seen: dict[ir.Value, None] = {}
    for unit in units:
        if unit.rule is not None and (unit.data or unit.constants):
            seen.update(dict.fromkeys(unit.data.values()))
            seen.update(dict.fromkeys(unit.outputs))
    return iter(seen)
