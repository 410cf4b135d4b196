"""Pairs that a model which came quantized lacks between integer kernels.

Tools that write for kernels of one vendor leave out what those kernels read or write as float: the model's input and
the first layer, the sum of a convolution that another operand is added to, the model's output.  Where every operator
has to be integer, these values get pairs, too, and constants beside them become integers
(:mod:`.complete_constants`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx_ir as ir

from convertkit.artifact import Array
from convertkit.errors import UsageError
from convertkit.profile import STAYS_FLOAT, OpRule, QuantProfile
from convertkit.quantization.calibrate.observe import observe
from convertkit.quantization.calibrate.ranges import Affine, affine, span
from convertkit.quantization.graph.units import clamp_limits, is_constant, is_float
from convertkit.quantization.place.complete_constants import complete_constants, stated
from convertkit.quantization.place.full_integer import CLAMPS
from convertkit.quantization.place.write import Writer
from convertkit.stage import FeedSource

_METHOD = "mse"
"""How ranges are chosen; those of the model's own pairs stay as they are."""


def complete(
    model: ir.Model, profile: QuantProfile, calibration: FeedSource | None, state: Mapping[str, Array]
) -> tuple[str, ...]:
    """Write the pairs that are lacking, in place, with ranges of the calibration data; the values that got one.

    Raises ``UsageError`` where values lack one and there is no data.
    """
    lacking = tuple(_lacking(model.graph, profile))
    names = tuple(str(value.name) for value, _ in lacking)
    if names and calibration is None:
        raise UsageError(
            f"the model came quantized but for {', '.join(names[:3])}: their ranges need data: --calib PATH"
        )
    seen = observe(model, names, calibration, state) if names and calibration is not None else {}
    writer = Writer(model.graph, profile)
    for (value, rule), name in zip(lacking, names, strict=True):
        found = span(seen[name], _METHOD, profile.activation, profile.symmetric)
        writer.activation(value, _parameters(value, rule, found, profile), (), everywhere=True)
    return (*names, *complete_constants(model.graph, profile, writer))


def _lacking(graph: ir.Graph, profile: QuantProfile) -> Iterator[tuple[ir.Value, OpRule]]:
    """Inputs, and results of operators that read integers alone, which no pair follows, in graph order."""
    integer = {node.outputs[0] for node in graph if node.op_type == "DequantizeLinear"}
    for value in filter(is_float, graph.inputs):
        rules = [rule for use in value.uses() if (rule := _rule(use.node, profile)) is not None]
        if rules:
            integer.add(value)
            yield value, OpRule()
    for node in graph:
        rule = _rule(node, profile)
        if rule is None or not _reads_integers(node, integer):
            continue
        for value in filter(is_float, node.outputs):
            users = [use.node for use in value.uses()]
            integer.add(value)
            if _is_clamped(value, users) or (users and all(user.op_type == "QuantizeLinear" for user in users)):
                continue
            yield value, rule


def _rule(node: ir.Node, profile: QuantProfile) -> OpRule | None:
    return None if node.domain or STAYS_FLOAT in node.metadata_props else profile.rule((node.op_type,))


def _reads_integers(node: ir.Node, integer: set[ir.Value]) -> bool:
    """Whether each float operand is integers or a constant, and one is no constant."""
    given = [value for value in node.inputs if value is not None and is_float(value) and not is_constant(value)]
    return bool(given) and all(value in integer for value in given)


def _is_clamped(value: ir.Value, users: Sequence[ir.Node]) -> bool:
    """Whether a Relu or a Clip alone reads a value: its own result is what gets the pair."""
    return len(users) == 1 and users[0].op_type in CLAMPS and not value.is_graph_output()


def _parameters(value: ir.Value, rule: OpRule, found: tuple[float, float], profile: QuantProfile) -> Affine:
    """Those that the kernel insists on, those at which it is read or which it only moves, else those of the data."""
    if rule.fixed_output is not None:
        return Affine(rule.fixed_output.scale, rule.fixed_output.zero_point, profile.activation)
    node = value.producer()
    if node is not None and node.op_type in CLAMPS:
        low, high = clamp_limits(node)
        found = max(found[0], low), min(found[1], high)
    readers = [use.node for use in value.uses() if use.node.op_type == "QuantizeLinear"]
    before = None if node is None or node.inputs[0] is None else node.inputs[0].producer()
    if rule.same_scale and before is not None and before.op_type == "DequantizeLinear":
        readers.append(before)
    return next(filter(None, map(stated, readers)), None) or affine(found, profile.activation, profile.symmetric)
