"""Where a kernel writes float, its result needs no quantization: at the graph's ends, and before float operators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from convertkit.onnx.edit import bypass, only_user
from convertkit.profile import QuantProfile
from convertkit.quantization.graph.units import Unit

_REORDERED = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split"})
"""Operators that put elements elsewhere, and compute and join nothing."""
_MEANS = frozenset({"AveragePool", "GlobalAveragePool", "ReduceMean"})


def keep_real(graph: ir.Graph, integer: Sequence[Unit], profile: QuantProfile) -> frozenset[Unit]:
    """Drop the pair behind a unit whose rule says ``float_output``, in place, where only float needs the value.

    That is the graph's output, with ``profile.writes_float`` readers that are float operators, and with
    ``profile.fused_sums`` an Add that the kernel computes as it writes.  The units whose results are float now: their
    Relu or Clip is not expressed by a range.
    """
    readers = {node for unit in integer for node in unit.nodes}
    real = set[Unit]()
    for unit in reversed(integer):  # of two convolutions that are added, the later one adds
        if unit.rule is None or not unit.rule.float_output or (unit.clamp is not None and not profile.writes_float):
            continue
        for value in unit.outputs:
            pair = _pair(value)
            if pair is None:
                continue
            read = pair[1].outputs[0]
            uses = tuple(read.uses())
            floats = profile.writes_float and all(use.node not in readers for use in uses)
            if not uses or floats or (profile.fused_sums and _is_added(unit, read)):
                bypass(pair[1], value)
                graph.remove(pair[0], safe=True)
                real.add(unit)
    return frozenset(real)


def _is_added(unit: Unit, read: ir.Value) -> bool:
    """Whether a product is only read by an Add whose other operand is integers.

    One that is an output, too, keeps its pair: without one OpenVINO 2026.4 computes neither it nor the sum right.
    """
    if unit.weight is None or unit.clamp is not None or only_user(read) is None:
        return False
    ((node, place),) = read.uses()
    other = node.inputs[1 - place] if node.op_type == "Add" else None
    maker = None if other is None else other.producer()
    return maker is not None and maker.op_type == "DequantizeLinear"


def _pair(value: ir.Value) -> tuple[ir.Node, ir.Node] | None:
    """QuantizeLinear and DequantizeLinear behind a value that nothing else reads."""
    quantize = only_user(value)
    dequantize = None if quantize is None else only_user(quantize.outputs[0])
    if quantize is None or dequantize is None or quantize.op_type != "QuantizeLinear":
        return None
    return quantize, dequantize


def without_float_moves(units: Sequence[Unit], chosen: frozenset[Unit], profile: QuantProfile) -> frozenset[Unit]:
    """``chosen`` without what moves elements to float operators, or only puts those of float ones elsewhere.

    With ``profile.fused_gates`` what multiplies the sum of a kernel with weights with its own sigmoid writes integers.
    Without means of what is written as float in any case, too.
    """
    chosen -= frozenset(_means_of_floats(chosen))
    gates = [unit for unit in units if profile.fused_gates and unit.kinds[0] == "Mul.gated"]
    while True:
        made = {value for unit in chosen for value in unit.outputs}
        sums = {value for unit in chosen if unit.weight is not None for value in unit.outputs}
        made |= {value for gate in gates if sums.intersection(gate.node.inputs) for value in gate.outputs}
        read = {value for unit in chosen for value in unit.data.values()}
        idle = frozenset(unit for unit in _moves(chosen) if not _between(unit, made, read))
        if not idle:
            return chosen
        chosen -= idle


def _means_of_floats(chosen: frozenset[Unit]) -> Iterator[Unit]:
    """Those of what a float operator makes and another one, or the user, reads: rounding it would take a kernel."""
    made = {value for unit in chosen for value in unit.outputs}
    nodes = {node for unit in chosen for node in unit.nodes}
    for unit in chosen:
        if unit.kinds[-1] not in _MEANS:
            continue
        given = [value for value in unit.data.values() if value.producer() is not None and value not in made]
        if any(value.is_graph_output() or any(use.node not in nodes for use in value.uses()) for value in given):
            yield unit


def _moves(units: Collection[Unit]) -> Iterator[Unit]:
    return (unit for unit in units if unit.rule is not None and unit.rule.same_scale)


def _between(unit: Unit, made: Collection[ir.Value], read: Collection[ir.Value]) -> bool:
    """Whether integers come in and are wanted; of what does more than reorder, whether they are wanted."""
    wanted = any(value in read for value in unit.outputs)
    return wanted and (unit.node.op_type not in _REORDERED or any(value in made for value in unit.data.values()))
