"""BatchNormalization by the statistics of the batch itself, written in operators that compute them.

A file that was written in training mode has it.  Where nothing reads the running statistics, ONNX Runtime 1.31 lays
them over the norm's own input, and so gives other numbers than ONNX says.

Source: ONNX operators, BatchNormalization-15.
"""

from __future__ import annotations

import onnx_ir as ir

from convertkit.onnx.fusion import Fusion, Results, replace_node

_REAL = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


def write_out_trained_norms(model: ir.Model) -> None:
    """Write out every BatchNormalization in training mode whose input's rank is known, in place."""
    for graph in (model.graph, *model.graph.subgraphs()):
        for node in [node for node in graph if node.op_type == "BatchNormalization" and not node.domain]:
            if node.attributes.get_int("training_mode", 0):
                replace_node(model, graph, node, _trained)


def _trained(f: Fusion) -> Results:
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` by channel, and the running mean and variance."""
    x = f.input(0)
    if x.shape is None or len(x.shape) < 2 or x.dtype not in _REAL:
        return None
    inner = range(2, len(x.shape))
    axes, by_channel = f.ints(0, *inner), f.ints(-1, *(1 for _ in inner))
    mean = f.op("ReduceMean", x, axes)
    centred = f.op("Sub", x, mean)
    variance = f.op("ReduceMean", f.op("Mul", centred, centred), axes)
    unit = f.op("Div", centred, f.op("Sqrt", f.op("Add", variance, f.number(f.real("epsilon", 1e-5)))))
    scale, bias = (f.op("Reshape", f.input(place), by_channel) for place in (1, 2))
    y = f.op("Add", f.op("Mul", unit, scale), bias)
    return [y, *(_running(f, place, found) for place, found in ((3, mean), (4, variance)))]


def _running(f: Fusion, place: int, found: ir.Value) -> ir.Value:
    """The statistic of ``place`` moved towards what was ``found``."""
    kept = f.real("momentum", 0.9)
    flat = f.op("Reshape", found, f.ints(-1))
    return f.op("Add", f.op("Mul", f.input(place), f.number(kept)), f.op("Mul", flat, f.number(1 - kept)))
