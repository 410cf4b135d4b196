"""An integer interface: the ends of a graph become integers also where float operators read or make them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from convertkit.profile import KEEP_FLOAT, QuantProfile
from convertkit.quantization.calibrate.histogram import Statistics
from convertkit.quantization.calibrate.range_dependencies import same_numbers
from convertkit.quantization.calibrate.ranges import affine, span
from convertkit.quantization.graph.units import is_float
from convertkit.quantization.place.write import Writer

_WHY = "float, behind an interface of integers"


def quantize_ends(graph: ir.Graph, profile: QuantProfile, statistics: Mapping[str, Statistics]) -> None:
    """Insert pairs at float inputs and outputs that have none, in place; those that nobody measured stay float."""
    writer = Writer(graph, profile)
    for value in [*graph.inputs, *graph.outputs]:
        if not is_float(value) or _is_integer_end(value) or str(value.name) not in statistics:
            continue
        producer = value.producer()
        for node in (use.node for use in value.uses()) if producer is None else (producer,):
            if producer is None or not _rounds_what_it_reads(node, profile):
                node.metadata_props[KEEP_FLOAT] = _WHY
        quantizers = [use.node for use in value.uses() if use.node.op_type == "QuantizeLinear"]
        if quantizers:
            _share(value, quantizers[0])
            continue
        seen = statistics[str(value.name)]
        parameters = affine(
            span(seen, "minmax", profile.activation, profile.symmetric), profile.activation, profile.symmetric
        )
        writer.activation(value, parameters, (), everywhere=True)


def _is_integer_end(value: ir.Value) -> bool:
    producer = value.producer()
    if producer is not None:
        return producer.op_type == "DequantizeLinear"
    return all(use.node.op_type == "QuantizeLinear" for use in value.uses())


def _rounds_what_it_reads(node: ir.Node, profile: QuantProfile) -> bool:
    """Whether a product at an output reads floats and stored integers: with the mark its weights would be made real."""
    if node.op_type not in profile.dynamic or any(value is None for value in node.inputs[:2]):
        return False
    read, weight = (same_numbers(value).producer() for value in node.inputs[:2] if value is not None)
    is_stored = weight is not None and weight.op_type == "DequantizeLinear"
    return is_stored and (read is None or read.op_type != "DequantizeLinear")


def _share(value: ir.Value, quantizer: ir.Node) -> None:
    """Let all readers of an input have the integers that one of them has."""
    readers = [use.node for use in quantizer.outputs[0].uses() if use.node.op_type == "DequantizeLinear"]
    for use in list(value.uses()):
        if readers and use.node.op_type != "QuantizeLinear":
            use.node.replace_input_with(use.idx, readers[0].outputs[0])
