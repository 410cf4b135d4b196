"""In which interval a model is defined: ``log(x - 3)`` asks of ``x`` to be at least 3.

What operators ask of their operands (:data:`_DOMAINS`) is taken backwards through elementwise operators to the inputs.
Generated inputs outside it give NaN in every runtime, which verifies nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.inliner

from convertkit.artifact import Artifact, TensorSpec
from convertkit.onnx.intervals import (
    ALL,
    BACKWARD,
    FORWARD,
    MOVES,
    POSITIVE,
    Interval,
    inside,
    meet,
    of_numbers,
    squared_needs,
)

_DOMAINS: Mapping[str, Interval] = {
    "Acos": (-1.0, 1.0),
    "Acosh": (1.0, math.inf),
    "Asin": (-1.0, 1.0),
    "Atanh": (-1.0, 1.0),
    "Log": POSITIVE,
    "ReduceLogSum": POSITIVE,
    "Sqrt": POSITIVE,
}
_OPEN_WIDTH = 4.0
"""How far generated values reach into an interval without an end."""


def with_domains(artifact: Artifact, inputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """``inputs`` of an ONNX artifact, floats without a range bounded by where the model is defined.

    A domain that has no end on one side is cut ``max(4, |other end|)`` behind the other one, for a range is finite;
    :func:`input_domains` tells the domain itself.
    """
    wanted = [spec.name for spec in inputs if _is_real(spec.dtype) and spec.value_range is None]
    if artifact.format != "onnx" or not wanted:
        return tuple(inputs)
    domains = input_domains(onnx.load(artifact.path, load_external_data=False))
    return tuple(
        dataclasses.replace(spec, value_range=_finite(domain))
        if spec.name in wanted and (domain := domains.get(spec.name)) is not None
        else spec
        for spec in inputs
    )


def input_domains(model: onnx.ModelProto) -> dict[str, Interval]:
    """For each input that is not free to be anything, the closed interval in which the model is defined.

    Where no single interval suffices for all readers, or none is known, the input is left out.
    """
    graph = _inlined(model).graph
    ranges = _constants(graph)
    for node in graph.node:
        result = _range(node, ranges)
        ranges.update(dict.fromkeys(node.output, result))
    needs: dict[str, Interval] = {}
    for node in reversed(graph.node):
        _ask(node, ranges, needs)
    names = [value.name for value in graph.input]
    return {name: need for name in names if (need := needs.get(name, ALL)) != ALL and need[0] < need[1]}


def _is_real(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def _finite(domain: Interval) -> Interval:
    low, high = domain
    if math.isinf(low):
        return high - max(_OPEN_WIDTH, abs(high)), high
    return (low, low + max(_OPEN_WIDTH, abs(low))) if math.isinf(high) else domain


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _constants(graph: onnx.GraphProto) -> dict[str, Interval]:
    stored = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant":
            stored.update((node.output[0], each.t) for each in node.attribute if each.name == "value")
    return {name: _of_tensor(tensor) for name, tensor in stored.items()}


def _of_tensor(tensor: onnx.TensorProto) -> Interval:
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return ALL
    values = onnx.numpy_helper.to_array(tensor)
    return of_numbers(values) if values.dtype.kind in "fiu" or tensor.data_type == onnx.TensorProto.BFLOAT16 else ALL


def _operands(node: onnx.NodeProto, ranges: Mapping[str, Interval]) -> list[Interval]:
    return [ranges.get(name, ALL) for name in node.input]


def _range(node: onnx.NodeProto, ranges: Mapping[str, Interval]) -> Interval:
    """What the results of ``node`` may be."""
    operands = _operands(node, ranges)
    if node.op_type == "Constant":
        return ranges.get(node.output[0], ALL)
    if _is_square(node, operands):
        return POSITIVE
    if _moves(node):
        return operands[0]
    rule = FORWARD.get(node.op_type)
    return ALL if rule is None or node.domain or not operands else rule(operands)


def _moves(node: onnx.NodeProto) -> bool:
    if node.op_type == "Cast":
        kind = next(each.i for each in node.attribute if each.name == "to")
        return bool(np.issubdtype(onnx.helper.tensor_dtype_to_np_dtype(kind), np.floating))
    return node.op_type in MOVES and not node.domain


def _is_square(node: onnx.NodeProto, operands: Sequence[Interval]) -> bool:
    if node.op_type == "Pow":
        return operands[1][0] == operands[1][1] and operands[1][0] % 2 == 0 and operands[1][0] > 0
    return bool(node.op_type == "Mul" and node.input[0] == node.input[1])


def _ask(node: onnx.NodeProto, ranges: Mapping[str, Interval], needs: dict[str, Interval]) -> None:
    """Add to ``needs`` what ``node`` asks of its operands: its own domain, and what its readers need of its result."""
    operands = _operands(node, ranges)
    if not operands or node.domain:
        return
    _add(needs, ranges, node.input[0], _own_domain(node, operands))
    for name in node.output:
        need = needs.get(name, ALL)
        if need != ALL and need[0] < need[1] and not inside(ranges.get(name, ALL), need):
            for place, operand in enumerate(node.input):
                _add(needs, ranges, operand, _asked(node, need, operands, place))


def _own_domain(node: onnx.NodeProto, operands: Sequence[Interval]) -> Interval:
    if node.op_type == "Pow":
        low, high = operands[1]
        return ALL if low == high and float(low).is_integer() else POSITIVE
    return _DOMAINS.get(node.op_type, ALL)


def _asked(node: onnx.NodeProto, need: Interval, operands: Sequence[Interval], place: int) -> Interval:
    if _moves(node):
        return need if place == 0 else ALL
    if _is_square(node, operands):
        return squared_needs(need) if place == 0 and (node.op_type == "Mul" or operands[1][0] == 2) else ALL
    rule = BACKWARD.get(node.op_type)
    return ALL if rule is None else rule(need, operands, place)


def _add(needs: dict[str, Interval], ranges: Mapping[str, Interval], name: str, wanted: Interval) -> None:
    if not inside(ranges.get(name, ALL), wanted):
        needs[name] = meet(wanted, needs.get(name, ALL))
